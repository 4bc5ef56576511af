package io.sparkcrypt;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** Paths of files to the leaves of a column, with the names that Spark writes; sparkcrypt/schema.py has the same. */
final class LeafPaths {
  static final List<String> ELEMENT = List.of("list", "element");
  static final List<String> KEY = List.of("key_value", "key");
  static final List<String> VALUE = List.of("key_value", "value");

  private final Set<List<String>> known;
  private final Set<List<String>> missing;
  private final List<List<String>> found = new ArrayList<>();

  private LeafPaths(Set<List<String>> known) {
    this.known = known;
    this.missing = new HashSet<>(known);
  }

  /**
   * Returns the paths below a column to each of its leaves that has a tag, of its own or of what it is in.
   *
   * @param known logical names, in lower case, below the column to what has tags that are not in its metadata; if the column does
   *     not have one of them, all leaves are returned
   */
  static List<List<String>> listTagged(Attribute column, Set<List<String>> known) {
    LeafPaths paths = new LeafPaths(known);
    boolean whole = !FieldTags.of(column.metadata()).isEmpty();
    paths.add(column.dataType(), List.of(), List.of(), whole);
    if (paths.missing.isEmpty()) {
      return paths.found;
    }
    LeafPaths all = new LeafPaths(Set.of());
    all.add(column.dataType(), List.of(), List.of(), true);
    return all.found;
  }

  private void add(DataType type, List<String> path, List<String> logical, boolean above) {
    boolean tagged = above || known.contains(logical);
    missing.remove(logical);
    List<StructField> parts = FieldTags.parts(type);
    for (StructField part : parts) {
      List<String> inFiles =
          type instanceof StructType ? List.of(part.name()) : List.of(type instanceof ArrayType ? "list" : "key_value", part.name());
      List<String> below = FieldTags.longer(logical, part.name().toLowerCase(Locale.ROOT));
      add(part.dataType(), FieldTags.longer(path, inFiles), below, tagged || !FieldTags.of(part.metadata()).isEmpty());
    }
    if (parts.isEmpty() && tagged) {
      found.add(path);
    }
  }

  /** Returns whether values of two types have the same parts at the same paths. */
  static boolean areSame(DataType first, DataType other) {
    return !FieldTags.isNested(first) || first.catalogString().equals(other.catalogString());
  }
}

package io.sparkcrypt;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * What a table requires of its files by its own entry in the catalog.
 *
 * @param uuid the table's; null if it has none
 * @param tags the names of a column and of the fields down to the tagged one -> tags
 * @param encryption whether it requires encryption
 * @param ruleMark the property that records which of these a policy's rule put there; null if there is none
 */
record TableRequirements(String uuid, Map<List<String>, Set<String>> tags, boolean encryption, String ruleMark) {
  private static final Set<String> STEPS_OF_FILES = Set.of("list", "key_value");

  /** Returns what a table of the catalog requires. */
  static TableRequirements of(CatalogTable table) {
    Map<List<String>, Set<String>> tags = new LinkedHashMap<>();
    addTags(tags, List.of(), table.schema());
    Map<String, String> properties = TableEntry.properties(table);
    properties.forEach((name, value) -> {
      if (name.startsWith(Names.TAGS_PREFIX) && !value.isBlank()) {
        add(tags, TableEntry.decode(name.substring(Names.TAGS_PREFIX.length())), List.of(value.split(",")));
      }
    });
    boolean encryption = Boolean.parseBoolean(properties.getOrDefault(Names.REQUIRE_ENCRYPTION, "").trim());
    Object mark = Calls.orNull(table.properties().get(Names.RULE_MARK));
    return new TableRequirements(properties.get(Names.TABLE_UUID), tags, encryption, (String) mark);
  }

  boolean isEmpty() {
    return tags.isEmpty() && !encryption;
  }

  /** Returns the properties of the next table of the name that reach no writer. */
  Map<String, String> marks() {
    Map<String, String> marks = new TreeMap<>();
    if (uuid != null) {
      marks.put(Names.PREDECESSOR, uuid);
    }
    if (ruleMark != null) {
      marks.put(Names.RULE_MARK, ruleMark);
    }
    return marks;
  }

  /**
   * Returns these, and the tags that an earlier table had for columns that this one's schema lacks.
   *
   * @param earlier null if there was none
   */
  TableRequirements withAbsent(TableRequirements earlier, StructType schema) {
    if (earlier == null) {
      return this;
    }
    Map<List<String>, Set<String>> all = new LinkedHashMap<>(tags);
    earlier.tags.forEach((path, ofColumn) -> {
      if (!isIn(schema, path)) {
        add(all, path, ofColumn);
      }
    });
    return new TableRequirements(uuid, all, encryption, ruleMark);
  }

  /** Returns these, and what another table of the name required, or null if both are null. */
  static TableRequirements unite(TableRequirements first, TableRequirements other) {
    if (first == null || other == null) {
      return first == null ? other : first;
    }
    Map<List<String>, Set<String>> all = new LinkedHashMap<>();
    first.tags.forEach((path, ofColumn) -> add(all, path, ofColumn));
    other.tags.forEach((path, ofColumn) -> add(all, path, ofColumn));
    String newest = first.uuid != null ? first.uuid : other.uuid;
    return new TableRequirements(newest, all, first.encryption || other.encryption, first.ruleMark);
  }

  /**
   * Returns the tags for a table of another schema, by the names that this has: a field that it lacks hands its tags to the
   * nearest one above it, and a column that it lacks has none.
   */
  Map<List<String>, Set<String>> tagsIn(StructType schema) {
    Map<List<String>, Set<String>> found = new LinkedHashMap<>();
    Map<DataType, Map<String, StructField>> known = new IdentityHashMap<>();
    tags.forEach((path, ofColumn) -> {
      List<String> there = within(schema, path, known);
      if (!there.isEmpty()) {
        add(found, there, ofColumn);
      }
    });
    return found;
  }

  /** Returns the tags of whole columns of another schema, by their names in it. */
  Map<String, Set<String>> tagsOfColumns(StructType schema) {
    Map<String, Set<String>> found = new LinkedHashMap<>();
    tagsIn(schema)
        .forEach(
            (path, ofColumn) -> {
              if (path.size() == 1) {
                found.put(path.get(0), ofColumn);
              }
            });
    return found;
  }

  /** Returns whether a schema has a tagged field, or at least one above it. */
  static boolean isIn(StructType schema, List<String> path) {
    return !within(schema, path, new IdentityHashMap<>()).isEmpty();
  }

  private static void add(Map<List<String>, Set<String>> tags, List<String> path, Iterable<String> more) {
    Set<String> all = tags.computeIfAbsent(path, unused -> new LinkedHashSet<>());
    more.forEach(tag -> all.add(tag.strip()));
  }

  private static void addTags(Map<List<String>, Set<String>> tags, List<String> path, DataType type) {
    for (StructField part : FieldTags.parts(type)) {
      List<String> below = FieldTags.longer(path, part.name());
      if (!FieldTags.of(part.metadata()).isEmpty()) {
        add(tags, below, FieldTags.of(part.metadata()));
      }
      addTags(tags, below, part.dataType());
    }
  }

  /**
   * Returns the longest beginning of a path that a schema has, with the schema's own names.
   *
   * @param known receives the fields of its structs, by their names in lower case
   */
  private static List<String> within(StructType schema, List<String> path, Map<DataType, Map<String, StructField>> known) {
    List<String> found = new ArrayList<>();
    DataType at = schema;
    for (String name : path) {
      if (STEPS_OF_FILES.contains(name) && !(at instanceof StructType)) {
        continue; // a path of Parquet
      }
      StructField below = step(at, name, known);
      if (below == null) {
        break;
      }
      found.add(below.name());
      at = below.dataType();
    }
    return found;
  }

  /** Returns a part of a type by its name, and a field by its name in any other case too; null if there is none. */
  private static StructField step(DataType type, String name, Map<DataType, Map<String, StructField>> known) {
    StructField same = FieldTags.part(type, name);
    return same != null || !(type instanceof StructType struct)
        ? same
        : known.computeIfAbsent(type, unused -> byName(struct)).get(name.toLowerCase(Locale.ROOT));
  }

  private static Map<String, StructField> byName(StructType struct) {
    Map<String, StructField> found = new HashMap<>();
    Arrays.stream(struct.fields()).forEach(field -> found.putIfAbsent(field.name().toLowerCase(Locale.ROOT), field));
    return found;
  }
}

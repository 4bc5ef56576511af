package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.UserDefinedType;

/** Tags in the metadata of fields, and of the fields below them, as sparkcrypt/schema.py reads them. */
final class FieldTags {
  private static final String KEY = "tags";
  private static final int MOST = 1_000;
  private static final Map<Metadata, Set<String>> KNOWN = Newest.synchronizedMap(MOST);

  private FieldTags() {}

  /** A tag of a nested field, by the field's own name. */
  record Nested(String field, String tag) {}

  /** Returns the tags in metadata; a value that is neither text nor a list is returned as JSON text, which the writer refuses. */
  static Set<String> of(Metadata metadata) {
    return metadata.contains(KEY) ? KNOWN.computeIfAbsent(metadata, FieldTags::parse) : Set.of();
  }

  private static Set<String> parse(Metadata metadata) {
    JsonNode value = Wire.parse(metadata.json()).path(KEY);
    Set<String> found = new LinkedHashSet<>();
    if (value.isTextual()) {
      Arrays.stream(value.asText().split(",")).map(String::strip).forEach(found::add);
    } else {
      found.addAll(Wire.texts(value));
      if (!value.isArray()) {
        found.add(value.toString());
      }
    }
    return Collections.unmodifiableSet(found);
  }

  /** Returns metadata with these tags, otherwise unchanged. */
  static Metadata with(Metadata metadata, Set<String> tags) {
    MetadataBuilder changed = new MetadataBuilder().withMetadata(metadata);
    return tags.isEmpty() ? metadata : changed.putStringArray(KEY, tags.toArray(String[]::new)).build();
  }

  /**
   * Returns a schema whose fields also carry the tags of the paths to them; elements, keys and values have no metadata.
   *
   * @param tags the names of a column and of the fields down to the tagged one -> tags
   */
  static StructType with(StructType schema, Map<List<String>, Set<String>> tags) {
    return (StructType) with(schema, List.of(), tags);
  }

  private static DataType with(DataType type, List<String> path, Map<List<String>, Set<String>> tags) {
    List<StructField> changed = new ArrayList<>();
    for (StructField part : parts(type)) {
      List<String> below = longer(path, part.name());
      Set<String> all = new LinkedHashSet<>(of(part.metadata()));
      all.addAll(tags.getOrDefault(below, Set.of()));
      changed.add(new StructField(part.name(), with(part.dataType(), below, tags), part.nullable(), with(part.metadata(), all)));
    }
    return withParts(type, changed);
  }

  /** Returns a struct's fields, or an array's elements, or a map's keys and values, which have no metadata; none of another type. */
  static List<StructField> parts(DataType type) {
    if (type instanceof StructType struct) {
      return List.of(struct.fields());
    }
    if (type instanceof ArrayType array) {
      return List.of(new StructField("element", array.elementType(), array.containsNull(), Metadata.empty()));
    }
    return type instanceof MapType map
        ? List.of(
            new StructField("key", map.keyType(), false, Metadata.empty()),
            new StructField("value", map.valueType(), map.valueContainsNull(), Metadata.empty()))
        : List.of();
  }

  /** Returns the part of this name; null if there is none. */
  static StructField part(DataType type, String name) {
    if (type instanceof StructType struct) {
      Integer place = (Integer) Calls.<Object>orNull(struct.getFieldIndex(name));
      return place == null ? null : struct.fields()[place];
    }
    return parts(type).stream().filter(part -> part.name().equals(name)).findFirst().orElse(null);
  }

  /** Returns a type of the same kind of other parts. */
  static DataType withParts(DataType type, List<StructField> parts) {
    if (type instanceof ArrayType) {
      return new ArrayType(parts.get(0).dataType(), parts.get(0).nullable());
    }
    if (type instanceof MapType) {
      return new MapType(parts.get(0).dataType(), parts.get(1).dataType(), parts.get(1).nullable());
    }
    return type instanceof StructType ? new StructType(parts.toArray(StructField[]::new)) : type;
  }

  /** Returns a schema without some columns, named in lower case. */
  static StructType without(StructType schema, Set<String> names) {
    List<StructField> kept = new ArrayList<>(parts(schema));
    kept.removeIf(field -> names.contains(field.name().toLowerCase(Locale.ROOT)));
    return (StructType) withParts(schema, kept);
  }

  /** Returns a path with one more name. */
  static List<String> longer(List<String> path, String name) {
    return longer(path, List.of(name));
  }

  /** Returns a path with another below it. */
  static List<String> longer(List<String> path, List<String> below) {
    List<String> all = new ArrayList<>(path);
    all.addAll(below);
    return all;
  }

  /** Returns whether a type, or anything below it, has metadata; without metadata there is no tag. */
  static boolean hasMetadata(DataType type) {
    return type instanceof UserDefinedType // which may be stored as a struct
        || parts(type).stream().anyMatch(part -> !part.metadata().equals(Metadata.empty()) || hasMetadata(part.dataType()));
  }

  static List<Nested> nestedTags(DataType type) {
    List<Nested> found = new ArrayList<>();
    for (StructField part : parts(type)) {
      of(part.metadata()).forEach(tag -> found.add(new Nested(part.name(), tag)));
      found.addAll(nestedTags(part.dataType()));
    }
    return found;
  }

  static boolean isNested(DataType type) {
    return type instanceof StructType || type instanceof ArrayType || type instanceof MapType;
  }

  /** Adds the tags of the fields inside a type. */
  static void addBelow(Set<String> tags, DataType type) {
    nestedTags(type).forEach(inner -> tags.add(inner.tag));
  }

  /** Adds the tags inside a type that the corresponding fields of another type do not carry. */
  static void addLost(Set<String> tags, DataType from, DataType to) {
    if (from instanceof StructType fields && to instanceof StructType others) {
      addLostOfFields(tags, fields, others);
    } else if (isNested(from) && from.getClass() == to.getClass()) {
      for (int i = 0; i < parts(from).size(); i++) {
        addLost(tags, parts(from).get(i).dataType(), parts(to).get(i).dataType());
      }
    } else if (isNested(from)) {
      addLostAnywhere(tags, from, to);
    }
  }

  /** Compares fields of the same name, else of the same position; a generator makes a struct with other fields around its input. */
  private static void addLostOfFields(Set<String> tags, StructType from, StructType to) {
    for (int i = 0; i < from.length(); i++) {
      StructField field = from.fields()[i];
      StructField same = from.length() == to.length() ? to.fields()[i] : null;
      for (StructField other : to.fields()) {
        same = other.name().equals(field.name()) ? other : same;
      }
      if (same == null) {
        addLostAnywhere(tags, new StructType(new StructField[] {field}), to);
      } else {
        Set<String> kept = of(same.metadata());
        of(field.metadata()).stream().filter(tag -> !kept.contains(tag)).forEach(tags::add);
        addLost(tags, field.dataType(), same.dataType());
      }
    }
  }

  private static void addLostAnywhere(Set<String> tags, DataType from, DataType to) {
    List<Nested> kept = nestedTags(to);
    nestedTags(from).stream().filter(inner -> !kept.contains(inner)).forEach(inner -> tags.add(inner.tag));
  }
}

package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashSet;
import java.util.List;
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
  private static final Map<Metadata, Set<String>> KNOWN = Collections.synchronizedMap(new Newest<>(MOST));

  private FieldTags() {}

  /** A tag of a nested field, by the field's own name. */
  record Nested(String field, String tag) {}

  /**
   * Returns the tags in metadata; a value that is neither text nor a list is returned as JSON text, which the writer refuses.
   */
  static Set<String> of(Metadata metadata) {
    return metadata.contains(KEY) ? KNOWN.computeIfAbsent(metadata, FieldTags::parse) : Set.of();
  }

  private static Set<String> parse(Metadata metadata) {
    Set<String> found = new LinkedHashSet<>();
    JsonNode value;
    try {
      value = Wire.parse(metadata.json().getBytes(StandardCharsets.UTF_8)).path(KEY);
    } catch (IOException e) {
      throw new IllegalStateException(e);
    }
    if (value.isTextual()) {
      for (String tag : value.asText().split(",")) {
        found.add(tag.strip());
      }
      return Collections.unmodifiableSet(found);
    }
    value.forEach(tag -> found.add(tag.asText()));
    if (!value.isArray()) {
      found.add(value.toString());
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
    if (type instanceof ArrayType array) {
      return new ArrayType(with(array.elementType(), longer(path, "element"), tags), array.containsNull());
    }
    if (type instanceof MapType map) {
      DataType key = with(map.keyType(), longer(path, "key"), tags);
      return new MapType(key, with(map.valueType(), longer(path, "value"), tags), map.valueContainsNull());
    }
    if (!(type instanceof StructType struct)) {
      return type;
    }
    StructField[] fields = struct.fields().clone();
    for (int i = 0; i < fields.length; i++) {
      List<String> below = longer(path, fields[i].name());
      Set<String> all = new LinkedHashSet<>(of(fields[i].metadata()));
      all.addAll(tags.getOrDefault(below, Set.of()));
      DataType inside = with(fields[i].dataType(), below, tags);
      fields[i] = new StructField(fields[i].name(), inside, fields[i].nullable(), with(fields[i].metadata(), all));
    }
    return new StructType(fields);
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
    if (type instanceof StructType struct) {
      for (StructField field : struct.fields()) {
        if (!field.metadata().equals(Metadata.empty()) || hasMetadata(field.dataType())) {
          return true;
        }
      }
      return false;
    }
    return type instanceof ArrayType array
        ? hasMetadata(array.elementType())
        : type instanceof MapType map
            ? hasMetadata(map.keyType()) || hasMetadata(map.valueType())
            : type instanceof UserDefinedType; // which may be stored as a struct
  }

  static List<Nested> nestedTags(DataType type) {
    List<Nested> found = new ArrayList<>();
    addNested(found, type);
    return found;
  }

  private static void addNested(List<Nested> found, DataType type) {
    if (type instanceof StructType) {
      for (StructField field : ((StructType) type).fields()) {
        for (String tag : of(field.metadata())) {
          found.add(new Nested(field.name(), tag));
        }
        addNested(found, field.dataType());
      }
    } else if (type instanceof ArrayType) {
      addNested(found, ((ArrayType) type).elementType());
    } else if (type instanceof MapType) {
      addNested(found, ((MapType) type).keyType());
      addNested(found, ((MapType) type).valueType());
    }
  }

  /** Returns the type of an array's elements, or a map's keys or values; null for any other step of a path. */
  static DataType inner(DataType type, String name) {
    if (type instanceof ArrayType) {
      return name.equals("element") ? ((ArrayType) type).elementType() : null;
    }
    if (type instanceof MapType) {
      return name.equals("key") ? ((MapType) type).keyType() : name.equals("value") ? ((MapType) type).valueType() : null;
    }
    return null;
  }

  static boolean isNested(DataType type) {
    return type instanceof StructType || type instanceof ArrayType || type instanceof MapType;
  }

  /** Adds the tags of the fields inside a type. */
  static void addBelow(Set<String> tags, DataType type) {
    if (isNested(type)) {
      nestedTags(type).forEach(inner -> tags.add(inner.tag));
    }
  }

  /** Adds the tags inside a type that the corresponding fields of another type do not carry. */
  static void addLost(Set<String> tags, DataType from, DataType to) {
    if (from instanceof StructType && to instanceof StructType) {
      addLostOfFields(tags, (StructType) from, (StructType) to);
    } else if (from instanceof ArrayType && to instanceof ArrayType) {
      addLost(tags, ((ArrayType) from).elementType(), ((ArrayType) to).elementType());
    } else if (from instanceof MapType && to instanceof MapType) {
      addLost(tags, ((MapType) from).keyType(), ((MapType) to).keyType());
      addLost(tags, ((MapType) from).valueType(), ((MapType) to).valueType());
    } else if (isNested(from)) {
      addLostAnywhere(tags, from, to);
    }
  }

  /**
   * Compares fields of the same name, else of the same position; a generator makes a struct with other fields around its input.
   */
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

package io.sparkcrypt;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.orc.EncryptionVariant;
import org.apache.orc.OrcConf;
import org.apache.orc.OrcFile;
import org.apache.orc.Reader;
import org.apache.orc.StripeInformation;
import org.apache.orc.TypeDescription;
import org.apache.spark.sql.types.StructType;

/**
 * The facts of an ORC file's tail about its encryption: each leaf column under the path that Parquet would give it, and the local
 * keys of each encryption variant that covers it.
 *
 * <p>If Spark resolves columns by position and not by their names in the file, they have the names that are read.
 */
final class OrcFacts {
  private static final String NUMBERED = "_col";

  private final List<Variant> variants = new ArrayList<>();
  private final ArrayNode columns = Wire.object().putArray("columns");
  private final ArrayNode fields = Wire.object().putArray("fields");

  /**
   * A column that is encrypted with all columns below it.
   *
   * @param column its path in ORC's names
   * @param keys wrapped and Base64-encoded, each once
   */
  private record Variant(TypeDescription root, List<String> column, String keyName, Set<String> keys) {
    boolean covers(TypeDescription type) {
      return root.getId() <= type.getId() && type.getId() <= root.getMaximumId();
    }
  }

  private OrcFacts() {}

  /**
   * Reads the tail of a file.
   *
   * @param schema the columns that files of this read have
   * @param keys notes each local key
   */
  static OrcFacts read(Configuration conf, Path path, StructType schema, FileKeys keys) throws IOException {
    OrcFacts facts = new OrcFacts();
    try (Reader reader = OrcFile.createReader(path, OrcFile.readerOptions(conf).filesystem(path.getFileSystem(conf)))) {
      facts.addVariants(reader);
      facts.addColumns(reader.getSchema(), List.of(), names(conf, reader.getSchema(), schema), facts.fields);
    }
    for (Variant variant : facts.variants) {
      for (String key : variant.keys()) {
        keys.note(Base64.getDecoder().decode(key), variant.column());
      }
    }
    return facts;
  }

  ObjectNode toJson() {
    ObjectNode json = Wire.object().put("mode", variants.isEmpty() ? "plaintext" : "encrypted");
    json.set("columns", columns);
    json.set("fields", fields);
    return json;
  }

  private void addVariants(Reader reader) {
    // Called by name, since the message classes are in different packages in each version of ORC.
    Object footer = Calls.call(Calls.call(reader, "getFileTail"), "getFooter");
    List<Object> described = new ArrayList<>((List<?>) Calls.call(Calls.call(footer, "getEncryption"), "getVariantsList"));
    EncryptionVariant[] known = reader.getEncryptionVariants();
    for (int i = 0; i < known.length; i++) {
      Set<String> keys = new LinkedHashSet<>();
      keys.add(Wire.base64((byte[]) Calls.call(Calls.call(described.get(i), "getEncryptedKey"), "toByteArray")));
      for (StripeInformation stripe : reader.getStripes()) {
        keys.add(Wire.base64(stripe.getEncryptedLocalKeys()[i]));
      }
      TypeDescription root = known[i].getRoot();
      variants.add(new Variant(root, pathOf(root), known[i].getKeyDescription().getKeyName(), keys));
    }
  }

  /** Returns the path of a column in ORC's names. */
  private static List<String> pathOf(TypeDescription column) {
    List<String> path = new ArrayList<>();
    for (TypeDescription type = column; type.getParent() != null; type = type.getParent()) {
      TypeDescription parent = type.getParent();
      int place = parent.getChildren().indexOf(type);
      path.add(
          0,
          switch (parent.getCategory()) {
            case STRUCT -> parent.getFieldNames().get(place);
            case LIST -> "_elem";
            case MAP -> place == 0 ? "_key" : "_value";
            default -> String.valueOf(place);
          });
    }
    return path;
  }

  /** Returns the names under which the top-level columns are read. */
  private static List<String> names(Configuration conf, TypeDescription root, StructType schema) {
    List<String> names = new ArrayList<>(root.getFieldNames());
    if (OrcConf.FORCE_POSITIONAL_EVOLUTION.getBoolean(conf) || names.stream().allMatch(name -> name.startsWith(NUMBERED))) {
      for (int i = 0; i < Math.min(names.size(), schema.fields().length); i++) {
        names.set(i, schema.fields()[i].name());
      }
    }
    return names;
  }

  /** Adds the columns below a type, and their fields as Parquet would have them. */
  private void addColumns(TypeDescription type, List<String> path, List<String> names, ArrayNode fields) {
    List<TypeDescription> children = type.getChildren();
    if (children == null || children.isEmpty()) {
      if (!path.isEmpty()) {
        addLeaf(type, path);
      }
      return;
    }
    String group =
        switch (type.getCategory()) {
          case LIST -> "list";
          case MAP -> "key_value";
          default -> null;
        };
    ArrayNode inside = group == null ? fields : SchemaJson.addField(fields, group, null, "repeated", false);
    for (int i = 0; i < children.size(); i++) {
      TypeDescription child = children.get(i);
      String name =
          switch (type.getCategory()) {
            case STRUCT -> names.get(i);
            case LIST -> "element";
            case MAP -> i == 0 ? "key" : "value";
            default -> String.valueOf(i);
          };
      List<String> below = new ArrayList<>(path);
      if (group != null) {
        below.add(group);
      }
      below.add(name);
      List<String> namesBelow = child.getCategory() == TypeDescription.Category.STRUCT ? child.getFieldNames() : List.of();
      boolean isLeaf = child.getChildren() == null || child.getChildren().isEmpty();
      addColumns(child, below, namesBelow, SchemaJson.addField(inside, name, annotation(child), "optional", isLeaf));
    }
  }

  private static String annotation(TypeDescription type) {
    return switch (type.getCategory()) {
      case LIST -> "LIST";
      case MAP -> "MAP";
      default -> null;
    };
  }

  private void addLeaf(TypeDescription type, List<String> path) {
    boolean isEncrypted = false;
    for (Variant variant : variants) {
      if (variant.covers(type)) {
        isEncrypted = true;
        variant.keys().forEach(key -> add(path).put("encrypted", true).put("key_metadata", key).put("key_name", variant.keyName()));
      }
    }
    if (!isEncrypted) {
      add(path).put("encrypted", false);
    }
  }

  private ObjectNode add(List<String> path) {
    ObjectNode column = columns.addObject();
    path.forEach(column.putArray("path")::add);
    return column;
  }
}

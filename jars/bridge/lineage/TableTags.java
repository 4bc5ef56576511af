package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * The tags of tables that are read, as the helper unites them: schema of the catalog, properties, the policy's rule.
 *
 * <p>A plan may be older than a table's tags, and properties and rules never are in a plan.
 */
final class TableTags {
  private static final int MOST = 1_000;
  private static final Map<Asked, JsonNode> ANSWERS = Collections.synchronizedMap(new Newest<>(MOST));
  private static final String FILES = "org.apache.spark.sql.execution.datasources.HadoopFsRelation";

  private final SessionPolicy policy;
  private final KnownTables tables;
  private final SeenTags seen;
  private final boolean forWrite;
  private final Set<String> names = new TreeSet<>();
  private boolean requiresEncryption;

  private record Asked(String policy, Map<String, String> told, StructType schema) {}

  /**
   * What is known of a leaf.
   *
   * @param source the table that is read, else the folder; null where it is neither, or a folder in a query that writes nothing
   * @param tags of its columns, by their places; those that fields inside their types carry are left out
   */
  record Read(String source, Map<Integer, Set<String>> tags) {}

  /**
   * Makes one for a plan.
   *
   * @param forWrite look each table up in the catalog anew, and the tables of folders too, since files depend on it
   */
  TableTags(SparkSession session, SessionPolicy policy, boolean forWrite) {
    this.policy = policy;
    this.tables = new KnownTables(session, policy);
    this.seen = SeenTags.under(policy);
    this.forWrite = forWrite;
  }

  /** What the catalog says of a leaf, and of its columns. */
  Read of(QueryPlan<?> leaf, List<Attribute> columns) {
    Object table = tableOf(leaf);
    Map<String, String> told = table != null ? TableEntry.told(forWrite ? tables.fresh(Calls.call(table, "identifier")) : table) : folderOf(leaf);
    if (told == null) {
      return new Read(null, Map.of());
    }
    note(told);
    String source = told.getOrDefault(Names.TABLE_NAME, told.get(""));
    boolean tagged = policy.hasTaggedTables() || told.keySet().stream().anyMatch(TableTags::carriesTags);
    return new Read(source, tagged ? byPlace(columns, ask(told, leaf.schema())) : Map.of());
  }

  /** Names of tagged columns that were read under the session's policy. */
  SeenTags seen() {
    return seen;
  }

  /** Whether the query's rows are written. */
  boolean isForWrite() {
    return forWrite;
  }

  /** Names of the tables whose leaves were asked for. */
  Set<String> names() {
    return names;
  }

  /** Whether one of them requires encryption by its properties; what the policy says of their names is not looked at. */
  boolean requiresEncryption() {
    return requiresEncryption;
  }

  private void note(Map<String, String> told) {
    if (told.containsKey(Names.TABLE_NAME)) {
      names.add(told.get(Names.TABLE_NAME));
    }
    requiresEncryption |= Boolean.parseBoolean(told.getOrDefault(Names.REQUIRE_ENCRYPTION, "false").trim());
  }

  private static Object tableOf(QueryPlan<?> leaf) {
    return switch (leaf.getClass().getSimpleName()) {
      case "LogicalRelation" -> Calls.orNull(Calls.call(leaf, "catalogTable"));
      case "HiveTableRelation" -> Calls.call(leaf, "tableMeta");
      default -> null;
    };
  }

  /** What is known of the table that owns the folder which is read; null where that is not looked at. */
  private Map<String, String> folderOf(QueryPlan<?> leaf) {
    if (!forWrite || !leaf.getClass().getSimpleName().equals("LogicalRelation")) {
      return null;
    }
    Object relation = Calls.call(leaf, "relation");
    if (!relation.getClass().getName().equals(FILES)) {
      return null;
    }
    Map<String, String> told = new TreeMap<>();
    for (Object path : Calls.list(Calls.call(Calls.call(relation, "location"), "rootPaths"))) {
      told.put("", path.toString());
      told.putAll(tables.toldByFolder(path.toString()));
    }
    return told;
  }

  private static boolean carriesTags(String name) {
    return name.startsWith(Names.TAGS_PREFIX) || name.equals(Names.TABLE_SCHEMA);
  }

  private JsonNode ask(Map<String, String> told, StructType schema) {
    Asked key = new Asked(policy.text(), told, schema);
    JsonNode known = ANSWERS.get(key);
    if (known == null) {
      ObjectNode request = policy.request("table_tags", told.getOrDefault("", "/")).put("schema", schema.json());
      told.forEach((name, value) -> {
        if (!name.isEmpty()) {
          ((ObjectNode) request.get("properties")).put(name, value);
        }
      });
      known = Helper.ask(request).path("columns");
      ANSWERS.put(key, known);
    }
    return known;
  }

  private static Map<Integer, Set<String>> byPlace(List<Attribute> columns, JsonNode answer) {
    Map<Integer, Set<String>> found = new LinkedHashMap<>();
    for (JsonNode one : answer) {
      String name = one.path("path").path(0).asText().toLowerCase(Locale.ROOT);
      for (int i = 0; i < columns.size(); i++) {
        if (columns.get(i).name().toLowerCase(Locale.ROOT).equals(name)) {
          Set<String> tags = new LinkedHashSet<>();
          one.path("tags").forEach(tag -> tags.add(tag.asText()));
          tags.removeAll(inside(columns.get(i).dataType(), one.path("path")));
          found.computeIfAbsent(i, unused -> new LinkedHashSet<>()).addAll(tags);
        }
      }
    }
    return found;
  }

  /** The tags that the field of a path below a column carries in its metadata already. */
  private static Set<String> inside(DataType type, JsonNode path) {
    Set<String> tags = Set.of();
    DataType at = type;
    for (int i = 1; i < path.size(); i++) {
      String name = path.path(i).asText();
      DataType inner = inner(at, name);
      if (inner != null) {
        tags = Set.of(); // elements, keys and values have no metadata of their own
        at = inner;
        continue;
      }
      StructField below = null;
      if (at instanceof StructType) {
        for (StructField field : ((StructType) at).fields()) {
          below = field.name().equals(name) ? field : below;
        }
      }
      if (below == null) {
        return Set.of();
      }
      tags = FieldTags.of(below.metadata());
      at = below.dataType();
    }
    return tags;
  }

  /** The type of an array's elements, or a map's keys or values; null for any other step of a path. */
  private static DataType inner(DataType type, String name) {
    if (type instanceof ArrayType) {
      return name.equals("element") ? ((ArrayType) type).elementType() : null;
    }
    if (type instanceof MapType) {
      return name.equals("key") ? ((MapType) type).keyType() : name.equals("value") ? ((MapType) type).valueType() : null;
    }
    return null;
  }
}

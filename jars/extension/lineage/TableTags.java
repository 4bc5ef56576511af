package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * The tags of tables that are read, as the helper combines them: the catalog's schema, properties, the policy's rule.
 *
 * <p>A plan may be older than a table's tags, and never contains properties and rules.
 */
final class TableTags {
  private static final int MOST = 1_000;
  private static final Map<Asked, JsonNode> ANSWERS = Newest.synchronizedMap(MOST);
  private static final String FILES = "org.apache.spark.sql.execution.datasources.HadoopFsRelation";

  private final SessionPolicy policy;
  private final KnownTables tables;
  /** The names of tagged columns that were read under the session's policy. */
  final SeenTags seen;
  /** Whether the query's rows are written. */
  final boolean forWrite;
  /** The names of the tables whose leaves were looked up. */
  final Set<String> names = new TreeSet<>();
  private boolean requiresEncryption;

  private record Asked(String policy, Map<String, String> properties, StructType schema) {}

  /**
   * The table or folder of a leaf, and its columns' tags.
   *
   * @param source the table that is read, else the folder; null if it is neither, or a folder in a query that writes nothing
   * @param tags the columns' tags by position, without those that fields inside their types carry
   * @param paths the names below these columns, in lower case, to what has tags, by position
   */
  record Read(String source, Map<Integer, Set<String>> tags, Map<Integer, Set<List<String>>> paths) {}

  /**
   * Creates an object for a plan.
   *
   * @param forWrite whether to look each table up in the catalog again, and the tables of folders too, since files depend on it
   */
  TableTags(SparkSession session, SessionPolicy policy, boolean forWrite) {
    this.policy = policy;
    this.tables = new KnownTables(session, policy);
    this.seen = SeenTags.under(policy);
    this.forWrite = forWrite;
  }

  /** Returns the catalog's facts about a leaf and its columns. */
  Read of(QueryPlan<?> leaf, List<Attribute> columns) {
    CatalogTable table = tableOf(leaf);
    Map<String, String> told = table != null ? ofTable(table) : folderOf(leaf);
    if (told == null) {
      return new Read(null, Map.of(), Map.of());
    }
    note(told);
    String source = told.getOrDefault(Names.TABLE_NAME, told.get(""));
    boolean tagged = policy.hasTaggedTables() || told.keySet().stream().anyMatch(TableTags::carriesTags);
    return tagged ? byPlace(source, columns, ask(told, leaf.schema())) : new Read(source, Map.of(), Map.of());
  }

  /** Returns whether one of them requires encryption by its properties; the policy's rules for their names are not considered. */
  boolean requiresEncryption() {
    return requiresEncryption;
  }

  /** Notes what the table requires that takes the rows. */
  void noteRequired(TableRequirements required) {
    requiresEncryption |= required.encryption();
  }

  private void note(Map<String, String> told) {
    if (told.containsKey(Names.TABLE_NAME)) {
      names.add(told.get(Names.TABLE_NAME));
    }
    requiresEncryption |= Boolean.parseBoolean(told.getOrDefault(Names.REQUIRE_ENCRYPTION, "false").trim());
  }

  /** Returns the properties of a table; in a query that writes also the tags of those in whose folders it lies. */
  private Map<String, String> ofTable(CatalogTable table) {
    if (!forWrite) {
      return TableEntry.writerProperties(table);
    }
    CatalogTable now = tables.fresh(table.identifier());
    Map<String, String> told = new TreeMap<>(tables.propertiesWithTags(now));
    if (told.containsKey(Names.LOCATIONS)) {
      told.put("", TableEntry.folder(now));
    }
    return told;
  }

  private static CatalogTable tableOf(QueryPlan<?> leaf) {
    return switch (leaf.getClass().getSimpleName()) {
      case "LogicalRelation" -> Calls.orNull(Calls.call(leaf, "catalogTable"));
      case "HiveTableRelation" -> (CatalogTable) Calls.call(leaf, "tableMeta");
      default -> null;
    };
  }

  /** Returns the properties of the table that owns the folder which is read; null if folders are not looked up. */
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
      told.putAll(tables.writerPropertiesByFolder(path.toString(), null));
    }
    return told;
  }

  private static boolean carriesTags(String name) {
    return name.startsWith(Names.TAGS_PREFIX) || name.equals(Names.TABLE_SCHEMA) || name.equals(Names.OWNER_SCHEMAS);
  }

  private JsonNode ask(Map<String, String> told, StructType schema) {
    Asked key = new Asked(policy.text(), told, schema);
    JsonNode known = ANSWERS.get(key);
    if (known == null) {
      Map<String, String> properties = new TreeMap<>(told);
      ObjectNode request = policy.request("table_tags", properties.remove(""), properties).put("schema", schema.json());
      known = Helper.ask(request).path("columns");
      ANSWERS.put(key, known);
    }
    return known;
  }

  private static Read byPlace(String source, List<Attribute> columns, JsonNode answer) {
    Map<Integer, Set<String>> found = new LinkedHashMap<>();
    Map<Integer, Set<List<String>>> paths = new LinkedHashMap<>();
    Map<String, List<Integer>> places = new HashMap<>();
    for (int i = 0; i < columns.size(); i++) {
      places.computeIfAbsent(columns.get(i).name().toLowerCase(Locale.ROOT), unused -> new ArrayList<>()).add(i);
    }
    for (JsonNode entry : answer) {
      String name = entry.path("path").path(0).asText().toLowerCase(Locale.ROOT);
      for (int i : places.getOrDefault(name, List.of())) {
        Set<String> tags = new LinkedHashSet<>(Wire.texts(entry.path("tags")));
        tags.removeAll(inside(columns.get(i).dataType(), entry.path("path")));
        found.computeIfAbsent(i, unused -> new LinkedHashSet<>()).addAll(tags);
        List<String> below = Wire.texts(entry.path("path")).stream().skip(1).map(step -> step.toLowerCase(Locale.ROOT)).toList();
        paths.computeIfAbsent(i, unused -> new LinkedHashSet<>()).add(below);
      }
    }
    return new Read(source, found, paths);
  }

  /** Returns the tags that the field at a path below a column already carries in its metadata. */
  private static Set<String> inside(DataType type, JsonNode path) {
    Set<String> tags = Set.of();
    DataType at = type;
    for (int i = 1; i < path.size(); i++) {
      StructField part = FieldTags.part(at, path.path(i).asText());
      if (part == null) {
        return Set.of();
      }
      tags = FieldTags.of(part.metadata()); // elements, keys and values have none
      at = part.dataType();
    }
    return tags;
  }

  /** Names of tagged columns that this application has read under one policy; rows without lineage are compared with them. */
  static final class SeenTags {
    private static final int MOST_NAMES = 10_000;
    private static final int MOST_TABLES = 1_000;
    private static final int MOST_POLICIES = 100;
    private static final Map<String, SeenTags> BY_POLICY = Newest.synchronizedMap(MOST_POLICIES);

    private final Newest<String, Map<String, Set<String>>> byName = new Newest<>(MOST_NAMES);

    private SeenTags() {}

    static SeenTags under(SessionPolicy policy) {
      return BY_POLICY.computeIfAbsent(policy.text(), unused -> new SeenTags());
    }

    /** Records the current tags of a column of a table or folder; a column without tags is forgotten. */
    synchronized void note(String table, String column, Set<String> tags) {
      String name = column.toLowerCase(Locale.ROOT);
      Map<String, Set<String>> seen = byName.get(name);
      if (seen != null) {
        seen.remove(table); // the table read last comes last
      }
      if (!tags.isEmpty()) {
        byName.computeIfAbsent(name, unused -> new Newest<>(MOST_TABLES)).put(table, Set.copyOf(tags));
      }
    }

    /**
     * Returns the tags that a column of no table may have lost: for each set of tags that was seen, with the column last read with
     * it.
     */
    synchronized Collection<Carried.Lost> of(String column) {
      Map<Set<String>, Carried.Lost> byTags = new LinkedHashMap<>();
      byName
          .getOrDefault(column.toLowerCase(Locale.ROOT), Map.of())
          .forEach((table, tags) -> byTags.put(tags, new Carried.Lost(new Carried.Origin(table, column), tags)));
      return List.copyOf(byTags.values());
    }
  }
}

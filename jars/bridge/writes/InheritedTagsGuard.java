package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.types.StructType;

/**
 * A guard for writes of tagged values into columns of a table that lacks their tags: by the policy's {@code inherit} it refuses
 * them, gives the table the tags, or lets them pass.
 *
 * <p>The files are encrypted in each case; without the tags a later write of other rows would not be.
 */
final class InheritedTagsGuard {
  private static final String EXPLAIN = "org.apache.spark.sql.execution.command.ExplainCommand";
  private static final Map<String, String> TABLES =
      Map.of(
          "InsertIntoHadoopFsRelationCommand", "catalogTable",
          "WriteToMicroBatchDataSourceV1", "catalogTable",
          "InsertIntoHiveTable", "table");

  private final SessionPolicy policy;
  private final KnownTables tables;
  private final Object catalog;

  InheritedTagsGuard(SparkSession session, SessionPolicy policy) {
    this.policy = policy;
    this.tables = new KnownTables(session, policy);
    this.catalog = Calls.call(Calls.call(session, "sessionState"), "catalog");
  }

  /**
   * Judges one write.
   *
   * @param table the table that is written to, from tableOf
   * @param written the columns that are written, with all of their tags
   * @param from the tables that they come from
   * @return the columns of the table that do not get the tags of the values written to them, and these tags
   */
  Map<String, Set<String>> lacking(Object table, StructType written, TableTags from) {
    String schema = table == null ? "" : written.json();
    if (!schema.contains(TableEntry.TAGS_KEY)) {
      return Map.of();
    }
    ObjectNode request = policy.request("check_inherited", "/").put("schema", schema);
    request.put("table_schema", (String) Calls.call(Calls.call(table, "schema"), "json"));
    ArrayNode sources = request.putArray("sources");
    from.names().forEach(sources::add);
    TableEntry.writerProperties(table).forEach((name, value) -> ((ObjectNode) request.get("properties")).put(name, value));
    JsonNode answer = Helper.ask(request);
    if (answer.path("mode").asText().equals("add")) {
      add(table, answer.path("columns"));
      return Map.of();
    }
    Map<String, Set<String>> found = new LinkedHashMap<>();
    for (JsonNode column : answer.path("columns")) {
      Set<String> tags = found.computeIfAbsent(column.path("path").path(0).asText(), unused -> new LinkedHashSet<>());
      column.path("tags").forEach(tag -> tags.add(tag.asText()));
    }
    return found;
  }

  /**
   * Returns the entry of the table that a command writes to, by its name or its folder; null if there is none yet, or only the
   * one that it replaces.
   */
  Object tableOf(LogicalPlan command) {
    String part = TABLES.get(command.getClass().getSimpleName());
    if (part == null) {
      return null;
    }
    Object named = Calls.call(command, part);
    Object table = part.equals("table") ? named : Calls.orNull(named);
    if (table != null) {
      Object identifier = Calls.call(table, "identifier");
      return tables.exists(identifier) ? tables.fresh(identifier) : null;
    }
    Object folder = Calls.callIfPresent(command, "outputPath");
    boolean isNew = folder != null && tables.isBeingCreated(folder.toString(), TableEntry.uuidIn(Calls.call(command, "options")));
    return folder == null || isNew ? null : tables.owner(folder.toString());
  }

  private void add(Object table, JsonNode columns) {
    boolean explained = StackWalker.getInstance().walk(frames -> frames.anyMatch(frame -> frame.getClassName().equals(EXPLAIN)));
    if (explained || columns.isEmpty()) {
      return;
    }
    Map<String, String> more = new TreeMap<>();
    columns.forEach(column -> more.put(column.path("property").asText(), column.path("value").asText()));
    Calls.call(catalog, "alterTable", TableEntry.with(table, more));
    KnownTables.forget();
  }
}

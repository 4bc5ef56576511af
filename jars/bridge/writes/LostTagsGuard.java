package io.sparkcrypt;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Map;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.types.StructType;

/**
 * A guard that refuses rows without lineage in tables that require encryption, if a column has the name of a tagged one and no
 * tag.
 *
 * <p>Rows that leave the plan and return, by an RDD, pandas or a list, have lost their tags; only the name is left.
 */
final class LostTagsGuard {
  private final SessionPolicy policy;
  private final KnownTables tables;
  private final Object catalog;

  LostTagsGuard(SparkSession session, SessionPolicy policy) {
    this.policy = policy;
    this.tables = new KnownTables(session, policy);
    this.catalog = Calls.call(Calls.call(session, "sessionState"), "catalog");
  }

  /**
   * Judges one write.
   *
   * @param command the command that writes
   * @param query its rows
   * @param tags the tags of the query's columns
   * @param written the columns that it writes, with all of their tags
   * @param table the catalog's entry of the table that is written to; null if it does not exist yet, or for a folder
   */
  void check(LogicalPlan command, LogicalPlan query, PlanTags tags, StructType written, Object table) {
    ArrayNode lost = Wire.object().putArray("lost");
    for (Attribute column : Trees.output(query)) {
      for (Carried.Lost loss : tags.of(column).losses()) {
        ObjectNode found = lost.addObject().put("column", column.name()).put("from", loss.of().table() + "." + loss.of().column());
        loss.tags().forEach(found.putArray("tags")::add);
      }
    }
    Target target = lost.isEmpty() ? null : targetOf(command, table);
    if (target != null) {
      ObjectNode request = policy.request("check_lost", target.folder()).put("schema", written.json());
      request.put("table_schema", table == null ? null : (String) Calls.call(Calls.call(table, "schema"), "json"));
      request.set("lost", lost);
      target.properties().forEach((name, value) -> ((ObjectNode) request.get("properties")).put(name, value));
      Helper.ask(request);
    }
  }

  /** The target of a write: the folder, and the properties of its table. */
  record Target(String folder, Map<String, String> properties) {}

  /** Returns the target of a write; null if it is neither a table nor a folder. */
  Target targetOf(LogicalPlan command, Object table) {
    if (table != null) {
      return new Target("/", TableEntry.writerProperties(table));
    }
    Object made = WriteQueries.createdTable(command);
    if (made != null) {
      Object identifier = Calls.call(made, "identifier");
      Map<String, String> told = TableEntry.writerProperties(made);
      told.put(Names.TABLE_NAME, TableEntry.name(made, (String) Calls.call(catalog, "getCurrentDatabase")));
      String folder = TableEntry.folder(made);
      return new Target(folder == null ? tables.defaultFolder(identifier) : folder, told);
    }
    Object folder = Calls.callIfPresent(command, "outputPath");
    if (folder == null) {
      return null;
    }
    String uuid = TableEntry.uuidIn(Calls.call(command, "options"));
    return new Target(folder.toString(), tables.writerPropertiesByFolder(folder.toString(), uuid));
  }
}

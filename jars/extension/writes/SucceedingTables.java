package io.sparkcrypt;

import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.command.AlterTableRenameCommand;
import org.apache.spark.sql.execution.command.CreateTableLikeCommand;
import org.apache.spark.sql.types.StructType;
import org.slf4j.Logger;

/**
 * Tables that take the name of an earlier one: they get what it required, or the command is refused if it cannot give them that.
 */
final class SucceedingTables {
  private static final Logger LOG = CleanLog.of(SucceedingTables.class);

  private static final String LIKE = "the model of";

  private final EarlierTables earlier;
  private final KnownTables tables;
  private final SessionCatalog catalog;

  SucceedingTables(SparkSession session, KnownTables tables) {
    this.earlier = EarlierTables.of(session);
    this.tables = tables;
    this.catalog = session.sessionState().catalog();
  }

  /** Returns a command with the description of the table that it makes of a query completed. */
  LogicalPlan complete(LogicalPlan command) {
    CatalogTable table = WriteQueries.createdTable(command);
    CatalogTable complete = complete(table, WriteQueries.createdColumns(command), WriteQueries.overwrites(command));
    return complete == table ? command : command.makeCopy(Calls.values(command, table, complete));
  }

  /**
   * Returns what the next table of a name must require; null if it is nothing.
   *
   * @param overwrites whether it takes the place of the table that has the name, which otherwise stays
   */
  private TableRequirements find(TableIdentifier name, boolean overwrites) {
    boolean exists = tables.exists(name);
    if (exists && !overwrites) {
      return null;
    }
    String database = database(name);
    TableRequirements last = earlier.find(database, name.table());
    if (exists) {
      CatalogTable replaced = tables.fresh(name);
      last = TableRequirements.of(replaced).withAbsent(last, replaced.schema());
    }
    TableRequirements all = TableRequirements.unite(last, EarlierTables.findRemembered(catalog, database, name.table()));
    return all == null || all.isEmpty() ? null : all;
  }

  /**
   * Returns the description of a table that is being created, with all that it must require.
   *
   * @param schema its columns, which a table that is made of a query does not describe
   */
  CatalogTable complete(CatalogTable table, StructType schema, boolean overwrites) {
    TableRequirements required = find(table.identifier(), overwrites);
    if (required == null) {
      return table;
    }
    Map<List<String>, Set<String>> tags = required.tagsIn(schema);
    TableRequirements.of(table).tags().forEach((path, own) -> tags.computeIfPresent(path, (unused, more) -> union(own, more)));
    Map<String, String> properties = new TreeMap<>();
    tags.forEach((path, ofColumn) -> properties.put(TableEntry.tagProperty(path), String.join(",", ofColumn)));
    if (required.encryption()) {
      properties.put(Names.REQUIRE_ENCRYPTION, "true");
    }
    List<String> lost =
        required.tags().keySet().stream().filter(path -> !TableRequirements.isIn(schema, path)).map(FileKeys::textOf).toList();
    if (!lost.isEmpty()) {
      LOG.warn("{} is made anew without columns that had tags: {}; they get these again when they are back", tables.name(table), lost);
    }
    CatalogTable complete = TableEntry.withMarks(TableEntry.with(table, properties), required.marks());
    return TableEntry.withSchema(complete, FieldTags.with(table.schema(), tags));
  }

  /** Refuses a RENAME into a name whose earlier table had tags that the renamed table lacks, or required encryption. */
  void refuseRename(AlterTableRenameCommand command) {
    TableIdentifier from = command.oldName();
    if (!command.isView() && tables.exists(from)) {
      refuseLacking(tables.fresh(from), database(from), command.newName().table(), "renamed to");
    }
  }

  /**
   * Refuses a table that is made like one which lacks what the earlier table of its name required; any other gets a UUID of its
   * own, since Spark copies that of its model, and files are bound to it.
   */
  void judgeLike(CreateTableLikeCommand command) {
    TableIdentifier like = command.sourceTable();
    TableIdentifier name = command.targetTable();
    if (tables.exists(name) || !tables.exists(like)) {
      return;
    }
    CatalogTable model = tables.fresh(like);
    refuseLacking(model, database(name), name.table(), LIKE);
    String uuid = TableEntry.properties(model).get(Names.TABLE_UUID);
    if (uuid != null) {
      earlier.expectCopy(database(name), name.table(), uuid);
    }
  }

  private void refuseLacking(CatalogTable table, String database, String name, String role) {
    TableRequirements required = TableRequirements.unite(earlier.find(database, name), EarlierTables.findRemembered(catalog, database, name));
    TableRequirements own = TableRequirements.of(table);
    if (required == null || required.uuid() != null && required.uuid().equals(own.uuid())) {
      return;
    }
    StructType schema = table.schema();
    Map<List<String>, Set<String>> wanted = required.tagsIn(schema);
    Map<List<String>, Set<String>> has = own.tagsIn(schema);
    wanted.entrySet().removeIf(entry -> has.getOrDefault(entry.getKey(), Set.of()).containsAll(entry.getValue()));
    boolean isLike = role.equals(LIKE);
    boolean isHive = TableEntry.isHive(table);
    boolean open = required.encryption() && (!own.encryption() || isLike && isHive); // LIKE does not copy the properties of Hive's
    if (wanted.isEmpty() && !open) {
      return;
    }
    has.forEach((path, kept) -> wanted.computeIfPresent(path, (unused, more) -> union(kept, more))); // since a command replaces them
    String taken = database + "." + name;
    List<String> lacks = new ArrayList<>();
    List<String> commands = new ArrayList<>();
    if (!wanted.isEmpty()) {
      lacks.add("had tags that it lacks");
    }
    wanted.forEach((path, tags) -> commands.add("sparkcrypt tags set " + tables.name(table) + " " + FileKeys.textOf(path) + " " + String.join(",", tags)));
    if (open) {
      lacks.add(isLike ? "required encryption" : "required encryption, which it does not");
      String set = "ALTER TABLE " + TableEntry.quote(table) + " SET " + (isHive ? "TBLPROPERTIES" : "SERDEPROPERTIES");
      commands.add(isLike ? "CREATE TABLE " + taken + " (columns)" : set + " ('" + Names.REQUIRE_ENCRYPTION + "' = 'true')");
    }
    throw Refusal.of(
        "PlanError",
        tables.name(table) + " is not " + role + " " + taken + ", since the earlier " + taken + " " + String.join(", and ", lacks) + ", and rows "
            + "might be in clear under that name; nothing was changed. Give it what it lacks: `" + String.join("`, `", commands)
            + "`, and encrypt its files: `sparkcrypt encrypt --table " + tables.name(table) + "`; then do this again");
  }

  private static Set<String> union(Set<String> first, Set<String> more) {
    Set<String> all = new LinkedHashSet<>(first);
    all.addAll(more);
    return all;
  }

  private String database(TableIdentifier identifier) {
    return TableEntry.database(identifier, catalog.getCurrentDatabase());
  }
}

package io.sparkcrypt;

import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.ExternalCatalogEvent;
import org.apache.spark.sql.catalyst.catalog.ExternalCatalogEventListener;

/**
 * What those tables required whose names this application frees: by DROP, RENAME, DROP DATABASE or an overwrite that makes a
 * table anew. The next table of such a name must have it too.
 *
 * <p>Spark tells listeners of its catalog of each such step right before it is done, in each session and whatever the command:
 * some writers of frames drop a table before any plan of theirs is resolved.
 */
final class EarlierTables implements ExternalCatalogEventListener {
  private static final int MOST = 100_000;
  private static final Map<String, EarlierTables> BY_APPLICATION = new ConcurrentHashMap<>();

  private final Map<String, TableRequirements> byName = Collections.synchronizedMap(new Newest<>(MOST));
  private final Map<String, String> copied = Collections.synchronizedMap(new Newest<>(MOST));
  private final Object catalog;

  private EarlierTables(Object catalog) {
    this.catalog = catalog;
  }

  /** Returns those of a session's application, which are recorded from the first call on. */
  static EarlierTables of(SparkSession session) {
    return BY_APPLICATION.computeIfAbsent(
        session.sparkContext().applicationId(),
        unused -> {
          Object catalog = Calls.call(session.sharedState(), "externalCatalog");
          EarlierTables made = new EarlierTables(catalog);
          Calls.call(catalog, "addListener", made);
          return made;
        });
  }

  /** Returns what the last table of a name required; null if it required nothing, or there was none. */
  TableRequirements find(String database, String table) {
    return byName.get(key(database, table));
  }

  /** Forgets what the last table of a name required. */
  void forget(String database, String table) {
    byName.remove(key(database, table));
  }

  /** Expects a table that CREATE TABLE LIKE makes with the UUID of its model: it gets one of its own as soon as it is there. */
  void expectCopy(String database, String table, String uuid) {
    copied.put(key(database, table), uuid);
  }

  @Override
  public void onEvent(ExternalCatalogEvent event) {
    switch (event.getClass().getSimpleName()) {
      case "DropTablePreEvent", "RenameTablePreEvent" ->
          note((String) Calls.call(event, "database"), List.of(Calls.call(event, "name")));
      case "DropDatabasePreEvent" -> {
        String database = (String) Calls.call(event, "database");
        if ((Boolean) Calls.call(catalog, "databaseExists", database)) {
          note(database, Calls.list(Calls.call(catalog, "listTables", database)));
        }
      }
      case "CreateTableEvent" -> renewCopy((String) Calls.call(event, "database"), (String) Calls.call(event, "name"));
      default -> {}
    }
  }

  private void renewCopy(String database, String name) {
    String uuid = copied.remove(key(database, name));
    CatalogTable table = uuid == null ? null : (CatalogTable) Calls.call(catalog, "getTable", database, name);
    if (table != null && uuid.equals(TableEntry.properties(table).get(Names.TABLE_UUID))) {
      Calls.call(catalog, "alterTable", TableEntry.with(table, Map.of(Names.TABLE_UUID, UUID.randomUUID().toString())));
    }
  }

  private void note(String database, List<Object> names) {
    for (CatalogTable table : Calls.<CatalogTable>list(Calls.call(catalog, "getTablesByName", database, Calls.scalaList(names)))) {
      if (TableEntry.folder(table) != null) {
        String key = key(database, table.identifier().table());
        TableRequirements now = TableRequirements.of(table).withAbsent(byName.remove(key), table.schema());
        if (!now.isEmpty()) {
          byName.put(key, now);
        }
      }
    }
  }

  private static String key(String database, String table) {
    return (database + "." + table).toLowerCase(Locale.ROOT);
  }
}

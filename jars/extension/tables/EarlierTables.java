package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.AsyncEventQueue;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CreateTableEvent;
import org.apache.spark.sql.catalyst.catalog.DropDatabasePreEvent;
import org.apache.spark.sql.catalyst.catalog.DropTablePreEvent;
import org.apache.spark.sql.catalyst.catalog.ExternalCatalog;
import org.apache.spark.sql.catalyst.catalog.ExternalCatalogEvent;
import org.apache.spark.sql.catalyst.catalog.RenameTablePreEvent;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.internal.SharedState;
import org.slf4j.Logger;

/**
 * What those tables required whose names this application frees: by DROP, RENAME, DROP DATABASE or an overwrite that makes a
 * table anew. The next table of such a name must have it too.
 *
 * <p>Spark's catalog posts each such step right before it is done, in each session and whatever the command: some writers of
 * frames drop a table before any plan of theirs is resolved.
 */
final class EarlierTables {
  private static final int MOST = 100_000;
  private static final Logger LOG = CleanLog.of(EarlierTables.class);
  private static final Map<String, EarlierTables> BY_APPLICATION = new ConcurrentHashMap<>();

  private final Map<String, TableRequirements> byName = Newest.synchronizedMap(MOST);
  private final Map<String, String> copied = Newest.synchronizedMap(MOST);
  private final SharedState state;

  private EarlierTables(SharedState state) {
    this.state = state;
  }

  /** Returns those of a session's application, which are recorded from the first call on. */
  static EarlierTables of(SparkSession session) {
    SparkContext context = session.sparkContext();
    return BY_APPLICATION.computeIfAbsent(
        context.applicationId(),
        unused -> {
          EarlierTables made = new EarlierTables(session.sharedState());
          Calls.call(Calls.field(context.listenerBus(), "queues"), "add", new Watch(context, made));
          return made;
        });
  }

  /**
   * A queue of Spark's event bus that keeps no event: it judges those of the catalog in the thread that posts them, before the
   * step that they announce is done.
   *
   * <p>A listener of the catalog would be called then too, but to add one is to open the metastore, which costs a quarter of
   * Spark's own start. Other queues call their listeners later, in threads of their own.
   */
  private static final class Watch extends AsyncEventQueue {
    private final EarlierTables tables;

    Watch(SparkContext context, EarlierTables tables) {
      super("sparkcrypt", context.conf(), context.listenerBus().metrics(), context.listenerBus());
      this.tables = tables;
      addListener(new SparkListener() {}); // the bus removes a queue without one
    }

    @Override
    public void post(SparkListenerEvent event) {
      if (event instanceof ExternalCatalogEvent step) {
        try {
          tables.judge(step);
        } catch (Exception e) { // of the metastore, which the step itself asks next
          LOG.error("what a table required whose name is freed cannot be told: {}", step, e);
        }
      }
    }

    @Override
    public void stop() {} // it has no thread
  }

  /** Returns what the last table of a name required; null if it required nothing, or there was none. */
  TableRequirements find(String database, String table) {
    return byName.get(key(database, table));
  }

  /**
   * Returns what people's tags require of a name, in properties of its database (spark/tables/remembered_names.py); null if it is
   * nothing, or there is no such database.
   */
  static TableRequirements findRemembered(SessionCatalog catalog, String database, String table) {
    if (!catalog.databaseExists(database)) {
      return null;
    }
    Map<String, String> properties = Calls.map(catalog.getDatabaseMetadata(database).properties());
    String name = Names.NAME_PREFIX + table.toLowerCase(Locale.ROOT);
    StringBuilder text = new StringBuilder(properties.getOrDefault(name, ""));
    for (int number = 1; !text.isEmpty() && !properties.getOrDefault(name + "#" + number, "").isEmpty(); number++) {
      text.append(properties.get(name + "#" + number));
    }
    return text.isEmpty() ? null : parse(text.toString(), database + "." + table, name);
  }

  private static TableRequirements parse(String text, String table, String property) {
    try {
      JsonNode record = Wire.parse(text);
      Map<List<String>, Set<String>> tags = new LinkedHashMap<>();
      record.required("tags").properties().forEach(of -> tags.put(TableEntry.decode(of.getKey()), new LinkedHashSet<>(Wire.texts(of.getValue()))));
      return new TableRequirements(record.path("uuid").textValue(), tags, record.required("require_encryption").asBoolean(), null);
    } catch (IllegalArgumentException e) {
      throw Refusal.of(
          "PlanError",
          table + ": database property " + property + " is not what sparkcrypt wrote there, so what a table of this name requires is "
              + "not known; set the tags of the table again, or remove it: `sparkcrypt tags forget " + table + "`",
          e);
    }
  }

  /** Forgets what the last table of a name required. */
  void forget(String database, String table) {
    byName.remove(key(database, table));
  }

  /** Expects a table that CREATE TABLE LIKE makes with the UUID of its model: it gets one of its own as soon as it is there. */
  void expectCopy(String database, String table, String uuid) {
    copied.put(key(database, table), uuid);
  }

  private void judge(ExternalCatalogEvent event) {
    ExternalCatalog catalog = state.externalCatalog();
    if (event instanceof DropTablePreEvent drop) {
      note(CatalogPlaces.tablesNamed(catalog, drop.database(), List.of(drop.name())));
    } else if (event instanceof RenameTablePreEvent rename) {
      note(CatalogPlaces.tablesNamed(catalog, rename.database(), List.of(rename.name())));
    } else if (event instanceof DropDatabasePreEvent drop && catalog.databaseExists(drop.database())) {
      note(CatalogPlaces.tablesIn(catalog, drop.database()));
    } else if (event instanceof CreateTableEvent create) {
      renewCopy(catalog, create.database(), create.name());
    }
  }

  private void renewCopy(ExternalCatalog catalog, String database, String name) {
    String uuid = copied.remove(key(database, name));
    CatalogTable table = uuid == null ? null : catalog.getTable(database, name);
    if (table != null && uuid.equals(TableEntry.properties(table).get(Names.TABLE_UUID))) {
      catalog.alterTable(TableEntry.with(table, Map.of(Names.TABLE_UUID, UUID.randomUUID().toString())));
    }
  }

  private void note(List<CatalogTable> tables) {
    for (CatalogTable table : tables) {
      if (TableEntry.folder(table) != null) {
        String key = key(table.database(), table.identifier().table());
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

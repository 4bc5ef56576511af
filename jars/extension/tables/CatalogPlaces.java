package io.sparkcrypt;

import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;
import java.util.regex.Pattern;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTablePartition;
import org.apache.spark.sql.catalyst.catalog.ExternalCatalog;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.slf4j.Logger;
import scala.Option;

/**
 * The folders of tables with tags or a rule, as the catalog has them.
 *
 * <p>Answers are kept for a minute. They are dropped at once if this application changes a table of their database.
 */
final class CatalogPlaces {
  private static final long LIFETIME_NANOS = 60_000_000_000L;
  private static final int MOST = 10_000;
  private static final Logger LOG = CleanLog.of(CatalogPlaces.class);
  private static final Pattern CHANGING =
      Pattern.compile("(Alter|Create|Drop|Rename|Truncate|Repair|Recover|SetTable|UnsetTable|Replace).*");
  private static final String RULED = "ruled";
  private static final String ALL_TAGGED = "tagged";
  private static final String TAGGED_IN = "tagged in ";
  private static final Map<Asked, Answer> ANSWERS = new ConcurrentHashMap<>();

  private final SparkSession session;
  private final SessionPolicy policy;
  private final SessionCatalog catalog;
  private final RealPlaces real;

  /** What the catalog was asked for, by which application and under which policy. */
  private record Asked(String kind, String application, String policy) {}

  private record Answer(long atNanos, PlaceIndex<TablePlace> places) {}

  CatalogPlaces(SparkSession session, SessionPolicy policy, RealPlaces real) {
    this.session = session;
    this.policy = policy;
    this.catalog = session.sessionState().catalog();
    this.real = real;
  }

  static void forget() {
    ANSWERS.clear();
  }

  /** Drops the answers that a command may change: those of the databases that it names, or all. */
  static void forgetChangedBy(LogicalPlan command) {
    if (!CHANGING.matcher(command.getClass().getSimpleName()).matches()) {
      return;
    }
    Set<String> databases = new HashSet<>();
    for (Object part : Calls.values(command, null, null)) {
      Object named = part == null ? null : part instanceof TableIdentifier ? part : Calls.callIfPresent(part, "identifier");
      if (named instanceof TableIdentifier identifier) {
        String database = TableEntry.database(identifier, null);
        databases.add(database == null ? null : database.toLowerCase(Locale.ROOT));
      }
    }
    if (databases.isEmpty() || databases.contains(null)) {
      forget();
    } else {
      databases.forEach(CatalogPlaces::forgetIn);
    }
  }

  private static void forgetIn(String database) {
    ANSWERS.keySet().removeIf(asked -> Set.of(RULED, ALL_TAGGED, TAGGED_IN + database).contains(asked.kind));
  }

  /** Returns the folders of tables that have a rule by their name. */
  PlaceIndex<TablePlace> ofRules() {
    return answer(RULED, () -> {
      Map<String, Map<String, String>> byDatabase = new TreeMap<>();
      for (String name : policy.ruledTables()) {
        addName(byDatabase, name);
      }
      PlaceIndex<TablePlace> found = new PlaceIndex<>();
      byDatabase.forEach((database, names) -> addRuled(found, database, names));
      return now(found);
    }).places;
  }

  private void addName(Map<String, Map<String, String>> byDatabase, String name) {
    try {
      TableIdentifier identifier = session.sessionState().sqlParser().parseTableIdentifier(name);
      String database = TableEntry.database(identifier, null);
      if (database != null) {
        String table = identifier.table().toLowerCase(Locale.ROOT);
        byDatabase.computeIfAbsent(database.toLowerCase(Locale.ROOT), unused -> new TreeMap<>()).put(table, name);
      }
    } catch (ParseException e) {
      LOG.debug("{} is the policy's own name for a location", name);
    }
  }

  /** Adds the places of the tables of one database that have a rule; of a table that is not there yet, its default folder. */
  private void addRuled(PlaceIndex<TablePlace> found, String database, Map<String, String> names) {
    ExternalCatalog external = catalog.externalCatalog();
    if (!external.databaseExists(database)) {
      return;
    }
    Map<String, String> missing = new TreeMap<>(names);
    for (CatalogTable table : tablesNamed(external, database, List.copyOf(names.keySet()))) {
      String name = missing.remove(table.identifier().table().toLowerCase(Locale.ROOT));
      if (name != null) {
        addFolders(found, name, table, true);
        addPartitionsElsewhere(found, name, table);
      }
    }
    if (!missing.isEmpty()) {
      String root = Place.textOf(external.getDatabase(database).locationUri());
      missing.forEach((table, name) -> {
        add(found, new Path(root, table).toString(), name, null, true);
      });
    }
  }

  /** Returns the tables of a database that have one of some names. */
  static List<CatalogTable> tablesNamed(ExternalCatalog external, String database, List<?> names) {
    return Calls.list(Calls.call(external, "getTablesByName", database, Calls.scalaList(names)));
  }

  /** Returns all tables of a database. */
  static List<CatalogTable> tablesIn(ExternalCatalog external, String database) {
    return tablesNamed(external, database, Calls.list(Calls.call(external, "listTables", database)));
  }

  /** Returns the names of all databases. */
  static List<String> databasesOf(ExternalCatalog external) {
    return Calls.list(Calls.call(external, "listDatabases"));
  }

  /** Returns the partitions of a table in the catalog, by a Scala option of some of their values. */
  static List<CatalogTablePartition> listPartitions(SessionCatalog catalog, CatalogTable table, Object values) {
    return Calls.list(Calls.call(catalog, "listPartitions", table.identifier(), values));
  }

  private void addPartitionsElsewhere(PlaceIndex<TablePlace> found, String name, CatalogTable table) {
    String root = TableEntry.folder(table);
    if (root == null || TableEntry.partitionColumns(table).isEmpty()) {
      return;
    }
    Set<String> elsewhere = new LinkedHashSet<>();
    Place own = Place.of(root);
    Place ofRuns = Place.of(Place.ofRuns(root));
    for (CatalogTablePartition partition : listPartitions(catalog, table, Option.empty())) {
      String location = TableEntry.folder(partition.storage());
      String folder = location == null ? root : location;
      if (!Place.of(folder).isWithin(own) && !Place.of(folder).isWithin(ofRuns)) {
        elsewhere.add(folder);
      }
    }
    elsewhere.forEach(folder -> add(found, folder, name, table, true));
  }

  /**
   * Returns the folders of tables that carry tags of their own, or have an identity from a run, in every database; the answer is as
   * old as its oldest part.
   */
  PlaceIndex<TablePlace> ofTags() {
    return answer(ALL_TAGGED, () -> {
      PlaceIndex<TablePlace> found = new PlaceIndex<>();
      long oldest = System.nanoTime();
      for (String database : databasesOf(catalog.externalCatalog())) {
        Answer part = answer(TAGGED_IN + database.toLowerCase(Locale.ROOT), () -> now(taggedIn(database)));
        part.places.values().forEach(place -> found.add(place.place(), place));
        oldest = Math.min(oldest, part.atNanos);
      }
      return new Answer(oldest, found);
    }).places;
  }

  private PlaceIndex<TablePlace> taggedIn(String database) {
    PlaceIndex<TablePlace> found = new PlaceIndex<>();
    for (CatalogTable table : tablesIn(catalog.externalCatalog(), database)) {
      if (TableEntry.isTagged(table) || TableEntry.properties(table).containsKey(Names.TABLE_UUID)) {
        addFolders(found, TableEntry.name(table), table, false);
      }
    }
    return found;
  }

  private void addFolders(PlaceIndex<TablePlace> found, String name, CatalogTable table, boolean isRuled) {
    String root = TableEntry.folder(table);
    if (root != null) {
      add(found, root, name, table, isRuled);
      add(found, Place.ofRuns(root), name, table, isRuled);
    }
  }

  private void add(PlaceIndex<TablePlace> found, String folder, String name, CatalogTable table, boolean isRuled) {
    Place place = real.of(folder);
    found.add(place, new TablePlace(folder, place, name, table, isRuled));
  }

  private static Answer now(PlaceIndex<TablePlace> places) {
    return new Answer(System.nanoTime(), places);
  }

  private Answer answer(String kind, Supplier<Answer> look) {
    Asked asked = new Asked(kind, session.sparkContext().applicationId(), policy.text());
    Answer answer = ANSWERS.get(asked);
    if (answer == null || System.nanoTime() - answer.atNanos > LIFETIME_NANOS) {
      answer = look.get();
      if (ANSWERS.size() > MOST) { // policies that are no longer in use
        ANSWERS.clear();
      }
      ANSWERS.put(asked, answer);
    }
    return answer;
  }
}

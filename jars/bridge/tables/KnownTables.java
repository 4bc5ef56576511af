package io.sparkcrypt;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.stream.Stream;
import org.apache.spark.sql.SparkSession;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The table that a path belongs to, found by the nearest folder: the tables' own, those that runs made beside them, and
 * partitions elsewhere.
 *
 * <p>Answers of the catalog are kept for a minute; they are dropped at once if this application changes a table.
 */
final class KnownTables {
  private static final long LIFETIME_NANOS = 60_000_000_000L;
  private static final int MOST_ANNOUNCED = 10_000;
  private static final int MOST_NAMED = 100;
  private static final Logger LOG = LoggerFactory.getLogger(KnownTables.class);
  private static final Map<String, Answer> ANSWERS = new ConcurrentHashMap<>();
  private static final Map<String, Made> ANNOUNCED = new ConcurrentHashMap<>();
  private static final Set<Made> SEEN = ConcurrentHashMap.newKeySet();

  private final SparkSession session;
  private final SessionPolicy policy;
  private final Object catalog;

  /** A folder of a table, and the table's entry in the catalog; null for a table that does not exist yet. */
  record Place(String folder, String name, Object table) {}

  private record Answer(long atNanos, List<Place> places) {}

  /** A table that is being created: its name quoted for SQL, and the UUID that its command gives it, or null. */
  private record Made(String name, String uuid) {}

  KnownTables(SparkSession session, SessionPolicy policy) {
    this.session = session;
    this.policy = policy;
    this.catalog = Calls.call(Calls.call(session, "sessionState"), "catalog");
  }

  /** Returns whether a command of this name may change the catalog's answers. */
  static boolean isChangedBy(String command) {
    return command.matches("(Alter|Create|Drop|Rename|Truncate|Repair|Recover|SetTable|UnsetTable|Replace).*");
  }

  static void forget() {
    ANSWERS.clear();
  }

  /** Notes that a table of this name is about to be created in this folder, and with which UUID. */
  static void announce(String folder, String name, String uuid) {
    if (ANNOUNCED.size() > MOST_ANNOUNCED) {
      ANNOUNCED.clear();
      SEEN.clear();
    }
    Made made = new Made(name, uuid);
    SEEN.remove(made);
    ANNOUNCED.put(Folders.comparable(folder), made);
  }

  /** Drops the answers that the command creating a table got, once the table in or above this folder exists. */
  private void forgetBefore(String folder) {
    ANNOUNCED.forEach(
        (root, made) -> {
          if (Folders.isWithin(Folders.comparable(folder), root) && !SEEN.contains(made) && exists(parseName(made.name))) {
            SEEN.add(made);
            forget();
          }
        });
  }

  /**
   * Returns the table that is being created in this folder, or null; once the catalog has it, it is no longer being created.
   *
   * <p>Spark 4.3 drops an overwritten table only after the write of its successor was planned: that write has the UUID that its
   * own command generated.
   */
  private Made findAnnounced(String folder, String uuid) {
    Made made = ANNOUNCED.get(Folders.comparable(folder));
    if (made == null || made.uuid != null && made.uuid.equals(uuid)) {
      return made;
    }
    if (exists(parseName(made.name))) {
      ANNOUNCED.remove(Folders.comparable(folder));
      return null;
    }
    return made;
  }

  private Object parseName(String name) {
    return Calls.call(Calls.call(Calls.call(session, "sessionState"), "sqlParser"), "parseTableIdentifier", name);
  }

  boolean exists(Object identifier) {
    return (Boolean) Calls.call(catalog, "tableExists", identifier);
  }

  Object fresh(Object identifier) {
    return Calls.call(catalog, "getTableMetadata", identifier);
  }

  /** Returns the partitions of a table in the catalog, by a Scala option of some of their values. */
  List<Object> partitions(Object table, Object values) {
    return Calls.list(Calls.call(catalog, "listPartitions", Calls.call(table, "identifier"), values));
  }

  /** Returns whether a table that a condition accepts is in the catalog; asks for every table of every database. */
  boolean anyTable(Predicate<Object> condition) {
    return eachTable().anyMatch(condition);
  }

  private Stream<Object> eachTable() {
    Object external = Calls.call(catalog, "externalCatalog");
    return Calls.list(Calls.call(external, "listDatabases")).stream()
        .flatMap(
            database ->
                Calls.list(Calls.call(external, "getTablesByName", database, Calls.call(external, "listTables", database))).stream());
  }

  /** Returns the folders of tables with tags, a rule, or files that a run has made. */
  List<Place> listPlaces() {
    List<Place> found = new ArrayList<>(ruledPlaces());
    found.addAll(taggedPlaces());
    return found;
  }

  /** Returns the nearest of these folders that is a given one or above it; null if there is none. */
  Place near(String folder) {
    return nearest(folder, ruledPlaces(), taggedPlaces());
  }

  /** Returns whether a command is creating its table in this folder; its writes may name a UUID. */
  boolean isBeingMade(String folder, String uuid) {
    return findAnnounced(folder, uuid) != null;
  }

  /** Returns the folder of a table that has no location of its own. */
  String defaultFolder(Object identifier) {
    return Folders.text(Calls.call(catalog, "defaultTablePath", identifier));
  }

  /** Returns the current entry of the table that owns this folder or one above it; null if there is none. */
  Object owner(String folder) {
    for (int attempt = 0; attempt < 2; attempt++) {
      Place near = near(folder);
      if (near == null || near.table == null) {
        return null;
      }
      Object identifier = Calls.call(near.table, "identifier");
      if (exists(identifier)) {
        Object now = fresh(identifier);
        if (Calls.call(now, "storage").equals(Calls.call(near.table, "storage"))) {
          return now;
        }
      }
      forget();
    }
    return null;
  }

  /**
   * Returns the properties for a writer by path: those of the table that owns the folder, or the locations of tables with rules.
   */
  Map<String, String> writerPropertiesByFolder(String folder) {
    return writerPropertiesByFolder(folder, null);
  }

  /**
   * Returns the properties for a writer by path whose options name a UUID.
   *
   * <p>A table that is created in place of another has its own identity, and the other's tags as long as that exists.
   */
  Map<String, String> writerPropertiesByFolder(String folder, String uuid) {
    forgetBefore(folder);
    Made made = findAnnounced(folder, uuid);
    Object owner = made != null && made.uuid == null ? null : owner(folder);
    if (made == null) {
      return owner == null ? places() : TableEntry.writerProperties(owner);
    }
    Map<String, String> told = new TreeMap<>();
    if (owner != null && TableEntry.quote(owner).equalsIgnoreCase(made.name)) {
      told.putAll(TableEntry.writerProperties(owner));
      told.remove(Names.TABLE_UUID);
    }
    told.put(Names.TABLE_NAME, made.name.replace("`", ""));
    return told;
  }

  /** Returns whether files in this folder, of a table of this name, are subject to the tags or the rule of a table. */
  boolean isGoverned(String name, String folder) {
    return policy.ruledTables().stream().anyMatch(ruled -> ruled.replace("`", "").equalsIgnoreCase(name)) || owner(folder) != null;
  }

  /** Returns the properties for a writer by path: the locations of tables with rules. */
  Map<String, String> places() {
    return places(List.of());
  }

  /**
   * Returns the properties for a reader by path: the locations of tables with rules, and for access events its folders' tables.
   */
  Map<String, String> places(List<Object> folders) {
    ObjectNode known = locations();
    if (AccessLogPlace.of(policy.text()) != null) {
      folders.stream().limit(MOST_NAMED).forEach(folder -> addOwner(known, folder.toString()));
    }
    return known.isEmpty() ? Map.of() : Map.of(Names.LOCATIONS, known.toString());
  }

  /** Adds only the name of a table without a rule. If it cannot be found, the read does not fail and is noted by its folder. */
  private void addOwner(ObjectNode known, String folder) {
    try {
      forgetBefore(folder);
      Object owner = nearest(folder, ruledPlaces()) == null ? owner(folder) : null;
      if (owner != null) {
        known.putObject(folder).put("table", TableEntry.name(owner)).putNull("uuid");
      }
    } catch (RuntimeException e) {
      LOG.debug("whose table {} is cannot be told", folder, e);
    }
  }

  /** Returns the locations of tables with rules, as JSON for readers and writers by path. */
  private ObjectNode locations() {
    ObjectNode known = Wire.object();
    for (Place place : ruledPlaces()) {
      ObjectNode entry = known.putObject(place.folder).put("table", place.name);
      String uuid = place.table == null ? null : TableEntry.properties(place.table).get(Names.TABLE_UUID);
      entry.put("uuid", uuid);
    }
    return known;
  }

  @SafeVarargs
  private static Place nearest(String folder, List<Place>... known) {
    Place near = null;
    for (List<Place> places : known) {
      for (Place place : places) {
        if (Folders.isWithin(folder, place.folder) && (near == null || place.folder.length() > near.folder.length())) {
          near = place;
        }
      }
    }
    return near;
  }

  private List<Place> ruledPlaces() {
    return lookUp("ruled", unused -> {
      List<Place> found = new ArrayList<>();
      for (String name : policy.ruledTables()) {
        addRuled(found, name);
      }
      return found;
    });
  }

  private void addRuled(List<Place> found, String name) {
    Object identifier;
    try {
      identifier = parseName(name);
    } catch (IllegalStateException e) {
      return; // the policy's own name for a location
    }
    if (!(Boolean) Calls.call(Calls.call(identifier, "database"), "isDefined")) {
      return;
    }
    if (!exists(identifier)) {
      if ((Boolean) Calls.call(catalog, "databaseExists", Calls.orNull(Calls.call(identifier, "database")))) {
        found.add(new Place(defaultFolder(identifier), name, null));
      }
      return;
    }
    Object table = fresh(identifier);
    addFolders(found, name, table);
    addPartitionsElsewhere(found, name, table);
  }

  private void addPartitionsElsewhere(List<Place> found, String name, Object table) {
    String root = TableEntry.folder(table);
    if (root == null || Calls.list(Calls.call(table, "partitionColumnNames")).isEmpty()) {
      return;
    }
    Map<String, Place> elsewhere = new LinkedHashMap<>();
    for (Object partition : partitions(table, Calls.none(session))) {
      Object uri = Calls.orNull(Calls.call(Calls.call(partition, "storage"), "locationUri"));
      String folder = uri == null ? root : Folders.text(uri);
      if (!Folders.isWithin(folder, root) && !Folders.isWithin(folder, Folders.ofRuns(root))) {
        elsewhere.put(folder, new Place(folder, name, table));
      }
    }
    found.addAll(elsewhere.values());
  }

  /** Returns the folders of tables that carry tags of their own, or have an identity from a run, in every database. */
  private List<Place> taggedPlaces() {
    return lookUp("tagged", unused -> {
      List<Place> found = new ArrayList<>();
      eachTable()
          .filter(table -> TableEntry.isTagged(table) || TableEntry.properties(table).containsKey(Names.TABLE_UUID))
          .forEach(table -> addFolders(found, TableEntry.name(table), table));
      return found;
    });
  }

  private static void addFolders(List<Place> found, String name, Object table) {
    String root = TableEntry.folder(table);
    if (root != null) {
      found.add(new Place(root, name, table));
      found.add(new Place(Folders.ofRuns(root), name, table));
    }
  }

  private List<Place> lookUp(String kind, Function<String, List<Place>> look) {
    String key = kind + ":" + session.sparkContext().applicationId() + ":" + policy.text();
    Answer answer = ANSWERS.get(key);
    if (answer == null || System.nanoTime() - answer.atNanos > LIFETIME_NANOS) {
      answer = new Answer(System.nanoTime(), look.apply(key));
      if (ANSWERS.size() > 100) { // policies that are no longer in use
        ANSWERS.clear();
      }
      ANSWERS.put(key, answer);
    }
    return answer.places;
  }
}

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
import org.apache.spark.sql.SparkSession;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Which table a path belongs to: the nearest of the tables' own folders, what runs made beside them, and partitions elsewhere.
 *
 * <p>What the catalog says is believed for a minute; what this application changes itself is forgotten at once.
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

  /** One folder of a table, and the table as the catalog has it; null for one that is not there yet. */
  private record Place(String folder, String name, Object table) {}

  private record Answer(long atNanos, List<Place> places) {}

  /** A table that is being made: its name as SQL takes it, and the UUID that its command gives it; null where it gives none. */
  private record Made(String name, String uuid) {}

  KnownTables(SparkSession session, SessionPolicy policy) {
    this.session = session;
    this.policy = policy;
    this.catalog = Calls.call(Calls.call(session, "sessionState"), "catalog");
  }

  /** Tells whether a command of this name may change what is known. */
  static boolean isChangedBy(String command) {
    return command.matches("(Alter|Create|Drop|Rename|Truncate|Repair|Recover|SetTable|UnsetTable|Replace).*");
  }

  static void forget() {
    ANSWERS.clear();
  }

  /** Notes that a table of this name is about to be made in this folder, and with which UUID. */
  static void announce(String folder, String name, String uuid) {
    if (ANNOUNCED.size() > MOST_ANNOUNCED) {
      ANNOUNCED.clear();
      SEEN.clear();
    }
    Made made = new Made(name, uuid);
    SEEN.remove(made);
    ANNOUNCED.put(Folders.comparable(folder), made);
  }

  /** Forgets what the command that makes a table looked up, as soon as the table in or above this folder is there. */
  private void forgetBefore(String folder) {
    ANNOUNCED.forEach(
        (root, made) -> {
          if (Folders.isWithin(Folders.comparable(folder), root) && !SEEN.contains(made) && exists(parsed(made.name))) {
            SEEN.add(made);
            forget();
          }
        });
  }

  /**
   * The table that is being made in this folder, or null; once the catalog has it, it is no longer being made.
   *
   * <p>Spark 4.3 drops a table that is overwritten only after the write of its successor was planned: that write has the UUID
   * which its own command made up.
   */
  private Made announced(String folder, String uuid) {
    Made made = ANNOUNCED.get(Folders.comparable(folder));
    if (made == null || made.uuid != null && made.uuid.equals(uuid)) {
      return made;
    }
    if (exists(parsed(made.name))) {
      ANNOUNCED.remove(Folders.comparable(folder));
      return null;
    }
    return made;
  }

  private Object parsed(String name) {
    return Calls.call(Calls.call(Calls.call(session, "sessionState"), "sqlParser"), "parseTableIdentifier", name);
  }

  boolean exists(Object identifier) {
    return (Boolean) Calls.call(catalog, "tableExists", identifier);
  }

  Object fresh(Object identifier) {
    return Calls.call(catalog, "getTableMetadata", identifier);
  }

  /** Where a table without a place of its own will be. */
  String defaultFolder(Object identifier) {
    return Folders.text(Calls.call(catalog, "defaultTablePath", identifier));
  }

  /** The table whose folder this is or lies in, as the catalog has it now; null when it is no table's. */
  Object owner(String folder) {
    for (int attempt = 0; attempt < 2; attempt++) {
      Place near = nearest(folder, ruled(), tagged());
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

  /** What a writer by path must know: the table that owns the folder, or where tables with rules are. */
  Map<String, String> toldByFolder(String folder) {
    return toldByFolder(folder, null);
  }

  /**
   * What a writer by path must know whose options name a UUID.
   *
   * <p>A table that is made in another's place has an identity of its own, and the other's tags as long as that is there.
   */
  Map<String, String> toldByFolder(String folder, String uuid) {
    forgetBefore(folder);
    Made made = announced(folder, uuid);
    Object owner = made != null && made.uuid == null ? null : owner(folder);
    if (made == null) {
      return owner == null ? places() : TableEntry.told(owner);
    }
    Map<String, String> told = new TreeMap<>();
    if (owner != null && TableEntry.quoted(owner).equalsIgnoreCase(made.name)) {
      told.putAll(TableEntry.told(owner));
      told.remove(Names.TABLE_UUID);
    }
    told.put(Names.TABLE_NAME, made.name.replace("`", ""));
    return told;
  }

  /** Whether files in this folder, of a table of this name, are under the tags or the rule of a table. */
  boolean isGoverned(String name, String folder) {
    return policy.ruledTables().stream().anyMatch(one -> one.replace("`", "").equalsIgnoreCase(name)) || owner(folder) != null;
  }

  /** What a writer by path must know: where tables with rules are. */
  Map<String, String> places() {
    return places(List.of());
  }

  /** What a reader by path must know: where tables with rules are, and for access events whose the folders are that it reads. */
  Map<String, String> places(List<Object> folders) {
    ObjectNode known = locations();
    if (AccessLogPlace.of(policy.text()) != null) {
      folders.stream().limit(MOST_NAMED).forEach(folder -> addOwner(known, folder.toString()));
    }
    return known.isEmpty() ? Map.of() : Map.of(Names.LOCATIONS, known.toString());
  }

  /** Adds the name alone of a table without a rule; a read does not fail for want of it, and is then noted by its folder. */
  private void addOwner(ObjectNode known, String folder) {
    try {
      forgetBefore(folder);
      Object owner = nearest(folder, ruled()) == null ? owner(folder) : null;
      if (owner != null) {
        known.putObject(folder).put("table", TableEntry.name(owner)).putNull("uuid");
      }
    } catch (RuntimeException e) {
      LOG.debug("whose table {} is cannot be told", folder, e);
    }
  }

  /** The places of tables with rules, as JSON for readers and writers by path. */
  private ObjectNode locations() {
    ObjectNode known = Wire.object();
    for (Place place : ruled()) {
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

  private List<Place> ruled() {
    return known("ruled", unused -> {
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
      identifier = parsed(name);
    } catch (IllegalStateException e) {
      return; // a name of the policy's own, for a location
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
    for (Object partition : Calls.list(Calls.call(catalog, "listPartitions", Calls.call(table, "identifier"), Calls.none(session)))) {
      Object uri = Calls.orNull(Calls.call(Calls.call(partition, "storage"), "locationUri"));
      String folder = uri == null ? root : Folders.text(uri);
      if (!Folders.isWithin(folder, root) && !Folders.isWithin(folder, Folders.ofRuns(root))) {
        elsewhere.put(folder, new Place(folder, name, table));
      }
    }
    found.addAll(elsewhere.values());
  }

  /** Tables that carry tags of their own, in every database: only who writes by path needs to know them. */
  private List<Place> tagged() {
    return known("tagged", unused -> {
      List<Place> found = new ArrayList<>();
      Object external = Calls.call(catalog, "externalCatalog");
      for (Object database : Calls.list(Calls.call(external, "listDatabases"))) {
        Object names = Calls.call(external, "listTables", database);
        for (Object table : Calls.list(Calls.call(external, "getTablesByName", database, names))) {
          if (TableEntry.isTagged(table)) {
            addFolders(found, TableEntry.name(table), table);
          }
        }
      }
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

  private List<Place> known(String kind, Function<String, List<Place>> look) {
    String key = kind + ":" + session.sparkContext().applicationId() + ":" + policy.text();
    Answer answer = ANSWERS.get(key);
    if (answer == null || System.nanoTime() - answer.atNanos > LIFETIME_NANOS) {
      answer = new Answer(System.nanoTime(), look.apply(key));
      if (ANSWERS.size() > 100) { // texts of policies that nobody uses any more
        ANSWERS.clear();
      }
      ANSWERS.put(key, answer);
    }
    return answer.places;
  }
}

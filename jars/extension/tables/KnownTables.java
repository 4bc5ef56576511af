package io.sparkcrypt;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Predicate;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTablePartition;
import org.apache.spark.sql.catalyst.catalog.ExternalCatalog;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.slf4j.Logger;

/**
 * The table that a path belongs to, found by the nearest folder: the tables' own, those that runs made beside them, and
 * partitions elsewhere.
 */
final class KnownTables {
  private static final int MOST_ANNOUNCED = 10_000;
  private static final int MOST_NAMED = 100;
  private static final Logger LOG = CleanLog.of(KnownTables.class);
  /** Properties whose values are lists. */
  private static final Set<String> LISTS = Set.of(Names.TAGS_PREFIX, Names.PREFIX + "history.");

  private static final Map<String, Made> ANNOUNCED = new ConcurrentHashMap<>();
  private static final Set<Made> SEEN = ConcurrentHashMap.newKeySet();

  private final SessionPolicy policy;
  private final SessionCatalog catalog;
  private final RealPlaces real;
  private final CatalogPlaces folders;

  /** A table that is being created, the UUID that its command gives it, or null, and its folder. */
  private record Made(TableIdentifier name, String uuid, String folder) {}

  KnownTables(SparkSession session, SessionPolicy policy) {
    this.policy = policy;
    this.catalog = session.sessionState().catalog();
    this.real = new RealPlaces(policy);
    this.folders = new CatalogPlaces(session, policy, real);
  }

  static void forget() {
    CatalogPlaces.forget();
  }

  /** Notes that a table of this name is about to be created in this folder, and with which UUID. */
  static void announce(String folder, TableIdentifier name, String uuid) {
    if (ANNOUNCED.size() > MOST_ANNOUNCED) {
      ANNOUNCED.clear();
      SEEN.clear();
    }
    Made made = new Made(name, uuid, folder);
    SEEN.remove(made);
    ANNOUNCED.put(Place.of(folder).path(), made);
  }

  /** Drops the answers that the command creating a table got, once the table in or above this folder, by any name, exists. */
  private void forgetBefore(String folder) {
    Place place = real.of(folder);
    ANNOUNCED.values().forEach(made -> {
      if (!SEEN.contains(made) && place.isWithin(real.of(made.folder)) && exists(made.name)) {
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
    Made made = ANNOUNCED.get(Place.of(folder).path());
    if (made == null || made.uuid != null && made.uuid.equals(uuid)) {
      return made;
    }
    if (exists(made.name)) {
      ANNOUNCED.remove(Place.of(folder).path());
      return null;
    }
    return made;
  }

  /** Returns whether a table is being created in this folder, by a writer whose options name this UUID. */
  boolean isBeingCreated(String folder, String uuid) {
    forgetBefore(folder);
    return findAnnounced(folder, uuid) != null;
  }

  boolean exists(TableIdentifier identifier) {
    return catalog.tableExists(identifier);
  }

  CatalogTable fresh(TableIdentifier identifier) {
    return (CatalogTable) Calls.call(catalog, "getTableMetadata", identifier);
  }

  /** Returns the partitions of a table in the catalog, by a Scala option of some of their values. */
  List<CatalogTablePartition> partitions(CatalogTable table, Object values) {
    return CatalogPlaces.listPartitions(catalog, table, values);
  }

  /** Returns whether a table that a condition accepts is in the catalog; asks for every table of every database. */
  boolean anyTable(Predicate<CatalogTable> condition) {
    ExternalCatalog external = catalog.externalCatalog();
    return CatalogPlaces.databasesOf(external).stream()
        .flatMap(database -> CatalogPlaces.tablesIn(external, database).stream())
        .anyMatch(condition);
  }

  /** Returns the folders of tables with tags, a rule, or files that a run has made. */
  List<TablePlace> listPlaces() {
    return allPlaces().stream().flatMap(places -> places.values().stream()).toList();
  }

  /** Returns the nearest of these folders that is a given one or above it; null if there is none. */
  TablePlace near(String folder) {
    return nearest(real.of(folder), allPlaces());
  }

  /** Returns where a folder really is. */
  Place real(String folder) {
    return real.of(folder);
  }

  /** Returns the folder of a table; the default one, if it has no location of its own yet. */
  String folderOf(CatalogTable table) {
    String folder = TableEntry.folder(table);
    return folder == null ? Place.textOf(catalog.defaultTablePath(table.identifier())) : folder;
  }

  /** Returns the name of a table that may name no database, and then is in the current one. */
  String name(CatalogTable table) {
    return TableEntry.name(table, catalog.getCurrentDatabase());
  }

  /** Returns the current entry of the table that owns this folder or one above it; null if there is none. */
  CatalogTable owner(String folder) {
    for (int attempt = 0; attempt < 2; attempt++) {
      TablePlace near = near(folder);
      if (near == null || near.table() == null) {
        return null;
      }
      CatalogTable now = current(near);
      if (now != null) {
        return now;
      }
      forget();
    }
    return null;
  }

  /** Returns a table's entry as the catalog has it now; null if the table is gone or elsewhere. */
  private CatalogTable current(TablePlace known) {
    TableIdentifier identifier = known.table().identifier();
    CatalogTable now = exists(identifier) ? fresh(identifier) : null;
    return now != null && now.storage().equals(known.table().storage()) ? now : null;
  }

  /** Returns the other tables with tags or a rule whose folder this is or lies in, as they are now, the nearest first. */
  List<TablePlace> others(String folder, String name) {
    Place place = real.of(folder);
    for (int attempt = 0; ; attempt++) {
      List<TablePlace> found = new ArrayList<>();
      boolean isStale = false;
      for (TablePlace known : above(place, allPlaces())) {
        if (!known.isOf(name) && known.table() != null) {
          CatalogTable now = current(known);
          isStale |= now == null;
          found.add(known.with(now));
        }
      }
      if (!isStale || attempt == 1) {
        found.removeIf(known -> known.table() == null);
        return found;
      }
      forget();
    }
  }

  /** Returns the properties for a writer of a table by its name: its own, and what the tables require in whose folders it lies. */
  Map<String, String> writerProperties(CatalogTable table) {
    return unite(TableEntry.writerProperties(table), TableEntry.name(table), TableEntry.folder(table));
  }

  /**
   * Returns the properties for a writer, with the tags of the other tables in whose folders it writes.
   *
   * @param own the properties of the table that is written to
   * @param name its name
   * @param folder its folder, as the writer names it; null if it has none
   * @throws RuntimeException one of them would list the files, which would be bound to another table
   */
  private Map<String, String> unite(Map<String, String> own, String name, String folder) {
    if (folder == null) {
      return own;
    }
    Place place = real.of(folder);
    List<TablePlace> others = others(folder, name);
    String uuid = own.get(Names.TABLE_UUID);
    for (TablePlace other : others) {
      if (other.lists(place) && uuid != null && other.uuid() != null && !uuid.equals(other.uuid())) {
        throw Refusal.of(
            "PlanError",
            name + ": its folder " + place.text() + " is one of " + other.name() + " too, and the files of each are bound to its UUID, so "
                + "neither could read what the other writes; let one of them have a folder of its own: copy its rows into a new "
                + "table (CREATE TABLE … AS SELECT), and write there");
      }
      uuid = uuid == null && other.lists(place) ? other.uuid() : uuid;
    }
    return addTags(own, folder, place, others);
  }

  /** Returns the properties of a table, with the tags of the other tables in whose folders it lies. */
  private static Map<String, String> addTags(Map<String, String> own, String folder, Place place, List<TablePlace> others) {
    Map<String, String> told = new TreeMap<>(own);
    others.forEach(other -> addTags(told, other, folder, place));
    return told;
  }

  private static void addTags(Map<String, String> told, TablePlace other, String folder, Place place) {
    Map<String, String> theirs = TableEntry.writerProperties(other.table());
    theirs.remove(Names.TABLE_NAME);
    if (!other.lists(place)) {
      theirs.remove(Names.TABLE_UUID);
    }
    String schema = theirs.remove(Names.TABLE_SCHEMA);
    if (schema != null) { // one item of a list in JSON
      told.merge(Names.OWNER_SCHEMAS, "[" + schema + "]", (first, next) -> first.substring(0, first.length() - 1) + "," + next.substring(1));
    }
    theirs.forEach((property, value) -> told.merge(property, value, (mine, more) -> merge(property, mine, more)));
    if (other.isRuled() && !told.containsKey(Names.LOCATIONS)) {
      ObjectNode known = Wire.object();
      known.putObject(folder).put("table", other.name()).put("uuid", other.lists(place) ? other.uuid() : null);
      told.put(Names.LOCATIONS, known.toString());
    }
  }

  private static String merge(String property, String mine, String more) {
    if (LISTS.stream().anyMatch(property::startsWith) && !mine.isBlank() && !more.isBlank()) {
      Set<String> all = new LinkedHashSet<>(List.of(mine.split("\\s*,\\s*")));
      all.addAll(List.of(more.split("\\s*,\\s*")));
      return String.join(",", all);
    }
    boolean requires = property.equals(Names.REQUIRE_ENCRYPTION) && Boolean.parseBoolean(more.trim());
    return requires || mine.isBlank() ? more : mine;
  }

  /** Returns the properties of a table that is read, with the tags of the tables in whose folders it lies. */
  Map<String, String> propertiesWithTags(CatalogTable table) {
    String folder = TableEntry.folder(table);
    Map<String, String> own = TableEntry.writerProperties(table);
    return folder == null ? own : addTags(own, folder, real.of(folder), others(folder, TableEntry.name(table)));
  }

  /** Refuses a write by path whose option names another table than one that would list its files. */
  void checkStated(String folder, String stated) {
    Place place = real.of(folder);
    for (TablePlace other : others(folder, stated)) {
      if (other.lists(place)) {
        throw Refusal.of(
            "PlanError",
            Names.TABLE + " is '" + stated + "', but " + place.text() + " is a folder of " + other.name() + ", which would list the files; "
                + "remove the option");
      }
    }
  }

  /**
   * Refuses a write whose partitions can be folders of another table.
   *
   * @param folder the folder that is written to
   * @param columns the names of its partition columns
   * @param name the table that is written to; null for a folder
   */
  void checkPartitions(String folder, List<String> columns, String name) {
    if (!columns.isEmpty()) {
      Place place = real.of(folder);
      for (PlaceIndex<TablePlace> known : allPlaces()) {
        for (PlaceIndex.Entry<TablePlace> below : known.below(place)) {
          TablePlace table = below.value();
          if ((name == null || !table.isOf(name)) && table.isReachedFrom(place, columns)) {
            throw Refusal.of(
                "PlanError",
                place.text() + ": partitions by " + String.join(", ", columns) + " can be in " + table.place().text() + ", a folder of "
                    + table.name() + ", whose tags and identity their files would lack; write its rows into " + table.name()
                    + " by its name, and others into another folder");
          }
        }
      }
    }
  }

  /** Refuses to make a table by a query in a folder whose files another table would list as its own. */
  void checkMade(String folder, String name) {
    Place place = real.of(folder);
    for (TablePlace other : others(folder, name)) {
      if (other.lists(place)) {
        throw Refusal.of(
            "PlanError",
            name + ": its folder " + place.text() + " is one of " + other.name() + ", which would list its files and not read them, since "
                + "they would be bound to another table; INSERT INTO " + other.name() + ", or name a folder of its own");
      }
    }
  }

  /**
   * Returns the properties for a writer by path: those of the table that owns the folder, or the locations of tables with rules.
   *
   * <p>A table that is being created has its own identity and its own tags, which its command put into the writer's options.
   *
   * @param uuid the UUID that the options of the write name, or null
   */
  Map<String, String> writerPropertiesByFolder(String folder, String uuid) {
    forgetBefore(folder);
    Made made = findAnnounced(folder, uuid);
    CatalogTable owner = made != null && made.uuid == null ? null : owner(folder);
    String name = made != null ? TableEntry.quote(made.name).replace("`", "") : owner == null ? null : TableEntry.name(owner);
    if (name == null) {
      return places(List.of(folder));
    }
    Map<String, String> told = made != null ? Map.of(Names.TABLE_NAME, name) : TableEntry.writerProperties(owner);
    return owner == null ? told : unite(told, name, folder);
  }

  /** Returns whether files in this folder, of a table of this name, are subject to the tags or the rule of a table. */
  boolean isGoverned(String name, String folder) {
    return policy.ruledTables().stream().anyMatch(ruled -> ruled.replace("`", "").equalsIgnoreCase(name)) || owner(folder) != null;
  }

  /** Returns the properties for a reader by path: the locations of tables with rules, and for access events its folders' tables. */
  Map<String, String> places(List<?> read) {
    ObjectNode known = locations();
    boolean namesAll = AccessLogPlace.of(policy.text()) != null;
    read.stream().limit(MOST_NAMED).forEach(folder -> addOwner(known, folder.toString(), namesAll));
    return known.isEmpty() ? Map.of() : Map.of(Names.LOCATIONS, known.toString());
  }

  /**
   * Adds a folder by the name that a reader or writer has for it, if that is a link or a mount to the folder of a table with a
   * rule; and, where access events are noted, the name of a table without one. If that cannot be found, the read does not fail and
   * is noted by its folder.
   */
  private void addOwner(ObjectNode known, String folder, boolean namesAll) {
    TablePlace ruled = nearest(real.of(folder), List.of(folders.ofRules()));
    if (ruled != null) {
      if (!Place.of(folder).isWithin(Place.of(ruled.folder()))) {
        known.putObject(folder).put("table", ruled.name()).put("uuid", ruled.uuid());
      }
      return;
    }
    try {
      forgetBefore(folder);
      CatalogTable owner = namesAll ? owner(folder) : null;
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
    for (TablePlace place : folders.ofRules().values()) {
      known.putObject(place.folder()).put("table", place.name()).put("uuid", place.uuid());
    }
    return known;
  }

  private static TablePlace nearest(Place place, List<PlaceIndex<TablePlace>> known) {
    List<TablePlace> above = above(place, known);
    return above.isEmpty() ? null : above.get(0);
  }

  /** Returns the tables at a place and above it, the nearest first; of equally near ones, those of the first index. */
  private static List<TablePlace> above(Place place, List<PlaceIndex<TablePlace>> known) {
    return known.stream()
        .flatMap(places -> places.above(place).stream())
        .sorted(Comparator.comparing(entry -> -entry.place().path().length()))
        .map(PlaceIndex.Entry::value)
        .toList();
  }

  private List<PlaceIndex<TablePlace>> allPlaces() {
    return List.of(folders.ofRules(), folders.ofTags());
  }
}

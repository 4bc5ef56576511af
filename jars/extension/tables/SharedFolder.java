package io.sparkcrypt;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

/** What other tables require of files that are written into their folders: their tags, and one identity. */
final class SharedFolder {
  private static final Set<String> LISTS = Set.of(Names.TAGS_PREFIX, Names.PREFIX + "history.");

  private SharedFolder() {}

  /**
   * Returns the properties for a writer, with the tags of the other tables in whose folders it writes.
   *
   * @param own the properties of the table that is written to
   * @param name its name
   * @param folder its folder, as the writer names it
   * @param place where that really is
   * @param others the other tables, the nearest first
   * @throws RuntimeException one of them would list the files, which would be bound to another table
   */
  static Map<String, String> unite(Map<String, String> own, String name, String folder, Place place, List<TablePlace> others) {
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
  static Map<String, String> addTags(Map<String, String> own, String folder, Place place, List<TablePlace> others) {
    Map<String, String> told = new TreeMap<>(own);
    others.forEach(other -> add(told, other, folder, place));
    return told;
  }

  private static void add(Map<String, String> told, TablePlace other, String folder, Place place) {
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

  /** Refuses a write into a folder above a table's, if its partitions can be that folder. */
  static void refuseReached(TablePlace table, Place above, List<String> columns, String name) {
    if ((name == null || !table.isOf(name)) && table.isReachedFrom(above, columns)) {
      throw Refusal.of(
          "PlanError",
          above.text() + ": partitions by " + String.join(", ", columns) + " can be in " + table.place().text() + ", a folder of "
              + table.name() + ", whose tags and identity their files would lack; write its rows into " + table.name()
              + " by its name, and others into another folder");
    }
  }

  /** Refuses a write whose option names another table than the one that would list its files. */
  static void refuseStated(TablePlace other, Place place, String stated) {
    if (other.lists(place)) {
      throw Refusal.of(
          "PlanError",
          Names.TABLE + " is '" + stated + "', but " + place.text() + " is a folder of " + other.name() + ", which would list the files; "
              + "remove the option");
    }
  }

  /** Refuses to make a table whose files another one would list. */
  static void refuseListed(TablePlace other, Place place, String name) {
    if (other.lists(place)) {
      throw Refusal.of(
          "PlanError",
          name + ": its folder " + place.text() + " is one of " + other.name() + ", which would list its files and not read them, since "
              + "they would be bound to another table; INSERT INTO " + other.name() + ", or name a folder of its own");
    }
  }
}

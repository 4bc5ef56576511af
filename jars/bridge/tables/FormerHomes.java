package io.sparkcrypt;

import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Folders in which a table or a partition lived until a run put it elsewhere: what is written there by path would be in no table.
 *
 * <p>They are known from the catalog alone: whatever lies in {@code .sparkcrypt/<folder>/<run>} lived in the folder beside that.
 * Writes that were planned before are not judged; passes bring their files into the table.
 */
final class FormerHomes {
  private final KnownTables tables;

  /** A location of a table or partition in a folder of its table's runs. */
  private record Staged(String home, String runs, String run, String below) {
    private static final Pattern FOLDER =
        Pattern.compile("(?<parent>.*)/\\.sparkcrypt/(?<name>[^/]+)/(?:old-)?(?<run>\\d{8}T\\d+Z-[0-9a-z]+)(?:-[^/]*)?(?<below>/.*)?");

    /** Returns the parts of such a location; null for any other. */
    static Staged of(String location) {
      Matcher found = FOLDER.matcher(location);
      if (!found.matches()) {
        return null;
      }
      String home = found.group("parent") + "/" + found.group("name");
      String below = found.group("below");
      return new Staged(home, Place.ofRuns(home), found.group("run"), below == null ? "" : below);
    }
  }

  FormerHomes(KnownTables tables) {
    this.tables = tables;
  }

  /**
   * Refuses a write by path.
   *
   * @param folder where it writes
   * @param uuid the UUID that its options name, or null
   * @param isOfRun whether its options name its table, like those of runs, which write into folders that no table has yet
   */
  void refuseWrite(String folder, String uuid, boolean isOfRun) {
    if (!tables.isBeingMade(folder, uuid)) {
      refuse(folder, null, isOfRun);
    }
  }

  /**
   * Refuses to create a table in a folder, unless the table that lived there has this name and is made anew.
   *
   * @return whether it is made anew there
   */
  boolean refuseTable(String folder, String quotedName) {
    refuse(folder, quotedName, false);
    return find(folder, null, false) != null;
  }

  private void refuse(String folder, String made, boolean isOfRun) {
    if (find(folder, made, isOfRun) == null) {
      return;
    }
    KnownTables.forget(); // another application may have moved the table since
    String why = find(folder, made, isOfRun);
    if (why != null) {
      throw Refusal.of("PlanError", folder + ": " + why);
    }
  }

  /** Returns why files that are written into a folder would be in no table; null if nothing is known against it. */
  private String find(String folder, String made, boolean isOfRun) {
    TablePlace near = tables.near(folder);
    for (TablePlace place : tables.listPlaces()) {
      Staged staged = place.table() == null ? null : Staged.of(place.folder());
      if (staged == null || TableEntry.quote(place.table()).equalsIgnoreCase(made)) {
        continue;
      }
      if (isLeft(folder, staged.home, near)) {
        return describe(place.table(), place.name() + " lived here until run " + staged.run + " put it into " + place.folder());
      }
      if (!isOfRun && isLeft(folder, staged.runs, near)) {
        return describe(place.table(), place.name() + " is not in this folder of its runs but in " + place.folder());
      }
    }
    return near == null || near.table() == null ? null : findPartition(folder, near.table(), isOfRun);
  }

  /** Returns whether a folder is one that a table has left, or below it, and no other table lives there. */
  private boolean isLeft(String folder, String home, TablePlace near) {
    if (!isWithin(folder, home) || near != null && near.folder().length() >= home.length()) {
      return false;
    }
    return !tables.anyTable(
        table -> {
          String root = TableEntry.folder(table);
          return root != null && isWithin(folder, root) && isWithin(root, home);
        });
  }

  /** Returns the same for the partitions of the table whose folder, or folder of runs, is nearest. */
  private String findPartition(String folder, Object table, boolean isOfRun) {
    String root = TableEntry.folder(table);
    List<Object> columns = Calls.list(Calls.call(table, "partitionColumnNames"));
    boolean isInRuns = root != null && isWithin(folder, Place.ofRuns(root));
    boolean concerns = isInRuns ? !isOfRun : root != null && isWithin(folder, root);
    if (columns.isEmpty() || !concerns || !tables.exists(Calls.call(table, "identifier"))) {
      return null;
    }
    String found = isInRuns ? describe(table, TableEntry.name(table) + " is not in this folder of its runs") : null;
    for (Object partition : tables.partitions(table, isInRuns ? Calls.none(table) : valuesIn(pathBelow(root, folder), Set.copyOf(columns), table))) {
      Object uri = Calls.orNull(Calls.call(Calls.call(partition, "storage"), "locationUri"));
      String location = uri == null ? root : Place.textOf(uri);
      Staged staged = Staged.of(location);
      if (isWithin(folder, location) && staged != null) {
        return null;
      }
      String why = staged == null || isInRuns ? null : whyLeft(folder, root + staged.below, staged, table);
      found = why == null ? found : why;
    }
    return found;
  }

  private static String whyLeft(String folder, String home, Staged staged, Object table) {
    boolean isHere = isWithin(folder, home);
    if (!isHere && !isWithin(home, folder)) {
      return null;
    }
    String partition = "partition " + staged.below.substring(staged.below.indexOf('/') + 1) + " of " + TableEntry.name(table);
    return isHere
        ? describe(table, partition + " lived here until run " + staged.run)
        : describe(table, partition + " lived below this folder until run " + staged.run)
            + ", or name the folder of a new partition itself, and add it to the table";
  }

  private static String describe(Object table, String what) {
    return what + ", so files written here would be in no table; nothing was written; write to the table itself, as by "
        + "df.write.insertInto(\"" + TableEntry.name(table) + "\") or INSERT INTO";
  }

  private static boolean isWithin(String folder, String root) {
    return Place.of(folder).isWithin(Place.of(root));
  }

  private static String pathBelow(String root, String folder) {
    return Place.of(folder).below(Place.of(root));
  }

  /** Returns the values of partition columns that a path names, as an option of a Scala map; none if it names none. */
  private static Object valuesIn(String path, Set<Object> columns, Object table) {
    Map<String, String> values = new TreeMap<>(ReadTable.valuesIn(path));
    values.entrySet().removeIf(value -> !columns.contains(value.getKey()) || value.getValue().isEmpty());
    Object none = Calls.call(Calls.call(table, "properties"), "empty");
    return values.isEmpty() ? Calls.none(table) : Calls.some(Calls.with(none, values));
  }
}

package io.sparkcrypt;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTablePartition;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.slf4j.Logger;
import scala.Option;

/**
 * Folders in which a table or a partition lived until a run put it elsewhere: what is written there by path would be in no table,
 * and what is read there is not the table.
 *
 * <p>They are known from the catalog alone: whatever lies in {@code .sparkcrypt/<folder>/<run>} lived in the folder beside that.
 * Writes that were planned before are not judged; passes bring their files into the table.
 */
record FormerHomes(KnownTables tables) {
  private static final Logger LOG = CleanLog.of(FormerHomes.class);
  private static final String OR_NEW = ", or name the folder of a new partition itself, and add it to the table";
  private static final String OLD = "old-"; // old_folder in sparkcrypt/ledger/unit.py
  private static final int MOST_TOLD = 1_000;
  private static final int MOST_NAMED = 100;
  private static final Map<String, Boolean> TOLD = Newest.synchronizedMap(MOST_TOLD);

  /** What has left a folder: a table's name, where it or its partition was, and texts for people. */
  private record Left(String table, String home, String what, String also) {}

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

  /**
   * Refuses a write by path.
   *
   * @param folder where it writes
   * @param uuid the UUID that its options name, or null
   * @param isOfRun whether its options name its table, like those of runs, which write into folders that no table has yet
   */
  void refuseWrite(String folder, String uuid, boolean isOfRun) {
    if (!tables.isBeingCreated(folder, uuid)) {
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
    return !list(folder, null, false).isEmpty();
  }

  /**
   * Warns of a read by path of a folder that a table or a partition has left; refuses it if the files of one are gone from there,
   * since its rows would be missing without a word.
   *
   * @param index Spark's listing of what is read
   * @param conf the session's settings of file systems
   */
  void judgeRead(Object index, Configuration conf) {
    for (Object root : Calls.list(Calls.call(index, "rootPaths")).stream().limit(MOST_NAMED).toList()) {
      String real = tables.real(root.toString()).text();
      List<Left> left = leftFrom(real, conf);
      if (!left.isEmpty()) {
        judgeRead(root.toString(), real, left, index);
      }
    }
  }

  private static void judgeRead(String folder, String real, List<Left> left, Object index) {
    Object files = Calls.callIfPresent(index, "allFiles"); // a listing without it is made of one that was judged
    Set<String> held = files == null ? null : foldersOf(Calls.list(files), folder, real);
    Left first = left.get(0);
    String read = "; read the table itself, as by spark.table(\"" + first.table + "\")";
    for (Left unit : left) {
      if (held != null && !held.contains(Place.of(unit.home).path())) {
        throw Refusal.of(
            "PlanError",
            folder + ": " + unit.what + "; its files are gone from here, so this read would miss its rows" + read);
      }
    }
    String told = folder + ": " + first.what + (left.size() == 1 ? "" : ", and " + (left.size() - 1) + " more partitions did") + "; ";
    if (TOLD.put(told, true) == null) {
      LOG.warn("{}what is here are its old files, until they expire, and files that are in no table{}", told, read);
    }
  }

  /**
   * Refuses a stream that reads a table of which a run has put a partition elsewhere, since Spark lists the table's own folder for
   * it, or that reads by path what a table or a partition has left: rows would be missing without a word.
   */
  void refuseStream(QueryPlan<?> plan, Configuration conf) {
    Trees.children(plan).forEach(child -> refuseStream(child, conf));
    if (!plan.getClass().getSimpleName().equals("StreamingRelation")) {
      return;
    }
    Object source = Calls.call(plan, "dataSource");
    CatalogTable table = Calls.orNull(Calls.call(source, "catalogTable"));
    if (table == null) {
      Calls.<String, String>map(Calls.call(source, "options")).forEach((name, value) -> {
        if (name.equalsIgnoreCase("path")) {
          refuseStreamFrom(value, conf);
        }
      });
    } else if (!TableEntry.partitionColumns(table).isEmpty()) {
      refuseStreamOf(table);
    }
  }

  private void refuseStreamOf(CatalogTable table) {
    for (CatalogTablePartition partition : tables.partitions(table, Option.empty())) {
      String location = TableEntry.folder(partition.storage());
      if (location != null && Staged.of(location) != null) {
        String name = TableEntry.name(table);
        throw Refusal.of(
            "PlanError",
            name + ": a run has put a partition into " + location + ", and a stream reads only what is in the table's own folder, so it "
                + "would miss rows; read the table in batches, as by spark.table(\"" + name + "\"), or stream from where its rows come from");
      }
    }
  }

  private void refuseStreamFrom(String folder, Configuration conf) {
    for (Left left : leftFrom(tables.real(folder).text(), conf)) {
      throw Refusal.of(
          "PlanError",
          folder + ": " + left.what + ", so this stream would miss its rows; read the table itself in batches, as by spark.table(\""
              + left.table + "\"), or stream from where its rows come from");
    }
  }

  /** Returns what has left a folder that is read; the catalog is only asked where a folder of runs is beside it. */
  private List<Left> leftFrom(String real, Configuration conf) {
    Path beside = new Path(Place.ofRuns(withoutPartitions(new Path(real)).toString()));
    return exists(beside, conf) ? list(real, null, true) : List.of();
  }

  /** Returns the paths of the folders that have some files in them or below, by where the folder of the listing really is. */
  private static Set<String> foldersOf(List<Object> files, String folder, String real) {
    Set<String> found = new HashSet<>();
    Place named = Place.of(folder);
    for (Object status : files) {
      Place file = Place.of(((FileStatus) status).getPath().toString());
      Path at = new Path(file.isWithin(named) ? real + file.below(named) : file.text()).getParent();
      while (at != null && found.add(Place.of(at.toString()).path())) {
        at = at.getParent();
      }
    }
    return found;
  }

  private static Path withoutPartitions(Path path) {
    Path at = path;
    while (at.getName().contains("=") && at.getParent() != null) {
      at = at.getParent();
    }
    return at;
  }

  /** Returns whether a folder is there; one that cannot be asked for may be. */
  private static boolean exists(Path folder, Configuration conf) {
    try {
      return folder.getFileSystem(conf).exists(folder);
    } catch (IOException e) {
      return true;
    }
  }

  private void refuse(String folder, String made, boolean isOfRun) {
    if (list(folder, made, isOfRun).isEmpty()) {
      return;
    }
    KnownTables.forget(); // another application may have moved the table since
    for (Left left : list(folder, made, isOfRun)) {
      throw Refusal.of(
          "PlanError",
          folder + ": " + left.what + ", so files written here would be in no table; nothing was written; write to the table itself, "
              + "as by df.write.insertInto(\"" + left.table + "\") or INSERT INTO" + left.also);
    }
  }

  /** Returns the tables and partitions that have left a folder, or folders of partitions below it. */
  private List<Left> list(String named, String made, boolean isOfRun) {
    String folder = tables.real(named).text();
    tables.owner(folder); // drops answers of the catalog about a table that has moved since
    TablePlace near = tables.near(folder);
    List<Left> found = new ArrayList<>();
    for (TablePlace place : tables.listPlaces()) {
      Staged staged = place.table() == null ? null : Staged.of(place.place().text());
      if (staged == null || TableEntry.quote(place.table()).equalsIgnoreCase(made)) {
        continue;
      }
      String name = TableEntry.name(place.table());
      if (isLeft(folder, staged.home, near)) {
        String what = name + " lived here until run " + staged.run + " put it into " + place.folder();
        found.add(new Left(name, staged.home, what, ""));
      } else if (!isOfRun && isLeft(folder, staged.runs, near)) {
        found.add(new Left(name, staged.runs, name + " is not in this folder of its runs but in " + place.folder(), ""));
      }
    }
    boolean isOwn = near == null || near.table() == null || TableEntry.quote(near.table()).equalsIgnoreCase(made);
    if (found.isEmpty() && !isOwn) {
      addPartitions(found, folder, near.table(), isOfRun);
    }
    return found;
  }

  /** Returns whether a folder is one that a table has left, or below it, and no other table lives there. */
  private boolean isLeft(String folder, String home, TablePlace near) {
    if (!isWithin(folder, home) || near != null && near.place().text().length() >= home.length()) {
      return false;
    }
    return !tables.anyTable(table -> {
      String root = TableEntry.folder(table);
      return root != null && isWithin(folder, root) && isWithin(root, home);
    });
  }

  /** Adds the partitions of the table whose folder, or folder of runs, is nearest. */
  private void addPartitions(List<Left> found, String folder, CatalogTable table, boolean isOfRun) {
    String root = TableEntry.folder(table);
    List<String> columns = TableEntry.partitionColumns(table);
    boolean isInRuns = root != null && isWithin(folder, Place.ofRuns(root));
    boolean concerns = isInRuns ? !isOfRun : root != null && isWithin(folder, root);
    if (columns.isEmpty() || !concerns || !tables.exists(table.identifier())) {
      return;
    }
    String name = TableEntry.name(table);
    Object values = isInRuns ? Option.empty() : valuesIn(pathBelow(root, folder), Set.copyOf(columns), table);
    for (CatalogTablePartition partition : tables.partitions(table, values)) {
      String own = TableEntry.folder(partition.storage());
      String location = own == null ? root : own;
      Staged staged = Staged.of(location);
      if (staged != null && isWithin(folder, location)) {
        found.clear();
        return;
      }
      Left left = staged == null || isInRuns ? null : leftBy(name, folder, root + staged.below, staged);
      if (left != null) {
        found.add(left);
      }
    }
    if (isInRuns) {
      found.add(new Left(name, folder, "no partition of " + name + " is in this folder of its runs", ""));
    }
  }

  /** Returns a partition that left its folder, if that is a given one, above it or below it. */
  private static Left leftBy(String table, String folder, String home, Staged staged) {
    boolean isHere = isWithin(folder, home);
    if (!isHere && !isWithin(home, folder)) {
      return null;
    }
    String partition = "partition " + staged.below.substring(staged.below.indexOf('/') + 1) + " of " + table;
    return isHere
        ? new Left(table, home, partition + " lived here until run " + staged.run, "")
        : new Left(table, home, partition + " lived below this folder until run " + staged.run, OR_NEW);
  }

  private static boolean isWithin(String folder, String root) {
    return Place.of(folder).isWithin(Place.of(root));
  }

  private static String pathBelow(String root, String folder) {
    return Place.of(folder).below(Place.of(root));
  }

  /** Returns the values of partition columns that a path names, as an option of a Scala map; none if it names none. */
  private static Object valuesIn(String path, Set<String> columns, CatalogTable table) {
    Map<String, String> values = new TreeMap<>(ReadTable.valuesIn(path));
    values.entrySet().removeIf(value -> !columns.contains(value.getKey()) || value.getValue().isEmpty());
    Object none = Calls.call(table.properties(), "empty");
    return values.isEmpty() ? Option.empty() : Option.apply(Calls.with(none, values));
  }

  /**
   * Refuses a table whose folder is missing while a run keeps its old files: the moment between the two renames by which runs swap
   * a managed table without partitions.
   *
   * <p>Spark takes a missing folder for an empty one: queries would see no rows, and an INSERT would make the folder anew, so that
   * nobody could tell whether its rows replace the others. If a run was killed there, this lasts until the next one.
   */
  static void refuseCutOff(CatalogTable table, Configuration conf) {
    String folder = TableEntry.folder(table);
    boolean isRenamed =
        folder != null
            && table.tableType().name().equals("MANAGED")
            && TableEntry.partitionColumns(table).isEmpty()
            && TableEntry.properties(table).containsKey(Names.TABLE_UUID);
    String old = isRenamed ? oldFolder(new Path(folder), conf) : null;
    if (old != null) {
      throw Refusal.of(
          "SourceChangedError",
          TableEntry.name(table) + ": its folder " + folder + " is missing, and its files are in " + old + ": a run is swapping it, "
              + "or was cut off between two renames; try again, and if that does not help run `sparkcrypt backfill`, which puts it "
              + "back");
    }
  }

  private static String oldFolder(Path folder, Configuration conf) {
    try {
      FileSystem files = folder.getFileSystem(conf);
      Path ofRuns = new Path(Place.ofRuns(folder.toString()));
      if (files.exists(folder) || !files.exists(ofRuns)) {
        return null;
      }
      for (FileStatus child : files.listStatus(ofRuns)) {
        if (child.getPath().getName().startsWith(OLD)) {
          return child.getPath().toString();
        }
      }
      return null;
    } catch (IOException e) {
      throw Refusal.of("StorageError", "cannot look for " + folder + ": " + e.getMessage(), e);
    }
  }
}

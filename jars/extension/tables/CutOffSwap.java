package io.sparkcrypt;

import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;

/**
 * The moment between the two renames by which runs swap a managed table without partitions, when the table's folder is missing.
 *
 * <p>Spark takes a missing folder for an empty one: queries would see no rows, and an INSERT would make the folder anew, so that
 * nobody could tell whether its rows replace the others. If a run was killed there, this lasts until the next one.
 */
final class CutOffSwap {
  private static final String OLD = "old-"; // old_folder in sparkcrypt/ledger/unit.py

  private CutOffSwap() {}

  /** Refuses a table whose folder is missing while a run keeps its old files. */
  static void refuse(CatalogTable table, Configuration conf) {
    String folder = TableEntry.folder(table);
    boolean isRenamed =
        folder != null
            && table.tableType().name().equals("MANAGED")
            && Calls.list(Calls.call(table, "partitionColumnNames")).isEmpty()
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

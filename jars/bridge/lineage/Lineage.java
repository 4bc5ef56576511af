package io.sparkcrypt;

import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.MetadataBuilder;

/**
 * Where a written column comes from, in its metadata: so it is in the footer of each file, and goes where the file goes.
 *
 * <p>{@code {"from": {table: [column, ...]}, "declassified": {…}, "conditions": {…}, "inherited": [tag, ...]}}, each part only
 * where there is something to say; sparkcrypt/tags/lineage_note.py reads it.
 */
final class Lineage {
  static final String KEY = "lineage";

  /** Of so many columns each part says at most; {@code "more": true} says that there were others. */
  private static final int MOST = 200;

  private Lineage() {}

  /**
   * What is to be said of one column; empty where there is nothing.
   *
   * @param values tagged columns that its values come from
   * @param conditions tagged columns by which the rows of the write were chosen
   * @param inherited tags that its table lacked when it was written
   */
  static Metadata of(Carried values, Set<Carried.Origin> conditions, Set<String> inherited) {
    MetadataBuilder lineage = new MetadataBuilder();
    putColumns(lineage, "from", values.origins());
    putColumns(lineage, "declassified", values.declassified());
    putColumns(lineage, "conditions", conditions);
    if (!inherited.isEmpty()) {
      lineage.putStringArray("inherited", inherited.toArray(String[]::new));
    }
    return lineage.build();
  }

  private static void putColumns(MetadataBuilder lineage, String part, Set<Carried.Origin> columns) {
    Map<String, Set<String>> byTable = new TreeMap<>();
    columns.stream()
        .limit(MOST)
        .forEach(origin -> byTable.computeIfAbsent(origin.table(), unused -> new TreeSet<>()).add(origin.column()));
    if (columns.size() > MOST) {
      lineage.putBoolean("more", true);
    }
    if (!byTable.isEmpty()) {
      MetadataBuilder tables = new MetadataBuilder();
      byTable.forEach((table, names) -> tables.putStringArray(table, names.toArray(String[]::new)));
      lineage.putMetadata(part, tables.build());
    }
  }

  /** Metadata with this lineage in place of what earlier writes said there. */
  static Metadata with(Metadata metadata, Metadata lineage) {
    boolean empty = lineage.equals(Metadata.empty());
    if (empty && !metadata.contains(KEY)) {
      return metadata;
    }
    MetadataBuilder changed = new MetadataBuilder().withMetadata(metadata);
    return (empty ? changed.remove(KEY) : changed.putMetadata(KEY, lineage)).build();
  }
}

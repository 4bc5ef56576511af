package io.sparkcrypt;

import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.MetadataBuilder;

/**
 * The origin of a written column, in its metadata: it is in the footer of each file, and moves with the file.
 *
 * <p>{@code {"from": {table: [column, ...]}, "into": {part: {table: [column, ...]}}, "declassified": {…}, "conditions": {…},
 * "inherited": [tag, ...]}}, each part only if it is not empty; sparkcrypt/tags/field_metadata.py reads it. Columns are dotted paths of
 * leaves. What came into one part of a nested column stands at the path below it, and not in {@code "from"}.
 */
final class Lineage {
  static final String KEY = "lineage";

  /**
   * The most leaves in each part; of more, only their columns are named, as whole ones, and {@code "more": true} means that there
   * were others.
   */
  private static final int MOST = 200;

  private Lineage() {}

  /**
   * Returns the lineage of one column; empty if there is none.
   *
   * @param values tagged columns that its values come from
   * @param conditions tagged columns that were used to choose the rows of the write
   * @param inherited tags that its table lacked when it was written
   */
  static Metadata of(Carried values, Set<Carried.Origin> conditions, Set<String> inherited) {
    MetadataBuilder lineage = new MetadataBuilder();
    boolean many = values.placedOrigins().size() > MOST;
    Set<Carried.Origin> whole = new LinkedHashSet<>();
    Map<String, Set<Carried.Origin>> parts = new TreeMap<>();
    for (Carried.Placed each : values.placedOrigins()) {
      boolean isWhole = many || each.at().isEmpty();
      (isWhole ? whole : parts.computeIfAbsent(FileKeys.textOf(each.at()), unused -> new LinkedHashSet<>())).add(each.origin());
    }
    putColumns(lineage, "from", whole);
    if (!parts.isEmpty()) {
      MetadataBuilder into = new MetadataBuilder();
      parts.forEach((part, columns) -> putColumns(into, part, columns));
      lineage.putMetadata("into", into.build());
    }
    putColumns(lineage, "declassified", values.declassifiedOrigins());
    putColumns(lineage, "conditions", conditions);
    if (!inherited.isEmpty()) {
      lineage.putStringArray("inherited", inherited.toArray(String[]::new));
    }
    return lineage.build();
  }

  private static void putColumns(MetadataBuilder lineage, String part, Set<Carried.Origin> leaves) {
    Map<String, Set<String>> byTable = new TreeMap<>();
    Set<Carried.Origin> columns =
        leaves.size() <= MOST ? leaves : leaves.stream().map(Carried.Origin::wholeColumn).collect(Collectors.toCollection(LinkedHashSet::new));
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

  /** Returns metadata with this lineage in place of that of earlier writes. */
  static Metadata with(Metadata metadata, Metadata lineage) {
    boolean empty = lineage.equals(Metadata.empty());
    if (empty && !metadata.contains(KEY)) {
      return metadata;
    }
    MetadataBuilder changed = new MetadataBuilder().withMetadata(metadata);
    return (empty ? changed.remove(KEY) : changed.putMetadata(KEY, lineage)).build();
  }
}

package io.sparkcrypt;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.types.StructType;

/** A plan's node that reads Parquet or ORC files, with the properties for its reader, its schema and its partitions. */
final class ReadTable {
  private static final String DATASOURCES = "org.apache.spark.sql.execution.datasources.";
  private static final String READ = DATASOURCES + "LogicalRelation";
  private static final String HIVE_READ = "org.apache.spark.sql.catalyst.catalog.HiveTableRelation";
  private static final String ORC_SERDE = ".orcserde";

  final LogicalPlan node;
  private final KnownTables tables;
  private final Object catalog;
  /** The relation of a LogicalRelation; null for a Hive table, which the SerDe reads unless Spark converts it later. */
  private final Object relation;
  /** The catalog's entry; null for files by path. */
  private final Object entry;

  ReadTable(LogicalPlan node, KnownTables tables, Object catalog) {
    this.node = node;
    this.tables = tables;
    this.catalog = catalog;
    boolean isHive = node.getClass().getName().equals(HIVE_READ);
    relation = isHive ? null : Calls.call(node, "relation");
    entry = isHive ? Calls.call(node, "tableMeta") : Calls.orNull(Calls.call(node, "catalogTable"));
  }

  /** Returns whether a node reads Parquet or ORC files, by Spark's source or Hive's SerDe. */
  static boolean is(LogicalPlan node) {
    if (relationOf(node) != null) {
      return true;
    }
    if (!node.getClass().getName().equals(HIVE_READ)) {
      return false;
    }
    Object serde = Calls.orNull(Calls.call(Calls.call(Calls.call(node, "tableMeta"), "storage"), "serde"));
    String name = serde == null ? "" : ((String) serde).toLowerCase(Locale.ROOT);
    return name.contains("parquet") || name.endsWith(ORC_SERDE);
  }

  /** Returns the relation of a node that reads Parquet or ORC files by Spark's source; null for any other node. */
  static Object relationOf(LogicalPlan node) {
    if (!node.getClass().getName().equals(READ)) {
      return null;
    }
    Object relation = Calls.call(node, "relation");
    boolean isFiles = relation.getClass().getName().equals(DATASOURCES + "HadoopFsRelation");
    Object format = isFiles ? Calls.call(relation, "fileFormat") : null;
    return isFiles && (isParquet(format) || OrcWrite.isOrc(format)) ? relation : null;
  }

  /** Returns the same for Parquet files only. */
  static Object parquetOf(LogicalPlan node) {
    Object relation = relationOf(node);
    return relation != null && isParquet(Calls.call(relation, "fileFormat")) ? relation : null;
  }

  private static boolean isParquet(Object format) {
    return format.getClass().getName().equals(DATASOURCES + "parquet.ParquetFileFormat");
  }

  /** Returns whether the files are ORC. */
  boolean isOrc() {
    return relation == null
        ? String.valueOf(Calls.orNull(Calls.call(Calls.call(entry, "storage"), "serde"))).toLowerCase(Locale.ROOT).endsWith(ORC_SERDE)
        : OrcWrite.isOrc(Calls.call(relation, "fileFormat"));
  }

  /** Returns whether the read can leave out parts of a nested column, whatever it is nested in. */
  boolean isNarrowable() {
    return relation != null;
  }

  Object relation() {
    return relation;
  }

  /** Returns whether the read has a policy of its own, like those of probes and runs, which never get nulls. */
  boolean hasOwnPolicy() {
    return relation != null && tokenIn(node) != null;
  }

  /** Returns the token in the options of a node that reads a table, or null. */
  static Object tokenIn(LogicalPlan node) {
    boolean isHive = node.getClass().getName().equals(HIVE_READ);
    Object options = isHive ? Calls.call(Calls.call(Calls.call(node, "tableMeta"), "storage"), "properties") : Calls.call(Calls.call(node, "relation"), "options");
    return Calls.orNull(Calls.call(options, "get", Names.SESSION_TOKEN));
  }

  String name() {
    return entry == null ? folder() : TableEntry.name(entry);
  }

  /** Returns the name of the table that a node reads, or its folder. */
  static String nameOf(LogicalPlan node) {
    return new ReadTable(node, null, null).name();
  }

  String folder() {
    if (entry != null && TableEntry.folder(entry) != null) {
      return TableEntry.folder(entry);
    }
    List<Object> roots = Calls.list(Calls.call(Calls.call(relation, "location"), "rootPaths"));
    return roots.isEmpty() ? "/" : roots.get(0).toString();
  }

  /**
   * Returns the properties for a reader: those of the table's current entry, or those of the folder's table and of the read's
   * options.
   */
  Map<String, String> readerProperties() {
    Map<String, String> told = new LinkedHashMap<>();
    if (entry != null) {
      told.putAll(TableEntry.writerProperties(tables.fresh(Calls.call(entry, "identifier"))));
    } else {
      told.putAll(tables.writerPropertiesByFolder(folder()));
      Calls.forEach(
          Calls.call(relation, "options"),
          (name, value) -> {
            if (((String) name).startsWith(Names.PREFIX) && !name.equals(Names.POLICY) && !name.equals(Names.SESSION_TOKEN)) {
              told.put((String) name, (String) value);
            }
          });
    }
    return told;
  }

  /** Returns the columns that are in files. */
  StructType schema() {
    return relation != null ? (StructType) Calls.call(relation, "dataSchema") : (StructType) Calls.call(entry, "dataSchema");
  }

  List<Map<String, String>> partitions() {
    List<Map<String, String>> found = new ArrayList<>();
    if (entry != null) {
      Object none = Calls.none(node);
      for (Object partition : Calls.list(Calls.call(catalog, "listPartitions", Calls.call(entry, "identifier"), none))) {
        Map<String, String> values = new LinkedHashMap<>();
        Calls.forEach(Calls.call(partition, "spec"), (name, value) -> values.put((String) name, (String) value));
        found.add(values);
      }
      return found;
    }
    Object specification = Calls.call(Calls.call(relation, "location"), "partitionSpec");
    for (Object partition : Calls.list(Calls.call(specification, "partitions"))) {
      found.add(valuesIn(Calls.call(partition, "path").toString()));
    }
    return found;
  }

  List<String> files() {
    return relation == null ? List.of() : Arrays.asList((String[]) Calls.call(Calls.call(relation, "location"), "inputFiles"));
  }

  /** Returns the values of partition columns in the names of a path's folders. */
  static Map<String, String> valuesIn(String path) {
    Map<String, String> values = new LinkedHashMap<>();
    for (String folder : path.split("/")) {
      int sign = folder.indexOf('=');
      if (sign > 0) {
        values.put(TablePlace.unescape(folder.substring(0, sign)), TablePlace.unescape(folder.substring(sign + 1)));
      }
    }
    return values;
  }
}

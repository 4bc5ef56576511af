package io.sparkcrypt;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.spark.sql.catalyst.catalog.CatalogStorageFormat;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/** A plan's node that reads Parquet or ORC files, with the properties for its reader, its schema and its partitions. */
final class ReadTable {
  private static final String DATASOURCES = "org.apache.spark.sql.execution.datasources.";
  private static final String HIVE_READ = "org.apache.spark.sql.catalyst.catalog.HiveTableRelation";

  final LogicalPlan node;
  private final KnownTables tables;
  /** The relation of a LogicalRelation; null for a Hive table, which the SerDe reads unless Spark converts it later. */
  final HadoopFsRelation relation;
  /** The catalog's entry; null for files by path. */
  private final CatalogTable entry;

  ReadTable(LogicalPlan node, KnownTables tables) {
    this.node = node;
    this.tables = tables;
    boolean isHive = node.getClass().getName().equals(HIVE_READ);
    relation = isHive ? null : (HadoopFsRelation) ((LogicalRelation) node).relation();
    entry = isHive ? (CatalogTable) Calls.call(node, "tableMeta") : Calls.orNull(((LogicalRelation) node).catalogTable());
  }

  /** Returns whether a node reads Parquet or ORC files, by Spark's source or Hive's SerDe. */
  static boolean is(LogicalPlan node) {
    if (relationOf(node) != null) {
      return true;
    }
    if (!node.getClass().getName().equals(HIVE_READ)) {
      return false;
    }
    CatalogStorageFormat storage = ((CatalogTable) Calls.call(node, "tableMeta")).storage();
    String serde = Calls.orNull(storage.serde());
    return serde != null && serde.toLowerCase(Locale.ROOT).contains("parquet") || TableEntry.isOrcSerde(storage);
  }

  /** Returns the relation of a node that reads Parquet or ORC files by Spark's source; null for any other node. */
  static HadoopFsRelation relationOf(LogicalPlan node) {
    return node instanceof LogicalRelation read
            && read.relation() instanceof HadoopFsRelation files
            && (isParquet(files.fileFormat()) || OrcWrite.isOrc(files.fileFormat()))
        ? files
        : null;
  }

  /** Returns the same for Parquet files only. */
  static HadoopFsRelation parquetOf(LogicalPlan node) {
    HadoopFsRelation relation = relationOf(node);
    return relation != null && isParquet(relation.fileFormat()) ? relation : null;
  }

  /** Returns whether a file format is Spark's Parquet. */
  static boolean isParquet(Object format) {
    return format.getClass().getName().equals(DATASOURCES + "parquet.ParquetFileFormat");
  }

  /** Returns whether the files are ORC. */
  boolean isOrc() {
    return relation == null
        ? TableEntry.isOrcSerde(entry.storage())
        : OrcWrite.isOrc(relation.fileFormat());
  }

  /** Returns whether the read can leave out parts of a nested column, whatever it is nested in. */
  boolean isNarrowable() {
    return relation != null;
  }

  /** Returns whether the read has a policy of its own, like those of probes and runs, which never get nulls. */
  boolean hasOwnPolicy() {
    return relation != null && tokenIn(node) != null;
  }

  /** Returns the token in the options of a node that reads a table, or null. */
  static String tokenIn(LogicalPlan node) {
    ReadTable table = new ReadTable(node, null);
    return Calls.orNull((table.relation == null ? table.entry.storage().properties() : table.relation.options()).get(Names.SESSION_TOKEN));
  }

  String name() {
    return entry == null ? folder() : TableEntry.name(entry);
  }

  /** Returns the name of the table that a node reads, or its folder. */
  static String nameOf(LogicalPlan node) {
    return new ReadTable(node, null).name();
  }

  String folder() {
    if (entry != null && TableEntry.folder(entry) != null) {
      return TableEntry.folder(entry);
    }
    List<Object> roots = Calls.list(Calls.call(relation.location(), "rootPaths"));
    return roots.isEmpty() ? "/" : roots.get(0).toString();
  }

  /**
   * Returns the properties for a reader: those of the table's current entry, or those of the folder's table and of the read's
   * options.
   */
  Map<String, String> readerProperties() {
    Map<String, String> told = new LinkedHashMap<>();
    if (entry != null) {
      told.putAll(TableEntry.writerProperties(tables.fresh(entry.identifier())));
    } else {
      told.putAll(tables.writerPropertiesByFolder(folder(), null));
      Calls.<String, String>map(relation.options()).forEach((name, value) -> {
        if (name.startsWith(Names.PREFIX) && !name.equals(Names.POLICY) && !name.equals(Names.SESSION_TOKEN)) {
          told.put(name, value);
        }
      });
    }
    return told;
  }

  /** Returns the columns that are in files. */
  StructType schema() {
    return relation != null ? relation.dataSchema() : entry.dataSchema();
  }

  List<Map<String, String>> partitions() {
    List<Map<String, String>> found = new ArrayList<>();
    if (entry != null) {
      tables.partitions(entry, Option.empty()).forEach(partition -> found.add(Calls.map(partition.spec())));
      return found;
    }
    Object specification = Calls.call(relation.location(), "partitionSpec");
    for (Object partition : Calls.list(Calls.call(specification, "partitions"))) {
      found.add(valuesIn(Calls.call(partition, "path").toString()));
    }
    return found;
  }

  List<String> files() {
    return relation == null ? List.of() : Arrays.asList(relation.location().inputFiles());
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

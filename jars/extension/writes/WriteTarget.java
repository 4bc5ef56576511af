package io.sparkcrypt;

import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.catalog.CatalogStorageFormat;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.sources.DataSourceRegister;
import scala.Option;

/**
 * What a command writes to.
 *
 * @param table the catalog's entry of the table; null if there is none yet, for a folder, and if it is the one that is replaced
 * @param folder where the files of a table that is made, or those of no table, are put; null for other tables and sinks
 * @param properties those of the table that the files will be of
 * @param sink the name of what the rows are written to, such as csv; null if it encrypts by tags, stores nothing, or is judged by
 *     its own plan or as a table format
 * @param isParquet whether the sink may be Parquet, so that its footers must not say values
 */
record WriteTarget(CatalogTable table, String folder, Map<String, String> properties, String sink, boolean isParquet) {
  private static final String PARQUET = "parquet";
  private static final String STREAM_PROTOCOL = "spark.sql.streaming.commitProtocolClass";

  /** Sinks that store nothing, pass rows to code whose own writes are judged, or keep them in the driver's memory. */
  private static final Set<String> NO_SINKS = Set.of("noop", "foreachbatch", "memory");

  private static final Map<String, String> HIVE_TABLES =
      Map.of(
          "InsertIntoHiveTable", "table",
          "CreateHiveTableAsSelectCommand", "tableDesc",
          "OptimizedCreateHiveTableAsSelectCommand", "tableDesc");
  private static final Map<String, String> SOURCES =
      Map.of(
          "InsertIntoHadoopFsRelationCommand", "fileFormat",
          "SaveIntoDataSourceCommand", "dataSource",
          "InsertIntoDataSourceCommand", "logicalRelation",
          "WriteToMicroBatchDataSource", "table",
          "WriteToMicroBatchDataSourceV1", "sink",
          "WriteToContinuousDataSource", "write");
  private static final Map<String, String> TABLES =
      Map.of(
          "InsertIntoHadoopFsRelationCommand", "catalogTable",
          "WriteToMicroBatchDataSourceV1", "catalogTable",
          "InsertIntoHiveTable", "table");

  static WriteTarget of(SessionPolicy policy, LogicalPlan command, KnownTables tables) {
    String named = sinkOf(command);
    String sink = named == null || isEncryptedOrc(policy, command, named) ? null : named;
    CatalogTable made = WriteQueries.createdTable(command);
    if (made != null) {
      Map<String, String> told = TableEntry.writerProperties(made);
      told.put(Names.TABLE_NAME, tables.name(made));
      return new WriteTarget(null, tables.folderOf(made), told, sink, named == null);
    }
    Object path = Calls.callIfPresent(command, "outputPath");
    String uuid = path == null ? null : TableEntry.uuidIn(Calls.call(command, "options"));
    CatalogTable table = tableOf(command, path, uuid, tables);
    if (table != null) {
      return new WriteTarget(table, null, TableEntry.writerProperties(table), sink, named == null);
    }
    String folder = path == null ? null : path.toString();
    Map<String, String> told = path == null ? Map.of() : tables.writerPropertiesByFolder(folder, uuid);
    return new WriteTarget(null, folder, told, sink, named == null);
  }

  /** Returns the entry of the table that a command writes to, by its name or its folder. */
  private static CatalogTable tableOf(LogicalPlan command, Object path, String uuid, KnownTables tables) {
    String part = TABLES.get(command.getClass().getSimpleName());
    if (part == null) {
      return null;
    }
    Object held = Calls.call(command, part);
    CatalogTable table = held instanceof scala.Option<?> ? Calls.orNull(held) : (CatalogTable) held;
    if (table != null) {
      return tables.exists(table.identifier()) ? tables.fresh(table.identifier()) : null;
    }
    return path == null || tables.isBeingCreated(path.toString(), uuid) ? null : tables.owner(path.toString());
  }

  /** Returns the sink of a table that is created without rows. */
  static String sinkOfEmpty(SessionPolicy policy, CatalogTable table) {
    String sink = TableEntry.isHive(table) ? ofStorage(table.storage()) : ofProvider(table.provider());
    boolean isOrc = sink != null && (sink.equalsIgnoreCase("orc") || sink.endsWith(" OrcSerde"));
    return isOrc && policy.encryptsOrc() ? null : sink;
  }

  /** Returns whether this is a table or a folder. */
  boolean isKnown() {
    return table != null || folder != null;
  }

  /** Returns whether a commit protocol encrypts the ORC files of a command, or of the write that it plans. */
  private static boolean isEncryptedOrc(SessionPolicy policy, LogicalPlan command, String sink) {
    return policy.encryptsOrc()
        && switch (command.getClass().getSimpleName()) {
          case "InsertIntoHadoopFsRelationCommand" -> OrcWrite.isSparksOrc(Calls.call(command, "fileFormat"));
          case "WriteToMicroBatchDataSourceV1" ->
              sink.equalsIgnoreCase("orc")
                  && OrcWrite.isSparksOrc(Calls.field(Calls.call(command, "sink"), "fileFormat"))
                  && policy.setting(STREAM_PROTOCOL).equals(Names.STREAM_COMMIT_PROTOCOL_CLASS);
          case "CreateDataSourceTableAsSelectCommand" -> sink.equalsIgnoreCase("orc"); // the insertion is judged separately
          case "CreateHiveTableAsSelectCommand", "OptimizedCreateHiveTableAsSelectCommand" -> sink.endsWith(" OrcSerde");
          default -> false;
        };
  }

  private static String sinkOf(LogicalPlan node) {
    String name = node.getClass().getSimpleName();
    if (SOURCES.containsKey(name)) {
      Object source = Calls.call(node, SOURCES.get(name));
      return nameOf(name.equals("InsertIntoDataSourceCommand") ? Calls.call(source, "relation") : source);
    }
    if (HIVE_TABLES.containsKey(name)) {
      return ofStorage(((CatalogTable) Calls.call(node, HIVE_TABLES.get(name))).storage());
    }
    return switch (name) {
      case "InsertIntoHiveDirCommand" -> ofStorage((CatalogStorageFormat) Calls.call(node, "storage"));
      case "CreateDataSourceTableAsSelectCommand" -> ofProvider(((CatalogTable) Calls.call(node, "table")).provider());
      case "InsertIntoDataSourceDirCommand" -> null; // plans a write into a folder
      default -> ofVersion2(node);
    };
  }

  private static String ofVersion2(LogicalPlan node) {
    Object spec = Calls.callIfPresent(node, "tableSpec");
    if (spec == null) {
      return nameOf(Calls.callIfPresent(FormatGuard.withoutAlias(Calls.call(node, "table")), "table"));
    }
    Option<?> provider = (Option<?>) Calls.call(spec, "provider");
    return provider.isDefined() ? ofProvider(provider) : nameOf(Calls.callIfPresent(Calls.call(node, "name"), "catalog"));
  }

  private static String ofProvider(Option<?> provider) {
    String name = provider.get().toString().toLowerCase(Locale.ROOT);
    return name.endsWith(PARQUET) || TableFormats.ofProvider(name) != null || NO_SINKS.contains(name) ? null : name;
  }

  /** Returns the name of a table of Hive's SerDes, by the writer of its files. */
  private static String ofStorage(CatalogStorageFormat storage) {
    String serde = String.valueOf(Calls.<Object>orNull(storage.serde()));
    if ((serde + Calls.<Object>orNull(storage.outputFormat())).toLowerCase(Locale.ROOT).contains(PARQUET)) {
      return null;
    }
    return "a table of Hive's " + serde.substring(serde.lastIndexOf('.') + 1);
  }

  private static String nameOf(Object sink) {
    if (sink == null || TableFormats.ofClass(sink.getClass().getName()) != null) {
      return null;
    }
    String simple = sink.getClass().getSimpleName();
    if (simple.equals("FileStreamSink")) {
      return nameOf(Calls.field(sink, "fileFormat"));
    }
    if (simple.equals("DataSourceV2Relation")) {
      return nameOf(Calls.call(sink, "table"));
    }
    String name =
        sink instanceof DataSourceRegister source
            ? source.shortName()
            : simple.replaceAll("\\$$", "").replaceAll("(Table|Sink|Relation|Catalog|Write)+$", "");
    String compared = name.toLowerCase(Locale.ROOT);
    return compared.startsWith(PARQUET) || NO_SINKS.contains(compared) ? null : name;
  }
}

package io.sparkcrypt;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;
import org.slf4j.Logger;

/**
 * A guard for writes of tagged columns to sinks that encrypt nothing (CSV, JDBC, Kafka, the console): by the policy's
 * {@code sinks} it refuses them, logs a warning, or lets them pass.
 *
 * <p>FormatGuard judges table formats with a log of their own.
 */
final class SinkGuard {
  private static final Logger LOG = CleanLog.of(SinkGuard.class);
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

  private SinkGuard() {}

  /**
   * Judges one write.
   *
   * @param policy the session's policy
   * @param command the command that writes
   * @param written the columns that it writes, with all of their tags
   * @param read the tables that its query reads
   */
  static void check(SessionPolicy policy, LogicalPlan command, StructType written, TableTags read) {
    String schema = written.json();
    String sink = schema.contains(TableEntry.TAGS_KEY) ? sinkOf(command) : null;
    if (sink == null || policy.encryptsOrc() && isEncryptedOrc(policy, command, sink)) {
      return;
    }
    ObjectNode request = policy.request("check_sink", "/").put("sink", sink).put("schema", schema);
    request.put("requires_encryption", read.requiresEncryption());
    ArrayNode names = request.putArray("sources");
    read.names().forEach(names::add);
    Helper.ask(request).path("warnings").forEach(warning -> LOG.warn("{}", warning.asText()));
  }

  /** Judges a table that is created without rows, whose columns have tags. */
  static void checkEmpty(SessionPolicy policy, Object table) {
    String schema = TableEntry.schema(table).json();
    Object provider = Calls.call(table, "provider");
    boolean isHive = "hive".equalsIgnoreCase(String.valueOf(Calls.orNull(provider)));
    String sink = !schema.contains(TableEntry.TAGS_KEY) ? null : isHive ? ofStorage(Calls.call(table, "storage")) : ofProvider(provider);
    if (sink == null || policy.encryptsOrc() && (sink.equalsIgnoreCase("orc") || sink.endsWith(" OrcSerde"))) {
      return;
    }
    ObjectNode request = policy.request("check_sink", "/").put("sink", sink).put("schema", schema);
    String required = TableEntry.properties(table).getOrDefault(Names.REQUIRE_ENCRYPTION, "false");
    request.put("requires_encryption", Boolean.parseBoolean(required.trim())).putArray("sources");
    Helper.ask(request).path("warnings").forEach(warning -> LOG.warn("{}", warning.asText()));
  }

  /** Returns the sink's name; null if it encrypts by tags, if another guard judges it, or if its own plan is judged. */
  static String sinkOf(LogicalPlan node) {
    String name = node.getClass().getSimpleName();
    if (SOURCES.containsKey(name)) {
      Object source = Calls.call(node, SOURCES.get(name));
      return nameOf(name.equals("InsertIntoDataSourceCommand") ? Calls.call(source, "relation") : source);
    }
    if (HIVE_TABLES.containsKey(name)) {
      return ofStorage(Calls.call(Calls.call(node, HIVE_TABLES.get(name)), "storage"));
    }
    return switch (name) {
      case "InsertIntoHiveDirCommand" -> ofStorage(Calls.call(node, "storage"));
      case "CreateDataSourceTableAsSelectCommand" -> ofProvider(Calls.call(Calls.call(node, "table"), "provider"));
      case "InsertIntoDataSourceDirCommand" -> null; // plans a write into a folder
      default -> ofVersion2(node);
    };
  }

  /** Returns whether a commit protocol encrypts the ORC files of a write, or of the write that a command plans. */
  private static boolean isEncryptedOrc(SessionPolicy policy, LogicalPlan node, String sink) {
    return switch (node.getClass().getSimpleName()) {
      case "InsertIntoHadoopFsRelationCommand" -> OrcWrite.isSparksOrc(Calls.call(node, "fileFormat"));
      case "WriteToMicroBatchDataSourceV1" ->
          sink.equalsIgnoreCase("orc")
              && OrcWrite.isSparksOrc(Calls.field(Calls.call(node, "sink"), "fileFormat"))
              && policy.setting(STREAM_PROTOCOL).equals(Names.STREAM_COMMIT_PROTOCOL_CLASS);
      case "CreateDataSourceTableAsSelectCommand" -> sink.equalsIgnoreCase("orc"); // the insertion is judged separately
      case "CreateHiveTableAsSelectCommand", "OptimizedCreateHiveTableAsSelectCommand" -> sink.endsWith(" OrcSerde");
      default -> false;
    };
  }

  private static String ofVersion2(LogicalPlan node) {
    Object spec = Calls.callIfPresent(node, "tableSpec");
    if (spec == null) {
      return nameOf(Calls.callIfPresent(FormatGuard.withoutAlias(Calls.call(node, "table")), "table"));
    }
    Object provider = Calls.call(spec, "provider");
    return (Boolean) Calls.call(provider, "isDefined") ? ofProvider(provider) : nameOf(Calls.callIfPresent(Calls.call(node, "name"), "catalog"));
  }

  private static String ofProvider(Object provider) {
    String name = ((String) Calls.orNull(provider)).toLowerCase(Locale.ROOT);
    return name.endsWith(PARQUET) || TableFormats.ofProvider(name) != null || NO_SINKS.contains(name) ? null : name;
  }

  /** Returns the name of a table of Hive's SerDes, by the writer of its files. */
  private static String ofStorage(Object storage) {
    String serde = String.valueOf(Calls.orNull(Calls.call(storage, "serde")));
    String format = String.valueOf(Calls.orNull(Calls.call(storage, "outputFormat")));
    if ((serde + format).toLowerCase(Locale.ROOT).contains(PARQUET)) {
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
        sink instanceof DataSourceRegister
            ? ((DataSourceRegister) sink).shortName()
            : simple.replaceAll("\\$$", "").replaceAll("(Table|Sink|Relation|Catalog|Write)+$", "");
    String compared = name.toLowerCase(Locale.ROOT);
    return compared.startsWith(PARQUET) || NO_SINKS.contains(compared) ? null : name;
  }
}

package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.UUID;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogStorageFormat;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.command.AlterTableRenameCommand;
import org.apache.spark.sql.execution.command.CreateTableLikeCommand;
import org.apache.spark.sql.execution.datasources.FileFormat;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.InsertIntoHadoopFsRelationCommand;
import org.apache.spark.sql.types.StructType;

/**
 * A rule that adds name, tags and UUID of the table's catalog entry to the options of each Parquet or ORC write and read.
 *
 * <p>Otherwise a writer would use the session's cached table, possibly from before the tags were set, and neither writer nor
 * reader would have the table's name, which the policy's rules refer to. The rule also refuses writes that would put a tagged
 * value where nothing encrypts it: into a folder's name, or into a table format that ignores tags.
 */
final class TableOptionsRule extends Rule<LogicalPlan> {
  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    CatalogPlaces.forgetChangedBy(plan);
    SparkSession session = SparkSession.active();
    SessionPolicy policy = SessionPolicy.of(session);
    if (policy == null) {
      return plan;
    }
    PlanNodes nodes = new PlanNodes(session, policy);
    return plan.transformUp(new Trees.Steps<>(nodes::isJudged, nodes::prepare));
  }

  /** The nodes of a plan that read or write Parquet or ORC files, with the properties of their tables added. */
  private static final class PlanNodes {
    private static final String DATASOURCES = "org.apache.spark.sql.execution.datasources.";
    private static final String HIVE = "org.apache.spark.sql.hive.execution.";
    private static final String READ = DATASOURCES + "LogicalRelation";
    private static final String HIVE_READ = "org.apache.spark.sql.catalyst.catalog.HiveTableRelation";
    private static final String WRITE = DATASOURCES + "InsertIntoHadoopFsRelationCommand";
    private static final String HIVE_WRITE = HIVE + "InsertIntoHiveTable";
    private static final String HIVE_FOLDER = HIVE + "InsertIntoHiveDirCommand";
    private static final String CREATE = "org.apache.spark.sql.execution.command.CreateDataSourceTableAsSelectCommand";
    private static final String HIVE_CREATE = HIVE + "CreateHiveTableAsSelectCommand";
    private static final String CREATE_EMPTY = "org.apache.spark.sql.execution.command.CreateDataSourceTableCommand";
    private static final String HIVE_CREATE_EMPTY = "org.apache.spark.sql.execution.command.CreateTableCommand";
    private static final String CREATE_LIKE = "org.apache.spark.sql.execution.command.CreateTableLikeCommand";
    private static final String RENAME = "org.apache.spark.sql.execution.command.AlterTableRenameCommand";
    private static final Set<String> JUDGED =
        Set.of(
            READ, HIVE_READ, WRITE, HIVE_WRITE, HIVE_FOLDER, CREATE, HIVE_CREATE, CREATE_EMPTY, HIVE_CREATE_EMPTY, CREATE_LIKE, RENAME);
    private static final String COMMIT_PROTOCOL = "spark.sql.sources.commitProtocolClass";
    private static final String CONVERT = "spark.sql.hive.convertMetastoreOrc";
    private static final String ORC_READER = "spark.sql.orc.impl";

    private final SessionPolicy policy;
    private final KnownTables tables;
    private final FormerHomes homes;
    private final FormatGuard formats;
    private final SucceedingTables succeeding;

    PlanNodes(SparkSession session, SessionPolicy policy) {
      this.policy = policy;
      tables = new KnownTables(session, policy);
      homes = new FormerHomes(tables);
      formats = new FormatGuard(session, policy);
      succeeding = new SucceedingTables(session, tables);
    }

    boolean isJudged(LogicalPlan node) {
      return JUDGED.contains(node.getClass().getName()) || formats.isJudged(node);
    }

    LogicalPlan prepare(LogicalPlan node) {
      return switch (node.getClass().getName()) {
        case READ -> read(node);
        case HIVE_READ -> readHive(node);
        case WRITE -> write((InsertIntoHadoopFsRelationCommand) node);
        case HIVE_WRITE -> writeHive(node);
        case HIVE_FOLDER -> writeHiveFolder(node);
        case CREATE, HIVE_CREATE -> create(node);
        case CREATE_EMPTY, HIVE_CREATE_EMPTY -> createEmpty(node);
        case CREATE_LIKE -> {
          succeeding.judgeLike((CreateTableLikeCommand) node);
          yield createLike((CreateTableLikeCommand) node);
        }
        case RENAME -> {
          succeeding.refuseRename((AlterTableRenameCommand) node);
          yield node;
        }
        default -> {
          formats.check(node);
          yield node;
        }
      };
    }

    private LogicalPlan read(LogicalPlan node) {
      HadoopFsRelation relation = ReadTable.relationOf(node);
      if (relation == null) {
        return node;
      }
      scala.collection.immutable.Map<String, String> options = relation.options();
      FileFormat format = relation.fileFormat();
      boolean isSparksOrc = OrcWrite.isSparksOrc(format);
      boolean isHives = OrcWrite.isOrc(format) && !isSparksOrc;
      CatalogTable table = Calls.orNull(Calls.call(node, "catalogTable"));
      Object judged = table == null ? options : TableEntry.dropWeakening(options, table);
      Map<String, String> told = new TreeMap<>();
      FileIndex index = relation.location();
      List<Object> roots = Calls.list(Calls.call(index, "rootPaths"));
      if (table != null) {
        FormerHomes.refuseCutOff(table, policy.hadoopConf());
        told.put(Names.TABLE_NAME, TableEntry.name(table));
      } else if (!isTold(options)) {
        homes.judgeRead(index, policy.hadoopConf());
        told.putAll(tables.places(roots));
      }
      addFactory(told, options, table, roots.isEmpty() ? "/" : roots.get(0).toString());
      HadoopFsRelation now = relation;
      if (isHives) {
        Calls.<String, String>map(judged).forEach(told::putIfAbsent);
        refuseHivesReader(roots.isEmpty() ? "/" : roots.get(0).toString(), told);
        return node;
      }
      if (isSparksOrc) {
        told.put(Names.ORC_KEY_PROVIDER, OrcKeyProvider.kind(policy.hadoopConf()));
        now = format instanceof CheckedOrcFormat ? relation : Calls.copy(relation, format, new CheckedOrcFormat());
      }
      Object more = Calls.with(judged, told);
      now = more == options ? now : Calls.copy(now, options, more);
      return now == relation ? node : replace(node, relation, now);
    }

    private LogicalPlan readHive(LogicalPlan node) {
      CatalogTable table = (CatalogTable) Calls.call(node, "tableMeta");
      policy.refuseOther(table);
      FormerHomes.refuseCutOff(table, policy.hadoopConf());
      if (TableEntry.isOrcSerde(table.storage()) && !isConverted()) {
        refuseHivesReader(TableEntry.folder(table), TableEntry.writerProperties(tables.fresh(table.identifier())));
      }
      Object properties = table.properties();
      Map<String, String> told = new TreeMap<>(Map.of(Names.TABLE_NAME, TableEntry.name(table)));
      addFactory(told, properties, table, TableEntry.folder(table));
      Object more = Calls.with(TableEntry.dropWeakening(properties, table), told);
      return more == properties ? node : replace(node, table, Calls.copy(table, properties, more));
    }

    /** Returns whether Spark reads Hive's ORC tables by its own source. */
    private boolean isConverted() {
      return !policy.setting(CONVERT).equalsIgnoreCase("false") && !policy.setting(ORC_READER).equalsIgnoreCase("hive");
    }

    /**
     * Asks the helper to refuse Hive's own reader of ORC, which has no check of files: a plaintext file would be read as one of the
     * table.
     */
    private void refuseHivesReader(String folder, Map<String, String> told) {
      if (policy.encryptsOrc()) {
        Map<String, String> more = new TreeMap<>(told);
        more.keySet().removeIf(name -> !name.startsWith(Names.PREFIX) || name.equals(Names.POLICY) || name.equals(Names.SESSION_TOKEN));
        Helper.ask(policy.request("check_orc_reader", folder, more));
      }
    }

    private LogicalPlan write(InsertIntoHadoopFsRelationCommand node) {
      FileFormat format = node.fileFormat();
      boolean isOrc = policy.encryptsOrc() && OrcWrite.isOrc(format);
      if (!isOrc && !ReadTable.isParquet(format)) {
        return node;
      }
      scala.collection.immutable.Map<String, String> options = node.options();
      String folder = node.outputPath().toString();
      List<Attribute> partitionColumns = Calls.list(Calls.call(node, "partitionColumns"));
      CatalogTable table = Calls.orNull(node.catalogTable());
      Object judged = table == null ? options : TableEntry.dropWeakening(options, table);
      tables.checkPartitions(folder, columnNames(partitionColumns), table == null ? null : TableEntry.name(table));
      Map<String, String> told;
      if (table != null) {
        FormerHomes.refuseCutOff(table, policy.hadoopConf());
        told = tables.writerProperties(tables.fresh(table.identifier()));
      } else if (isTold(options)) {
        checkStated(folder, options);
        homes.refuseWrite(folder, TableEntry.uuidIn(options), true);
        told = Map.of();
      } else {
        checkStated(folder, options);
        homes.refuseWrite(folder, TableEntry.uuidIn(options), false);
        told = tables.writerPropertiesByFolder(folder, TableEntry.uuidIn(options));
      }
      told = new TreeMap<>(told);
      addFactory(told, options, table, folder);
      StructType written = FieldTags.without(node.query().schema(), names(partitionColumns));
      WriteRequest request = new WriteRequest(policy, folder, told, written).addPartitions(partitionColumns, folder);
      if (table != null) {
        request.addBuckets(table, false);
      }
      if (!isOrc) {
        request.addWritten(TableEntry.ofSparkcrypt(options), true);
      }
      JsonNode needed = request.ask().path("written").path("options");
      if (isOrc) {
        String schema = written.json();
        if (OrcWrite.isSparksOrc(format) && policy.setting(COMMIT_PROTOCOL).equals(Names.COMMIT_PROTOCOL_CLASS)) {
          told.put(Names.ORC_SCHEMA, schema);
          told.put(OrcWrite.ENCRYPT, OrcWrite.NOT_PREPARED);
        } else {
          OrcWrite.refuseClear(policy.request("resolve_orc_write", folder, told), schema);
        }
      } else {
        Map<String, String> all = told;
        needed.properties().forEach(option -> all.put(option.getKey(), option.getValue().asText()));
      }
      Object more = Calls.with(judged, told);
      return more == options ? node : replace(node, options, more);
    }

    private LogicalPlan writeHive(LogicalPlan node) {
      CatalogTable table = (CatalogTable) Calls.call(node, "table");
      Object sink = Calls.field(Calls.call(node, "fileFormat"), "fileSinkConf"); // Spark 3.5 has no method for it
      Properties properties = (Properties) Calls.call(Calls.call(sink, "getTableInfo"), "getProperties");
      List<Attribute> partitionColumns = Calls.list(Calls.call(node, "partitionColumns"));
      policy.refuseOther(table);
      FormerHomes.refuseCutOff(table, policy.hadoopConf());
      Map<String, String> told = tables.writerProperties(tables.fresh(table.identifier()));
      if (TableEntry.folder(table) != null) {
        tables.checkPartitions(TableEntry.folder(table), columnNames(partitionColumns), TableEntry.name(table));
      }
      new WriteRequest(policy, TableEntry.folder(table), told, WriteQueries.query(node).schema())
          .addPartitions(partitionColumns, TableEntry.name(table)).addBuckets(table, false).ask();
      refuseHivesOrc(table.storage(), told, node, partitionColumns, TableEntry.folder(table));
      addQuery(told, node, partitionColumns);
      addFactory(told, table.properties(), table, TableEntry.folder(table));
      TableEntry.removeWeakening(properties);
      properties.putAll(told);
      return node;
    }

    private LogicalPlan writeHiveFolder(LogicalPlan node) {
      CatalogStorageFormat storage = (CatalogStorageFormat) Calls.call(node, "storage");
      Object properties = storage.properties();
      Map<String, String> told = new TreeMap<>();
      String folder = TableEntry.folder(storage);
      if (folder != null) {
        homes.refuseWrite(folder, null, false);
        told.putAll(tables.writerPropertiesByFolder(folder, null));
        refuseHivesOrc(storage, told, node, List.of(), folder);
      }
      addQuery(told, node, List.of());
      addFactory(told, properties, null, folder == null ? "/" : folder);
      Object more = Calls.with(properties, told);
      return more == properties ? node : replace(node, storage, Calls.copy(storage, properties, more));
    }

    /**
     * Refuses a write by Hive's own writer of ORC, which encrypts nothing, whether the written columns or the table have the tags.
     */
    private void refuseHivesOrc(CatalogStorageFormat storage, Map<String, String> told, LogicalPlan node, List<Attribute> partitionColumns, String folder) {
      if (policy.encryptsOrc() && TableEntry.isOrcSerde(storage)) {
        String schema = FieldTags.without(WriteQueries.query(node).schema(), names(partitionColumns)).json();
        OrcWrite.refuseClear(policy.request("resolve_orc_write", folder, told), schema);
      }
    }

    /** Adds the tags of the selected columns as a property, since Hive's SerDe gets no schema with metadata. */
    private static void addQuery(Map<String, String> told, LogicalPlan node, List<Attribute> partitionColumns) {
      String schema = TableEntry.tagsIn(WriteQueries.query(node).schema(), names(partitionColumns));
      if (schema != null) {
        told.put(Names.QUERY_SCHEMA, schema);
      }
    }

    /** Prepares a table that is being created: its files are written before the catalog has it. */
    private LogicalPlan create(LogicalPlan node) {
      CatalogTable table = (CatalogTable) Calls.call(node, node.getClass().getName().equals(CREATE) ? "table" : "tableDesc");
      Set<String> names = Trees.lowerCase(TableEntry.partitionColumns(table));
      WriteRequest request = new WriteRequest(policy, TableEntry.folder(table), TableEntry.writerProperties(table), WriteQueries.query(node).schema());
      request.addPartitions(Trees.columnsNamed(names, WriteQueries.query(node)), TableEntry.name(table));
      TableIdentifier identifier = table.identifier();
      TableEntry.refuseUnread(table);
      boolean isHome = homes.refuseTable(tables.folderOf(table), TableEntry.quote(table));
      boolean makes = WriteQueries.overwrites(node) || !tables.exists(identifier);
      if (makes) {
        request.addBuckets(table, true);
      }
      request.ask();
      if (makes) {
        tables.checkMade(tables.folderOf(table), TableEntry.name(table));
      }
      CatalogTable identified = makes ? withUuid(table, isHome) : table;
      KnownTables.announce(tables.folderOf(table), identifier, TableEntry.properties(identified).get(Names.TABLE_UUID));
      return identified == table ? node : replace(node, table, identified);
    }

    /** Prepares a table that is created without rows; existing files, of an external table, may have an identity. */
    private LogicalPlan createEmpty(LogicalPlan node) {
      CatalogTable table = (CatalogTable) Calls.call(node, "table");
      if (tables.exists(table.identifier())) {
        return node;
      }
      TableEntry.refuseUnread(table);
      String folder = TableEntry.folder(table);
      if (folder != null) {
        homes.refuseTable(folder, TableEntry.quote(table));
      }
      CatalogTable complete = succeeding.complete(table, table.schema(), false);
      judgeEmpty(complete, complete != table);
      boolean fits =
          folder == null
              && (policy.encryptsOrc() ? "parquet,hive,orc" : "parquet,hive")
                  .contains(String.valueOf(Calls.<Object>orNull(table.provider())).toLowerCase(Locale.ROOT));
      CatalogTable identified = fits ? withUuid(complete, false) : complete;
      return identified == table ? node : replace(node, table, identified);
    }

    private void judgeEmpty(CatalogTable table, boolean isSuccessor) {
      Map<String, String> properties = TableEntry.writerProperties(table);
      WriteRequest request = new WriteRequest(policy, TableEntry.folder(table), properties, table.schema());
      String sink = isSuccessor && request.hasTags() ? WriteTarget.sinkOfEmpty(policy, table) : null;
      if (sink != null) {
        boolean requires = Boolean.parseBoolean(properties.getOrDefault(Names.REQUIRE_ENCRYPTION, "false").trim());
        request.add("sink").put("sink", sink).put("requires_encryption", requires).putArray("sources");
      }
      request.addWritten(Map.of(), false).addBuckets(table, true).ask();
    }

    private LogicalPlan createLike(CreateTableLikeCommand node) {
      String folder = TableEntry.folder(node.fileFormat());
      if (folder != null) {
        homes.refuseTable(folder, TableEntry.quote(node.targetTable()));
      }
      return node;
    }

    /**
     * Returns the entry of a table that is being created, with a UUID if its files will be encrypted, or if it comes home, so that
     * its first write is known there.
     *
     * <p>The table has a UUID from its first file on, and never that of an earlier table of its name, since files are bound to a
     * UUID.
     */
    private CatalogTable withUuid(CatalogTable table, boolean isHome) {
      boolean has = TableEntry.properties(table).containsKey(Names.TABLE_UUID);
      if (has || !isHome && !TableEntry.isTagged(table) && !tables.isGoverned(TableEntry.name(table), tables.folderOf(table))) {
        return table;
      }
      return TableEntry.with(table, Map.of(Names.TABLE_UUID, UUID.randomUUID().toString()));
    }

    private void checkStated(String folder, scala.collection.immutable.Map<String, String> options) {
      String stated = Calls.orNull(options.get(Names.TABLE));
      if (stated != null) {
        tables.checkStated(folder, stated);
      }
    }

    /** Returns whether the options name the table already, under a token of their own, like those of runs. */
    private static boolean isTold(scala.collection.immutable.Map<String, String> options) {
      return options.contains(Names.TABLE)
          && RegisteredPolicies.isOwn(Calls.orNull(options.get(Names.SESSION_TOKEN)));
    }

    /**
     * Adds our crypto factory, so that no option, table or SET names another; Parquet's own stays where the launch or the program
     * allows it, the options name its keys, and neither a tag nor a rule of a table is for the folder.
     */
    private void addFactory(Map<String, String> told, Object options, CatalogTable table, String folder) {
      boolean isStock = policy.allowsStock() && FactoryCheck.namesStock(options) && !isGoverned(table, folder);
      told.put(Names.CRYPTO_FACTORY, isStock ? Names.STOCK_CRYPTO_FACTORY_CLASS : Names.CRYPTO_FACTORY_CLASS);
      told.put(Names.KMS_CLIENT, Names.KMS_CLIENT_CLASS);
    }

    private boolean isGoverned(CatalogTable table, String folder) {
      return table != null && TableEntry.isTagged(table) || tables.isGoverned(table == null ? "" : TableEntry.name(table), folder);
    }

    private static Set<String> names(List<Attribute> columns) {
      return Trees.lowerCase(columnNames(columns));
    }

    private static List<String> columnNames(List<Attribute> columns) {
      return columns.stream().map(Attribute::name).toList();
    }

    private static LogicalPlan replace(LogicalPlan node, Object old, Object replacement) {
      return node.makeCopy(Calls.values(node, old, replacement));
    }
  }
}

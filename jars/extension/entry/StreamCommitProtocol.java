package io.sparkcrypt;

import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.spark.internal.io.FileNameSpec;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.streaming.ManifestFileCommitProtocol;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/**
 * The commit protocol of Spark's streaming file sink, which also passes the stream's table to its writers.
 *
 * <p>Spark handles a stream into a table (toTable) as a stream into the table's folder: neither the table's options nor its
 * schema reach the writer, so its tags would be ignored. They are looked up in each micro-batch, since a stream may run for
 * months.
 */
public class StreamCommitProtocol extends ManifestFileCommitProtocol {
  static {
    Preload.classes();
  }

  private static final long serialVersionUID = 1L;

  private final String folder;

  public StreamCommitProtocol(String jobId, String path) {
    super(jobId, path);
    folder = path;
  }

  @Override
  public void setupJob(JobContext job) {
    SparkSession session = SparkSession.active();
    Configuration conf = job.getConfiguration();
    Object query = query(session);
    Object execution = Calls.call(query, "lastExecution");
    Object write = Calls.call(execution, "logical");
    CatalogTable known = Calls.orNull(Calls.call(write, "catalogTable")); // as of the query's start; null for a mere folder
    List<String> partitions = Calls.list(Calls.field(Calls.call(query, "sink"), "partitionColumnNames")); // from partitionBy
    SessionPolicy policy = SessionPolicy.of(session);
    if (policy != null) {
      List<Attribute> columns = Trees.columnsNamed(Trees.lowerCase(partitions), (LogicalPlan) Calls.call(write, "query"));
      new WriteRequest(policy, null, Map.of(), new StructType()).addPartitions(columns, folder).ask();
    }
    if (known != null) {
      describe((CatalogTable) Calls.call(session.sessionState().catalog(), "getTableMetadata", known.identifier()), conf);
    }
    if (policy != null) {
      tellTables(new KnownTables(session, policy), partitions, known, conf);
    }
    Object format = Calls.field(Calls.call(query, "sink"), "fileFormat");
    if (policy != null && policy.encryptsOrc() && OrcWrite.isOrc(format)) {
      LogicalPlan written = (LogicalPlan) Calls.call(Calls.call(execution, "analyzed"), "query"); // with the tags of its columns
      String schema = FieldTags.without(written.schema(), Trees.lowerCase(partitions)).json();
      if (!OrcWrite.isSparksOrc(format)) {
        OrcWrite.refuseClear(new SessionConf(conf).request("resolve_orc_write", new Path(folder)), schema);
      }
      conf.set(Names.ORC_SCHEMA, schema);
      conf.set(OrcWrite.ENCRYPT, OrcWrite.NOT_PREPARED);
    }
    FactoryCheck.check(conf);
    conf.set(Names.STREAM, "told");
    super.setupJob(job);
  }

  /** Sets what the tables require in whose folder the stream writes: that of its own table, and others that it is in. */
  private void tellTables(KnownTables tables, List<String> partitions, CatalogTable known, Configuration conf) {
    tables.checkPartitions(folder, partitions, known == null ? null : TableEntry.name(known));
    if (known == null) {
      new FormerHomes(tables).refuseWrite(folder, null, false);
    }
    Map<String, String> told =
        known == null ? tables.writerPropertiesByFolder(folder, null) : tables.writerProperties(tables.fresh(known.identifier()));
    told.forEach(conf::set);
  }

  /** Creates a temporary file for writers of Spark 3.5. */
  @Override
  @SuppressWarnings("deprecation")
  public String newTaskTempFile(TaskAttemptContext taskContext, Option<String> dir, String suffix) {
    String path = super.newTaskTempFile(taskContext, dir, suffix);
    OrcWrite.prepare(taskContext.getConfiguration(), path, null);
    return path;
  }

  @Override
  public String newTaskTempFile(TaskAttemptContext taskContext, Option<String> dir, FileNameSpec spec) {
    String path = super.newTaskTempFile(taskContext, dir, spec);
    OrcWrite.prepare(taskContext.getConfiguration(), path, null);
    return path;
  }

  /** Returns the streaming query of this thread. */
  private static Object query(SparkSession session) {
    String id = session.sparkContext().getLocalProperty(Reader.STREAM_QUERY_ID);
    Map<?, ?> active = (Map<?, ?>) Calls.call(session.sharedState(), "activeStreamingQueries");
    Object query = id == null ? null : active.get(UUID.fromString(id));
    if (query == null) {
      throw Refusal.of("BridgeError", "which table this stream writes cannot be told, so its tags are not known");
    }
    return query;
  }

  /** Sets the properties in a job's configuration that a batch write into the table would set. */
  private static void describe(CatalogTable table, Configuration conf) {
    conf.set(Names.TABLE, TableEntry.name(table));
    conf.set(Names.TABLE_SCHEMA, table.schema().json());
    Calls.<String, String>map(table.storage().properties()).forEach((name, value) -> {
      if (name.startsWith(Names.PREFIX)) {
        conf.set(name, value);
      }
    });
  }
}

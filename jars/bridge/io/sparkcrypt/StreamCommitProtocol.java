package io.sparkcrypt;

import java.util.Map;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.streaming.ManifestFileCommitProtocol;

/**
 * The commit protocol of Spark's streaming file sink, which also tells its writers of the table that a stream writes.
 *
 * <p>A stream into a table (toTable) is to Spark a stream into the table's folder: neither the table's options nor its schema
 * reach the writer, so its tags would be passed over. They are looked up in each micro-batch, since a stream may run for months.
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
    Object known = tableOf(session);
    SessionPolicy policy = SessionPolicy.of(session);
    if (known == null && policy != null) {
      new KnownTables(session, policy).toldByFolder(folder).forEach(job.getConfiguration()::set);
    }
    if (known != null) {
      Object catalog = Calls.call(Calls.call(session, "sessionState"), "catalog");
      describe(Calls.call(catalog, "getTableMetadata", Calls.call(known, "identifier")), job.getConfiguration());
    }
    FactoryCheck.check(job.getConfiguration());
    job.getConfiguration().set(Names.STREAM, "told");
    super.setupJob(job);
  }

  /** The table that this thread's query writes, as it was when the query started; null when it writes a mere folder. */
  private static Object tableOf(SparkSession session) {
    String id = session.sparkContext().getLocalProperty(Streams.QUERY_ID);
    Map<?, ?> active = (Map<?, ?>) Calls.call(Calls.call(session, "sharedState"), "activeStreamingQueries");
    Object query = id == null ? null : active.get(UUID.fromString(id));
    if (query == null) {
      throw Refusal.of("BridgeError", "which table this stream writes cannot be told, so its tags are not known");
    }
    Object table = Calls.call(Calls.call(Calls.call(query, "lastExecution"), "logical"), "catalogTable");
    return (Boolean) Calls.call(table, "isDefined") ? Calls.call(table, "get") : null;
  }

  /** Puts into a job's configuration what a batch write into the table would have there. */
  private static void describe(Object table, Configuration conf) {
    Object identifier = Calls.call(table, "identifier");
    conf.set(Names.TABLE, Calls.call(Calls.call(identifier, "database"), "get") + "." + Calls.call(identifier, "table"));
    conf.set(Names.TABLE_SCHEMA, (String) Calls.call(Calls.call(table, "schema"), "json"));
    Calls.forEach(
        Calls.call(Calls.call(table, "storage"), "properties"),
        (name, value) -> {
          if (((String) name).startsWith(Names.PREFIX)) {
            conf.set((String) name, (String) value);
          }
        });
  }
}

package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.crypto.ParquetCryptoRuntimeException;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.types.StructType;

/**
 * A check of each ORC file by the helper before its rows are read, which keeps the keys of the file.
 *
 * <p>ORC asks its key provider for keys without naming the file, and does not ask at all for a plaintext file. Results are
 * therefore kept by task, by session and by the name that Spark gives the file that a thread reads.
 */
final class OrcReadCheck {
  private static final int MOST = 10_000;
  private static final Map<String, FileKeys> JUDGED = Newest.synchronizedMap(MOST);

  private OrcReadCheck() {}

  /**
   * Refuses a file that may not be read.
   *
   * @param conf the configuration of the read, with its options
   * @param named the name that Spark gives the file in this thread
   * @param schema the columns that files of this read have
   * @param requested the columns that are read
   */
  static void check(Configuration conf, Path path, String named, StructType schema, StructType requested) throws IOException {
    try {
      OrcKeyProvider.refuseOther(conf);
      SessionConf session = new SessionConf(conf);
      FileKeys keys = new FileKeys(session, conf, path);
      OrcFacts facts = OrcFacts.read(conf, path, schema, keys);
      ObjectNode request = session.request("resolve_orc_read", path).put("requested_schema", requested.json());
      ((ObjectNode) request.get("properties")).remove(Names.ORC_SCHEMA);
      request.set("footer", facts.toJson());
      JsonNode answer = Helper.ask(request);
      keys.belongTo(answer.path("table").asText(null));
      String entry = entry(OrcKeyProvider.kind(conf), named);
      JUDGED.remove(entry); // the entry is then the newest
      JUDGED.put(entry, keys);
    } catch (ParquetCryptoRuntimeException e) {
      throw new RefusedError(e.getMessage()); // with ignoreCorruptFiles Spark would skip the file
    }
  }

  /**
   * Returns the keys of a file that this task has checked for a session; null if another reader than Spark's own opens it.
   *
   * @param kind the session's key provider
   * @param named the name that Spark gives the file in this thread
   */
  static FileKeys keysOf(String kind, String named) {
    return JUDGED.get(entry(kind, named));
  }

  private static String entry(String kind, String named) {
    TaskContext task = TaskContext.get();
    return (task == null ? "" : task.taskAttemptId()) + "\n" + kind + "\n" + named;
  }
}

package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.crypto.ParquetCryptoRuntimeException;
import org.apache.spark.sql.types.StructType;

/**
 * Lets the helper judge an ORC file before its rows are read, and keeps the keys that belong to it.
 *
 * <p>ORC asks its key provider for keys without saying of which file, and of a plaintext file it asks nothing. What was judged is
 * kept by the text under which Spark names the file that a thread reads.
 */
final class OrcReadCheck {
  private static final int MOST = 10_000;
  private static final Map<String, FileKeys> JUDGED = new Newest<>(MOST);

  private OrcReadCheck() {}

  /**
   * Refuses a file that may not be read.
   *
   * @param conf of the read, with its options
   * @param path of the file
   * @param named as Spark names the file to this thread
   * @param schema of the columns that files of this read have
   * @param requested of those that are read
   */
  static void check(Configuration conf, Path path, String named, StructType schema, StructType requested) throws IOException {
    try {
      SessionConf session = new SessionConf(conf);
      FileKeys keys = new FileKeys(session, conf, path);
      OrcFacts facts = OrcFacts.read(conf, path, schema, keys);
      ObjectNode request = session.request("resolve_orc_read", path).put("requested_schema", requested.json());
      ((ObjectNode) request.get("properties")).remove(Names.ORC_SCHEMA);
      request.set("footer", facts.toJson());
      JsonNode answer = Helper.ask(request);
      keys.belongTo(answer.path("table").asText(null));
      synchronized (JUDGED) {
        String entry = entry(OrcKeyProvider.kind(conf), named);
        JUDGED.remove(entry); // a file that comes again is the newest
        JUDGED.put(entry, keys);
      }
    } catch (ParquetCryptoRuntimeException e) {
      throw new RefusedError(e.getMessage()); // with ignoreCorruptFiles Spark would pass over the file
    }
  }

  /**
   * The keys of a file that was judged for a session; null for one that another reader than Spark's own opens.
   *
   * @param kind the session's key provider
   * @param named as Spark names the file to this thread
   */
  static FileKeys keysOf(String kind, String named) {
    synchronized (JUDGED) {
      return JUDGED.get(entry(kind, named));
    }
  }

  private static String entry(String kind, String named) {
    return kind + "\n" + named;
  }
}

package io.sparkcrypt;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/** The policy and the properties for the helper, from the configuration of one write or read. */
final class SessionConf {
  // Spark copies a read's options with their names in lower case.
  private static final Set<String> IGNORE_CORRUPT_FILES =
      Set.of("spark.sql.files.ignorecorruptfiles", "ignorecorruptfiles", "spark.files.ignorecorruptfiles");

  /** What the extension passes to Spark's readers and writers: without it, it can only come from a table's author or a user. */
  private static final Set<String> OF_EXTENSION =
      Set.of(
          Names.TABLE,
          Names.TABLE_NAME,
          Names.TABLE_SCHEMA,
          Names.LOCATIONS,
          Names.PARTITION,
          Names.QUERY_SCHEMA,
          Names.OWNER_SCHEMAS,
          Names.FIELD_METADATA,
          Names.ALLOW_MASKED,
          Names.STREAM);

  /** The policy, the principal that reads and writes, and its key service. */
  final PinnedPolicy pinned;

  private final Map<String, String> properties = new TreeMap<>();
  private boolean ignoresCorruptFiles = "true".equalsIgnoreCase(Launch.conf("spark.files.ignoreCorruptFiles"));

  SessionConf(Configuration conf) {
    pinned = PinnedPolicy.of(conf);
    if (pinned.policy() == null) {
      throw Refusal.of(
          "ConfigError",
          "sparkcrypt's crypto factory is set but " + Names.POLICY + " is not, so nothing says what may be in clear; set it as "
              + "sparkcrypt.configure or `sparkcrypt conf` do, or unset parquet.crypto.factory.class");
    }
    for (Map.Entry<String, String> entry : conf) {
      String name = entry.getKey();
      if (isJudged(name)) {
        refuseOfExtension(name);
        properties.put(name, conf.get(name)); // with variables substituted, as parquet-mr gets it
      } else if (IGNORE_CORRUPT_FILES.contains(name.toLowerCase(Locale.ROOT))) {
        ignoresCorruptFiles |= "true".equalsIgnoreCase(conf.getTrimmed(name));
      }
    }
  }

  private static void refuseOfExtension(String name) {
    if (OF_EXTENSION.contains(name) && !Launch.isSpark()) {
      throw Refusal.of(
          "ConfigError",
          name + " is of sparkcrypt's extension of Spark, which is not here; it comes from a table's properties, from SET or from "
              + "this configuration; allowed: none; remove it there; without Spark a table is found by the location of its rule in "
              + "the policy");
    }
  }

  private static boolean isJudged(String name) {
    return name.startsWith(Names.PREFIX) && !name.equals(Names.POLICY) && !name.equals(Names.SESSION_TOKEN)
        || name.startsWith(Names.ENCRYPTION_PREFIX)
        || name.equals(Names.SUMMARY_LEVEL)
        || name.equals(Names.SUMMARY_ENABLED);
  }

  boolean ignoresCorruptFiles() {
    return ignoresCorruptFiles;
  }

  /** Returns a request about one file. The path is Hadoop's text of it, which is not escaped like a URI. */
  ObjectNode request(String op, Path path) {
    return request(op, path, Map.of());
  }

  /** Returns the same with more properties, those of a table. */
  ObjectNode request(String op, Path path, Map<String, String> more) {
    ObjectNode request = Wire.request(op).put("policy", pinned.policy()).put("path", path.toString());
    ObjectNode sent = request.putObject("properties");
    properties.forEach(sent::put);
    more.forEach(sent::put);
    return request;
  }

  /** Returns the table as the catalog or an option names it, or null. */
  String table() {
    return properties.getOrDefault(Names.TABLE_NAME, properties.get(Names.TABLE));
  }

  /** Asks the policy's key service for the key of this key metadata; a refusal names the key's owner. */
  byte[] openKey(byte[] keyMetadata, String owner, Path file) {
    ObjectNode request = Wire.request("open_key").put("policy", pinned.policy()).put("key_metadata", Wire.base64(keyMetadata));
    request.put("owner", owner).put("path", file.toString()).put("principal", pinned.principal());
    request.put("table", table());
    addLifetime(request);
    return Wire.bytes(Helper.ask(request), "key");
  }

  /** Adds the number of seconds that this session may keep opened keys; null stands for the default. */
  void addLifetime(ObjectNode request) {
    String lifetime = properties.get(Names.CACHE_LIFETIME);
    request.put("lifetime_seconds", lifetime == null ? null : Double.valueOf(Launch.seconds(lifetime)));
  }
}

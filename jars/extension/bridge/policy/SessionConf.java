package io.sparkcrypt;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Map;
import java.util.TreeMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/** The policy and the properties for the helper, from the configuration of one write or read. */
final class SessionConf {
  // Spark copies a read's options with their names in lower case.
  private static final String[] IGNORE_CORRUPT_FILES = {
    "spark.sql.files.ignorecorruptfiles", "ignorecorruptfiles", "spark.files.ignorecorruptfiles"
  };

  private final String policy;
  private final String principal;
  private final Map<String, String> properties = new TreeMap<>();
  private boolean ignoresCorruptFiles = "true".equalsIgnoreCase(Launch.conf("spark.files.ignoreCorruptFiles"));

  SessionConf(Configuration conf) {
    PinnedPolicy pinned = PinnedPolicy.of(conf);
    policy = pinned.policy;
    principal = pinned.principal;
    if (policy == null) {
      throw Refusal.of(
          "ConfigError",
          "sparkcrypt's crypto factory is set but " + Names.POLICY + " is not, so nothing says what may be in clear; set it as "
              + "sparkcrypt.configure or `sparkcrypt conf` do, or unset parquet.crypto.factory.class");
    }
    for (Map.Entry<String, String> entry : conf) {
      String name = entry.getKey();
      if (isJudged(name)) {
        properties.put(name, conf.get(name)); // with variables substituted, as parquet-mr gets it
      } else if (isIgnoreCorruptFiles(name)) {
        ignoresCorruptFiles |= "true".equalsIgnoreCase(conf.getTrimmed(name));
      }
    }
  }

  private static boolean isJudged(String name) {
    return name.startsWith(Names.PREFIX) && !name.equals(Names.POLICY) && !name.equals(Names.SESSION_TOKEN)
        || name.startsWith(Names.ENCRYPTION_PREFIX)
        || name.equals(Names.SUMMARY_LEVEL)
        || name.equals(Names.SUMMARY_ENABLED);
  }

  private static boolean isIgnoreCorruptFiles(String name) {
    for (String known : IGNORE_CORRUPT_FILES) {
      if (known.equalsIgnoreCase(name)) {
        return true;
      }
    }
    return false;
  }

  String policy() {
    return policy;
  }

  /** Returns the principal that reads and writes. */
  String principal() {
    return principal;
  }

  boolean ignoresCorruptFiles() {
    return ignoresCorruptFiles;
  }

  /** Returns a request about one file. The path is Hadoop's text of it, which is not escaped like a URI. */
  ObjectNode request(String op, Path path) {
    ObjectNode request = Wire.request(op).put("policy", policy).put("path", path.toString());
    ObjectNode sent = request.putObject("properties");
    properties.forEach(sent::put);
    return request;
  }

  /** Returns the table as the catalog or an option names it, or null. */
  String table() {
    return properties.getOrDefault(Names.TABLE_NAME, properties.get(Names.TABLE));
  }

  /** Asks the policy's key service for the key of this key metadata; a refusal names the key's owner. */
  byte[] openKey(byte[] keyMetadata, String owner, Path file) {
    ObjectNode request = Wire.request("open_key").put("policy", policy).put("key_metadata", Wire.base64(keyMetadata));
    request.put("owner", owner).put("path", file.toString()).put("principal", principal);
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

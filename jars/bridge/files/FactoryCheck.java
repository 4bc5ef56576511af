package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import org.apache.hadoop.conf.Configuration;

/**
 * A check that refuses a write of tagged columns whose session or options name another crypto factory, before any of its tasks
 * runs.
 *
 * <p>Another factory ignores tags. Options of the stock factory that name columns and keys (parquet_options) are a deliberate
 * choice, and pass.
 */
final class FactoryCheck {
  private static final String FACTORY = "parquet.crypto.factory.class";
  private static final String ROW_SCHEMA = "org.apache.spark.sql.parquet.row.attributes";
  private static final String[] KEYS = {"footer.key", "uniform.key"};

  private FactoryCheck() {}

  static void check(Configuration conf) {
    String factory = conf.get(FACTORY);
    if (Names.CRYPTO_FACTORY_CLASS.equals(factory) || namesKeys(conf)) {
      return;
    }
    String schema = conf.get(ROW_SCHEMA); // set only by Parquet's writer
    String tagged = schema == null ? null : reasonToEncrypt(conf, schema);
    if (tagged != null) {
      throw Refusal.of(
          "ConfigError",
          FACTORY + " is " + (factory == null ? "not set" : factory) + " for this write, with which " + tagged + " would be written "
              + "in clear; it comes from SET or from an option; allowed: " + Names.CRYPTO_FACTORY_CLASS
              + ", or the stock factory with the options of sparkcrypt.parquet_options; RESET " + FACTORY
              + ", or take the option away");
    }
  }

  private static boolean namesKeys(Configuration conf) {
    for (String name : KEYS) {
      String key = conf.get(Names.ENCRYPTION_PREFIX + name);
      if (key != null && !key.isBlank()) {
        return true;
      }
    }
    return false;
  }

  /** Returns what requires encryption in this write, as the message names it, or null. */
  private static String reasonToEncrypt(Configuration conf, String schema) {
    if (Boolean.parseBoolean(conf.get(Names.REQUIRE_ENCRYPTION, "false").trim())) {
      return "a table that requires encryption";
    }
    if (!conf.getPropsWithPrefix(Names.TAGS_PREFIX).isEmpty() || carriesTags(schema) || carriesTags(conf.get(Names.TABLE_SCHEMA))) {
      return "a tagged column";
    }
    return null;
  }

  private static boolean carriesTags(String schema) {
    if (schema == null) {
      return false;
    }
    try {
      return Wire.parse(schema.getBytes(StandardCharsets.UTF_8)).findValues("metadata").stream().anyMatch(FactoryCheck::hasTags);
    } catch (IOException e) {
      return true; // an unreadable schema may contain tags
    }
  }

  private static boolean hasTags(JsonNode metadata) {
    return metadata.has("tags");
  }
}

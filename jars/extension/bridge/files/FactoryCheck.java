package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import java.util.function.UnaryOperator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/**
 * A check that refuses a write of columns to be encrypted whose configuration names another crypto factory, before any of its
 * tasks runs.
 *
 * <p>Another factory ignores tags. The helper says whether tags or rules are for this write. Options of the stock factory that
 * name columns and keys (parquet_options) pass where the launch or the program allows them, and where there is no policy.
 */
final class FactoryCheck {
  private static final String ROW_SCHEMA = "org.apache.spark.sql.parquet.row.attributes";
  private static final String FOLDER = "mapreduce.output.fileoutputformat.outputdir";
  private static final List<String> KEYS = List.of(Names.ENCRYPTION_PREFIX + "footer.key", Names.ENCRYPTION_PREFIX + "uniform.key");

  private FactoryCheck() {}

  static void check(Configuration conf) {
    String factory = conf.get(Names.CRYPTO_FACTORY);
    String schema = conf.get(ROW_SCHEMA); // set only by Parquet's writer
    if (Names.CRYPTO_FACTORY_CLASS.equals(factory) || schema == null) {
      return;
    }
    boolean hasPolicy = !conf.get(Names.POLICY, "").isBlank();
    if (namesKeys(conf::get) && (!hasPolicy || RegisteredPolicies.allowsStock(conf.get(Names.SESSION_TOKEN)))) {
      return;
    }
    String found = hasPolicy ? askHelper(conf, schema) : schema.contains("\"tags\"") ? "a tagged column" : null;
    if (found != null) {
      throw Refusal.of(
          "ConfigError",
          Names.CRYPTO_FACTORY + " is " + (factory == null ? "not set" : factory) + " for this write, with which " + found
              + " would be written in clear; it comes from SET or from an option; allowed: " + Names.CRYPTO_FACTORY_CLASS
              + ", or the stock factory with the options of sparkcrypt.parquet_options, where the launch "
              + "(spark.sparkcrypt.stock_factory=true) or configure(…, stock_factory=True) allows it; RESET " + Names.CRYPTO_FACTORY
              + ", or take the option away");
    }
  }

  /** Returns whether options of a write or read name the stock factory and its keys. */
  static boolean namesStock(Object options) {
    UnaryOperator<String> get = name -> (String) Calls.orNull(Calls.call(options, "get", name));
    return Names.STOCK_CRYPTO_FACTORY_CLASS.equals(get.apply(Names.CRYPTO_FACTORY)) && namesKeys(get);
  }

  private static boolean namesKeys(UnaryOperator<String> get) {
    return KEYS.stream().map(get).anyMatch(key -> key != null && !key.isBlank());
  }

  /** Returns the columns that the policy, tags or a rule encrypt in this write, as the message names them, or null. */
  private static String askHelper(Configuration conf, String schema) {
    ObjectNode request = new SessionConf(conf).request("encrypted_columns", new Path(conf.get(FOLDER, "/")));
    JsonNode columns = Wire.requireField(Helper.ask(request.put("schema", schema)), "columns");
    return columns.isEmpty() ? null : "columns to be encrypted (" + columns.get(0).asText() + (columns.size() > 1 ? ", …)" : ")");
  }
}

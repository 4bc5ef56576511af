package io.sparkcrypt;

import java.io.IOException;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;

/**
 * The settings of this application's launch: spark-defaults.conf, --conf, or the builder that created its SparkContext.
 *
 * <p>Executors get the same settings when they start. SET, RESET, options and table properties change a session's configuration,
 * never these settings. A JVM without Spark has those of its Site instead.
 */
final class Launch {
  private static final String HADOOP = "spark.hadoop.";
  private static final String ALLOW_HTTP = "spark.sparkcrypt.allow_http";
  private static final String STOCK_FACTORY = "spark.sparkcrypt.stock_factory";
  private static final String PRINCIPAL = "spark.sparkcrypt.principal";
  private static final double DEFAULT_LIFETIME_SECONDS = 600;

  private Launch() {}

  /** Returns whether this JVM belongs to a Spark application. */
  static boolean isSpark() {
    try {
      return SparkSide.isThere();
    } catch (LinkageError e) {
      return false;
    }
  }

  /** Returns one setting, or null. */
  static String conf(String name) {
    return isSpark() ? SparkSide.conf(name) : Site.conf(name);
  }

  /** Returns where a setting is to be made, for messages. */
  static String place(String name) {
    return isSpark()
        ? name + " at launch (spark-defaults.conf, or --conf " + name + "=…)"
        : Site.nameOf(name) + " in " + Site.FILE;
  }

  /** Returns a setting of Hadoop's configuration as the launcher set it, or null. */
  static String hadoopConf(String name) {
    String value = conf(HADOOP + name);
    return value == null || value.isBlank() ? null : value.trim();
  }

  static boolean allowsHttp() {
    return "true".equalsIgnoreCase(conf(ALLOW_HTTP));
  }

  /** Returns whether writes and reads may name Parquet's own crypto factory. */
  static boolean allowsStock() {
    return "true".equalsIgnoreCase(conf(STOCK_FACTORY));
  }

  /** Returns the principal's name for messages: the launch's setting, or the user that the application runs as. */
  static String principal() {
    String named = conf(PRINCIPAL);
    if (named != null && !named.isBlank()) {
      return named.trim();
    }
    try {
      return UserGroupInformation.getCurrentUser().getShortUserName();
    } catch (IOException e) {
      return "this process"; // only a name for messages
    }
  }

  /** Returns the longest time that a session may keep opened keys. */
  static double lifetimeSeconds() {
    String text = hadoopConf(Names.CACHE_LIFETIME);
    return text == null ? DEFAULT_LIFETIME_SECONDS : seconds(text);
  }

  static double seconds(String text) {
    try {
      return Double.parseDouble(text.trim());
    } catch (NumberFormatException e) {
      throw Refusal.of("ConfigError", Names.CACHE_LIFETIME + " is '" + text + "'; allowed: a number of seconds", e);
    }
  }

  /** The part that needs Spark's classes, kept apart so that the outer class loads without them. */
  private static final class SparkSide {
    static boolean isThere() {
      return SparkEnv.get() != null;
    }

    static String conf(String name) {
      SparkEnv env = SparkEnv.get();
      SparkConf conf = env == null ? null : env.conf();
      return conf == null ? null : conf.get(name, null);
    }
  }
}

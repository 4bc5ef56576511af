package io.sparkcrypt;

import java.io.IOException;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;

/**
 * What the launcher of this application set: spark-defaults.conf, --conf, or the builder that made its SparkContext.
 *
 * <p>Executors are told the same when they start. SET, RESET, options and table properties reach a session's configuration and
 * never this one.
 */
final class Launch {
  private static final String HADOOP = "spark.hadoop.";
  private static final String ALLOW_HTTP = "spark.sparkcrypt.allow_http";
  private static final String PRINCIPAL = "spark.sparkcrypt.principal";
  private static final double DEFAULT_LIFETIME_SECONDS = 600;

  private Launch() {}

  /** Whether this JVM belongs to a Spark application; parquet-mr alone has no launch, and its program sets what it likes. */
  static boolean isSpark() {
    try {
      return SparkSide.isThere();
    } catch (LinkageError e) {
      return false;
    }
  }

  /** One setting, or null. */
  static String conf(String name) {
    try {
      return SparkSide.conf(name);
    } catch (LinkageError e) {
      return null; // parquet-mr without Spark
    }
  }

  /** A setting of Hadoop's configuration as the launcher set it, or null. */
  static String hadoopConf(String name) {
    String value = conf(HADOOP + name);
    return value == null || value.isBlank() ? null : value.trim();
  }

  static boolean allowsHttp() {
    return "true".equalsIgnoreCase(conf(ALLOW_HTTP));
  }

  /** Who reads, as messages name him: what the launch says, or the user that the application runs for. */
  static String principal() {
    String named = conf(PRINCIPAL);
    if (named != null && !named.isBlank()) {
      return named.trim();
    }
    try {
      return UserGroupInformation.getCurrentUser().getShortUserName();
    } catch (IOException e) {
      return "this process"; // a name for messages alone
    }
  }

  /** For how long a session may keep opened keys at most. */
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

  /** Apart, so that this class loads where Spark's classes are not. */
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

package io.sparkcrypt;

import java.io.File;
import java.net.URISyntaxException;
import java.util.List;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;

/**
 * Which command starts the helper, by what the launcher of this JVM set and nothing that a session can set.
 *
 * <p>A session's configuration reaches parquet-mr as Hadoop configuration. An interpreter named there would let anyone who may
 * run SQL run a program, so it is never looked at.
 */
final class Interpreter {
  static final String PYTHON_CONF = "spark.sparkcrypt.python";
  private static final String DEADLINE_CONF = "spark.sparkcrypt.helper.deadline.seconds";
  private static final long DEFAULT_DEADLINE_SECONDS = 60;

  private Interpreter() {}

  /** The interpreter and this jar: running the jar puts it, and no folder, first on Python's path. */
  static List<String> command() {
    return List.of(python(), jar());
  }

  static long deadlineSeconds() {
    String text = firstOf(launchConf(DEADLINE_CONF), System.getProperty("sparkcrypt.helper.deadline.seconds"));
    if (text == null) {
      return DEFAULT_DEADLINE_SECONDS;
    }
    try {
      long seconds = Long.parseLong(text);
      if (seconds > 0) {
        return seconds;
      }
    } catch (NumberFormatException e) {
      // said below, together with zero and negative numbers
    }
    throw Refusal.of("ConfigError", DEADLINE_CONF + " is '" + text + "'; allowed: a whole number of seconds above 0");
  }

  private static String python() {
    String chosen =
        firstOf(
            launchConf(PYTHON_CONF),
            launchConf("spark.hadoop.sparkcrypt.python"),
            System.getProperty("sparkcrypt.python"),
            launchConf("spark.pyspark.python"),
            System.getenv("PYSPARK_PYTHON"));
    return chosen == null ? "python3" : chosen;
  }

  private static String jar() {
    try {
      return new File(Interpreter.class.getProtectionDomain().getCodeSource().getLocation().toURI()).getAbsolutePath();
    } catch (URISyntaxException | IllegalArgumentException | NullPointerException e) {
      throw Refusal.of(
          "BridgeError", "the place of the sparkcrypt jar cannot be told; give it to Spark as a file, by --jars or spark.jars", e);
    }
  }

  private static String firstOf(String... values) {
    for (String value : values) {
      if (value != null && !value.isBlank()) {
        return value.trim();
      }
    }
    return null;
  }

  static String launchConf(String name) {
    try {
      return SparkSide.conf(name);
    } catch (LinkageError e) {
      return null; // parquet-mr without Spark
    }
  }

  /** Apart, so that this class loads where Spark's classes are not. */
  private static final class SparkSide {
    static String conf(String name) {
      SparkEnv env = SparkEnv.get();
      SparkConf conf = env == null ? null : env.conf();
      return conf == null ? null : conf.get(name, null);
    }
  }
}

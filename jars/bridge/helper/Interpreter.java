package io.sparkcrypt;

import java.io.File;
import java.net.URISyntaxException;
import java.util.List;

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
  private static volatile String ofProgram;

  private Interpreter() {}

  /** Uses the interpreter that runs the program, where Spark's launcher names none. */
  static void useOfProgram(String path) {
    ofProgram = path;
  }

  /** The interpreter and this jar: running the jar puts it, and no folder, first on Python's path. */
  static List<String> command() {
    return List.of(python(), jar());
  }

  static long deadlineSeconds() {
    String text = firstOf(Launch.conf(DEADLINE_CONF), System.getProperty("sparkcrypt.helper.deadline.seconds"));
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
            Launch.conf(PYTHON_CONF),
            Launch.conf("spark.hadoop.sparkcrypt.python"),
            byProgram(),
            Launch.conf("spark.pyspark.python"),
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

  /** SQL can set a system property, by reflect: where there is Spark, none says what is executed. */
  private static String byProgram() {
    return Launch.isSpark() ? ofProgram : System.getProperty("sparkcrypt.python");
  }
}

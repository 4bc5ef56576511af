package io.sparkcrypt;

import java.io.File;
import java.net.URISyntaxException;
import java.util.Arrays;
import java.util.List;

/**
 * The command that starts the helper, taken from this JVM's launch and never from a session.
 *
 * <p>A session's configuration reaches parquet-mr as Hadoop configuration. An interpreter named there would let anyone who may
 * run SQL run a program, so it is ignored; so are system properties, which SQL sets by reflect, and Hive's SET directly.
 */
final class Interpreter {
  static final String PYTHON_CONF = "spark.sparkcrypt.python";
  static final String ENVIRONMENT_CONF = "spark.sparkcrypt.helper.environment";
  static final String DEADLINE_CONF = "spark.sparkcrypt.helper.deadline.seconds";
  private static final long DEFAULT_DEADLINE_SECONDS = 60;
  private static volatile String ofProgram;

  private Interpreter() {}

  /** Sets the interpreter that runs the program, which is used if Spark's launcher names none. */
  static void useOfProgram(String path) {
    ofProgram = path;
  }

  /** Returns the interpreter and this jar: Python then puts the jar, and no folder, first on its path. */
  static List<String> command() {
    return List.of(python(), jar());
  }

  static long deadlineSeconds() {
    String text = Launch.conf(DEADLINE_CONF);
    if (text == null || text.isBlank()) {
      return DEFAULT_DEADLINE_SECONDS;
    }
    try {
      long seconds = Long.parseLong(text.trim());
      if (seconds > 0) {
        return seconds;
      }
    } catch (NumberFormatException e) {
      // refused below, together with zero and negative numbers
    }
    throw Refusal.of("ConfigError", DEADLINE_CONF + " is '" + text + "'; allowed: a whole number of seconds above 0");
  }

  private static String python() {
    return firstOf(
        Launch.conf(PYTHON_CONF),
        Launch.conf("spark.hadoop.sparkcrypt.python"),
        ofProgram,
        Launch.conf("spark.pyspark.python"),
        System.getenv("PYSPARK_PYTHON"),
        "python3");
  }

  private static String jar() {
    try {
      return new File(Interpreter.class.getProtectionDomain().getCodeSource().getLocation().toURI()).getAbsolutePath();
    } catch (URISyntaxException | IllegalArgumentException | NullPointerException e) {
      throw Refusal.of(
          "BridgeError",
          "the place of the sparkcrypt jar cannot be told; give it to Spark as a file, by --jars or spark.jars", e);
    }
  }

  private static String firstOf(String... values) {
    return Arrays.stream(values).filter(value -> value != null && !value.isBlank()).map(String::trim).findFirst().orElse(null);
  }
}

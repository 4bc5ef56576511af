package io.sparkcrypt;

import java.util.Map;

/** The settings of a program that reads by parquet-java without Spark, and has no site file. */
public final class Sparkcrypt {
  private Sparkcrypt() {}

  /**
   * Sets policy and helper of this JVM, once, before its first read.
   *
   * <p>SQL cannot call this (reflect): it has no map to give.
   *
   * @param settings names and values as in the site file, as {@code sparkcrypt conf --site --json} prints them
   * @throws RuntimeException there are settings already, or one of these is unknown, or this is Spark's JVM
   */
  public static void configure(Map<String, String> settings) {
    if (Launch.isSpark()) {
      throw Refusal.of(
          "ConfigError",
          "this JVM is one of Spark's; allowed: the launch configuration (`sparkcrypt conf`), or sparkcrypt.configure in Python");
    }
    Site.configure(settings);
  }
}

package io.sparkcrypt;

import java.io.IOException;
import java.io.InputStream;
import java.net.URL;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.hadoop.conf.Configuration;

/**
 * The settings of a JVM without Spark: those of its site file, or those that its program gave.
 *
 * <p>Hive copies a table's properties into the configuration of each read, and SET changes that and system properties, so neither
 * is asked. The file is the one that the class loader of this class finds: it does not see what a session adds by ADD JAR. Where
 * it finds two, anybody who can add one to the class path would choose, so neither is used.
 */
final class Site {
  static final String FILE = "sparkcrypt-site.xml";
  private static final Set<String> NAMES =
      new TreeSet<>(
          List.of(
              Names.POLICY,
              Names.CACHE_LIFETIME,
              "sparkcrypt.helper.deadline.seconds",
              "sparkcrypt.helper.environment",
              "sparkcrypt.principal",
              "sparkcrypt.python"));
  private static Map<String, String> settings; // guarded by the class; null until they are first asked for

  private Site() {}

  /** Returns a setting by the name that a launch of Spark has for it, or null. */
  static synchronized String conf(String name) {
    if (settings == null) {
      settings = read();
    }
    return settings.get(nameOf(name));
  }

  /** Returns the name that a setting of a launch has here. */
  static String nameOf(String name) {
    return name.replaceFirst("^spark\\.(hadoop\\.)?", "");
  }

  /** Takes the settings of a program that has no site file; once, so that nothing that it runs can replace them. */
  static synchronized void configure(Map<String, String> given) {
    if (settings == null) {
      settings = read();
    }
    if (!settings.isEmpty()) {
      throw Refusal.of(
          "ConfigError",
          "this JVM is configured already, by " + FILE + " or by an earlier call; allowed: one of them, once; remove the other");
    }
    settings = checked(given, "Sparkcrypt.configure");
  }

  private static Map<String, String> read() {
    Map<String, URL> found = new TreeMap<>(); // a class path may name a folder twice
    try {
      Collections.list(Site.class.getClassLoader().getResources(FILE)).forEach(file -> found.put(file.toString(), file));
    } catch (IOException e) {
      throw Refusal.of("ConfigError", "the class path cannot be searched for " + FILE + ": " + e.getMessage(), e);
    }
    if (found.size() > 1) {
      throw Refusal.of(
          "ConfigError",
          "there are several files " + FILE + " on the class path: " + String.join(", ", found.keySet()) + "; allowed: one, since "
              + "policy and key service must not depend on their order; remove the others");
    }
    for (URL file : found.values()) {
      return checked(parse(file), file.toString());
    }
    return Map.of();
  }

  /** Returns the settings in a file of Hadoop's form, in whose values no variables are replaced: SET could have defined them. */
  private static Map<String, String> parse(URL file) {
    Map<String, String> found = new TreeMap<>();
    try (InputStream stream = file.openStream()) {
      Configuration parsed = new Configuration(false);
      parsed.addResource(stream, file.toString());
      parsed.forEach(entry -> found.put(entry.getKey(), entry.getValue()));
    } catch (IOException | RuntimeException e) {
      throw Refusal.of("ConfigError", file + " cannot be read: " + e.getMessage() + "; see that it is Hadoop's XML", e);
    }
    return found;
  }

  private static Map<String, String> checked(Map<String, String> given, String source) {
    TreeSet<String> unknown = new TreeSet<>(given.keySet());
    unknown.removeAll(NAMES);
    if (!unknown.isEmpty()) {
      throw Refusal.of(
          "ConfigError", source + " has " + String.join(", ", unknown) + "; allowed: " + String.join(", ", NAMES));
    }
    if (given.getOrDefault(Names.POLICY, "").isBlank()) {
      throw Refusal.of(
          "ConfigError", source + " has no " + Names.POLICY + "; `sparkcrypt conf --site` prints the whole file for a policy");
    }
    return Map.copyOf(given);
  }
}

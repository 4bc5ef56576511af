package io.sparkcrypt;

import java.lang.reflect.Field;
import java.util.Map;
import java.util.Objects;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.SparkContext;

/**
 * The streams that are already running when a program puts a session under a policy.
 *
 * <p>A stream uses a copy of its session's settings from when it started, and Spark's file sink a Hadoop configuration from then
 * too. Later settings of the session reach neither, so they are set in both of each stream here, and apply from its next
 * micro-batch on. The methods are not static for the reason that PolicyRegister has: SQL can call static methods.
 */
public final class RunningStreams {
  private static final String FACTORY = "parquet.crypto.factory.class";
  private static final String SPARKS_OWN = "org.apache.spark.sql.execution.";
  private static final String FILE_SINK = "FileStreamSink";

  public RunningStreams(SparkContext context) {
    Objects.requireNonNull(context);
  }

  /**
   * Puts the running streams of all sessions under a policy, except those that are under one.
   *
   * @param session the session that is being configured
   * @param own the settings of that session
   * @param others the settings for sessions that no program configures
   */
  public void put(Object session, Map<String, String> own, Map<String, String> others) {
    Map<?, ?> active = (Map<?, ?>) Calls.call(Calls.call(session, "sharedState"), "activeStreamingQueries");
    for (Object query : active.values()) {
      Object started = Calls.call(query, "sparkSession");
      Object running = Calls.call(query, "sparkSessionForStream");
      boolean isOwn = started == session;
      setProtocols(started, isOwn ? own : others);
      setProtocols(running, isOwn ? own : others);
      if (isOwn && setting(running, Names.SESSION_TOKEN) == null) {
        own.forEach((name, value) -> set(running, name, value));
      }
      setInSink(query, isOwn ? own : others);
    }
  }

  /**
   * Sets the commit protocols, but keeps any that is not Spark's own: it was chosen, and the sink's files are then refused one by
   * one.
   */
  private static void setProtocols(Object session, Map<String, String> settings) {
    settings.forEach(
        (name, value) -> {
          String known = name.endsWith(".commitProtocolClass") ? setting(session, name) : null;
          if (known != null && known.startsWith(SPARKS_OWN)) {
            set(session, name, value);
          }
        });
  }

  private static void setInSink(Object query, Map<String, String> settings) {
    Configuration conf = confOfSink(query);
    if (conf != null && conf.get(FACTORY) == null) {
      settings.forEach(
          (name, value) -> {
            if (!name.startsWith("spark.")) {
              conf.set(name, value);
            }
          });
    }
  }

  /**
   * Returns the configuration that a file sink created for itself; null for other kinds of sinks, which create one for each
   * write.
   */
  private static Configuration confOfSink(Object query) {
    Object sink = Calls.call(query, "sink");
    for (Field field : sink.getClass().getDeclaredFields()) {
      if (Configuration.class.isAssignableFrom(field.getType())) {
        try {
          field.setAccessible(true);
          return (Configuration) field.get(sink);
        } catch (ReflectiveOperationException e) {
          throw new IllegalStateException(e);
        }
      }
    }
    if (sink.getClass().getSimpleName().equals(FILE_SINK)) {
      throw Refusal.of(
          "ConfigError",
          "stream " + Calls.call(query, "id") + " (" + Calls.call(query, "name") + ") runs already, and this Spark's file sink "
              + "cannot be put under a policy; it would go on writing in clear; stop it, call sparkcrypt.configure, and start it "
              + "again");
    }
    return null;
  }

  private static String setting(Object session, String name) {
    return (String) Calls.orNull(Calls.call(Calls.call(session, "conf"), "getOption", name));
  }

  private static void set(Object session, String name, String value) {
    Calls.call(Calls.call(session, "conf"), "set", name, value);
  }
}

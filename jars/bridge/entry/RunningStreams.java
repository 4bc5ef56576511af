package io.sparkcrypt;

import java.lang.reflect.Field;
import java.util.Map;
import java.util.Objects;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.SparkContext;

/**
 * Streams that run already when a program puts a session under a policy.
 *
 * <p>A stream goes by a copy of its session's settings from when it started, and Spark's file sink by a Hadoop configuration from
 * then too. What is set in a session later reaches neither, so it is set in both of each stream here, and its next micro-batch
 * goes by it. An object, as PolicyRegister is, since SQL can call static methods.
 */
public final class RunningStreams {
  private static final String FACTORY = "parquet.crypto.factory.class";
  private static final String SPARKS_OWN = "org.apache.spark.sql.execution.";
  private static final String FILE_SINK = "FileStreamSink";

  public RunningStreams(SparkContext context) {
    Objects.requireNonNull(context);
  }

  /**
   * Puts the running streams of all sessions under a policy, those excepted that are under one.
   *
   * @param session the session that is being configured
   * @param own what is set in it
   * @param others what is set for sessions that no program configures
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

  /** Another commit protocol than Spark's own was somebody's choice; the sink's files are then refused one by one. */
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

  /** The configuration that a file sink made for itself; null for sinks of other kinds, which make one for each write. */
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

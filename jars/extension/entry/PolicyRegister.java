package io.sparkcrypt;

import java.lang.reflect.Field;
import java.util.Map;
import java.util.Objects;
import java.util.WeakHashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.SparkSession;

/**
 * A register of the policies that the program of this application puts its sessions under.
 *
 * <p>SQL can call static methods of any class with texts and numbers (reflect), and methods of objects that a class creates
 * without arguments (Hive's GenericUDFReflect). Therefore every method that registers is an instance method, and the constructor
 * takes a SparkContext.
 */
public final class PolicyRegister {
  private static final String SPARKS_OWN = "org.apache.spark.sql.execution.";
  private static final String FILE_SINK = "FileStreamSink";
  private static final Map<Object, String> TOKENS = new WeakHashMap<>(); // by session; guarded by itself
  private static SparkContext watched; // guarded by the class

  private final SparkContext context;

  public PolicyRegister(SparkContext context) {
    this.context = Objects.requireNonNull(context);
    RegisteredPolicies.serve(context.env().rpcEnv());
  }

  /** Registers a policy for a probe, or for reads with other rules, and returns its token. */
  public String add(String policy) {
    return RegisteredPolicies.addOwn(policy);
  }

  /** Allows the sessions of a token to use Parquet's own crypto factory, or no longer. */
  public void allowStock(String token, boolean isAllowed) {
    RegisteredPolicies.allowStock(token, isAllowed);
  }

  /** Removes a token of {@code add}. */
  public void remove(String token) {
    RegisteredPolicies.remove(token);
  }

  /** Puts a session under a policy, and returns the token that its configuration must have. */
  public String addSession(Object session, String policy) {
    if (AccessLogPlace.of(policy) != null) {
      QueryWatch.install(context);
    }
    synchronized (TOKENS) {
      String known = TOKENS.get(session);
      if (known == null || !policy.equals(RegisteredPolicies.policyOf(known))) {
        known = RegisteredPolicies.add(policy); // streams that the session has started continue under the former token
        TOKENS.put(session, known);
      }
      return known;
    }
  }

  /** Forgets all sessions, as at the start of an application; their tokens keep their policies. */
  public void removeSessions() {
    synchronized (TOKENS) {
      TOKENS.clear();
    }
  }

  /**
   * Returns the token for sessions that no program puts under a policy: this session's own if all sessions have one key service.
   * Otherwise such a session would get the keys of whichever was configured last.
   */
  public String tokenForOthers(Object session) {
    synchronized (TOKENS) {
      String own = TOKENS.get(session);
      long services =
          TOKENS.values().stream().map(token -> PinnedPolicy.keyServiceIn(RegisteredPolicies.policyOf(token))).distinct().count();
      return services > 1 ? RegisteredPolicies.SEVERAL : own;
    }
  }

  /** Sets the interpreter that runs the program as the helper's, for local mode, in which the driver's JVM is the only one. */
  public void useInterpreter(Object path) {
    Interpreter.useOfProgram(String.valueOf(path));
  }

  /** Forgets what the last table of a name required that this application dropped or renamed. */
  public void forgetName(Object session, String database, String table) {
    EarlierTables.of((SparkSession) session).forget(database, table);
  }

  /** Guards the column statistics of every session of the application, including existing ones. */
  public void guardStatistics() {
    synchronized (PolicyRegister.class) {
      if (watched != context) {
        context.addSparkListener(new StatisticsGuard.Watch());
        watched = context;
      }
    }
  }

  /**
   * Puts the running streams of all sessions under a policy, except those that are under one.
   *
   * <p>A stream uses a copy of its session's settings from when it started, and Spark's file sink a Hadoop configuration from then
   * too. Later settings of the session reach neither, so they are set in both of each stream here, and apply from its next
   * micro-batch on.
   *
   * @param session the session that is being configured
   * @param own the settings of that session
   * @param others the settings for sessions that no program configures
   */
  public void putStreams(Object session, Map<String, String> own, Map<String, String> others) {
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
    settings.forEach((name, value) -> {
      String known = name.endsWith(".commitProtocolClass") ? setting(session, name) : null;
      if (known != null && known.startsWith(SPARKS_OWN)) {
        set(session, name, value);
      }
    });
  }

  private static void setInSink(Object query, Map<String, String> settings) {
    Configuration conf = confOfSink(query);
    if (conf != null && conf.get(Names.CRYPTO_FACTORY) == null) {
      settings.forEach((name, value) -> {
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

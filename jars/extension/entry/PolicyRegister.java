package io.sparkcrypt;

import java.util.Map;
import java.util.Objects;
import java.util.WeakHashMap;
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
}

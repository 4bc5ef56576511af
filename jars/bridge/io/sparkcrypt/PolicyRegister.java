package io.sparkcrypt;

import java.security.SecureRandom;
import java.util.Collections;
import java.util.HexFormat;
import java.util.Map;
import java.util.Objects;
import java.util.WeakHashMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.rpc.RpcEnv;
import org.apache.spark.rpc.RpcEndpointRef;
import org.apache.spark.util.RpcUtils;
import scala.reflect.ClassTag$;

/**
 * The policies that the program of this application put its sessions under, each behind a token that nobody can guess.
 *
 * <p>It lives in the driver. A session's configuration carries the token, and executors ask the driver what it stands for, over
 * Spark's own connection: what SQL, options and table properties can set names a policy only together with a token of it.
 *
 * <p>SQL can call static methods of any class with texts and numbers (reflect), and methods of objects that a class makes
 * without arguments (Hive's GenericUDFReflect). So whatever registers is a method of an object, and making one takes a
 * SparkContext.
 */
public final class PolicyRegister {
  static final String ENDPOINT = "sparkcrypt-policies";
  static final String SEVERAL = "several";
  private static final int TOKEN_BYTES = 32;
  /** What an executor was told last: probes and runs have tokens of their own, and applications may live for months. */
  private static final int MOST_TOLD = 1_024;
  private static final SecureRandom RANDOM = new SecureRandom();
  private static final Map<String, String> POLICIES = new ConcurrentHashMap<>();
  private static final Map<String, String> PRINCIPALS = new ConcurrentHashMap<>(); // tokens by a principal's name and policy
  private static final Map<Object, String> TOKENS = new WeakHashMap<>(); // by session; guarded by itself
  private static final Map<String, String> TOLD = Collections.synchronizedMap(new Newest<>(MOST_TOLD)); // by the driver
  private static RpcEnv served; // guarded by the class
  private static SparkContext watched; // guarded by the class
  private static volatile String interpreter;

  private final SparkContext context;

  public PolicyRegister(SparkContext context) {
    this.context = Objects.requireNonNull(context);
    serve(context.env().rpcEnv());
  }

  /** Registers a policy for a probe, or for reads with other rules, and returns its token. */
  public String add(String policy) {
    byte[] random = new byte[TOKEN_BYTES];
    RANDOM.nextBytes(random);
    String token = HexFormat.of().formatHex(random);
    POLICIES.put(token, policy);
    return token;
  }

  /** Registers a principal's policy, and returns the token that all of his sessions carry. */
  public String addPrincipal(String principal, String policy) {
    return PRINCIPALS.computeIfAbsent(principal + "\n" + policy, this::add);
  }

  /** Forgets a token of add. */
  public void remove(String token) {
    POLICIES.remove(token);
  }

  /** Puts a session under a policy, and returns the token that its configuration must carry. */
  public String addSession(Object session, String policy) {
    if (AccessPlace.of(policy) != null) {
      QueryWatch.install(context);
    }
    synchronized (TOKENS) {
      String known = TOKENS.get(session);
      if (known == null || !policy.equals(POLICIES.get(known))) {
        known = add(policy); // streams that the session started before go on under the former one
        TOKENS.put(session, known);
      }
      return known;
    }
  }

  /** Forgets all sessions, as at the start of an application; their tokens stand for what they stood for. */
  public void removeSessions() {
    synchronized (TOKENS) {
      TOKENS.clear();
    }
  }

  /**
   * The token for sessions that no program puts under a policy: a session's own where all have one key service. Otherwise such a
   * session would get the keys of whichever was configured last.
   */
  public String tokenForOthers(Object session) {
    synchronized (TOKENS) {
      String own = TOKENS.get(session);
      long services = TOKENS.values().stream().map(token -> PinnedPolicy.keyServiceIn(POLICIES.get(token))).distinct().count();
      return services > 1 ? SEVERAL : own;
    }
  }

  /** In local mode the driver's JVM is the only one, and its helper may use the interpreter that runs the program. */
  public void useInterpreter(Object path) {
    interpreter = String.valueOf(path);
  }

  /** Guards the column statistics of every session of the application, those included that live already. */
  public void guardStatistics() {
    synchronized (PolicyRegister.class) {
      if (watched != context) {
        context.addSparkListener(new StatisticsWatch());
        watched = context;
      }
    }
  }

  static String interpreter() {
    return interpreter;
  }

  /**
   * The policy behind a token, below the name of its principal and a line's end where it is one principal's; null: it is not known
   * here, nor to the driver.
   */
  static String find(String token) {
    String known = POLICIES.get(token);
    if (known == null) {
      known = TOLD.get(token);
    }
    if (known == null) {
      known = askDriver(token);
      if (known != null) {
        TOLD.put(token, known);
      }
    }
    return known;
  }

  /** What this JVM, which is the driver's, knows. */
  static String known(String token) {
    return POLICIES.get(token);
  }

  private static String askDriver(String token) {
    SparkEnv env = SparkEnv.get();
    if (env == null || serves(env.rpcEnv())) {
      return null; // this is the driver
    }
    RpcEndpointRef driver = RpcUtils.makeDriverRef(ENDPOINT, env.conf(), env.rpcEnv());
    String answer = driver.askSync(token, ClassTag$.MODULE$.apply(String.class));
    return answer.isEmpty() ? null : answer;
  }

  private static synchronized boolean serves(RpcEnv env) {
    return served == env;
  }

  private static synchronized void serve(RpcEnv env) {
    if (served != env) {
      env.setupEndpoint(ENDPOINT, new PolicyEndpoint(env));
      served = env;
    }
  }
}

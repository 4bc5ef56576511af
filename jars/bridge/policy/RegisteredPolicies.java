package io.sparkcrypt;

import java.security.SecureRandom;
import java.util.Collections;
import java.util.HexFormat;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.SparkEnv;
import org.apache.spark.rpc.RpcEndpointRef;
import org.apache.spark.rpc.RpcEnv;
import org.apache.spark.util.RpcUtils;
import scala.reflect.ClassTag$;

/**
 * Policies, each behind a token that nobody can guess.
 *
 * <p>They live in the driver. A session's configuration carries the token, and executors ask the driver what it stands for, over
 * Spark's own connection: what SQL, options and table properties can set names a policy only together with a token of it.
 */
final class RegisteredPolicies {
  static final String ENDPOINT = "sparkcrypt-policies";
  static final String SEVERAL = "several";
  static final String ORC_KIND = "sparkcrypt";
  private static final int TOKEN_BYTES = 32;
  /** What an executor was told last: probes and runs have tokens of their own, and applications may live for months. */
  private static final int MOST_TOLD = 1_024;
  private static final SecureRandom RANDOM = new SecureRandom();
  private static final Map<String, String> POLICIES = new ConcurrentHashMap<>();
  private static final Map<String, String> PRINCIPALS = new ConcurrentHashMap<>(); // tokens by a principal's name and policy
  private static final Map<String, String> TOLD = Collections.synchronizedMap(new Newest<>(MOST_TOLD)); // by the driver
  private static RpcEnv served; // guarded by the class

  private RegisteredPolicies() {}

  /** Registers a policy, and returns its token. */
  static String add(String policy) {
    byte[] random = new byte[TOKEN_BYTES];
    RANDOM.nextBytes(random);
    String token = HexFormat.of().formatHex(random);
    POLICIES.put(token, policy);
    return token;
  }

  /** Registers a principal's policy, and returns the token that all of his sessions carry. */
  static String addPrincipal(String principal, String policy) {
    return PRINCIPALS.computeIfAbsent(principal + "\n" + policy, RegisteredPolicies::add);
  }

  /** What orc.key.provider is in a session with this token; ORC keeps one provider for each such text. */
  static String orcKeyProvider(String token) {
    return token == null || token.isBlank() ? ORC_KIND : ORC_KIND + ":" + token;
  }

  /** Forgets a token of add. */
  static void remove(String token) {
    POLICIES.remove(token);
  }

  /** Answers executors from now on. */
  static synchronized void serve(RpcEnv env) {
    if (served != env) {
      env.setupEndpoint(ENDPOINT, new PolicyEndpoint(env));
      served = env;
    }
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
}

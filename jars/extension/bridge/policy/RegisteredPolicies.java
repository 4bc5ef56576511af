package io.sparkcrypt;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.security.SecureRandom;
import java.util.HexFormat;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.SparkEnv;
import org.apache.spark.rpc.RpcCallContext;
import org.apache.spark.rpc.RpcEndpoint;
import org.apache.spark.rpc.RpcEndpointRef;
import org.apache.spark.rpc.RpcEnv;
import org.apache.spark.util.RpcUtils;
import scala.PartialFunction;
import scala.reflect.ClassTag$;
import scala.runtime.BoxedUnit;

/**
 * Policies, each under a token that cannot be guessed.
 *
 * <p>They are kept in the driver. A session's configuration has the token, and executors ask the driver for its policy over
 * Spark's own connection: SQL, options and table properties can name a policy only by one of its tokens.
 */
final class RegisteredPolicies {
  private static final String ENDPOINT = "sparkcrypt-policies";
  static final String SEVERAL = "several";
  private static final String ORC_KIND = "sparkcrypt";
  private static final int TOKEN_BYTES = 32;
  /**
   * The number of the driver's answers that an executor keeps: probes and runs have their own tokens, and applications may run
   * for months.
   */
  private static final int MOST_TOLD = 1_024;
  private static final SecureRandom RANDOM = new SecureRandom();
  private static final Map<String, String> POLICIES = new ConcurrentHashMap<>();
  private static final Set<String> OWN = ConcurrentHashMap.newKeySet(); // tokens of single writes and reads, like those of runs
  private static final Set<String> STOCK = ConcurrentHashMap.newKeySet(); // of sessions that may use Parquet's own factory
  private static final Map<String, String> PRINCIPALS = new ConcurrentHashMap<>(); // tokens by a principal's name and policy
  private static final Map<String, String> TOLD = Newest.synchronizedMap(MOST_TOLD); // answers of the driver
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

  /** Registers a policy for single writes and reads of the program, and returns its token. */
  static String addOwn(String policy) {
    String token = add(policy);
    OWN.add(token);
    return token;
  }

  /** Returns whether a token of the driver is one of {@code addOwn}. */
  static boolean isOwn(String token) {
    return token != null && OWN.contains(token);
  }

  /** Allows the sessions of a token to use Parquet's own crypto factory, or no longer. */
  static void allowStock(String token, boolean isAllowed) {
    if (isAllowed) {
      STOCK.add(token);
    } else {
      STOCK.remove(token);
    }
  }

  /** Returns whether the launch, or the program for the sessions of this token, allows Parquet's own crypto factory. */
  static boolean allowsStock(String token) {
    return Launch.allowsStock() || token != null && STOCK.contains(token);
  }

  /** Registers a principal's policy, and returns the token that all sessions of the principal have. */
  static String addPrincipal(String principal, String policy) {
    return PRINCIPALS.computeIfAbsent(principal + "\n" + policy, RegisteredPolicies::add);
  }

  /**
   * Returns the value of orc.key.provider in a session with this token; ORC keeps one provider for each value. It has a digest of
   * the token, since Spark shows this setting to everybody.
   */
  static String orcKeyProvider(String token) {
    if (token == null || token.isBlank()) {
      return ORC_KIND;
    }
    try {
      byte[] digest = MessageDigest.getInstance("SHA-256").digest(token.getBytes(StandardCharsets.UTF_8));
      return ORC_KIND + ":" + HexFormat.of().formatHex(digest);
    } catch (NoSuchAlgorithmException e) {
      throw new IllegalStateException(e); // every Java has it
    }
  }

  /** Returns whether a value of orc.key.provider is one of these. */
  static boolean isOrcKeyProvider(String kind) {
    return kind.equals(ORC_KIND) || kind.startsWith(ORC_KIND + ":");
  }

  /** Removes a token of {@code addOwn}. */
  static void remove(String token) {
    OWN.remove(token);
    POLICIES.remove(token);
  }

  /** Answers executors from now on. */
  static synchronized void serve(RpcEnv env) {
    if (served != env) {
      env.setupEndpoint(ENDPOINT, new Endpoint(env));
      served = env;
    }
  }

  /**
   * Returns the policy of a token; null if neither this JVM nor the driver has it. The policy of a principal follows the
   * principal's name and a line break.
   */
  static String find(String token) {
    String known = POLICIES.getOrDefault(token, TOLD.get(token));
    if (known == null) {
      known = askDriver(token);
      if (known != null) {
        TOLD.put(token, known);
      }
    }
    return known;
  }

  /** Returns the policy that this JVM, which is the driver's, has for a token. */
  static String policyOf(String token) {
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

  /** Answers executors with the policy that the driver has for a token, or "" if it has none. It registers nothing. */
  private record Endpoint(RpcEnv rpcEnv) implements RpcEndpoint {
    @Override
    public PartialFunction<Object, BoxedUnit> receiveAndReply(RpcCallContext context) {
      return new Trees.Steps<>(
          String.class::isInstance,
          token -> {
            context.reply(POLICIES.getOrDefault((String) token, ""));
            return BoxedUnit.UNIT;
          });
    }
  }
}

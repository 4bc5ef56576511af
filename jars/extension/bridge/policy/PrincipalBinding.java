package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.fasterxml.jackson.databind.node.TextNode;
import java.util.Collections;
import java.util.Map;
import java.util.WeakHashMap;
import java.util.regex.Pattern;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.CurrentUserContext;
import org.apache.spark.sql.internal.SQLConf;

/**
 * The binding of each session to the key service of the principal that it serves, if the key service's options name the
 * principal: <code>token_file: /etc/tokens/{principal}</code>.
 *
 * <p>Two principals are then two readers, like two configurations of a key service everywhere: their helper caches, plans and
 * entries of Spark's cache are separate. A session is bound once, to the user that its server authenticated, else to the launch's
 * principal.
 */
final class PrincipalBinding {
  private static final String CONNECT = "org.apache.spark.sql.connect.service.SparkConnectService$";
  private static final String THRIFT = "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2$";
  static final String PLACEHOLDER = "{principal}";
  private static final Pattern NAME = Pattern.compile("[A-Za-z0-9][A-Za-z0-9._@-]{0,127}");
  private static final Map<SparkSession, Bound> BOUND = Collections.synchronizedMap(new WeakHashMap<>());

  /**
   * What a session is bound to.
   *
   * @param token of the principal's policy
   */
  private record Bound(String principal, String token) {}

  private PrincipalBinding() {}

  /** Returns the policy that a session is under; the same text if it applies to all principals, or if no principal is known. */
  static String bind(SparkSession session, String policy) {
    Bound bound = BOUND.get(session);
    String launched = session.sparkContext().hadoopConfiguration().get(Names.POLICY, "");
    if (bound == null && !policy.contains(PLACEHOLDER) && !launched.contains(PLACEHOLDER)) {
      return policy; // called by several rules in each query
    }
    String user = userOf(session);
    if (user != null && bound != null && !user.equals(bound.principal())) {
      throw Refusal.of(
          "ConfigError",
          "this session reads with the keys of " + bound.principal() + ", and " + user + " asks by it; allowed: a session for each "
              + "user (spark.sql.hive.thriftServer.singleSession=false)");
    }
    if (user == null && isThriftServer()) {
      return policy; // without a principal no key is opened (PinnedPolicy)
    }
    SQLConf conf = session.sessionState().conf();
    boolean isTemplate = PinnedPolicy.isTemplate(PinnedPolicy.keyServiceIn(policy));
    if (isTemplate || bound == null && user != null) {
      String template = isTemplate ? policy : launched; // a client may have SET another one at its login
      String principal = bound != null ? bound.principal() : user != null ? user : Launch.principal();
      String rendered = insertPrincipal(template, principal);
      if (user != null) {
        refuseCredentials(rendered);
      }
      RegisteredPolicies.serve(session.sparkContext().env().rpcEnv());
      bound = new Bound(principal, RegisteredPolicies.addPrincipal(principal, rendered));
      BOUND.put(session, bound);
      if (isTemplate) {
        set(conf, Names.POLICY, rendered);
        set(conf, Names.KEY_SERVICE, PinnedPolicy.keyServiceIn(rendered));
        setToken(conf, bound.token());
        return rendered;
      }
    }
    if (user != null && !bound.token().equals(conf.getConfString(Names.SESSION_TOKEN, ""))) {
      setToken(conf, bound.token()); // that of another principal would make this user the other
    }
    return policy;
  }

  /** Refuses a server whose users could read the credentials of a policy's key service in the environment of its JVMs. */
  private static void refuseCredentials(String policy) {
    for (JsonNode name : Helper.ask(Wire.request("credential_variables").put("policy", policy)).path("names")) {
      String variable = name.asText();
      String executors = "spark.executorEnv." + variable;
      if (System.getenv(variable) != null || Launch.conf(executors) != null) {
        throw Refusal.of(
            "ConfigError",
            variable + " is in the environment of a server's JVM, or among its settings (" + executors + "), where its users can "
                + "read it; allowed: a file of lines NAME=value for the helpers alone, named by " + Interpreter.ENVIRONMENT_CONF
                + " at launch, or the key service's own options for files; start the server without " + variable);
      }
    }
  }

  private static void setToken(SQLConf conf, String token) {
    set(conf, Names.SESSION_TOKEN, token);
    set(conf, Names.ORC_KEY_PROVIDER, RegisteredPolicies.orcKeyProvider(token));
  }

  /** Returns the principal that reads and writes in a session. */
  static String principalOf(SparkSession session) {
    Bound bound = BOUND.get(session);
    return bound == null ? Launch.principal() : bound.principal();
  }

  /** Refuses a read or write whose own options have a token, in a session of a server's user: programs alone give it one. */
  static void refuseOther(SparkSession session, String token) {
    Bound bound = BOUND.get(session);
    if (bound != null && userOf(session) != null && !token.equals(bound.token())) {
      throw Refusal.of(
          "ConfigError",
          Names.SESSION_TOKEN + " in the options of a read or write is not that of " + bound.principal() + "; remove it there");
    }
  }

  /** Returns whether this session is that of a server's user, and each user has their own keys. */
  static boolean isOfUser(SparkSession session) {
    boolean serves = BOUND.containsKey(session) || session.sparkContext().hadoopConfiguration().get(Names.POLICY, "").contains(PLACEHOLDER);
    return serves && (isThriftServer() || userOf(session) != null);
  }

  private static void set(SQLConf conf, String name, String value) {
    // Hadoop's and Spark's configurations replace ${name} inside values.
    conf.setConfString(name, value.replace("$", "\\u0024"));
  }

  private static String insertPrincipal(String policy, String principal) {
    if (!NAME.matcher(principal).matches() || principal.contains("..")) {
      throw Refusal.of(
          "ConfigError",
          "the principal '" + principal + "' cannot stand in the options of a key service; allowed: letters, digits and . _ @ -, at "
              + "most 128, beginning with a letter or digit, without '..'");
    }
    if (!(Wire.parse(policy) instanceof ObjectNode document)) {
      throw Refusal.of("ConfigError", "the policy of this session is not JSON");
    }
    document.set("key_service", insertPrincipal(document.get("key_service"), principal));
    return document.toString();
  }

  private static JsonNode insertPrincipal(JsonNode value, String principal) {
    if (value.isTextual()) {
      return TextNode.valueOf(value.asText().replace(PLACEHOLDER, principal));
    }
    if (value instanceof ObjectNode) {
      ObjectNode made = Wire.object();
      value.fieldNames().forEachRemaining(name -> made.set(name, insertPrincipal(value.get(name), principal)));
      return made;
    }
    if (value instanceof ArrayNode) {
      ArrayNode made = Wire.object().putArray("");
      value.forEach(entry -> made.add(insertPrincipal(entry, principal)));
      return made;
    }
    return value;
  }

  /** Returns the user that a Thrift or Connect server serves in a session, as its client named it; null if there is none. */
  private static String userOf(SparkSession session) {
    String user = CurrentUserContext.CURRENT_USER().get(); // Thrift sets it around each statement
    if (user == null) {
      user = connectUserOf(session);
    }
    return user != null ? user : Reader.connectUser(session.sparkContext().getLocalProperty(Reader.JOB_TAGS));
  }

  /** Returns whether a Thrift server runs here; each of its sessions belongs to a user. */
  private static boolean isThriftServer() {
    Object server = module(THRIFT);
    return server != null && Calls.call(server, "eventManager") != null;
  }

  private static String connectUserOf(SparkSession session) {
    Object service = module(CONNECT);
    Object manager = service == null ? null : Calls.callIfPresent(service, "sessionManager"); // Spark 3.5 has none
    if (manager == null) {
      return null;
    }
    for (Object holder : ((Map<?, ?>) Calls.field(manager, "sessionStore")).values()) {
      if (Calls.call(holder, "session") == session) {
        return (String) Calls.call(holder, "userId");
      }
    }
    return null;
  }

  /** Returns a Scala object whose class may be missing, or null. */
  private static Object module(String name) {
    try {
      return Class.forName(name, true, SparkSession.class.getClassLoader()).getField("MODULE$").get(null);
    } catch (ReflectiveOperationException | LinkageError e) {
      return null;
    }
  }
}

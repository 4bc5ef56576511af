package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.fasterxml.jackson.databind.node.TextNode;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.Map;
import java.util.WeakHashMap;
import java.util.regex.Pattern;
import org.apache.spark.sql.SparkSession;

/**
 * The binding of each session to the key service of the principal that it serves, if the key service's options name the
 * principal: <code>token_file: /etc/tokens/{principal}</code>.
 *
 * <p>Two principals are then two readers, like two configurations of a key service everywhere: their helper caches, plans and
 * entries of Spark's cache are separate. A session is bound once, to the user that its server authenticated, else to the launch's
 * principal.
 */
final class PrincipalBinding {
  static final String PLACEHOLDER = "{principal}";
  private static final Pattern NAME = Pattern.compile("[A-Za-z0-9][A-Za-z0-9._@-]{0,127}");
  private static final Map<SparkSession, String> BOUND = Collections.synchronizedMap(new WeakHashMap<>());

  private PrincipalBinding() {}

  /** Returns the policy that a session is under; the same text if it applies to all principals, or if no principal is known. */
  static String bind(SparkSession session, String policy) {
    String bound = BOUND.get(session);
    if (bound == null && !policy.contains(PLACEHOLDER)) {
      return policy; // called by several rules in each query
    }
    String user = ServerUser.of(session);
    if (user != null && bound != null && !user.equals(bound)) {
      throw Refusal.of(
          "ConfigError",
          "this session reads with the keys of " + bound + ", and " + user + " asks by it; allowed: a session for each user "
              + "(spark.sql.hive.thriftServer.singleSession=false)");
    }
    if (!isTemplate(PinnedPolicy.keyServiceIn(policy)) || user == null && ServerUser.isThriftServer()) {
      return policy; // without a principal no key is opened (PinnedPolicy)
    }
    String principal = bound != null ? bound : user != null ? user : Launch.principal();
    String rendered = insertPrincipal(policy, principal);
    Object conf = Calls.call(Calls.call(session, "sessionState"), "conf");
    set(conf, Names.POLICY, rendered);
    set(conf, Names.KEY_SERVICE, PinnedPolicy.keyServiceIn(rendered));
    RegisteredPolicies.serve(session.sparkContext().env().rpcEnv());
    String token = RegisteredPolicies.addPrincipal(principal, rendered);
    set(conf, Names.SESSION_TOKEN, token);
    set(conf, Names.ORC_KEY_PROVIDER, RegisteredPolicies.orcKeyProvider(token));
    BOUND.put(session, principal);
    return rendered;
  }

  /** Returns the principal that reads and writes in a session. */
  static String principalOf(SparkSession session) {
    String bound = BOUND.get(session);
    return bound == null ? Launch.principal() : bound;
  }

  static boolean isTemplate(String keyService) {
    return keyService != null && keyService.contains(PLACEHOLDER);
  }

  private static void set(Object conf, String name, String value) {
    // Hadoop's and Spark's configurations replace ${name} inside values.
    Calls.call(conf, "setConfString", name, value.replace("$", "\\u0024"));
  }

  private static String insertPrincipal(String policy, String principal) {
    if (!NAME.matcher(principal).matches() || principal.contains("..")) {
      throw Refusal.of(
          "ConfigError",
          "the principal '" + principal + "' cannot stand in the options of a key service; allowed: letters, digits and . _ @ -, at "
              + "most 128, beginning with a letter or digit, without '..'");
    }
    try {
      ObjectNode document = (ObjectNode) Wire.parse(policy.getBytes(StandardCharsets.UTF_8));
      document.set("key_service", insertPrincipal(document.get("key_service"), principal));
      return document.toString();
    } catch (IOException e) {
      throw Refusal.of("ConfigError", "the policy of this session is not JSON", e);
    }
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
}

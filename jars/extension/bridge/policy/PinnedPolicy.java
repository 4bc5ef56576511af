package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Map;
import java.util.TreeSet;
import org.apache.hadoop.conf.Configuration;

/**
 * The policy and key service of a write or read, which its configuration may repeat but never choose.
 *
 * <p>A configuration combines the settings of session, table and options, so an author of a table's options could otherwise
 * choose where the reader's credentials are sent. Policy and key service come from the launch (without Spark from the Site), or
 * from sparkcrypt.configure by the token that it set in the session (RegisteredPolicies). A configuration that differs is refused,
 * and never replaced silently.
 *
 * @param policy the policy's JSON; null if the launch names only a key service
 * @param keyService the key service's JSON
 * @param principal the principal that reads and writes, as messages and records name it
 * @param isBound whether the policy is that of one principal of several
 */
record PinnedPolicy(String policy, String keyService, String principal, boolean isBound) {
  private static final int SHOWN = 120;
  private static final int MOST = 64;
  private static final Map<String, String> KEY_SERVICES = Newest.synchronizedMap(MOST);

  static PinnedPolicy of(Configuration conf) {
    String policy = setting(conf, Names.POLICY);
    String keyService = setting(conf, Names.KEY_SERVICE);
    PinnedPolicy pinned = findPolicy(setting(conf, Names.SESSION_TOKEN));
    refuseOther(Names.POLICY, policy, pinned.policy());
    refuseOther(Names.KEY_SERVICE, keyService, pinned.keyService());
    refuseLonger(conf.get(Names.CACHE_LIFETIME));
    if (isTemplate(pinned.keyService())) {
      throw Refusal.of(
          "ConfigError",
          "the key service is another for each principal ('" + PrincipalBinding.PLACEHOLDER + "' in its options), and nothing says "
              + "for whom this session works; allowed: sessions with the jar's extension, of a Thrift or Connect server whose user "
              + "is known or of an application of one principal; see docs/access.md");
    }
    return pinned;
  }

  /** Returns the policy of the principal that it is bound to; null for that of the launch. */
  private static PinnedPolicy make(String policy, String keyService, String bound) {
    String service = keyService == null ? keyServiceIn(policy) : keyService;
    return new PinnedPolicy(policy, service, bound == null ? Launch.principal() : bound, bound != null);
  }

  /**
   * Returns the key service of a session whose configuration has this policy and token.
   *
   * @throws RuntimeException the policy differs from the one that the session is under
   */
  static String keyServiceOf(String policy, String token) {
    PinnedPolicy pinned = findPolicy(token == null || token.isBlank() ? null : token);
    refuseOther(Names.POLICY, policy, pinned.policy());
    return pinned.keyService();
  }

  /** Returns the policy that this JVM has for a token; empty if it has none. */
  static String textOf(String token) {
    String known = RegisteredPolicies.policyOf(token);
    return known == null ? "" : known.substring(known.indexOf('\n') + 1);
  }

  private static PinnedPolicy findPolicy(String token) {
    if (token == null) {
      return launchPolicy();
    }
    if (!Launch.isSpark()) {
      throw Refusal.of(
          "ConfigError",
          Names.SESSION_TOKEN + " is of a session of Spark, and this JVM has none; allowed: none; remove it from the table's "
              + "properties, or from this configuration");
    }
    if (token.equals(RegisteredPolicies.SEVERAL)) {
      throw Refusal.of(
          "ConfigError",
          "this session was put under no policy, and others of this application are under policies with different key services; "
              + "allowed: sessions that sparkcrypt.configure was called with, or one key service; call it with this session");
    }
    String policy;
    try {
      policy = RegisteredPolicies.find(token);
    } catch (RuntimeException e) {
      throw Refusal.of("BridgeError", "the driver does not say which policy this session is under: " + e.getMessage(), e);
    }
    if (policy == null) {
      throw Refusal.of(
          "ConfigError",
          Names.SESSION_TOKEN + " is not one that this application gave out; it is set by sparkcrypt.configure alone; allowed: "
              + "none in a table's OPTIONS, TBLPROPERTIES, options or SET; remove it, or call sparkcrypt.configure again");
    }
    int end = policy.indexOf('\n'); // a policy's JSON has none
    return make(policy.substring(end + 1), null, end < 0 ? null : policy.substring(0, end));
  }

  private static PinnedPolicy launchPolicy() {
    PinnedPolicy launched = make(Launch.hadoopConf(Names.POLICY), Launch.hadoopConf(Names.KEY_SERVICE), null);
    if (launched.keyService == null) {
      if (!Launch.isSpark()) {
        throw Refusal.of(
            "ConfigError",
            "this JVM has no policy: there is no " + Site.FILE + " on the class path of sparkcrypt's jar, and its program has not "
                + "called Sparkcrypt.configure; " + Names.POLICY + " in a table's properties, by SET or in this configuration is "
                + "none; `sparkcrypt conf --policy FILE --site` prints the file");
      }
      throw Refusal.of(
          "ConfigError",
          "no key service was named when this application was launched, and this session was not put under a policy by "
              + "sparkcrypt.configure; " + Names.POLICY + " and " + Names.KEY_SERVICE + " in a table's OPTIONS or TBLPROPERTIES, "
              + "in options or by SET choose none; allowed: the lines of `sparkcrypt conf` in spark-defaults.conf, or --conf "
              + "spark.hadoop." + Names.KEY_SERVICE + "=…; launch with them, or call sparkcrypt.configure");
    }
    return launched;
  }

  /** Returns whether a key service is another for each principal. */
  static boolean isTemplate(String keyService) {
    return keyService != null && keyService.contains(PrincipalBinding.PLACEHOLDER);
  }

  private static String setting(Configuration conf, String name) {
    String text = conf.get(name);
    return text == null || text.isBlank() ? null : unescape(text.trim());
  }

  /** Removes Java's escapes ({@code \"}), which Hive's SerDe adds to a table's properties; all of them are JSON escapes as well. */
  private static String unescape(String json) {
    if (!json.startsWith("{\\\"")) {
      return json;
    }
    JsonNode text = Wire.parse('"' + json + '"');
    return text.isTextual() ? text.asText() : json; // then it is not JSON either, which is reported where it is used
  }

  /** Returns the key service's JSON within a policy's; null if the policy cannot be parsed, which the helper reports. */
  static String keyServiceIn(String policy) {
    return policy == null ? null : KEY_SERVICES.computeIfAbsent(policy, PinnedPolicy::writtenKeyService);
  }

  private static String writtenKeyService(String policy) {
    JsonNode found = Wire.parse(policy).get("key_service");
    return found == null ? null : found.toString();
  }

  private static void refuseOther(String name, String given, String allowed) {
    if (given == null || given.equals(allowed)) {
      return;
    }
    JsonNode document = Wire.parse(given);
    JsonNode other = Wire.parse(allowed);
    if (!document.isMissingNode() && document.equals(other)) {
      return;
    }
    throw Refusal.of(
        "ConfigError",
        name + " differs from what this session is under" + difference(document, other) + ". It comes from a table's OPTIONS or "
            + "TBLPROPERTIES, from an option of this write or read, or from SET, none of which may choose keys; allowed: "
            + (other.isMissingNode() ? "none" : "the same text, or none") + ". Take it away there: RESET " + name + "; for a table ALTER "
            + "TABLE … SET SERDEPROPERTIES ('" + name + "' = ''), and UNSET TBLPROPERTIES for one of Hive (`sparkcrypt doctor` names "
            + "such tables). Another policy is put in force by sparkcrypt.configure or the launch configuration");
  }

  private static String difference(JsonNode given, JsonNode allowed) {
    if (!given.isObject()) {
      return " (it is not JSON)";
    }
    if (allowed.isMissingNode()) {
      return "";
    }
    TreeSet<String> names = new TreeSet<>();
    given.fieldNames().forEachRemaining(names::add);
    allowed.fieldNames().forEachRemaining(names::add);
    names.removeIf(field -> given.path(field).equals(allowed.path(field)));
    return " in " + String.join(", ", names) + " (" + describe(given) + ", not " + describe(allowed) + ")";
  }

  /** Returns a key service's text for messages, without anything that could be a secret. */
  private static String describe(JsonNode document) {
    JsonNode service = document.has("key_service") ? document.get("key_service") : document;
    JsonNode place = service.has("address") ? service.get("address") : service.path("path");
    String text = "key service " + service.path("type").asText("unknown") + (place.isTextual() ? " at " + place.asText() : "");
    return text.length() > SHOWN ? text.substring(0, SHOWN) + "…" : text;
  }

  private static void refuseLonger(String lifetime) {
    double most = Launch.lifetimeSeconds();
    if (lifetime != null && !(Launch.seconds(lifetime) <= most)) {
      throw Refusal.of(
          "ConfigError",
          Names.CACHE_LIFETIME + " is " + lifetime + ", and opened keys are kept for " + most + " s at most; allowed: as long or "
              + "less; to keep them longer, launch with --conf spark.hadoop." + Names.CACHE_LIFETIME + "=…");
    }
  }
}

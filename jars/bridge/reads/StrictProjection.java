package io.sparkcrypt;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Locale;
import org.apache.spark.sql.SparkSession;

/**
 * What holds where a reader may not name columns that are null for want of their keys.
 *
 * @param policy of the session
 * @param reader whose keys the session reads with
 * @param isOfPolicy whether the policy asks for it, which no session takes back
 */
record StrictProjection(SessionPolicy policy, String reader, boolean isOfPolicy) {
  private static final String CONF = "spark.sparkcrypt.strict_projection";

  /** Returns null where neither policy nor session ask for it. */
  static StrictProjection of(SparkSession session) {
    String said = said(session);
    SessionPolicy policy = SessionPolicy.of(session);
    if (policy == null || !policy.isStrictProjection() && (said.isEmpty() || said.equals("false"))) {
      return null;
    }
    return new StrictProjection(policy, ReaderMark.of(policy).text(), policy.isStrictProjection());
  }

  /**
   * The same for a query that is judged by it.
   *
   * @throws RuntimeException the session's word is none, or this Spark has no marks to go by
   */
  static StrictProjection checked(SparkSession session) {
    StrictProjection strict = of(session);
    String said = said(session);
    if (strict != null && !said.isEmpty() && !said.equals("true") && !said.equals("false")) {
      throw Refusal.of("ConfigError", CONF + " is '" + said + "'; allowed: true, false");
    }
    if (strict != null && !NameRule.isInForce(session)) {
      throw Refusal.of(
          "ConfigError",
          "strict_projection needs a rule that comes before names are resolved, and this version of Spark takes none; allowed: "
              + "Spark 3.5 and 4.x, or leave strict_projection out");
    }
    return strict;
  }

  private static String said(SparkSession session) {
    Object conf = Calls.call(Calls.call(session, "sessionState"), "conf");
    return ((String) Calls.call(conf, "getConfString", CONF, "")).trim().toLowerCase(Locale.ROOT);
  }

  /**
   * Refuses a query that names a column.
   *
   * @param reason why it is null, as its metadata says
   * @throws RuntimeException always, with what its reader is told
   */
  void refuse(String column, String table, String reason) {
    ObjectNode request = Wire.request("refuse_named").put("policy", policy.text()).put("owner", "column " + column);
    request.put("principal", policy.principal()).put("reason", reason).put("of_policy", isOfPolicy).put("table", table);
    Helper.ask(request);
  }
}

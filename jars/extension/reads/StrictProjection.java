package io.sparkcrypt;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Locale;
import org.apache.spark.sql.SparkSession;

/**
 * The strict projection of a session, under which no query may name columns that are null because their keys are denied.
 *
 * @param policy the session's policy
 * @param reader the mark of the reader whose keys the session reads with
 * @param isOfPolicy whether the policy asks for it, which no session can undo
 */
record StrictProjection(SessionPolicy policy, String reader, boolean isOfPolicy) {
  private static final String CONF = "spark.sparkcrypt.strict_projection";

  /** Returns the strict projection, or null if neither policy nor session asks for it. */
  static StrictProjection of(SparkSession session) {
    String said = setting(session);
    SessionPolicy policy = SessionPolicy.of(session);
    if (policy == null || !policy.isStrictProjection() && (said.isEmpty() || said.equals("false"))) {
      return null;
    }
    return new StrictProjection(policy, ReaderMark.of(policy).text(), policy.isStrictProjection());
  }

  /**
   * Returns the same, for a query that is checked with it.
   *
   * @throws RuntimeException the session's setting is invalid, or this version of Spark has no marks
   */
  static StrictProjection ofQuery(SparkSession session) {
    StrictProjection strict = of(session);
    String said = setting(session);
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

  private static String setting(SparkSession session) {
    return session.sessionState().conf().getConfString(CONF, "").trim().toLowerCase(Locale.ROOT);
  }

  /**
   * Refuses a query that names a column.
   *
   * @param reason why it is null, from its metadata
   * @throws RuntimeException always, with the message for the reader
   */
  void refuse(String column, String table, String reason) {
    ObjectNode request = Wire.request("refuse_named").put("policy", policy.text()).put("owner", "column " + column);
    request.put("principal", policy.principal()).put("reason", reason).put("of_policy", isOfPolicy).put("table", table);
    Helper.ask(request);
  }
}

package io.sparkcrypt;

import java.util.Locale;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;

/**
 * Puts nulls in the places of columns whose keys a session's reader is denied, where the session or a tag asks for that.
 *
 * <p>It runs while a query is resolved, so that the nulls are part of what Spark compares with its cache. It goes through the plan
 * itself: Spark's own way passes over what was resolved before, as what global temporary views hold was.
 */
final class MaskRule extends Rule<LogicalPlan> {
  static final String ON_DENIED = "spark.sparkcrypt.on_denied";

  private final SparkSession session;

  MaskRule(SparkSession session) {
    this.session = session;
    // By the launch's policy here already: a server tells of a query before that is resolved.
    watch(session.sparkContext().hadoopConfiguration().get(Names.POLICY));
  }

  private void watch(String policy) {
    if (policy != null && AccessLogPlace.of(policy) != null) {
      QueryWatch.install(session.sparkContext());
    }
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    NameRule.install(session, plan);
    if (!ReaderPlan.isConcerned(plan)) {
      return plan;
    }
    SessionPolicy policy = SessionPolicy.of(session);
    watch(policy == null ? null : policy.text());
    return policy == null ? plan : new ReaderPlan(session, policy, onDenied(session)).of(plan);
  }

  /** The session's own word: what is in force while a view is resolved is the view's, from when it was made. */
  private static String onDenied(SparkSession session) {
    Object conf = Calls.call(Calls.call(session, "sessionState"), "conf");
    String said = ((String) Calls.call(conf, "getConfString", ON_DENIED, "")).trim().toLowerCase(Locale.ROOT);
    if (!said.isEmpty() && !said.equals("error") && !said.equals("mask")) {
      throw Refusal.of("ConfigError", ON_DENIED + " is '" + said + "'; allowed: error, mask");
    }
    return said;
  }
}

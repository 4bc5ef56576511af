package io.sparkcrypt;

import java.util.Locale;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;

/**
 * A rule that puts nulls in place of columns whose keys the session's reader is denied, if the session or a tag asks for that.
 *
 * <p>It runs while a query is resolved, so the nulls are part of the plan that Spark compares with its cache. It traverses the
 * plan itself: Spark's own traversal skips plans that were resolved before, such as those of global temporary views.
 */
final class MaskRule extends Rule<LogicalPlan> {
  static final String ON_DENIED = "spark.sparkcrypt.on_denied";

  private final SparkSession session;

  MaskRule(SparkSession session) {
    this.session = session;
    // For the launch's policy this happens here: a server posts a query's event before the query is resolved.
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

  /** Returns the session's own setting: while a view is resolved, the settings stored with the view are in force. */
  private static String onDenied(SparkSession session) {
    String said = session.sessionState().conf().getConfString(ON_DENIED, "").trim().toLowerCase(Locale.ROOT);
    if (!said.isEmpty() && !said.equals("error") && !said.equals("mask")) {
      throw Refusal.of("ConfigError", ON_DENIED + " is '" + said + "'; allowed: error, mask");
    }
    return said;
  }
}

package io.sparkcrypt;

import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;

/**
 * A rule that adds name, tags and UUID of the table's catalog entry to the options of each Parquet or ORC write and read.
 *
 * <p>Otherwise a writer would use the session's cached table, possibly from before the tags were set, and neither writer nor
 * reader would have the table's name, which the policy's rules refer to. The rule also refuses writes that would put a tagged
 * value where nothing encrypts it: into a folder's name, or into a table format that ignores tags.
 */
final class TableOptionsRule extends Rule<LogicalPlan> {
  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    CatalogPlaces.forgetChangedBy(plan);
    SparkSession session = SparkSession.active();
    SessionPolicy policy = SessionPolicy.of(session);
    if (policy == null) {
      return plan;
    }
    PlanNodes nodes = new PlanNodes(session, policy);
    return plan.transformUp(new PlanSteps<>(nodes::isJudged, nodes::prepare));
  }
}

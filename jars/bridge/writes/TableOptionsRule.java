package io.sparkcrypt;

import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;

/**
 * Puts into the options of each Parquet write and read what its table's catalog entry says: name, tags, UUID.
 *
 * <p>Without it a writer knows what its session cached of the table, which may be from before the tags were set, and neither
 * writer nor reader knows the table's name, by which the policy has rules. It also refuses what would put a tagged value where
 * nothing encrypts it: a folder's name, or a table format that does not go by tags.
 */
final class TableOptionsRule extends Rule<LogicalPlan> {
  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (KnownTables.isChangedBy(plan.getClass().getSimpleName())) {
      KnownTables.forget();
    }
    SparkSession session = SparkSession.active();
    SessionPolicy policy = SessionPolicy.of(session);
    if (policy == null) {
      return plan;
    }
    PlanNodes nodes = new PlanNodes(session, policy);
    return plan.transformUp(new PlanSteps<>(nodes::isJudged, nodes::told));
  }
}

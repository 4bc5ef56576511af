package io.sparkcrypt;

import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.ColumnarRule;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.slf4j.Logger;

/**
 * A rule that adds the metrics of its FileSkipper to each scan that uses a store, beside Spark's number of files read.
 *
 * <p>A scan has no interface for further metrics, so they are added to those that it sends from the driver. This is the last rule
 * before a scan runs, so no scan is copied after it. If the rule fails, the query runs without these metrics.
 */
final class SkipMetrics extends ColumnarRule {
  private static final Logger LOG = CleanLog.of(SkipMetrics.class);
  private static final AtomicBoolean IS_TOLD = new AtomicBoolean();
  private static final String SCAN = "org.apache.spark.sql.execution.FileSourceScanExec";
  private static final String SENT = "driverMetrics";
  /** The metrics that Spark's UI shows: made from those that are sent, and already made if the plan is adaptive. */
  private static final String SHOWN = "org$apache$spark$sql$execution$FileSourceScanLike$$scanMetrics";

  @Override
  public Rule<SparkPlan> preColumnarTransitions() {
    return new Rule<>() {
      @Override
      public SparkPlan apply(SparkPlan plan) {
        try {
          addTo(plan);
        } catch (RuntimeException | LinkageError e) {
          if (!IS_TOLD.getAndSet(true)) {
            LOG.warn("scans get no metrics of skipped files: {}", e.getMessage());
          }
        }
        return plan;
      }
    };
  }

  private static void addTo(QueryPlan<?> plan) {
    if (plan.getClass().getName().equals(SCAN) && Calls.call(Calls.call(plan, "relation"), "location") instanceof SkippingFileIndex index) {
      List<Expression> filters = Trees.elements(Expression.class, Calls.call(plan, "dataFilters"));
      Map<String, SQLMetric> metrics = index.skipper().metrics((SparkContext) Calls.call(plan, "sparkContext"), filters);
      for (String part : List.of(SENT, SHOWN)) {
        Calls.setField(plan.getClass(), plan, part, Calls.with(Calls.call(plan, part), metrics));
      }
    }
    Trees.children(plan).forEach(SkipMetrics::addTo);
  }
}

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
import org.slf4j.LoggerFactory;

/**
 * Gives each scan that goes by a store the metrics of its FileSkipper, beside Spark's number of files read.
 *
 * <p>A scan offers no way to have metrics of its own, so they are added to those that it sends from the driver. This rule is the last
 * that sees a scan before it runs, and so none is copied after it. Where it fails, the query runs without these metrics.
 */
final class SkipMetrics extends ColumnarRule {
  private static final Logger LOG = LoggerFactory.getLogger(SkipMetrics.class);
  private static final AtomicBoolean IS_TOLD = new AtomicBoolean();
  private static final String SCAN = "org.apache.spark.sql.execution.FileSourceScanExec";
  private static final String SENT = "driverMetrics";
  /** What Spark's UI knows of: made of those that are sent, and made already where the plan adapts itself. */
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
        Calls.setField(plan, part, Calls.with(Calls.call(plan, part), metrics));
      }
    }
    Trees.children(plan).forEach(SkipMetrics::addTo);
  }
}

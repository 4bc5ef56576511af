package io.sparkcrypt;

import com.fasterxml.jackson.databind.node.ArrayNode;
import java.util.List;

/** The results of data skipping for each scan of a query: sparkcrypt.skipping_report, for programs. */
public final class SkippingReport {
  private static final String SCAN = "org.apache.spark.sql.execution.FileSourceScanExec";
  private static final String ADAPTIVE = "org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec";

  private SkippingReport() {}

  /**
   * Lists the files of a query's scans, as its execution would, and returns which are left out; the files are not read.
   *
   * <p>The query is planned again: Spark counts the files of a plan when it first lists them, and loses the counts when it then
   * runs.
   *
   * @param dataset a Dataset
   * @return a JSON array with an object for each scan of a table with data skipping
   */
  public static String of(Object dataset) {
    ArrayNode found = Wire.array();
    addScans(Calls.call(Calls.call(Calls.call(dataset, "alias", "report"), "queryExecution"), "executedPlan"), found);
    return found.toString();
  }

  private static void addScans(Object plan, ArrayNode found) {
    String name = plan.getClass().getName();
    if (name.equals(ADAPTIVE)) {
      addScans(Calls.call(plan, "executedPlan"), found);
      return;
    }
    if (name.equals(SCAN) && Calls.call(Calls.call(plan, "relation"), "location") instanceof SkippingFileIndex index) {
      Calls.call(plan, "selectedPartitions");
      found.add(index.skipper.outcome());
    }
    for (String below : List.of("children", "subqueries")) {
      Calls.list(Calls.call(plan, below)).forEach(child -> addScans(child, found));
    }
  }
}

package io.sparkcrypt;

import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.sql.execution.QueryExecution;

/**
 * A listener that applies the statistics guard to every session of an application.
 *
 * <p>A QueryExecutionListener is called for one session. The event that it is called for reaches listeners of the whole
 * application.
 */
final class StatisticsWatch extends SparkListener {
  private static final String END = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionEnd";
  private final StatisticsGuard guard = new StatisticsGuard();

  @Override
  public void onOtherEvent(SparkListenerEvent event) {
    if (event.getClass().getName().equals(END)) {
      Object failure = Calls.call(event, "executionFailure");
      Object execution = Calls.call(event, "qe");
      if (execution instanceof QueryExecution && !(failure != null && (Boolean) Calls.call(failure, "isDefined"))) {
        guard.onSuccess("command", (QueryExecution) execution, 0);
      }
    }
  }
}

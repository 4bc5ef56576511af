package io.sparkcrypt;

import java.util.Collection;
import java.util.Set;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogStatistics;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.plans.logical.CommandResult;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionEnd;
import org.apache.spark.sql.internal.SessionState;
import org.apache.spark.sql.util.QueryExecutionListener;
import org.slf4j.Logger;
import scala.Option;

/**
 * A listener that removes the statistics of encrypted columns from the catalog after ANALYZE TABLE … FOR COLUMNS.
 *
 * <p>They contain minimum, maximum and histogram bounds in clear. AnalyzedColumns keeps such columns out of the command; this is
 * for sessions without it, where the catalog has the statistics until its listeners run. If the encrypted columns cannot be
 * determined, the statistics of all columns are dropped.
 */
public class StatisticsGuard implements QueryExecutionListener {
  private static final Logger LOG = CleanLog.of(StatisticsGuard.class);

  @Override
  public void onSuccess(String function, QueryExecution execution, long durationNanos) {
    Object command = analyzeColumnCommand(execution);
    if (command != null) {
      try {
        drop(execution, (TableIdentifier) Calls.call(command, "tableIdent"));
      } catch (RuntimeException | LinkageError e) {
        LOG.error("column statistics of {} could not be checked for encrypted columns", Calls.call(command, "tableIdent"), e);
      }
    }
  }

  @Override
  public void onFailure(String function, QueryExecution execution, Exception exception) {}

  private static Object analyzeColumnCommand(QueryExecution execution) {
    LogicalPlan plan = execution.commandExecuted() instanceof CommandResult result ? result.commandLogicalPlan() : execution.commandExecuted();
    return AnalyzedColumns.isAnalyze(plan) ? plan : null;
  }

  private static void drop(QueryExecution execution, TableIdentifier identifier) {
    SessionState state = ((SparkSession) Calls.call(execution, "sparkSession")).sessionState();
    CatalogTable table = (CatalogTable) Calls.call(state.catalog(), "getTableMetadata", identifier);
    CatalogStatistics held = Calls.orNull(table.stats());
    if (held == null) {
      return;
    }
    Set<String> encrypted = AnalyzedColumns.findEncrypted(state, table);
    Set<String> dropped = Calls.<String, Object>map(held.colStats()).keySet();
    dropped.removeIf(column -> encrypted != null && encrypted.stream().noneMatch(name -> name.equalsIgnoreCase(column)));
    if (!dropped.isEmpty()) {
      state.catalog().alterTableStats(identifier, Option.apply((CatalogStatistics) without(held, dropped)));
      LOG.info("dropped the column statistics of encrypted columns {} of {}", dropped, identifier);
    }
  }

  /** Returns a table's statistics without those of some columns; runs call it too, since Python cannot hold Scala's numbers. */
  public static Object without(Object statistics, Object columns) {
    Object kept = Calls.call(statistics, "colStats");
    for (Object column : (Collection<?>) columns) {
      kept = Calls.call(kept, "$minus", column);
    }
    return Calls.call(statistics, "copy", Calls.call(statistics, "sizeInBytes"), Calls.call(statistics, "rowCount"), kept);
  }

  /**
   * A listener that applies the guard to every session of an application: a QueryExecutionListener is called for one session, and
   * the event that it is called for reaches listeners of the whole application.
   */
  static final class Watch extends SparkListener {
    private final StatisticsGuard guard = new StatisticsGuard();

    @Override
    public void onOtherEvent(SparkListenerEvent event) {
      if (event instanceof SparkListenerSQLExecutionEnd end
          && end.qe() != null
          && (end.executionFailure() == null || end.executionFailure().isEmpty())) {
        guard.onSuccess("command", end.qe(), 0);
      }
    }
  }
}

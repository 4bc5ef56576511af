package io.sparkcrypt;

import java.util.Collection;
import java.util.HashSet;
import java.util.Set;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.util.QueryExecutionListener;
import org.slf4j.Logger;

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
        drop(execution, Calls.call(command, "tableIdent"));
      } catch (RuntimeException | LinkageError e) {
        LOG.error("column statistics of {} could not be checked for encrypted columns", Calls.call(command, "tableIdent"), e);
      }
    }
  }

  @Override
  public void onFailure(String function, QueryExecution execution, Exception exception) {}

  private static Object analyzeColumnCommand(QueryExecution execution) {
    Object plan = Calls.call(execution, "commandExecuted");
    if (plan.getClass().getSimpleName().equals("CommandResult")) {
      plan = Calls.call(plan, "commandLogicalPlan");
    }
    return AnalyzedColumns.isAnalyze(plan) ? plan : null;
  }

  private static void drop(QueryExecution execution, Object identifier) {
    Object state = Calls.call(Calls.call(execution, "sparkSession"), "sessionState");
    Object catalog = Calls.call(state, "catalog");
    Object table = Calls.call(catalog, "getTableMetadata", identifier);
    Object statistics = Calls.call(table, "stats");
    if (!(Boolean) Calls.call(statistics, "isDefined")) {
      return;
    }
    Object held = Calls.call(statistics, "get");
    Set<String> encrypted = AnalyzedColumns.findEncrypted(state, table);
    Set<Object> dropped = new HashSet<>();
    Calls.forEach(
        Calls.call(held, "colStats"),
        (column, unused) -> {
          if (encrypted == null || encrypted.stream().anyMatch(name -> name.equalsIgnoreCase((String) column))) {
            dropped.add(column);
          }
        });
    if (!dropped.isEmpty()) {
      Calls.call(catalog, "alterTableStats", identifier, Calls.some(without(held, dropped)));
      LOG.info("dropped the column statistics of encrypted columns {} of {}", dropped, identifier);
    }
  }

  /** Returns a table's statistics without those of some columns; runs call it too, since Python cannot hold Scala's numbers. */
  public static Object without(Object statistics, Collection<?> columns) {
    Object kept = Calls.call(statistics, "colStats");
    for (Object column : columns) {
      kept = Calls.call(kept, "$minus", column);
    }
    return Calls.call(statistics, "copy", Calls.call(statistics, "sizeInBytes"), Calls.call(statistics, "rowCount"), kept);
  }
}

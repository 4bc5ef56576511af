package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.util.QueryExecutionListener;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A listener that removes the statistics of encrypted columns from the catalog after ANALYZE TABLE … FOR COLUMNS.
 *
 * <p>They contain minimum, maximum and histogram bounds in clear. TagRule keeps such columns out of the command; this is for
 * sessions without it, where the catalog has the statistics until its listeners run. If the encrypted columns cannot be determined, the statistics of all columns are
 * dropped.
 */
public class StatisticsGuard implements QueryExecutionListener {
  private static final Logger LOG = LoggerFactory.getLogger(StatisticsGuard.class);
  private static final String COMMAND = "org.apache.spark.sql.execution.command.AnalyzeColumnCommand";

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

  /** Returns an ANALYZE without the columns whose statistics would be removed again; any other plan as it is. */
  static LogicalPlan withoutEncrypted(SparkSession session, LogicalPlan plan) {
    if (!plan.getClass().getName().equals(COMMAND)) {
      return plan;
    }
    Object state = Calls.call(session, "sessionState");
    Object catalog = Calls.call(state, "catalog");
    Object identifier = Calls.call(plan, "tableIdent");
    if ((Boolean) Calls.call(catalog, "isTempView", identifier)) {
      return plan; // its statistics are kept with its cache, in memory
    }
    Object table = Calls.call(catalog, "getTableMetadata", identifier);
    Set<String> encrypted = encryptedColumns(state, table);
    if (encrypted != null && encrypted.isEmpty()) {
      return plan;
    }
    Set<Object> left = encrypted == null ? null : new HashSet<>(Trees.lowerCase(List.copyOf(encrypted)));
    Object named = Calls.orNull(Calls.call(plan, "columnNames"));
    List<Object> names = new ArrayList<>(named == null ? List.of(TableEntry.schema(table).fieldNames()) : Calls.list(named));
    names.removeIf(name -> left == null || left.contains(((String) name).toLowerCase(Locale.ROOT)));
    LOG.info("column statistics of encrypted columns of {} are not computed", identifier);
    return plan.makeCopy(new Object[] {identifier, Calls.some(Calls.scalaList(names)), false});
  }

  @Override
  public void onFailure(String function, QueryExecution execution, Exception exception) {}

  private static Object analyzeColumnCommand(QueryExecution execution) {
    Object plan = Calls.call(execution, "commandExecuted");
    if (plan.getClass().getSimpleName().equals("CommandResult")) {
      plan = Calls.call(plan, "commandLogicalPlan");
    }
    return plan.getClass().getName().equals(COMMAND) ? plan : null;
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
    Set<String> encrypted = encryptedColumns(state, table);
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

  /** Returns the top-level columns that are encrypted, or null if they cannot be determined. */
  private static Set<String> encryptedColumns(Object state, Object table) {
    try {
      ObjectNode request =
          new SessionConf((Configuration) Calls.call(state, "newHadoopConf")).request("encrypted_columns", new Path("/"));
      ObjectNode properties = (ObjectNode) request.get("properties");
      addParquetProperties(properties, Calls.call(Calls.call(table, "storage"), "properties"));
      addParquetProperties(properties, Calls.call(table, "properties"));
      request.put("table", tableName(table)).put("schema", (String) Calls.call(Calls.call(table, "schema"), "json"));
      Set<String> names = new HashSet<>();
      for (JsonNode name : Wire.requireField(Helper.ask(request), "columns")) {
        names.add(name.asText());
      }
      return names;
    } catch (RuntimeException e) {
      LOG.warn("which columns of {} are encrypted cannot be told; all its column statistics are dropped", tableName(table), e);
      return null;
    }
  }

  private static void addParquetProperties(ObjectNode request, Object scalaMap) {
    Calls.forEach(
        scalaMap,
        (name, value) -> {
          if (((String) name).startsWith(Names.PREFIX) && !name.equals(Names.POLICY)) {
            request.put((String) name, (String) value);
          }
        });
  }

  private static String tableName(Object table) {
    Object identifier = Calls.call(table, "identifier");
    return Calls.call(Calls.call(identifier, "database"), "get") + "." + Calls.call(identifier, "table");
  }
}

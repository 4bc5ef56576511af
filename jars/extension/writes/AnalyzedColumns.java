package io.sparkcrypt;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.internal.SessionState;
import org.slf4j.Logger;
import scala.Option;

/** The columns of which ANALYZE computes statistics: none that is encrypted, since the catalog would have its bounds in clear. */
final class AnalyzedColumns {
  private static final Logger LOG = CleanLog.of(AnalyzedColumns.class);
  private static final String COMMAND = "org.apache.spark.sql.execution.command.AnalyzeColumnCommand";

  private AnalyzedColumns() {}

  static boolean isAnalyze(Object plan) {
    return plan.getClass().getName().equals(COMMAND);
  }

  /** Returns an ANALYZE without the columns whose statistics would be removed again; any other plan as it is. */
  static LogicalPlan withoutEncrypted(SparkSession session, LogicalPlan plan) {
    if (!isAnalyze(plan)) {
      return plan;
    }
    SessionState state = session.sessionState();
    SessionCatalog catalog = state.catalog();
    TableIdentifier identifier = (TableIdentifier) Calls.call(plan, "tableIdent");
    if (catalog.isTempView(identifier)) {
      return plan; // its statistics are kept with its cache, in memory
    }
    CatalogTable table = (CatalogTable) Calls.call(catalog, "getTableMetadata", identifier);
    Set<String> encrypted = findEncrypted(state, table);
    if (encrypted != null && encrypted.isEmpty()) {
      return plan;
    }
    Set<Object> left = encrypted == null ? null : new HashSet<>(Trees.lowerCase(List.copyOf(encrypted)));
    Object named = Calls.orNull(Calls.call(plan, "columnNames"));
    List<Object> names = new ArrayList<>(named == null ? List.of(table.schema().fieldNames()) : Calls.list(named));
    names.removeIf(name -> left == null || left.contains(((String) name).toLowerCase(Locale.ROOT)));
    LOG.info("column statistics of encrypted columns of {} are not computed", identifier);
    return plan.makeCopy(new Object[] {identifier, Option.apply(Calls.scalaList(names)), false});
  }

  /** Returns the top-level columns that are encrypted, or null if they cannot be determined. */
  static Set<String> findEncrypted(SessionState state, CatalogTable table) {
    try {
      Map<String, String> own = Calls.map(table.storage().properties());
      own.putAll(Calls.map(table.properties()));
      own.keySet().removeIf(name -> !name.startsWith(Names.PREFIX) || name.equals(Names.POLICY));
      ObjectNode request = new SessionConf(state.newHadoopConf()).request("encrypted_columns", new Path("/"), own);
      request.put("table", TableEntry.name(table)).put("schema", table.schema().json());
      return Set.copyOf(Wire.texts(Wire.requireField(Helper.ask(request), "columns")));
    } catch (RuntimeException e) {
      LOG.warn("which columns of {} are encrypted cannot be told; all its column statistics are dropped", TableEntry.name(table), e);
      return null;
    }
  }
}

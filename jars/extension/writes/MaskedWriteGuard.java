package io.sparkcrypt;

import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/**
 * A guard that refuses a write that depends on masked columns: stored unchanged, used to compute others, or in a condition.
 *
 * <p>It searches from the written columns down to the tables, and ignores columns that nothing above them uses.
 */
final class MaskedWriteGuard extends AbstractFunction1<LogicalPlan, BoxedUnit> {
  private static final Set<String> WRITES =
      Set.of(
          "AlterViewAsCommand", "CreateDataSourceTableAsSelectCommand", "CreateHiveTableAsSelectCommand",
          "InsertIntoDataSourceCommand", "InsertIntoDataSourceDirCommand", "InsertIntoHadoopFsRelationCommand",
          "InsertIntoHiveDirCommand", "InsertIntoHiveTable", "InsertIntoStatement", "SaveIntoDataSourceCommand");
  private static final String VIEW = "CreateViewCommand";

  /** Nodes whose rows depend on every column below them, whatever is used above. */
  private static final Set<String> WHOLE_ROWS = Set.of("Distinct", "Except", "Intersect", "ScriptTransformation");

  private final SparkSession session;

  MaskedWriteGuard(SparkSession session) {
    this.session = session;
  }

  @Override
  public BoxedUnit apply(LogicalPlan plan) {
    plan.find(ReaderPlan.test(this::check));
    return BoxedUnit.UNIT;
  }

  /** Checks one node; always returns false, since one statement may insert into several tables. */
  private boolean check(LogicalPlan node) {
    String name = node.getClass().getSimpleName();
    boolean isView = name.equals(VIEW) && Calls.call(node, "viewType").toString().startsWith("PersistedView");
    if (!isView && !WRITES.contains(name) && !WriteQueries.isOfVersion2(node)) {
      return false;
    }
    LogicalPlan query = (LogicalPlan) Calls.call(node, isView ? "plan" : "query");
    Set<String> masked = new TreeSet<>();
    look(query, masked);
    if (!masked.isEmpty() && !isAllowed()) {
      throw Refusal.of(
          "PlanError",
          "this " + (isView ? "view would keep" : "write would store, or be decided by,") + " nulls in place of values whose key is "
              + "denied to its reader, and such nulls are not data; masked: " + String.join("; ", masked) + "; write without "
              + "these columns, have it written by somebody who may read them, or SET " + Names.ALLOW_MASKED
              + "=true in this session to store nulls");
    }
    return false;
  }

  private boolean isAllowed() {
    return "true".equalsIgnoreCase(session.sessionState().conf().getConfString(Names.ALLOW_MASKED, "false").trim());
  }

  private static void look(LogicalPlan query, Set<String> masked) {
    UsedColumns used = new UsedColumns();
    used.addOutput(query);
    look(query, used, masked);
  }

  private static void look(LogicalPlan node, UsedColumns used, Set<String> masked) {
    String name = node.getClass().getSimpleName();
    if (name.equals("CTERelationDef")) {
      used.addOutput(node); // its references have other ids
    } else if (name.equals("Union")) {
      used.addPlaces(node);
    } else if (WHOLE_ROWS.contains(name)) {
      Trees.children(node).forEach(used::addOutput);
    } else if (ReaderPlan.isRows(node)) {
      // Rows that were computed already, for example by a checkpoint.
      Trees.output(node).forEach(column -> addMasked(column, used.of(column), masked));
    }
    String named = name.equals("Project") ? "projectList" : name.equals("Aggregate") ? "aggregateExpressions" : null;
    if (named != null) {
      for (Expression expression : Trees.expressions(node, named)) {
        NamedExpression column = (NamedExpression) expression;
        addMasked(column, used.ofComputed(column), masked);
        used.addSources(column);
      }
    }
    if (!name.equals("Project")) {
      Trees.expressions(node, name.equals("Aggregate") ? "groupingExpressions" : "expressions").forEach(used::add);
    }
    for (Object subquery : Calls.list(Calls.call(node, "subqueries"))) {
      look((LogicalPlan) subquery, masked);
    }
    for (Object child : Calls.list(Calls.call(node, "children"))) {
      look((LogicalPlan) child, used, masked);
    }
  }

  /** Adds what is masked of a column's used values: a field of a value that is null as a whole is masked too. */
  private static void addMasked(NamedExpression column, Set<List<ColumnPath.Step>> uses, Set<String> masked) {
    MaskedColumn value = MaskedColumn.of(column, null);
    for (List<ColumnPath.Step> steps : uses) {
      String reason = value.reasonAt(steps);
      if (reason != null || value.hasMaskedAt(steps)) {
        String path = new ColumnPath(column, steps).toText(column.name());
        masked.add("column " + path + " (" + (reason == null ? "of which some fields are denied" : reason) + ")");
      }
    }
  }
}

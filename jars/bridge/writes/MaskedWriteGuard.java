package io.sparkcrypt;

import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
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
    Object conf = Calls.call(Calls.call(session, "sessionState"), "conf");
    return "true".equalsIgnoreCase(((String) Calls.call(conf, "getConfString", Names.ALLOW_MASKED, "false")).trim());
  }

  private static void look(LogicalPlan query, Set<String> masked) {
    Set<Object> live = new HashSet<>();
    addAll(live, query);
    look(query, live, masked);
  }

  private static void look(LogicalPlan node, Set<Object> live, Set<String> masked) {
    String name = node.getClass().getSimpleName();
    if (name.equals("CTERelationDef")) {
      addAll(live, node); // its references have other ids
    } else if (name.equals("Union")) {
      addPlaces(live, node);
    } else if (WHOLE_ROWS.contains(name)) {
      Calls.list(Calls.call(node, "children")).forEach(child -> addAll(live, (LogicalPlan) child));
    } else if (ReaderPlan.isRows(node)) {
      addMaskedRows(node, live, masked);
    }
    String named = name.equals("Project") ? "projectList" : name.equals("Aggregate") ? "aggregateExpressions" : null;
    if (named != null) {
      for (Object one : Calls.list(Calls.call(node, named))) {
        if (live.contains(((NamedExpression) one).exprId())) {
          addMasked((NamedExpression) one, masked);
          addUsed(live, (Expression) one);
        }
      }
    }
    for (Object one : Calls.list(Calls.call(node, name.equals("Aggregate") ? "groupingExpressions" : "expressions"))) {
      if (!name.equals("Project")) {
        addUsed(live, (Expression) one);
      }
    }
    for (Object subquery : Calls.list(Calls.call(node, "subqueries"))) {
      look((LogicalPlan) subquery, masked);
    }
    for (Object child : Calls.list(Calls.call(node, "children"))) {
      look((LogicalPlan) child, live, masked);
    }
  }

  /** Adds the masked columns of rows that were computed already, for example by a checkpoint. */
  private static void addMaskedRows(LogicalPlan rows, Set<Object> live, Set<String> masked) {
    for (Attribute column : Trees.output(rows)) {
      if (live.contains(column.exprId())) {
        addReason(column, MaskMark.reasonIn(column.metadata().json()), masked);
      }
    }
  }

  /** Adds a column at the alias that masks it; an alias that is computed from it has no reason. */
  private static void addMasked(NamedExpression one, Set<String> masked) {
    String reason = MaskMark.reasonIn(one.metadata().json());
    if (reason != null || !(one instanceof Attribute)) {
      addReason(one, reason, masked);
    }
  }

  private static void addReason(NamedExpression one, String reason, Set<String> masked) {
    if (reason != null || ((Expression) one).dataType().json().contains(MaskMark.REASON)) {
      masked.add("column " + one.name() + " (" + (reason == null ? "of which some fields are denied" : reason) + ")");
    }
  }

  private static void addAll(Set<Object> live, LogicalPlan node) {
    for (Object one : Calls.list(Calls.call(node, "output"))) {
      live.add(((Attribute) one).exprId());
    }
  }

  /** Adds the columns of a union's children: the union has the ids of the first child's, the others' have the same positions. */
  private static void addPlaces(Set<Object> live, LogicalPlan union) {
    List<Object> output = Calls.list(Calls.call(union, "output"));
    for (Object child : Calls.list(Calls.call(union, "children"))) {
      List<Object> columns = Calls.list(Calls.call(child, "output"));
      for (int i = 0; i < output.size(); i++) {
        if (live.contains(((Attribute) output.get(i)).exprId())) {
          live.add(((Attribute) columns.get(i)).exprId());
        }
      }
    }
  }

  /** Adds the columns that an expression uses; an unmasked field does not use the masked fields of its struct. */
  private static void addUsed(Set<Object> live, Expression expression) {
    if (expression instanceof Attribute attribute) {
      live.add(attribute.exprId());
      return;
    }
    if (isClearField(expression)) {
      return;
    }
    for (Object child : Calls.list(Calls.call(expression, "children"))) {
      addUsed(live, (Expression) child);
    }
  }

  private static boolean isClearField(Expression expression) {
    String name = expression.getClass().getSimpleName();
    StructField field;
    if (name.equals("GetStructField")) {
      field = ((StructType) Calls.call(expression, "childSchema")).fields()[(Integer) Calls.call(expression, "ordinal")];
    } else if (name.equals("GetArrayStructFields")) {
      field = (StructField) Calls.call(expression, "field");
    } else {
      return false;
    }
    return !field.metadata().json().contains(MaskMark.REASON) && !field.dataType().json().contains(MaskMark.REASON);
  }
}

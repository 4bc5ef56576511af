package io.sparkcrypt;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.ElementAt;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetArrayItem;
import org.apache.spark.sql.catalyst.expressions.GetArrayStructFields;
import org.apache.spark.sql.catalyst.expressions.GetMapValue;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
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
    plan.find(Trees.test(this::check));
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
    Calls.<LogicalPlan>list(Calls.call(node, "subqueries")).forEach(subquery -> look(subquery, masked));
    Calls.<LogicalPlan>list(Calls.call(node, "children")).forEach(child -> look(child, used, masked));
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

  /**
   * The columns that the result of a plan uses, each as a whole or by the steps to some of its fields.
   *
   * <p>Steps are followed from the top of a plan down to where a column is computed: types above it do not show what is masked. A
   * view casts structs to the types of its creation, and the columns of a union have the types of its first child.
   */
  private static final class UsedColumns {
    private static final List<ColumnPath.Step> WHOLE = List.of();
    private static final ColumnPath.Step ELEMENT = new ColumnPath.Step("", -1);

    private final Map<ExprId, Set<List<ColumnPath.Step>>> used = new HashMap<>();

    /** A value inside a column, or inside what is computed, and the expressions that choose it there, such as the index of an array. */
    private record Value(Expression within, List<ColumnPath.Step> steps, List<Expression> choosing) {
      boolean isInColumn() {
        return within instanceof Attribute;
      }
    }

    /** Returns the steps by which a column is used; an empty list of steps is the whole column. */
    Set<List<ColumnPath.Step>> of(NamedExpression column) {
      return used.getOrDefault(column.exprId(), Set.of());
    }

    /**
     * Returns the steps by which a column of a projection is used, if its metadata and type show what is masked. They do not for the
     * fields of a value that is taken out of a column below.
     */
    Set<List<ColumnPath.Step>> ofComputed(NamedExpression column) {
      Set<List<ColumnPath.Step>> uses = of(column);
      boolean isTaken = column instanceof Attribute || column instanceof Alias alias && valueOf(alias.child()).isInColumn();
      return !isTaken ? uses : uses.contains(WHOLE) ? Set.of(WHOLE) : Set.of();
    }

    /** Adds all columns of a plan's output. */
    void addOutput(QueryPlan<?> plan) {
      Trees.output(plan).forEach(column -> add(column, WHOLE));
    }

    /** Adds the columns of a union's children: the union has the ids of the first child's, the others' have the same positions. */
    void addPlaces(QueryPlan<?> union) {
      List<Attribute> output = Trees.output(union);
      for (QueryPlan<?> child : Trees.children(union)) {
        List<Attribute> columns = Trees.output(child);
        for (int i = 0; i < output.size(); i++) {
          for (List<ColumnPath.Step> steps : Set.copyOf(of(output.get(i)))) {
            add(columns.get(i), steps);
          }
        }
      }
    }

    /** Adds the columns that an expression uses. */
    void add(Expression expression) {
      add(expression, WHOLE);
    }

    /** Adds the columns that a used column of a projection is made of. */
    void addSources(NamedExpression column) {
      if (column instanceof Alias alias) {
        of(column).forEach(steps -> add(alias.child(), steps));
      }
    }

    private void add(Expression expression, List<ColumnPath.Step> steps) {
      Value value = valueOf(expression);
      value.choosing().forEach(this::add);
      if (value.within() instanceof Attribute column) {
        List<ColumnPath.Step> all = new ArrayList<>(value.steps());
        all.addAll(steps);
        used.computeIfAbsent(column.exprId(), unused -> new HashSet<>()).add(all);
      } else {
        // What is computed from a struct depends on all of it: the least of two structs, say.
        Trees.children(value.within()).forEach(this::add);
      }
    }

    /** Returns the value that an expression takes out of a column, or out of what it computes. */
    private static Value valueOf(Expression expression) {
      LinkedList<ColumnPath.Step> steps = new LinkedList<>();
      List<Expression> choosing = new ArrayList<>();
      Expression at = expression;
      while (!(at instanceof Attribute)) {
        List<Expression> parts = Trees.children(at);
        if (at instanceof GetStructField field) {
          steps.addFirst(new ColumnPath.Step(field.childSchema().fields()[field.ordinal()].name(), field.ordinal()));
        } else if (at instanceof GetArrayStructFields fields) {
          steps.addFirst(new ColumnPath.Step(fields.field().name(), fields.ordinal()));
        } else if (at instanceof GetMapValue || at instanceof GetArrayItem || at instanceof ElementAt) {
          steps.addFirst(ELEMENT);
          choosing.addAll(parts.subList(1, parts.size()));
        } else if (!(at instanceof Cast)) {
          break;
        }
        at = parts.get(0);
      }
      return new Value(at, steps, choosing);
    }
  }
}

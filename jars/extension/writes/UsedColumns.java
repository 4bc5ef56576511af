package io.sparkcrypt;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedList;
import java.util.List;
import java.util.Map;
import java.util.Set;
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

/**
 * The columns that the result of a plan uses, each as a whole or by the steps to some of its fields.
 *
 * <p>Steps are followed from the top of a plan down to where a column is computed: types above it do not show what is masked. A
 * view casts structs to the types of its creation, and the columns of a union have the types of its first child.
 */
final class UsedColumns {
  private static final List<ColumnPath.Step> WHOLE = List.of();
  private static final ColumnPath.Step ELEMENT = new ColumnPath.Step("", -1);

  private final Map<ExprId, Set<List<ColumnPath.Step>>> used = new HashMap<>();

  /** A value inside a column, and the expressions that choose it there, such as the index of an array. */
  private record Value(Attribute column, List<ColumnPath.Step> steps, List<Expression> choosing) {}

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
    boolean isTaken = column instanceof Attribute || column instanceof Alias alias && valueOf(alias.child()) != null;
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
    if (value == null) {
      // What is computed from a struct depends on all of it: the least of two structs, say.
      Trees.children(expression).forEach(this::add);
      return;
    }
    List<ColumnPath.Step> all = new ArrayList<>(value.steps());
    all.addAll(steps);
    used.computeIfAbsent(value.column().exprId(), unused -> new HashSet<>()).add(all);
    value.choosing().forEach(this::add);
  }

  /** Returns the value that an expression takes out of a column; null for an expression that computes something. */
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
        return null;
      }
      at = parts.get(0);
    }
    return new Value((Attribute) at, steps, choosing);
  }
}

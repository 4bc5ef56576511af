package io.sparkcrypt;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Consumer;
import java.util.function.Supplier;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.CreateNamedStruct;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetArrayStructFields;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.OuterReference;
import org.apache.spark.sql.catalyst.expressions.PlanExpression;
import org.apache.spark.sql.catalyst.expressions.StructFieldsOperation;
import org.apache.spark.sql.catalyst.expressions.WindowExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * The tags that the value of an expression has from the columns that it is made of.
 *
 * <p>Tags of fields inside a struct stay with these fields as long as the expression passes the struct on whole; if a function
 * makes something else of the struct, they become tags of the whole column.
 */
final class ExpressionTags {
  /**
   * Functions that return one of their arguments, or elements of one, unchanged, and those that Spark uses to fit arrays and maps
   * to the columns of a table, in whose results the fields carry the table's own tags.
   */
  private static final Set<String> SELECTING =
      Set.of(
          "Coalesce", "If", "CaseWhen", "First", "Last", "AnyValue", "GetArrayItem", "GetMapValue", "ElementAt", "ArrayFilter",
          "Slice", "SortArray", "ArraySort", "ArrayDistinct", "Reverse", "Shuffle", "CollectList", "CollectSet", "CreateArray",
          "Max", "Min", "Explode", "PosExplode", "Inline", "Lag", "Lead", "NthValue", "KnownNotNull", "NormalizeNaNAndZero",
          "KnownFloatingPointNormalized", "Flatten", "GeneratorOuter", "ArrayTransform", "TransformValues", "LambdaFunction",
          "MapFromArrays", "MapKeys", "MapValues");
  /** Those in whose results fields have other values than those of the same names in their arguments. */
  private static final Set<String> COMPUTING = Set.of("ArrayTransform", "TransformValues");
  /**
   * Classes of the aggregates that a policy may call safe, and their names there (SAFE_AGGREGATES in sparkcrypt/policy/model.py).
   */
  private static final Map<String, String> AGGREGATES =
      Map.ofEntries(
          Map.entry("HyperLogLogPlusPlus", "approx_count_distinct"),
          Map.entry("Average", "avg"),
          Map.entry("Corr", "corr"),
          Map.entry("Count", "count"),
          Map.entry("CountIf", "count_if"),
          Map.entry("CovPopulation", "covar_pop"),
          Map.entry("CovSample", "covar_samp"),
          Map.entry("Kurtosis", "kurtosis"),
          Map.entry("Skewness", "skewness"),
          Map.entry("StddevPop", "stddev_pop"),
          Map.entry("StddevSamp", "stddev_samp"),
          Map.entry("Sum", "sum"),
          Map.entry("VariancePop", "var_pop"),
          Map.entry("VarianceSamp", "var_samp"));

  private final Map<ExprId, Carried> byId;
  private final Set<String> safe;
  private final Consumer<QueryPlan<?>> visit;
  private final List<Declassified> declassified = new ArrayList<>();
  private Supplier<Carried> row = Carried::new;

  /** A declassified value: the reason, and the tags and columns that it would have. */
  record Declassified(String reason, Carried formerTags) {}

  /**
   * Creates an object for a plan.
   *
   * @param byId tags of the columns that are known so far; columns without tags are not in it
   * @param safe names of the aggregates whose results have no tags
   * @param visit fills {@code byId} for the plan of a subquery
   */
  ExpressionTags(Map<ExprId, Carried> byId, Set<String> safe, Consumer<QueryPlan<?>> visit) {
    this.byId = byId;
    this.safe = safe;
    this.visit = visit;
  }

  /** Sets the tags of an expression that reads its row by positions: those of the whole row. */
  void setRow(Supplier<Carried> tags) {
    row = tags;
  }

  /** Returns the values that were declassified in the expressions so far. */
  List<Declassified> declassifiedValues() {
    return declassified;
  }

  /** Adds the tags of a value, except those that fields inside its type carry themselves. */
  void add(Carried tags, Expression expression) {
    String reason = Declassify.reason(expression);
    if (reason != null) {
      addDeclassified(tags, expression, reason);
    } else if (expression instanceof Attribute column) {
      addColumn(tags, column);
    } else if (expression instanceof GetStructField field) {
      StructField taken = field.childSchema().fields()[field.ordinal()];
      tags.addAll(of(field.child()).below(List.of(taken.name())));
      tags.addAll(FieldTags.of(taken.metadata()));
    } else if (expression instanceof GetArrayStructFields fields) {
      StructField taken = ((StructType) ((ArrayType) fields.child().dataType()).elementType()).fields()[fields.ordinal()];
      tags.addAll(of(fields.child()).below(FieldTags.longer(LeafPaths.ELEMENT, taken.name())).within(LeafPaths.ELEMENT));
      tags.addAll(FieldTags.of(taken.metadata()));
    } else if (expression instanceof CreateNamedStruct struct) {
      addStruct(tags, struct);
    } else if (expression instanceof PlanExpression<?> subquery) {
      addSubquery(tags, subquery);
    } else if (expression instanceof OuterReference outer) {
      add(tags, (Expression) outer.e());
    } else if (expression instanceof WindowExpression window) {
      addWindow(tags, window);
    } else if (expression instanceof AggregateExpression aggregate) {
      if (!safe.contains(AGGREGATES.getOrDefault(name(aggregate.aggregateFunction()), ""))) {
        add(tags, aggregate.aggregateFunction()); // not its filter, which only chooses rows
      }
    } else if (expression instanceof BoundReference) {
      tags.addAll(row.get().anywhere());
    } else {
      tags.addAll(VariableRule.tagsOf(expression).anywhere());
      addFunction(tags, expression);
    }
  }

  private Carried of(Expression expression) {
    Carried found = new Carried();
    add(found, expression);
    return found;
  }

  private void addDeclassified(Carried tags, Expression expression, String reason) {
    Carried shed = new Carried();
    addFunction(shed, expression);
    FieldTags.addBelow(shed.tags(), expression.dataType());
    shed.losses().forEach(loss -> shed.addAll(loss.tags()));
    if (!shed.isEmpty()) {
      declassified.add(new Declassified(reason, shed));
      tags.addDeclassified(shed);
    }
  }

  private void addColumn(Carried tags, Attribute column) {
    Carried known = byId.get(column.exprId());
    if (known != null) {
      tags.addAll(known);
    }
    tags.addAll(FieldTags.of(column.metadata()));
  }

  private void addFunction(Carried tags, Expression expression) {
    boolean handsOn = expression instanceof Alias || expression instanceof Cast || SELECTING.contains(name(expression));
    List<String> taken = takenPart(expression);
    for (Expression child : Trees.children(expression)) {
      boolean hasType = !(child instanceof StructFieldsOperation); // else its own children's types are compared
      boolean same = hasType && handsOn && !COMPUTING.contains(name(expression)) && LeafPaths.areSame(child.dataType(), expression.dataType());
      if (tags.isEmpty() && (taken == null || !hasType)) {
        add(tags, child); // not by a copy for each of many nested functions
        if (!same && (!hasType || FieldTags.isNested(child.dataType()))) {
          tags.moveAnywhere();
        }
      } else {
        Carried ofChild = of(child);
        tags.addAll(taken != null && hasType ? ofChild.below(taken) : same ? ofChild : ofChild.anywhere());
      }
      if (!hasType) {
        continue;
      }
      if (handsOn) {
        FieldTags.addLost(tags.tags(), child.dataType(), expression.dataType());
      } else {
        FieldTags.addBelow(tags.tags(), child.dataType());
      }
    }
  }

  /** Returns the path below its first operand to the part that an expression takes; null if it takes none. */
  private static List<String> takenPart(Expression expression) {
    return switch (name(expression)) {
      case "GetArrayItem" -> LeafPaths.ELEMENT;
      case "GetMapValue" -> LeafPaths.VALUE;
      case "ElementAt" -> Trees.children(expression).get(0).dataType() instanceof ArrayType ? LeafPaths.ELEMENT : LeafPaths.VALUE;
      default -> null;
    };
  }

  private void addStruct(Carried tags, CreateNamedStruct struct) {
    StructField[] fields = struct.dataType().fields();
    List<Expression> values = Trees.expressions(struct, "valExprs");
    for (int i = 0; i < fields.length; i++) {
      Carried ofValue = of(values.get(i));
      ofValue.tags().removeAll(FieldTags.of(fields[i].metadata()));
      tags.addAll(ofValue.within(List.of(fields[i].name())));
    }
  }

  private void addSubquery(Carried tags, PlanExpression<?> subquery) {
    Trees.children(subquery).forEach(child -> tags.addAll(of(child).anywhere()));
    QueryPlan<?> plan = subquery.plan();
    visit.accept(plan);
    for (Attribute column : Trees.output(plan)) {
      tags.addAll(LeafPaths.areSame(column.dataType(), subquery.dataType()) ? of(column) : of(column).anywhere());
      FieldTags.addLost(tags.tags(), column.dataType(), subquery.dataType());
    }
  }

  /**
   * Adds the tags of a window. Partitions and frames only choose rows; the order is part of the value if the function has no
   * other input.
   */
  private void addWindow(Carried tags, WindowExpression window) {
    Expression function = window.windowFunction();
    add(tags, function);
    if (!(function instanceof AggregateExpression) && Trees.children(function).stream().allMatch(Expression::foldable)) {
      Trees.expressions(window.windowSpec(), "orderSpec").forEach(order -> tags.addAll(of(order).anywhere()));
    }
  }

  /** Adds the tags of a column and of the fields inside it, for a value that may contain any part of it. */
  void addAll(Carried tags, Attribute column) {
    addColumn(tags, column);
    FieldTags.addBelow(tags.tags(), column.dataType());
  }

  private static String name(Expression expression) {
    return expression.getClass().getSimpleName();
  }
}

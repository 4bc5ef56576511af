package io.sparkcrypt;

import java.util.LinkedList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetArrayItem;
import org.apache.spark.sql.catalyst.expressions.GetArrayStructFields;
import org.apache.spark.sql.catalyst.expressions.GetMapValue;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.OuterReference;

/** A column, or a variable of a lambda, and the steps from it to a value inside it. */
record ColumnPath(NamedExpression column, List<Step> steps) {
  /** A field, by name and ordinal, or an element or value of a collection, with an empty name and a negative ordinal. */
  record Step(String name, int ordinal) {
    boolean isField() {
      return ordinal >= 0;
    }
  }

  private static final Step ELEMENT = new Step("", -1);

  /** Returns the path of an expression, or null for one that computes something. */
  static ColumnPath of(Expression expression) {
    LinkedList<Step> steps = new LinkedList<>();
    Expression at = expression;
    while (at != null) {
      if (at instanceof Attribute || at.getClass().getSimpleName().equals("NamedLambdaVariable")) {
        return new ColumnPath((NamedExpression) at, steps);
      }
      if (at instanceof GetStructField field) {
        steps.addFirst(new Step(field.childSchema().fields()[field.ordinal()].name(), field.ordinal()));
      } else if (at instanceof GetArrayStructFields fields) {
        steps.addFirst(new Step(fields.field().name(), fields.ordinal()));
      } else if (at instanceof GetMapValue || at instanceof GetArrayItem) {
        steps.addFirst(ELEMENT);
      }
      at = inner(at);
    }
    return null;
  }

  /** Returns the path as text, below the given name of the column. */
  String toText(String name) {
    StringBuilder text = new StringBuilder(name);
    steps.stream().filter(Step::isField).forEach(step -> text.append('.').append(step.name()));
    return text.toString();
  }

  private static Expression inner(Expression expression) {
    if (expression instanceof OuterReference outer) {
      return (Expression) outer.e();
    }
    boolean isTaken =
        switch (expression.getClass().getSimpleName()) {
          case "GetStructField", "GetArrayStructFields", "GetMapValue", "GetArrayItem", "TempResolvedColumn" -> true;
          default -> expression instanceof Alias;
        };
    return isTaken ? Trees.children(expression).get(0) : null;
  }
}

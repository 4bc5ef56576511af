package io.sparkcrypt;

import java.util.List;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.ArrayTransform;
import org.apache.spark.sql.catalyst.expressions.Cast$;
import org.apache.spark.sql.catalyst.expressions.CreateNamedStruct;
import org.apache.spark.sql.catalyst.expressions.EvalMode$;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.LambdaFunction;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.NamedLambdaVariable;
import org.apache.spark.sql.catalyst.expressions.TransformValues;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Option;

/** A factory of nodes of Spark's plans, some of whose constructors name Scala collections. */
final class Catalyst {
  private Catalyst() {}

  /** Returns an expression under a name and a new id. */
  static Alias alias(Expression child, String name, Metadata metadata, Object qualifier) {
    return alias(child, name, NamedExpression.newExprId(), metadata, qualifier);
  }

  /**
   * Returns an expression under a name and an id.
   *
   * @param metadata null for that of the expression
   * @param qualifier a Scala sequence of names; null for none
   */
  static Alias alias(Expression child, String name, ExprId id, Metadata metadata, Object qualifier) {
    Object none = Calls.scalaList(List.of());
    return Calls.make(Alias.class, child, name, id, qualifier == null ? none : qualifier, Option.apply(metadata), none);
  }

  static Literal text(String value) {
    return new Literal(UTF8String.fromString(value), DataTypes.StringType);
  }

  static Project project(List<?> columns, LogicalPlan child) {
    return Calls.make(Project.class, Calls.scalaList(columns), child);
  }

  static LogicalPlan union(List<?> children) {
    return Calls.make(Union.class, Calls.scalaList(children), false, false);
  }

  /** Returns a struct of alternating names and values. */
  static Expression namedStruct(List<?> namesAndValues) {
    return Calls.make(CreateNamedStruct.class, Calls.scalaList(namesAndValues));
  }

  static Expression cast(Expression child, DataType type) {
    return Cast$.MODULE$.apply(child, type, Option.empty(), EvalMode$.MODULE$.LEGACY());
  }

  static Expression field(Expression struct, int ordinal, String name) {
    return new GetStructField(struct, ordinal, Option.apply(name));
  }

  static Expression variable(String name, DataType type, boolean nullable) {
    return new NamedLambdaVariable(name, type, nullable, NamedExpression.newExprId(), new AtomicReference<>());
  }

  static Expression transformArray(Expression array, Expression body, Expression element) {
    return new ArrayTransform(array, lambda(body, List.of(element)));
  }

  static Expression transformValues(Expression map, Expression body, Expression key, Expression value) {
    return new TransformValues(map, lambda(body, List.of(key, value)));
  }

  private static Expression lambda(Expression body, List<Expression> variables) {
    return Calls.make(LambdaFunction.class, body, Calls.scalaList(variables), false);
  }
}

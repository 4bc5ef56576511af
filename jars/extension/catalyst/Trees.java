package io.sparkcrypt;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Function;
import java.util.function.Predicate;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.LambdaFunction;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.NamedLambdaVariable;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Function1;
import scala.Option;
import scala.runtime.AbstractPartialFunction;

/**
 * Parts of plans and expressions that are Scala collections, whose types differ between Spark 3.5 and 4.x; and a factory of nodes
 * that are made of such parts.
 */
final class Trees {
  private Trees() {}

  static List<Expression> children(Expression expression) {
    return elements(Expression.class, Calls.call(expression, "children"));
  }

  static List<QueryPlan<?>> children(QueryPlan<?> plan) {
    return plans(Calls.call(plan, "children"));
  }

  /** Returns plans that a command has besides its children, and those behind a cached relation. */
  static List<QueryPlan<?>> innerChildren(QueryPlan<?> plan) {
    return plans(Calls.call(plan, "innerChildren"));
  }

  static List<Attribute> output(QueryPlan<?> plan) {
    return elements(Attribute.class, Calls.call(plan, "output"));
  }

  static List<Expression> expressions(QueryPlan<?> plan) {
    return elements(Expression.class, Calls.call(plan, "expressions"));
  }

  /** Returns the expressions in a named part of a node. */
  static List<Expression> expressions(Object node, String part) {
    return elements(Expression.class, Calls.call(node, part));
  }

  static List<Attribute> attributes(Object node, String part) {
    return elements(Attribute.class, Calls.call(node, part));
  }

  /** Returns names in lower case, as Spark compares them by default. */
  static Set<String> lowerCase(List<?> names) {
    Set<String> found = new HashSet<>();
    names.forEach(name -> found.add(((String) name).toLowerCase(Locale.ROOT)));
    return found;
  }

  /**
   * Returns the columns of a plan's output that have one of some names.
   *
   * @param names in lower case
   * @param query a resolved plan
   */
  static List<Attribute> columnsNamed(Set<String> names, QueryPlan<?> query) {
    List<Attribute> columns = output(query);
    columns.removeIf(column -> !names.contains(column.name().toLowerCase(Locale.ROOT)));
    return columns;
  }

  static <T> List<T> elements(Class<T> type, Object scalaCollection) {
    List<T> found = new ArrayList<>();
    Calls.list(scalaCollection).forEach(element -> found.add(type.cast(element)));
    return found;
  }

  /** Returns a test of nodes, as Spark's plans take it. */
  static Function1<LogicalPlan, Object> test(Predicate<LogicalPlan> predicate) {
    return predicate::test;
  }

  private static List<QueryPlan<?>> plans(Object scalaCollection) {
    return Calls.list(scalaCollection);
  }

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

  static Expression variable(String name, DataType type, boolean nullable) {
    return new NamedLambdaVariable(name, type, nullable, NamedExpression.newExprId(), new AtomicReference<>());
  }

  static Expression lambda(Expression body, List<Expression> variables) {
    return Calls.make(LambdaFunction.class, body, Calls.scalaList(variables), false);
  }

  /** A step on the nodes or messages that it applies to, as the partial function that Spark's interfaces take. */
  static final class Steps<T, R> extends AbstractPartialFunction<T, R> {
    private static final long serialVersionUID = 1L;
    private final transient Predicate<T> judged;
    private final transient Function<T, R> step;

    Steps(Predicate<T> judged, Function<T, R> step) {
      this.judged = judged;
      this.step = step;
    }

    @Override
    public boolean isDefinedAt(T node) {
      return judged.test(node);
    }

    @Override
    public <A extends T, B> B applyOrElse(A node, Function1<A, B> otherwise) {
      if (!isDefinedAt(node)) {
        return otherwise.apply(node);
      }
      @SuppressWarnings("unchecked") // Spark always asks for R or a supertype
      B done = (B) step.apply(node);
      return done;
    }
  }
}

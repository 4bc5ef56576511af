package io.sparkcrypt;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.QueryPlan;

/** Access to the parts of plans and expressions that are Scala collections, whose types differ between Spark 3.5 and 4.x. */
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

  private static List<QueryPlan<?>> plans(Object scalaCollection) {
    List<QueryPlan<?>> found = new ArrayList<>();
    for (QueryPlan<?> plan : elements(QueryPlan.class, scalaCollection)) {
      found.add(plan);
    }
    return found;
  }
}

package io.sparkcrypt;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.catalyst.trees.TreeNode;

/**
 * Access to the parts of plans and expressions that are Scala collections, whose types differ between Spark 3.5 and 4.x.
 *
 * <p>Like Calls, but only for methods without arguments, and faster: a rule of the analyzer visits every expression of a query.
 */
final class Trees {
  private static final Map<Class<?>, Map<String, Method>> METHODS = new ConcurrentHashMap<>();

  private Trees() {}

  static List<Expression> children(Expression expression) {
    return elements(Expression.class, get(TreeNode.class, expression, "children"));
  }

  static List<QueryPlan<?>> children(QueryPlan<?> plan) {
    return plans(get(TreeNode.class, plan, "children"));
  }

  /** Returns plans that a command has besides its children, and those behind a cached relation. */
  static List<QueryPlan<?>> innerChildren(QueryPlan<?> plan) {
    return plans(get(QueryPlan.class, plan, "innerChildren"));
  }

  static List<Attribute> output(QueryPlan<?> plan) {
    return elements(Attribute.class, get(QueryPlan.class, plan, "output"));
  }

  static List<Expression> expressions(QueryPlan<?> plan) {
    return elements(Expression.class, get(QueryPlan.class, plan, "expressions"));
  }

  /** Returns the expressions in a named part of a node. */
  static List<Expression> expressions(Object node, String part) {
    return elements(Expression.class, get(node.getClass(), node, part));
  }

  static List<Attribute> attributes(Object node, String part) {
    return elements(Attribute.class, get(node.getClass(), node, part));
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
  static List<Object> columnsNamed(Set<String> names, Object query) {
    List<Object> columns = Calls.list(Calls.call(query, "output"));
    columns.removeIf(column -> !names.contains(((String) Calls.call(column, "name")).toLowerCase(Locale.ROOT)));
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

  /** Returns the result of a method without arguments; the method is looked up once for each class. */
  static Object get(Class<?> type, Object target, String name) {
    Method method = METHODS.computeIfAbsent(type, unused -> new ConcurrentHashMap<>()).computeIfAbsent(name, unused -> find(type, name));
    try {
      return method.invoke(target);
    } catch (InvocationTargetException e) {
      throw new IllegalStateException(name + " of " + type.getName() + " failed: " + e.getCause(), e.getCause());
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  private static Method find(Class<?> type, String name) {
    try {
      Method method = type.getMethod(name);
      method.setAccessible(true); // public methods of non-public classes
      return method;
    } catch (NoSuchMethodException e) {
      throw new IllegalStateException(type.getName() + " has no method " + name, e);
    }
  }
}

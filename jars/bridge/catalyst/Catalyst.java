package io.sparkcrypt;

import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.util.List;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.unsafe.types.UTF8String;

/** A factory of nodes of Spark's plans whose constructors name Scala collections, or differ between Spark 3.5 and 4.x. */
final class Catalyst {
  private static final String EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions.";
  private static final String LOGICAL = "org.apache.spark.sql.catalyst.plans.logical.";

  private Catalyst() {}

  /** Returns an expression under a name and a new id. */
  static Expression alias(Expression child, String name, Metadata metadata, Object qualifier) {
    ExprId fresh = (ExprId) Calls.call(module(EXPRESSIONS + "NamedExpression$"), "newExprId");
    Object explicit = metadata == null ? Calls.none(child) : scala.Option.apply(metadata);
    Object none = Calls.scalaList(List.of());
    return (Expression) make(EXPRESSIONS + "Alias", child, name, fresh, qualifier == null ? none : qualifier, explicit, none);
  }

  static Literal text(String value) {
    return new Literal(UTF8String.fromString(value), DataTypes.StringType);
  }

  static Attribute attribute(Expression alias) {
    return ((NamedExpression) alias).toAttribute();
  }

  static LogicalPlan project(List<Object> columns, LogicalPlan child) {
    return (LogicalPlan) make(LOGICAL + "Project", Calls.scalaList(columns), child);
  }

  static LogicalPlan union(List<Object> children) {
    return (LogicalPlan) make(LOGICAL + "Union", Calls.scalaList(children), false, false);
  }

  /** Returns a struct of alternating names and values. */
  static Expression namedStruct(List<Object> namesAndValues) {
    return (Expression) make(EXPRESSIONS + "CreateNamedStruct", Calls.scalaList(namesAndValues));
  }

  static Expression cast(Expression child, DataType type) {
    Object made = Calls.call(module(EXPRESSIONS + "Cast$"), "apply", child, type, Calls.none(child), Calls.call(module(EXPRESSIONS + "EvalMode$"), "LEGACY"));
    return (Expression) made;
  }

  static Expression field(Expression struct, int ordinal, String name) {
    return (Expression) make(EXPRESSIONS + "GetStructField", struct, ordinal, scala.Option.apply(name));
  }

  static Expression variable(String name, DataType type, boolean nullable) {
    Object fresh = Calls.call(module(EXPRESSIONS + "NamedExpression$"), "newExprId");
    return (Expression) make(EXPRESSIONS + "NamedLambdaVariable", name, type, nullable, fresh, new AtomicReference<Object>());
  }

  static Expression transformArray(Expression array, Expression body, Expression element) {
    return (Expression) make(EXPRESSIONS + "ArrayTransform", array, lambda(body, List.of(element)));
  }

  static Expression transformValues(Expression map, Expression body, Expression key, Expression value) {
    return (Expression) make(EXPRESSIONS + "TransformValues", map, lambda(body, List.of(key, value)));
  }

  private static Object lambda(Expression body, List<Object> variables) {
    return make(EXPRESSIONS + "LambdaFunction", body, Calls.scalaList(variables), false);
  }

  /** Returns an attribute with another type and the same id. */
  static Attribute withType(Attribute attribute, DataType type) {
    Object qualifier = Calls.call(attribute, "qualifier");
    return (Attribute)
        make(
            EXPRESSIONS + "AttributeReference",
            attribute.name(),
            type,
            attribute.nullable(),
            attribute.metadata(),
            attribute.exprId(),
            qualifier);
  }

  static Object module(String name) {
    try {
      return Class.forName(name, true, LogicalPlan.class.getClassLoader()).getField("MODULE$").get(null);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  private static Object make(String name, Object... arguments) {
    try {
      for (Constructor<?> constructor : Class.forName(name, true, LogicalPlan.class.getClassLoader()).getConstructors()) {
        if (takes(constructor.getParameterTypes(), arguments)) {
          return constructor.newInstance(arguments);
        }
      }
    } catch (InvocationTargetException e) {
      throw new IllegalStateException(name + " cannot be made: " + e.getCause(), e.getCause());
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
    throw new IllegalStateException(name + " has no constructor that fits");
  }

  private static boolean takes(Class<?>[] types, Object[] arguments) {
    if (types.length != arguments.length) {
      return false;
    }
    for (int i = 0; i < types.length; i++) {
      boolean fits =
          types[i].isPrimitive()
              ? types[i] == int.class && arguments[i] instanceof Integer
                  || types[i] == boolean.class && arguments[i] instanceof Boolean
              : types[i].isInstance(arguments[i]);
      if (!fits) {
        return false;
      }
    }
    return true;
  }
}

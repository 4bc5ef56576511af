package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.BooleanNode;
import com.fasterxml.jackson.databind.node.LongNode;
import com.fasterxml.jackson.databind.node.NullNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.fasterxml.jackson.databind.node.TextNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.SortedSet;
import java.util.TreeSet;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BinaryComparison;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GreaterThan;
import org.apache.spark.sql.catalyst.expressions.GreaterThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.expressions.LessThan;
import org.apache.spark.sql.catalyst.expressions.LessThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Not;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.expressions.StartsWith;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Filters of a scan in the form that the helper evaluates (sparkcrypt/skipping/query/skipper.py).
 *
 * <p>A comparison counts if one side is a column itself, by the id that its relation gave it, and the other a literal of exactly
 * the same type. Everything else is "unknown": casts, functions (CHAR is padded by one), metadata and partition columns, and text
 * with a collation.
 */
final class FilterForms {
  private static final Set<DataType> SIMPLE =
      Set.of(
          DataTypes.StringType, DataTypes.BooleanType, DataTypes.ByteType, DataTypes.ShortType, DataTypes.IntegerType, DataTypes.LongType,
          DataTypes.FloatType, DataTypes.DoubleType, DataTypes.BinaryType, DataTypes.DateType, DataTypes.TimestampType,
          DataTypes.TimestampNTZType);
  private static final Map<Class<?>, String> OPERATORS =
      Map.of(EqualTo.class, "=", LessThan.class, "<", LessThanOrEqual.class, "<=", GreaterThan.class, ">", GreaterThanOrEqual.class, ">=");
  /** The operators whose sides are exchanged. */
  private static final Map<String, String> TURNED = Map.of("=", "=", "<", ">", "<=", ">=", ">", "<", ">=", "<=");

  private final Map<ExprId, Attribute> columns = new HashMap<>();
  /** Spark's type for each column whose comparisons are supported. */
  final ObjectNode types = Wire.object();

  /** @param output the columns of a relation that its files contain */
  FilterForms(List<Attribute> output) {
    for (Attribute attribute : output) {
      String kind = kind(attribute);
      if (kind != null) {
        columns.put(attribute.exprId(), attribute);
        types.put(attribute.name(), kind);
      }
    }
  }

  /** Returns the sorted names of the columns in filters whose comparisons are supported. */
  SortedSet<String> columns(List<Expression> filters) {
    SortedSet<String> found = new TreeSet<>();
    for (Expression filter : filters) {
      for (Attribute attribute : Trees.attributes(filter, "references")) {
        Attribute column = column(attribute);
        if (column != null) {
          found.add(column.name());
        }
      }
    }
    return found;
  }

  /** Returns all of these filters joined; null if none of them restricts a column. */
  ArrayNode of(List<Expression> filters) {
    List<ArrayNode> parts = filters.stream().map(this::form).toList();
    return parts.stream().allMatch(FilterForms::isUnknown) ? null : join("and", parts);
  }

  private static String kind(Attribute attribute) {
    DataType type = attribute.dataType();
    return SIMPLE.contains(type) || type instanceof DecimalType ? type.typeName() : null;
  }

  private ArrayNode form(Expression expression) {
    if (expression instanceof And || expression instanceof Or) {
      List<ArrayNode> parts = new ArrayList<>();
      addParts(expression, expression.getClass(), parts);
      return join(expression instanceof And ? "and" : "or", parts);
    }
    if (expression instanceof Not not) {
      return negate(form(not.child()));
    }
    if (expression instanceof IsNull test) {
      return nullTest(test.child());
    }
    if (expression instanceof IsNotNull test) {
      return negate(nullTest(test.child()));
    }
    if (expression instanceof In in) {
      return in(in);
    }
    if (expression instanceof InSet in) {
      Attribute column = column(in.child());
      return column == null ? unknown() : member(column, Calls.list(Calls.call(in, "hset")));
    }
    if (expression instanceof StartsWith start) {
      Attribute column = column(start.left());
      JsonNode prefix = column == null ? null : literal(start.right(), column);
      return prefix == null || !prefix.isTextual() ? unknown() : leaf("starts", column).add(prefix);
    }
    if (expression instanceof BinaryComparison comparison) {
      return comparison(comparison);
    }
    Attribute flag = column(expression);
    return flag != null && flag.dataType().equals(DataTypes.BooleanType) ? leaf("=", flag).add(true) : unknown();
  }

  private void addParts(Expression expression, Class<?> joint, List<ArrayNode> parts) {
    if (expression.getClass() == joint) {
      Trees.children(expression).forEach(child -> addParts(child, joint, parts));
    } else {
      parts.add(form(expression));
    }
  }

  private ArrayNode comparison(BinaryComparison comparison) {
    boolean isTurned = column(comparison.left()) == null;
    Attribute column = column(isTurned ? comparison.right() : comparison.left());
    JsonNode literal = column == null ? null : literal(isTurned ? comparison.left() : comparison.right(), column);
    if (literal == null) {
      return unknown();
    }
    if (comparison instanceof EqualNullSafe) { // false for a null, never null
      ArrayNode isNull = leaf("null", column);
      return literal.isNull() ? isNull : join("and", List.of(negate(isNull), leaf("=", column).add(literal)));
    }
    String operator = OPERATORS.get(comparison.getClass());
    return operator == null ? unknown() : leaf(isTurned ? TURNED.get(operator) : operator, column).add(literal);
  }

  private ArrayNode in(In in) {
    Attribute column = column(in.value());
    if (column == null) {
      return unknown();
    }
    List<Object> values = new ArrayList<>();
    for (Expression entry : Trees.expressions(in, "list")) {
      if (!(entry instanceof Literal literal) || !literal.dataType().equals(column.dataType())) {
        return unknown();
      }
      values.add(literal.value());
    }
    return member(column, values);
  }

  private static ArrayNode member(Attribute column, List<Object> values) {
    ArrayNode form = leaf("in", column);
    ArrayNode literals = form.addArray();
    for (Object value : values) {
      JsonNode literal = literal(value);
      if (literal == null) {
        return unknown();
      }
      literals.add(literal);
    }
    return form;
  }

  private ArrayNode nullTest(Expression tested) {
    Attribute column = column(tested);
    return column == null ? unknown() : leaf("null", column);
  }

  /** Returns the relation's column that an expression is; null for any other expression. */
  private Attribute column(Expression expression) {
    if (!(expression instanceof Attribute attribute)) {
      return null;
    }
    Attribute known = columns.get(attribute.exprId());
    return known != null && known.dataType().equals(attribute.dataType()) ? known : null;
  }

  private static JsonNode literal(Expression expression, Attribute column) {
    boolean fits = expression instanceof Literal literal && literal.dataType().equals(column.dataType());
    return fits ? literal(((Literal) expression).value()) : null;
  }

  private static ArrayNode leaf(String word, Attribute column) {
    return Wire.array().add(word).add(column.name());
  }

  private static ArrayNode join(String word, List<ArrayNode> parts) {
    ArrayNode form = Wire.array().add(word);
    form.addArray().addAll(parts);
    return form;
  }

  private static ArrayNode negate(ArrayNode form) {
    return isUnknown(form) ? form : Wire.array().add("not").add(form);
  }

  private static ArrayNode unknown() {
    return Wire.array().add("unknown");
  }

  private static boolean isUnknown(ArrayNode form) {
    return form.get(0).asText().equals("unknown");
  }

  /** Returns a value of Catalyst in JSON without loss: null for one that has no such form, JSON's null for SQL's NULL. */
  private static JsonNode literal(Object value) {
    if (value == null) {
      return NullNode.getInstance();
    }
    if (value instanceof Boolean flag) {
      return BooleanNode.valueOf(flag);
    }
    if (value instanceof Byte || value instanceof Short || value instanceof Integer || value instanceof Long) {
      return LongNode.valueOf(((Number) value).longValue()); // also days and microseconds
    }
    if (value instanceof Float || value instanceof Double) {
      return TextNode.valueOf(Double.toString(((Number) value).doubleValue()));
    }
    if (value instanceof Decimal decimal) {
      return TextNode.valueOf(decimal.toJavaBigDecimal().toPlainString());
    }
    if (value instanceof UTF8String text) {
      String plain = text.toString();
      return UTF8String.fromString(plain).equals(text) ? TextNode.valueOf(plain) : null; // bytes that are not UTF-8 have no text
    }
    return value instanceof byte[] bytes ? TextNode.valueOf(Wire.base64(bytes)) : null;
  }
}

package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.BooleanNode;
import com.fasterxml.jackson.databind.node.LongNode;
import com.fasterxml.jackson.databind.node.NullNode;
import com.fasterxml.jackson.databind.node.TextNode;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.unsafe.types.UTF8String;

/** Catalyst's values in JSON without loss: null in Java for a value that has no such form, JSON's null for SQL's NULL. */
final class LiteralForms {
  private LiteralForms() {}

  static JsonNode of(Object value) {
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

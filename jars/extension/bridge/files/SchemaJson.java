package io.sparkcrypt;

import com.fasterxml.jackson.databind.node.ArrayNode;
import java.util.Iterator;
import java.util.List;
import java.util.Locale;
import org.apache.parquet.format.ConvertedType;
import org.apache.parquet.format.LogicalType;
import org.apache.parquet.format.SchemaElement;
import org.apache.parquet.schema.GroupType;
import org.apache.parquet.schema.LogicalTypeAnnotation;
import org.apache.parquet.schema.Type;

/** A file's schema as JSON for the helper: name, kind, LIST, MAP or VARIANT annotation, repetition and children of every field. */
final class SchemaJson {
  private static final int MAX_DEPTH = 256;
  private static final String VARIANT = "VARIANT";

  private SchemaJson() {}

  /** Adds a field; returns its children, to be added to. */
  static ArrayNode addField(ArrayNode fields, String name, String annotation, String repetition, boolean isLeaf) {
    return fields
        .addObject()
        .put("name", name)
        .put("kind", isLeaf ? "leaf" : "group")
        .put("annotation", annotation)
        .put("repetition", repetition)
        .putArray("children");
  }

  static void addFields(ArrayNode fields, GroupType group) {
    for (Type type : group.getFields()) {
      String repetition = type.getRepetition().name().toLowerCase(Locale.ROOT);
      ArrayNode children =
          addField(fields, type.getName(), annotation(type.getLogicalTypeAnnotation()), repetition, type.isPrimitive());
      if (!type.isPrimitive()) {
        addFields(children, type.asGroupType());
      }
    }
  }

  /** Adds the fields of a footer's schema; returns whether its elements are a tree that is not nested too deeply. */
  static boolean addFields(ArrayNode fields, List<SchemaElement> schema) {
    Iterator<SchemaElement> elements = schema.iterator();
    return elements.hasNext() && addChildren(fields, elements.next(), elements, 0) && !elements.hasNext();
  }

  private static boolean addChildren(ArrayNode fields, SchemaElement group, Iterator<SchemaElement> elements, int depth) {
    for (int i = 0; i < group.getNum_children(); i++) {
      if (depth > MAX_DEPTH || !elements.hasNext()) {
        return false;
      }
      SchemaElement element = elements.next();
      if (element.getRepetition_type() == null) {
        return false;
      }
      String repetition = element.getRepetition_type().name().toLowerCase(Locale.ROOT);
      ArrayNode children = addField(fields, element.getName(), annotation(element), repetition, element.isSetType());
      if (!element.isSetType() && !addChildren(children, element, elements, depth + 1)) {
        return false;
      }
    }
    return true;
  }

  /** Returns the annotation that parquet-mr reads: the older of two that differ. */
  private static String annotation(SchemaElement element) {
    if (element.isSetConverted_type()) {
      ConvertedType converted = element.getConverted_type();
      boolean isNested =
          converted == ConvertedType.LIST || converted == ConvertedType.MAP || converted == ConvertedType.MAP_KEY_VALUE;
      return isNested ? converted.name() : null;
    }
    LogicalType logical = element.getLogicalType();
    String name = logical == null || logical.getSetField() == null ? "" : logical.getSetField().name(); // 3.5 knows no VARIANT
    return name.equals("LIST") || name.equals("MAP") || name.equals(VARIANT) ? name : null;
  }

  private static String annotation(LogicalTypeAnnotation annotation) {
    if (annotation instanceof LogicalTypeAnnotation.ListLogicalTypeAnnotation) {
      return "LIST";
    }
    if (annotation instanceof LogicalTypeAnnotation.MapLogicalTypeAnnotation) {
      return "MAP";
    }
    if (annotation instanceof LogicalTypeAnnotation.MapKeyValueTypeAnnotation) {
      return "MAP_KEY_VALUE";
    }
    return annotation != null && annotation.toString().startsWith(VARIANT) ? VARIANT : null;
  }
}

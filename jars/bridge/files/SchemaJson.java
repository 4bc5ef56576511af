package io.sparkcrypt;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Locale;
import org.apache.parquet.schema.GroupType;
import org.apache.parquet.schema.LogicalTypeAnnotation;
import org.apache.parquet.schema.Type;

/** A file's schema as JSON for the helper: name, kind, LIST or MAP annotation, repetition and children of every field. */
final class SchemaJson {
  private SchemaJson() {}

  static void addFields(ArrayNode fields, GroupType group) {
    for (Type type : group.getFields()) {
      ObjectNode field =
          fields
              .addObject()
              .put("name", type.getName())
              .put("kind", type.isPrimitive() ? "leaf" : "group")
              .put("annotation", annotation(type.getLogicalTypeAnnotation()))
              .put("repetition", type.getRepetition().name().toLowerCase(Locale.ROOT));
      ArrayNode children = field.putArray("children");
      if (!type.isPrimitive()) {
        addFields(children, type.asGroupType());
      }
    }
  }

  private static String annotation(LogicalTypeAnnotation annotation) {
    if (annotation instanceof LogicalTypeAnnotation.ListLogicalTypeAnnotation) {
      return "LIST";
    }
    if (annotation instanceof LogicalTypeAnnotation.MapLogicalTypeAnnotation) {
      return "MAP";
    }
    return annotation instanceof LogicalTypeAnnotation.MapKeyValueTypeAnnotation ? "MAP_KEY_VALUE" : null;
  }
}

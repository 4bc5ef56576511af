package io.sparkcrypt;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.ArrayTransform;
import org.apache.spark.sql.catalyst.expressions.CreateNamedStruct;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.If;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.TransformValues;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/**
 * The denied leaves below one column, as a tree of logical names, and the column with nulls in their places.
 *
 * <p>A value without any allowed leaf is null as a whole; so is a map whose keys are denied, since keys cannot be null, and a
 * value whose leaves are no fields of its type: a VARIANT, or a type of the user.
 */
final class DeniedLeaves {
  private static final String ELEMENT = "element";
  private static final String KEY = "key";
  private static final String VALUE = "value";

  private final Map<String, DeniedLeaves> below = new LinkedHashMap<>();
  private String why;

  /** Adds a leaf by its names below this node. */
  void add(List<String> names, String reason) {
    if (names.isEmpty()) {
      why = reason;
    } else {
      below.computeIfAbsent(names.get(0), unused -> new DeniedLeaves()).add(names.subList(1, names.size()), reason);
    }
  }

  /** Returns why the first of these leaves is denied, for a column that is null as a whole. */
  String why() {
    return why != null ? why : below.values().iterator().next().why();
  }

  /** Returns the type without the denied leaves, as it is read from files; null if nothing is left. */
  DataType readableType(DataType type) {
    if (why != null) {
      return null;
    }
    List<StructField> left = new ArrayList<>();
    for (StructField part : FieldTags.parts(type)) {
      DataType readable = readableType(part.name(), part.dataType());
      if (readable != null) {
        left.add(new StructField(part.name(), readable, part.nullable(), part.metadata()));
      }
    }
    boolean isWhole = type instanceof StructType || left.size() == FieldTags.parts(type).size() && !below.containsKey(KEY);
    return isWhole && !left.isEmpty() ? FieldTags.withParts(type, left) : null;
  }

  private DataType readableType(String name, DataType type) {
    DeniedLeaves denied = below.get(name);
    return denied == null ? type : denied.readableType(type);
  }

  /**
   * Returns an expression of a column with nulls for the denied leaves.
   *
   * @param read the column as it is read, of the type found
   * @param type the column's resulting type
   * @param found the type that is read: {@code readableType(type)}, or the type itself
   */
  Expression mask(Expression read, DataType type, DataType found) {
    if (readableType(type) == null) {
      return new Literal(null, type);
    }
    if (type instanceof StructType struct) {
      Expression made = Calls.make(CreateNamedStruct.class, Calls.scalaList(fields(read, struct, (StructType) found)));
      return new If(new IsNull(read), new Literal(null, made.dataType()), made);
    }
    if (type instanceof ArrayType array) {
      ArrayType kept = (ArrayType) found;
      Expression element = Trees.variable("x", kept.elementType(), kept.containsNull());
      DeniedLeaves denied = below.get(ELEMENT);
      return new ArrayTransform(read, Trees.lambda(denied.mask(element, array.elementType(), kept.elementType()), List.of(element)));
    }
    MapType map = (MapType) type;
    MapType kept = (MapType) found;
    Expression key = Trees.variable("k", kept.keyType(), false);
    Expression value = Trees.variable("v", kept.valueType(), kept.valueContainsNull());
    DeniedLeaves denied = below.get(VALUE);
    return new TransformValues(read, Trees.lambda(denied.mask(value, map.valueType(), kept.valueType()), List.of(key, value)));
  }

  private List<Object> fields(Expression read, StructType struct, StructType found) {
    List<Object> made = new ArrayList<>();
    for (StructField field : struct.fields()) {
      DeniedLeaves denied = below.get(field.name());
      Metadata metadata = field.metadata();
      Expression value;
      if (denied != null && denied.readableType(field.dataType()) == null) {
        value = new Literal(null, field.dataType());
        metadata = MaskedColumn.mark(metadata, denied.why());
      } else {
        int ordinal = found.fieldIndex(field.name());
        value = new GetStructField(read, ordinal, Option.apply(field.name()));
        value = denied == null ? value : denied.mask(value, field.dataType(), found.fields()[ordinal].dataType());
      }
      made.add(Trees.text(field.name()));
      made.add(Trees.alias(value, field.name(), metadata, null));
    }
    return made;
  }
}

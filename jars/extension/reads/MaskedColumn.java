package io.sparkcrypt;

import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * A column that is null, or has null fields, because a key is denied or missing.
 *
 * @param name its name in its table
 * @param table the table, or null if it is not known
 * @param reason why it is null as a whole, or null if it is not
 * @param type its type; the metadata of null fields contain the reason
 */
record MaskedColumn(String name, String table, String reason, DataType type) {
  /** Returns a column by its own metadata. */
  static MaskedColumn of(NamedExpression column, LogicalPlan table) {
    String owner = table == null ? null : ReadTable.nameOf(table);
    return new MaskedColumn(column.name(), owner, MaskMark.reasonIn(column.metadata().json()), ((Expression) column).dataType());
  }

  static boolean isMasked(NamedExpression column) {
    return column.metadata().contains(MaskMark.REASON) || ((Expression) column).dataType().json().contains(MaskMark.REASON);
  }

  /** Returns why the value at the end of these steps is null, or null if it is not; a struct with null fields is not. */
  String reasonAt(List<ColumnPath.Step> steps) {
    DataType at = type;
    String found = reason;
    for (ColumnPath.Step step : steps) {
      if (found != null || at == null) {
        return found;
      }
      StructField field = fieldAt(at, step);
      found = field == null ? null : MaskMark.reasonIn(field.metadata().json());
      at = step.isField() ? (field == null ? null : field.dataType()) : elementOf(at);
    }
    return found;
  }

  /** Returns whether the value at the end of these steps has null fields; also if the steps do not fit the column's type. */
  boolean hasMaskedAt(List<ColumnPath.Step> steps) {
    DataType at = type;
    for (ColumnPath.Step step : steps) {
      StructField field = fieldAt(at, step);
      if (step.isField() && field == null) {
        break;
      }
      at = step.isField() ? field.dataType() : elementOf(at);
    }
    return at.json().contains(MaskMark.REASON);
  }

  private static StructField fieldAt(DataType type, ColumnPath.Step step) {
    boolean isThere = step.isField() && elementOf(type) instanceof StructType struct && step.ordinal() < struct.length();
    return isThere ? ((StructType) elementOf(type)).fields()[step.ordinal()] : null;
  }

  private static DataType elementOf(DataType type) {
    return type instanceof ArrayType array ? array.elementType() : type instanceof MapType map ? map.valueType() : type;
  }
}

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
      if (at instanceof ArrayType array) {
        at = array.elementType();
      } else if (at instanceof MapType map) {
        at = map.valueType();
      }
      if (step.isField()) {
        StructField field = at instanceof StructType struct && step.ordinal() < struct.length() ? struct.fields()[step.ordinal()] : null;
        found = field == null ? null : MaskMark.reasonIn(field.metadata().json());
        at = field == null ? null : field.dataType();
      }
    }
    return found;
  }
}

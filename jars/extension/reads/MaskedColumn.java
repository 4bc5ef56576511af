package io.sparkcrypt;

import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.MetadataBuilder;
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
  /** A tag that no policy defines, so that no write stores the nulls as data. */
  private static final String TAG = "!masked";
  /** The name of the reason in metadata. */
  private static final String REASON = "sparkcrypt.masked";

  /** Returns metadata with the mark of a masked column: the tag, and the reason. */
  static Metadata mark(Metadata metadata, String reason) {
    Set<String> tags = new LinkedHashSet<>(FieldTags.of(metadata));
    tags.add(TAG);
    return new MetadataBuilder().withMetadata(FieldTags.with(metadata, tags)).putString(REASON, reason).build();
  }

  private static String reasonIn(Metadata metadata) {
    return metadata.contains(REASON) ? metadata.getString(REASON) : null;
  }

  /** Returns a column by its own metadata. */
  static MaskedColumn of(NamedExpression column, LogicalPlan table) {
    String owner = table == null ? null : ReadTable.nameOf(table);
    return new MaskedColumn(column.name(), owner, reasonIn(column.metadata()), ((Expression) column).dataType());
  }

  static boolean isMasked(NamedExpression column) {
    return isNull(column) || ((Expression) column).dataType().json().contains(REASON);
  }

  /** Returns whether a column is null as a whole, by its metadata. */
  static boolean isNull(NamedExpression column) {
    return column.metadata().contains(REASON);
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
      found = field == null ? null : reasonIn(field.metadata());
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
    return at.json().contains(REASON);
  }

  private static StructField fieldAt(DataType type, ColumnPath.Step step) {
    boolean isThere = step.isField() && elementOf(type) instanceof StructType struct && step.ordinal() < struct.length();
    return isThere ? ((StructType) elementOf(type)).fields()[step.ordinal()] : null;
  }

  private static DataType elementOf(DataType type) {
    return type instanceof ArrayType array ? array.elementType() : type instanceof MapType map ? map.valueType() : type;
  }
}

package io.sparkcrypt;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.V2CreateTableAsSelectPlan;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** Commands that write the rows of a query, and the same commands with the tags of its columns in the columns' metadata. */
final class WriteQueries {
  private static final Set<String> NAMES =
      Set.of(
          "InsertIntoHadoopFsRelationCommand",
          "InsertIntoHiveTable",
          "InsertIntoHiveDirCommand",
          "InsertIntoDataSourceCommand",
          "InsertIntoDataSourceDirCommand",
          "CreateDataSourceTableAsSelectCommand",
          "CreateHiveTableAsSelectCommand",
          "OptimizedCreateHiveTableAsSelectCommand",
          "SaveIntoDataSourceCommand",
          "WriteToMicroBatchDataSource",
          "WriteToMicroBatchDataSourceV1",
          "WriteToContinuousDataSource");
  /** Commands that contain columns of their query besides it. */
  private static final Set<String> PARTITIONED = Set.of("InsertIntoHadoopFsRelationCommand", "InsertIntoHiveTable");

  /** Commands that create a table, and the names of its description in them. */
  private static final Map<String, String> CREATING =
      Map.of(
          "CreateDataSourceTableAsSelectCommand", "table",
          "CreateHiveTableAsSelectCommand", "tableDesc",
          "OptimizedCreateHiveTableAsSelectCommand", "tableDesc");

  private WriteQueries() {}

  /** Returns the query whose rows a command writes; null for any other node. */
  static LogicalPlan query(LogicalPlan node) {
    boolean writes = isOfVersion2(node) || NAMES.contains(node.getClass().getSimpleName());
    return writes ? (LogicalPlan) Calls.call(node, "query") : null;
  }

  /**
   * Returns whether a node writes into a table of version 2: rows of a query, or the rows that UPDATE, DELETE or MERGE leave of
   * it.
   */
  static boolean isOfVersion2(LogicalPlan node) {
    return node instanceof V2WriteCommand || node instanceof V2CreateTableAsSelectPlan;
  }

  /** Returns the description of the table that a command creates; null if it creates none. */
  static CatalogTable createdTable(LogicalPlan command) {
    String described = CREATING.get(command.getClass().getSimpleName());
    return described == null ? null : (CatalogTable) Calls.call(command, described);
  }

  /** Returns whether a command that creates a table takes the place of one that is there. */
  static boolean overwrites(LogicalPlan command) {
    return Calls.call(command, "mode").toString().equals("Overwrite");
  }

  /** Returns the columns of the table that a command makes of a query. */
  static StructType createdColumns(LogicalPlan command) {
    List<String> names = Calls.list(Calls.call(command, "outputColumnNames"));
    StructField[] fields = query(command).schema().fields().clone();
    for (int i = 0; i < fields.length; i++) {
      fields[i] = new StructField(names.get(i), fields[i].dataType(), fields[i].nullable(), fields[i].metadata());
    }
    return new StructType(fields);
  }

  /**
   * Returns a command whose query's columns carry all of their tags, and their lineage.
   *
   * @param lacking the columns whose tags the table that is written to lacks, and these tags
   * @param kept the metadata of columns that are not written with all that they have
   */
  static LogicalPlan addTags(
      LogicalPlan command, LogicalPlan query, PlanTags tags, Map<String, Set<String>> lacking, Map<String, Metadata> kept) {
    Map<ExprId, Attribute> renamed = new HashMap<>();
    LogicalPlan wrapped = wrap(query, tags, lacking, kept, renamed);
    if (wrapped == query) {
      return command;
    }
    Object[] values = Calls.values(command, query, wrapped);
    CatalogTable table = createdTable(command);
    if (table != null) {
      replace(values, table, TableEntry.withTags(table, tagsByName(query, tags)));
    }
    if (PARTITIONED.contains(command.getClass().getSimpleName())) {
      Object partitions = Calls.call(command, "partitionColumns");
      replace(values, partitions, rename(partitions, renamed));
    }
    return command.makeCopy(values);
  }

  /**
   * Gives every column with tags a new id. With the old ids the optimizer would drop the projection, and the tags with it; it
   * also makes columns with the old ids without metadata, such as those of dropDuplicates.
   */
  private static LogicalPlan wrap(
      LogicalPlan query,
      PlanTags tags,
      Map<String, Set<String>> lacking,
      Map<String, Metadata> kept,
      Map<ExprId, Attribute> renamed) {
    List<Object> columns = new ArrayList<>();
    Set<Carried.Origin> conditions = tags.conditions();
    for (Attribute column : Trees.output(query)) {
      Carried all = tags.of(column);
      Metadata lineage = Lineage.of(all, conditions, lacking.getOrDefault(column.name(), Set.of()));
      conditions = Set.of(); // they are of all columns, and stored with the first
      Metadata own = kept.getOrDefault(column.name(), column.metadata());
      Metadata metadata = Lineage.with(FieldTags.with(own, all.tags()), lineage);
      if (all.tags().isEmpty() && metadata.equals(column.metadata())) {
        columns.add(column);
      } else {
        // An alias with the metadata of its column would be redundant to the optimizer.
        Alias alias = Trees.alias(column.withMetadata(Metadata.empty()), column.name(), metadata, null);
        renamed.put(column.exprId(), alias.toAttribute());
        columns.add(alias);
      }
    }
    return renamed.isEmpty() ? query : Trees.project(columns, query);
  }

  /**
   * Returns a query whose columns carry all of their tags, under the same ids; the same query if they do already.
   *
   * <p>A projection stays the top of its query: Spark accepts only a projection as the body of a function in SQL.
   */
  static LogicalPlan showTags(LogicalPlan query, PlanTags tags) {
    List<Expression> made = query instanceof Project ? Trees.expressions(query, "projectList") : null;
    List<Object> columns = new ArrayList<>();
    boolean changed = false;
    for (Attribute column : Trees.output(query)) {
      Set<String> all = tags.of(column).tags();
      boolean carries = FieldTags.of(column.metadata()).containsAll(all);
      changed |= !carries;
      Expression of = made == null ? column : made.get(columns.size());
      columns.add(carries ? of : withMetadata(of, FieldTags.with(column.metadata(), all)));
    }
    return !changed ? query : Trees.project(columns, made == null ? query : ((Project) query).child());
  }

  private static Expression withMetadata(Expression column, Metadata metadata) {
    return column instanceof Alias alias
        ? Trees.alias(alias.child(), alias.name(), alias.exprId(), metadata, null)
        : ((Attribute) column).withMetadata(metadata);
  }

  private static Map<String, Set<String>> tagsByName(LogicalPlan query, PlanTags tags) {
    Map<String, Set<String>> found = new LinkedHashMap<>();
    Trees.output(query).forEach(column -> found.put(column.name(), tags.of(column).tags()));
    found.values().removeIf(Set::isEmpty);
    return found;
  }

  private static void replace(Object[] values, Object old, Object replacement) {
    for (int i = 0; i < values.length; i++) {
      values[i] = values[i] == old ? replacement : values[i];
    }
  }

  private static Object rename(Object columns, Map<ExprId, Attribute> renamed) {
    List<Expression> found = Calls.list(columns);
    found.replaceAll(column -> column instanceof Attribute old ? renamed.getOrDefault(old.exprId(), old) : column);
    return Calls.scalaList(found);
  }
}

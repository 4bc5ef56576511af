package io.sparkcrypt;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Alias$;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.V2CreateTableAsSelectPlan;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.types.Metadata;

/** Commands that write the rows of a query, and the same with the tags of its columns in the columns' metadata. */
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
  /** Those that hold columns of their query besides it. */
  private static final Set<String> PARTITIONED = Set.of("InsertIntoHadoopFsRelationCommand", "InsertIntoHiveTable");

  /** Those that make a table, and what they call its description. */
  private static final Map<String, String> CREATING =
      Map.of(
          "CreateDataSourceTableAsSelectCommand", "table",
          "CreateHiveTableAsSelectCommand", "tableDesc",
          "OptimizedCreateHiveTableAsSelectCommand", "tableDesc");

  private WriteQueries() {}

  /** The query whose rows a command writes; null for any other node. */
  static LogicalPlan query(LogicalPlan node) {
    boolean writes = isOfVersion2(node) || NAMES.contains(node.getClass().getSimpleName());
    return writes ? (LogicalPlan) Calls.call(node, "query") : null;
  }

  /** Whether a node writes into a table of version 2: rows of a query, or the rows that UPDATE, DELETE or MERGE leave of it. */
  static boolean isOfVersion2(LogicalPlan node) {
    return node instanceof V2WriteCommand || node instanceof V2CreateTableAsSelectPlan;
  }

  /** The description of the table that a command makes; null for one that makes none. */
  static Object made(LogicalPlan command) {
    String described = CREATING.get(command.getClass().getSimpleName());
    return described == null ? null : Calls.call(command, described);
  }

  /**
   * A command whose query's columns carry all of their tags, and where they come from.
   *
   * @param lacking the columns whose tags the table that is written to lacks, and these tags
   */
  static LogicalPlan tagged(LogicalPlan command, LogicalPlan query, PlanTags tags, Map<String, Set<String>> lacking) {
    Map<ExprId, Attribute> renamed = new HashMap<>();
    LogicalPlan wrapped = wrapped(query, tags, lacking, renamed);
    if (wrapped == query) {
      return command;
    }
    Object[] values = Calls.values(command, query, wrapped);
    Object table = made(command);
    if (table != null) {
      replace(values, table, TableEntry.withTags(table, tagsByName(query, tags)));
    }
    if (PARTITIONED.contains(command.getClass().getSimpleName())) {
      Object partitions = Calls.call(command, "partitionColumns");
      replace(values, partitions, renamed(partitions, renamed));
    }
    return command.makeCopy(values);
  }

  /**
   * Every column with tags gets a new id. With the old ones the optimizer would drop the projection, and the tags with it; and it
   * makes columns of the old ids without metadata, such as those of dropDuplicates.
   */
  private static LogicalPlan wrapped(
      LogicalPlan query, PlanTags tags, Map<String, Set<String>> lacking, Map<ExprId, Attribute> renamed) {
    List<Object> columns = new ArrayList<>();
    Set<Carried.Origin> conditions = tags.conditions();
    for (Attribute column : Trees.output(query)) {
      Carried all = tags.of(column);
      Metadata lineage = Lineage.of(all, conditions, lacking.getOrDefault(column.name(), Set.of()));
      conditions = Set.of(); // they are of all columns, and stand at the first
      Metadata metadata = Lineage.with(FieldTags.with(column.metadata(), all.tags()), lineage);
      if (all.tags().isEmpty() && metadata.equals(column.metadata())) {
        columns.add(column);
      } else {
        // An alias with the metadata of its column would be taken for redundant.
        NamedExpression alias = alias(column.withMetadata(Metadata.empty()), column.name(), NamedExpression.newExprId(), metadata);
        renamed.put(column.exprId(), alias.toAttribute());
        columns.add(alias);
      }
    }
    return renamed.isEmpty() ? query : project(columns, query);
  }

  /**
   * A query whose columns carry all of their tags, under the same ids; the same one where they do.
   *
   * <p>A projection stays the top of its query: Spark takes the body of a function in SQL for one, and no other.
   */
  static LogicalPlan shown(LogicalPlan query, PlanTags tags) {
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
    return !changed ? query : project(columns, made == null ? query : ((Project) query).child());
  }

  private static Expression withMetadata(Expression column, Metadata metadata) {
    return column instanceof Alias alias
        ? (Expression) alias(alias.child(), alias.name(), alias.exprId(), metadata)
        : ((Attribute) column).withMetadata(metadata);
  }

  private static NamedExpression alias(Expression value, String name, ExprId id, Metadata metadata) {
    Object none = Calls.scalaList(List.of());
    return (NamedExpression) Calls.call(Alias$.MODULE$, "apply", value, name, id, none, Calls.some(metadata), none);
  }

  private static LogicalPlan project(List<Object> columns, LogicalPlan child) {
    return (LogicalPlan) Calls.make(Project.class, Calls.scalaList(columns), child);
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

  private static Object renamed(Object columns, Map<ExprId, Attribute> renamed) {
    List<Object> found = new ArrayList<>();
    for (Expression column : Trees.elements(Expression.class, columns)) {
      Attribute other = column instanceof Attribute ? renamed.get(((Attribute) column).exprId()) : null;
      found.add(other == null ? column : other);
    }
    return Calls.scalaList(found);
  }
}

package io.sparkcrypt;

import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.plans.logical.Command;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.types.StructType;

/**
 * A guard that refuses writes of tagged columns into table formats that ignore tags.
 *
 * <p>Tags are lost on the way to these formats' file writers (an append by a DataFrame has its own schema, not the table's), and
 * their logs contain minimum and maximum of columns. The tags of the written data and of the target are therefore judged here.
 */
record FormatGuard(SparkSession session, SessionPolicy policy) {
  private static final String SAVE = "org.apache.spark.sql.execution.datasources.SaveIntoDataSourceCommand";
  private static final String CONVERT = "ConvertToDeltaCommand";
  private static final String STREAMED = "WriteToMicroBatchDataSource";
  /** The most levels of tables that wrap another, like those of UPDATE, DELETE and MERGE. */
  private static final int DEEPEST = 8;

  /** Members of nodes with the query, frame or table whose columns are written, or written to. */
  private static final String[] HOLDERS = {"query", "table", "target", "data"};

  /** Statements that Spark rewrites if it can, and that a format may plan itself. */
  private static final Set<String> OF_ROWS = Set.of("MergeIntoTable", "UpdateTable");

  boolean isJudged(LogicalPlan node) {
    String name = node.getClass().getName();
    return name.equals(SAVE)
        || node.getClass().getSimpleName().equals(STREAMED)
        || WriteQueries.isOfVersion2(node)
        || OF_ROWS.contains(node.getClass().getSimpleName())
        || node.getClass().getSimpleName().matches(".*(Command|WriteIntoDelta)") && TableFormats.ofClass(name) != null;
  }

  void check(LogicalPlan node) {
    String format = formatOf(node);
    if (format == null) {
      return;
    }
    Set<String> schemas = new LinkedHashSet<>();
    for (String holder : HOLDERS) {
      addSchema(schemas, Calls.callIfPresent(node, holder));
    }
    if (WriteQueries.query(node) == null) { // its columns carry their tags already
      addFollowed(schemas, node);
    }
    addStored(schemas, node, format);
    addConverted(schemas, node);
    WriteRequest request = new WriteRequest(policy, null, Map.of(), new StructType());
    schemas.forEach(request.add("format").put("format", format).putArray("schemas")::add);
    request.ask();
  }

  private static String formatOf(LogicalPlan node) {
    String own = TableFormats.ofClass(node.getClass().getName());
    if (own != null) {
      return own;
    }
    Object source = Calls.callIfPresent(node, "dataSource");
    if (source != null) {
      return TableFormats.ofClass(source.getClass().getName());
    }
    Object spec = Calls.callIfPresent(node, "tableSpec");
    Object provider = spec == null ? null : Calls.orNull(Calls.call(spec, "provider"));
    if (provider != null) {
      return TableFormats.ofProvider((String) provider);
    }
    String holder = spec != null ? "name" : node instanceof MergeIntoTable ? "targetTable" : "table";
    Object relation = Calls.callIfPresent(node, holder);
    return relation == null ? null : formatOfTable(Calls.callIfPresent(withoutAlias(relation), spec == null ? "table" : "catalog"));
  }

  static Object withoutAlias(Object relation) {
    return relation instanceof SubqueryAlias alias ? withoutAlias(alias.child()) : relation;
  }

  private static String formatOfTable(Object table) {
    Object at = table;
    for (int i = 0; at != null && i < DEEPEST; i++) {
      String format = TableFormats.ofClass(at.getClass().getName());
      if (format != null) {
        return format;
      }
      at = Calls.callIfPresent(at, "table");
    }
    return null;
  }

  /** Adds the plans that a command reads, with all tags of their columns: only its format determines what is written of them. */
  private void addFollowed(Set<String> schemas, Object command) {
    for (Object held : Calls.values(command, null, null)) {
      Object frame = held == null ? null : Calls.callIfPresent(held, "queryExecution");
      Object inner = frame instanceof QueryExecution execution ? execution.analyzed() : held;
      if (inner instanceof Command || inner instanceof scala.Option) {
        addFollowed(schemas, inner);
      } else if (inner instanceof LogicalPlan plan) {
        addPlan(schemas, plan);
      }
    }
    if (command instanceof LogicalPlan) {
      Trees.elements(LogicalPlan.class, Calls.call(command, "subqueries")).forEach(subquery -> addPlan(schemas, subquery));
    }
  }

  private void addPlan(Set<String> schemas, LogicalPlan plan) {
    PlanTags tags = new PlanTags(new TableTags(session, policy, true), policy.safeAggregates());
    tags.visit(plan);
    addSchema(schemas, WriteQueries.showTags(plan, tags));
  }

  private static void addSchema(Set<String> schemas, Object held) {
    if (held != null && Calls.callIfPresent(held, "schema") instanceof StructType schema) {
      schemas.add(schema.json());
    }
  }

  /** Adds the schema of data that is written by path, which only the format's own reader can return. */
  private void addStored(Set<String> schemas, LogicalPlan node, String format) {
    Object options = Calls.callIfPresent(node, "options");
    Object path = options == null ? null : Calls.orNull(Calls.call(options, "get", "path"));
    if (path == null) {
      return;
    }
    try {
      Object reader = Calls.call(Calls.call(session, "read"), "format", format.toLowerCase(java.util.Locale.ROOT));
      addSchema(schemas, Calls.call(reader, "load", path.toString()));
    } catch (IllegalStateException e) {
      // There is no data yet, or none that the format can read, so there are no tags.
    }
  }

  /** Adds the table that CONVERT TO DELTA names, or the folder (parquet.`…`): the bounds of its columns are put into the log. */
  private void addConverted(Set<String> schemas, LogicalPlan node) {
    if (node.getClass().getSimpleName().equals(CONVERT) && Calls.callIfPresent(node, "tableIdentifier") instanceof TableIdentifier named) {
      addPlan(schemas, session.table(named.quotedString()).queryExecution().analyzed());
    }
  }
}

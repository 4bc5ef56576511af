package io.sparkcrypt;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.reflect.Method;
import java.util.LinkedHashSet;
import java.util.Set;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.types.StructType;

/**
 * Refuses writes of tagged columns into table formats that do not go by tags.
 *
 * <p>They lose tags on the way to the writer of a file (an append by a DataFrame has its own schema, not the table's), and their
 * logs hold minimum and maximum of columns. So the tags of what is written and of what is written to are looked at here.
 */
final class FormatGuard {
  private static final String LOGICAL = "org.apache.spark.sql.catalyst.plans.logical.";
  private static final String SAVE = "org.apache.spark.sql.execution.datasources.SaveIntoDataSourceCommand";
  private static final Set<String> OF_VERSION_2 =
      Set.of(
          "AppendData",
          "OverwriteByExpression",
          "OverwritePartitionsDynamic",
          "CreateTableAsSelect",
          "ReplaceTableAsSelect",
          "ReplaceData",
          "WriteDelta",
          "MergeIntoTable");
  /** Where nodes keep the plans, frames and tables whose columns they write, or write to. */
  private static final String[] HOLDERS = {"query", "table", "source", "target", "sourceTable", "targetTable", "data"};

  private final SparkSession session;
  private final SessionPolicy policy;

  FormatGuard(SparkSession session, SessionPolicy policy) {
    this.session = session;
    this.policy = policy;
  }

  boolean isJudged(LogicalPlan node) {
    String name = node.getClass().getName();
    return name.equals(SAVE)
        || name.startsWith(LOGICAL) && OF_VERSION_2.contains(node.getClass().getSimpleName())
        || node.getClass().getSimpleName().matches(".*(Command|WriteIntoDelta)") && TableFormats.ofClass(name) != null;
  }

  void check(LogicalPlan node) {
    String format = formatOf(node);
    if (format == null) {
      return;
    }
    Set<String> schemas = new LinkedHashSet<>();
    for (String holder : HOLDERS) {
      addSchema(schemas, held(node, holder));
    }
    addStored(schemas, node, format);
    ObjectNode request = policy.request("check_format", "/").put("format", format);
    ArrayNode told = request.putArray("schemas");
    schemas.forEach(told::add);
    Helper.ask(request);
  }

  private static String formatOf(LogicalPlan node) {
    String own = TableFormats.ofClass(node.getClass().getName());
    if (own != null) {
      return own;
    }
    Object source = held(node, "dataSource");
    if (source != null) {
      return TableFormats.ofClass(source.getClass().getName());
    }
    Object spec = held(node, "tableSpec");
    Object provider = spec == null ? null : Calls.orNull(Calls.call(spec, "provider"));
    if (provider != null) {
      return TableFormats.ofProvider((String) provider);
    }
    boolean merges = node.getClass().getSimpleName().equals("MergeIntoTable");
    Object relation = held(node, spec != null ? "name" : merges ? "targetTable" : "table");
    Object inner = relation == null ? null : held(relation, spec != null ? "catalog" : "table");
    return inner == null ? null : TableFormats.ofClass(inner.getClass().getName());
  }

  private static void addSchema(Set<String> schemas, Object held) {
    Object schema = held == null ? null : held(held, "schema");
    if (schema instanceof StructType) {
      schemas.add(((StructType) schema).json());
    }
  }

  /** What is written by path has a schema that only the format's own reader knows. */
  private void addStored(Set<String> schemas, LogicalPlan node, String format) {
    Object options = held(node, "options");
    Object path = options == null ? null : Calls.orNull(Calls.call(options, "get", "path"));
    if (path == null) {
      return;
    }
    try {
      Object reader = Calls.call(Calls.call(session, "read"), "format", format.toLowerCase(java.util.Locale.ROOT));
      addSchema(schemas, Calls.call(reader, "load", path.toString()));
    } catch (IllegalStateException e) {
      // There is nothing yet, or nothing that the format can read, so nothing that has tags.
    }
  }

  private static Object held(Object node, String name) {
    for (Method method : node.getClass().getMethods()) {
      if (method.getName().equals(name) && method.getParameterCount() == 0) {
        return Calls.call(node, name);
      }
    }
    return null;
  }
}

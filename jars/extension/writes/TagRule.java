package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.StackWalker.StackFrame;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.TreeMap;
import org.apache.parquet.crypto.ParquetCryptoRuntimeException;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.Command;
import org.apache.spark.sql.catalyst.plans.logical.DeserializeToObject;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructType;

/**
 * A rule that makes tags follow data: each column that is written carries the tags of all columns that its values come from.
 *
 * <p>It runs when a plan is resolved. The tags are added to the column metadata of a write's query, which the writer of a file
 * and the catalog read; and to that of every other query, so that a frame's schema shows them and a checkpoint keeps them.
 */
final class TagRule extends Rule<LogicalPlan> {
  private static final String EXPLAIN = "org.apache.spark.sql.execution.command.ExplainCommand";
  /** Methods that collect values for names: the first in Spark 3.5, where the second is missing. */
  private static final List<String> PIVOTS = List.of("pivot", "collectPivotValues");

  private final SparkSession session;

  TagRule(SparkSession session) {
    this.session = session;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    SessionPolicy policy = SessionPolicy.of(session);
    if (policy == null || !plan.resolved()) {
      return plan;
    }
    EarlierTables.of(session); // before the first DROP
    try {
      PlaceGuard.check(session, policy, plan);
      if (plan.isStreaming()) {
        new FormerHomes(new KnownTables(session, policy)).refuseStream(plan, policy.hadoopConf());
      }
      return addTags(plan, policy);
    } catch (ParquetCryptoRuntimeException e) {
      throw e;
    } catch (RuntimeException | LinkageError e) {
      throw Refusal.of(
          "BridgeError",
          "the tags of this query's columns could not be followed, so it is not run: " + e + "; see that the jar belongs to this "
              + "version of Spark (3.5 or 4.x), and report the query",
          e);
    }
  }

  private LogicalPlan addTags(LogicalPlan given, SessionPolicy policy) {
    if (given instanceof DeserializeToObject) {
      return given; // rows that leave the plan; a Scala encoder expects this node at the top
    }
    boolean creates = WriteQueries.createdTable(given) != null;
    LogicalPlan plan = creates ? new SucceedingTables(session, new KnownTables(session, policy)).complete(given) : given;
    if (plan instanceof Union && Trees.children(plan).stream().allMatch(child -> child instanceof Command)) {
      return taggedEach(plan, policy);
    }
    LogicalPlan query = WriteQueries.query(plan);
    boolean assigns = VariableRule.isAssigned(plan);
    if (query == null && !assigns && plan instanceof Command) {
      return AnalyzedColumns.withoutEncrypted(session, plan);
    }
    TableTags tables = new TableTags(session, policy, query != null);
    PlanTags tags = new PlanTags(tables, policy.safeAggregates());
    if (assigns) {
      VariableRule.note(session, plan, tags);
      DeclassifyGuard.check(session, policy, tags.declassifiedValues(), true);
      return plan;
    }
    tags.visit(query != null ? query : plan);
    addDescribed(plan, tags, tables);
    if (!tags.anyTags()) {
      return plan;
    }
    DeclassifyGuard.check(session, policy, tags.declassifiedValues(), query != null);
    if (query == null) {
      LogicalPlan shown = WriteQueries.showTags(plan, tags);
      refuseNaming(policy, shown.schema());
      return shown;
    }
    WriteTarget target = WriteTarget.of(policy, plan, new KnownTables(session, policy));
    WriteRequest request = new WriteRequest(policy, target.folder(), target.properties(), WriteQueries.showTags(query, tags).schema());
    JsonNode answer = ask(request, target, tables, findLost(query, tags), optionsOf(plan));
    Map<String, Metadata> kept = new LinkedHashMap<>();
    answer.path("written").path("metadata").properties().forEach(of -> kept.put(of.getKey(), Metadata.fromJson(of.getValue().asText())));
    return WriteQueries.addTags(plan, query, tags, lacking(answer.path("inherited"), target.table()), kept);
  }

  /** Asks for all that the policy says of a write whose rows are resolved. */
  private static JsonNode ask(WriteRequest request, WriteTarget target, TableTags read, ArrayNode lost, Map<String, String> options) {
    ObjectNode shared = Wire.object();
    read.names.forEach(shared.putArray("sources")::add);
    if (target.table() != null) {
      shared.put("table_schema", target.table().schema().json());
    }
    if (target.sink() != null && request.hasTags()) {
      request.add("sink").put("sink", target.sink()).put("requires_encryption", read.requiresEncryption());
    }
    if (!lost.isEmpty() && target.isKnown()) {
      request.add("lost").set("lost", lost);
    }
    if (target.table() != null && request.hasTags()) {
      request.add("inherited");
    }
    return request.addWritten(options, target.isParquet()).ask(shared);
  }

  /**
   * Returns the columns without lineage that have the name of a tagged one: rows that leave the plan and return, by an RDD, pandas
   * or a list, have lost their tags, and only the name is left.
   */
  private static ArrayNode findLost(LogicalPlan query, PlanTags tags) {
    ArrayNode lost = Wire.array();
    for (Attribute column : Trees.output(query)) {
      for (Carried.Lost loss : tags.of(column).losses()) {
        ObjectNode found = lost.addObject().put("column", column.name()).put("from", loss.of().table() + "." + loss.of().column());
        loss.tags().forEach(found.putArray("tags")::add);
      }
    }
    return lost;
  }

  private static Map<String, String> optionsOf(LogicalPlan command) {
    CatalogTable table = WriteQueries.createdTable(command);
    Map<String, String> found = TableEntry.ofSparkcrypt(table == null ? null : table.storage().properties());
    for (String part : List.of("options", "writeOptions")) {
      found.putAll(TableEntry.ofSparkcrypt(Calls.callIfPresent(command, part)));
    }
    return found;
  }

  /**
   * Returns the columns of a table that do not get the tags of the values written to them, and these tags; gives the table the
   * tags instead if the policy says so, since a later write of other rows would be in clear without them.
   */
  private Map<String, Set<String>> lacking(JsonNode inherited, CatalogTable table) {
    JsonNode columns = inherited.path("columns");
    if (!inherited.path("mode").asText().equals("add")) {
      Map<String, Set<String>> found = new LinkedHashMap<>();
      for (JsonNode column : columns) {
        found.computeIfAbsent(column.path("path").path(0).asText(), unused -> new LinkedHashSet<>()).addAll(Wire.texts(column.path("tags")));
      }
      return found;
    }
    boolean isExplained = StackWalker.getInstance().walk(frames -> frames.anyMatch(frame -> frame.getClassName().equals(EXPLAIN)));
    if (!isExplained && !columns.isEmpty()) {
      Map<String, String> more = new TreeMap<>();
      columns.forEach(column -> more.put(column.path("property").asText(), column.path("value").asText()));
      session.sessionState().catalog().alterTable(TableEntry.with(table, more));
      KnownTables.forget();
    }
    return Map.of();
  }

  /** Refuses a query whose values Spark is about to take for names of columns, if they have a tag that encrypts. */
  private static void refuseNaming(SessionPolicy policy, StructType columns) {
    if (columns.json().contains(TableEntry.TAGS_KEY)) {
      StackWalker.getInstance()
          .walk(frames -> frames.map(TagRule::naming).filter(Objects::nonNull).findFirst())
          .ifPresent(operation -> {
            StructType naming = new StructType().add(columns.fields()[0]); // of transpose's query, the column that names the others
            WriteRequest request = new WriteRequest(policy, null, Map.of(), naming);
            request.add("naming").put("operation", operation);
            request.ask();
          });
    }
  }

  private static String naming(StackFrame frame) {
    String owner = frame.getClassName();
    if (PIVOTS.contains(frame.getMethodName()) && owner.contains(".RelationalGroupedDataset")) {
      return "pivot";
    }
    return owner.contains(".ResolveTranspose") ? "transpose" : null;
  }

  /** Adds the tags that a table which is being made of a query has by its description to the columns of the query. */
  private static void addDescribed(LogicalPlan plan, PlanTags tags, TableTags read) {
    CatalogTable table = WriteQueries.createdTable(plan);
    if (table != null) {
      LogicalPlan query = WriteQueries.query(plan);
      TableRequirements required = TableRequirements.of(table);
      Map<String, Set<String>> ofColumns = required.tagsOfColumns(query.schema());
      Trees.output(query).forEach(column -> tags.add(column, ofColumns.getOrDefault(column.name(), Set.of())));
      read.noteRequired(required);
    }
  }

  /**
   * Adds the tags to each command of a statement that inserts into several tables: Spark does not resolve each of them
   * separately.
   */
  private LogicalPlan taggedEach(LogicalPlan commands, SessionPolicy policy) {
    List<Object> each = new ArrayList<>();
    Calls.list(Calls.call(commands, "children")).forEach(command -> each.add(addTags((LogicalPlan) command, policy)));
    return (LogicalPlan) Calls.call(commands, "withNewChildren", Calls.scalaList(each));
  }
}

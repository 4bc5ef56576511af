package io.sparkcrypt;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.parquet.crypto.ParquetCryptoRuntimeException;
import org.apache.spark.sql.SparkSession;
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
    boolean assigns = VariableTags.isAssigned(plan);
    if (query == null && !assigns && plan instanceof Command) {
      return AnalyzedColumns.withoutEncrypted(session, plan);
    }
    TableTags tables = new TableTags(session, policy, query != null);
    PlanTags tags = new PlanTags(tables, policy.safeAggregates());
    if (assigns) {
      VariableTags.note(session, plan, tags);
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
      new ClearValuesGuard(policy).checkNaming(shown.schema());
      return shown;
    }
    StructType written = WriteQueries.showTags(query, tags).schema();
    SinkGuard.check(policy, plan, written, tables);
    InheritedTagsGuard inherited = new InheritedTagsGuard(session, policy);
    Object table = inherited.tableOf(plan);
    LostTagsGuard lost = new LostTagsGuard(session, policy);
    lost.check(plan, query, tags, written, table);
    Map<String, Set<String>> lacking = inherited.lacking(table, written, tables);
    LostTagsGuard.Target target = lost.targetOf(plan, table);
    Map<String, Metadata> kept =
        new ClearValuesGuard(policy).checkWrite(plan, written, target == null ? new LostTagsGuard.Target("/", Map.of()) : target);
    return WriteQueries.addTags(plan, query, tags, lacking, kept);
  }

  /** Adds the tags that a table which is being made of a query has by its description to the columns of the query. */
  private static void addDescribed(LogicalPlan plan, PlanTags tags, TableTags read) {
    Object table = WriteQueries.createdTable(plan);
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

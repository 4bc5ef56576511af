package io.sparkcrypt;

import java.util.ArrayList;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.Not;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.slf4j.Logger;
import scala.Function1;
import scala.PartialFunction;
import scala.Tuple2;

/**
 * A query's plan for one reader: each table has the reader's mark, and nulls for the leaves that the reader is denied.
 *
 * <p>Masked columns get new ids, and references to them are renamed up to the top: other rules would take an alias with the id of
 * the column that it replaces for that column, and then read a struct's fields at the positions of another struct.
 */
final class ReaderPlan {
  private static final Logger LOG = CleanLog.of(ReaderPlan.class);
  private static final String ROWS = "org.apache.spark.sql.execution.LogicalRDD";

  private final SparkSession session;
  private final SessionPolicy policy;
  private final ReaderDecision decision;
  private final ReaderMark mark;

  ReaderPlan(SparkSession session, SessionPolicy policy, String onDenied) {
    this.session = session;
    this.policy = policy;
    this.decision = new ReaderDecision(policy, onDenied);
    this.mark = ReaderMark.of(policy);
  }

  /** Returns whether a plan reads anything that depends on a reader's rights, for any reader. */
  static boolean isConcerned(LogicalPlan plan) {
    return plan.find(Trees.test(node -> isRows(node) || ReadTable.is(node))).isDefined();
  }

  /** Returns a node of a plan that reads a table; null if there is none. */
  static LogicalPlan tableIn(LogicalPlan plan) {
    return (LogicalPlan) Calls.orNull(plan.find(Trees.test(ReadTable::is)));
  }

  @SuppressWarnings({"unchecked", "rawtypes"}) // its types name Scala's Seq, which is another type in Spark 3.5
  LogicalPlan of(LogicalPlan plan) {
    refuseOfOthers(plan);
    Set<LogicalPlan> done = Collections.newSetFromMap(new IdentityHashMap<>());
    boolean isDone =
        plan.find(
                Trees.test(node -> {
                  if (mark.isOn(node)) {
                    done.add(node instanceof Filter filter ? filter.child() : node);
                  }
                  return !done.contains(node) && ReadTable.is(node);
                }))
            .isEmpty();
    if (isDone) {
      return plan;
    }
    PartialFunction steps = new Trees.Steps<LogicalPlan, Tuple2<LogicalPlan, Object>>(ReadTable::is, this::replaceTable);
    return plan.transformUpWithNewOutput(steps, (Function1) Trees.test(mark::isOn), (Function1) Trees.test(LogicalPlan::resolved));
  }

  /** Refuses rows that another reader has already computed, and plans with another's nulls: the original values are not known. */
  private void refuseOfOthers(LogicalPlan plan) {
    if (plan.find(Trees.test(node -> isRows(node) && isOfAnother(node) || isMaskedForOther(node))).isDefined()) {
      throw Refusal.of(
          "KeyAccessDeniedError",
          "this query goes over rows, or nulls in place of denied columns, of a session that reads with other keys (a global "
              + "temporary view of a checkpoint, say); allowed: what sessions with the same key service made; read the tables "
              + "themselves in this session");
    }
  }

  /** Returns whether a node contains rows that were computed already. */
  static boolean isRows(LogicalPlan node) {
    return node.getClass().getName().equals(ROWS);
  }

  private boolean isOfAnother(LogicalPlan rows) {
    SparkSession owner = (SparkSession) Calls.list(Calls.call(rows, "otherCopyArgs")).get(0);
    if (owner == session) {
      return false;
    }
    SessionPolicy other = SessionPolicy.of(owner);
    return other == null || !mark.equals(ReaderMark.of(other));
  }

  /**
   * Returns whether a node is masked for another reader. The mark below is checked first: a projection may have thousands of
   * columns.
   */
  private boolean isMaskedForOther(LogicalPlan node) {
    return node instanceof Project project
        && (mark.isOther(project.child()) || project.child() instanceof Filter part && mark.isOther(part.child()))
        && Trees.expressions(project, "projectList").stream()
            .anyMatch(column -> MaskedColumn.isNull((NamedExpression) column));
  }

  /** Returns the node that replaces a table, and the attributes that replace the table's. */
  private Tuple2<LogicalPlan, Object> replaceTable(LogicalPlan node) {
    List<Object> renamed = new ArrayList<>();
    String token = ReadTable.tokenIn(node);
    if (token != null) {
      PrincipalBinding.refuseOther(session, token);
    }
    return new Tuple2<>(decision.isAsked() ? maskDenied(node, renamed) : mark.on(node), Calls.scalaList(renamed));
  }

  private LogicalPlan maskDenied(LogicalPlan node, List<Object> renamed) {
    ReadTable table = new ReadTable(node, new KnownTables(session, policy));
    boolean isLeft = table.hasOwnPolicy() || table.isOrc() && !policy.encryptsOrc();
    DeniedPlaces denied = isLeft ? DeniedPlaces.NONE : decision.of(table);
    if (denied.isNone()) {
      return mark.on(node);
    }
    LOG.info("{}: masked for {}: {}", table.name(), Launch.principal(), denied.reasons());
    Map<String, String> reasons = denied.reasons();
    if (denied.groups.isEmpty()) {
      return mask(table, node, denied.everywhere, null, reasons, renamed);
    }
    List<Object> parts = new ArrayList<>();
    List<Map<String, String>> grouped = new ArrayList<>();
    denied.groups.forEach(group -> grouped.addAll(group.partitions()));
    parts.add(mask(table, node, denied.everywhere, new Not(DeniedPlaces.isIn(grouped, node)), reasons, renamed));
    for (DeniedPlaces.Group group : denied.groups) {
      LogicalPlan again = (LogicalPlan) Calls.call(node, "newInstance");
      Expression here = DeniedPlaces.isIn(group.partitions(), again);
      parts.add(mask(table, again, group.leaves(), here, reasons, new ArrayList<>()));
    }
    return Calls.make(Union.class, Calls.scalaList(parts), false, false);
  }

  private LogicalPlan mask(
      ReadTable table,
      LogicalPlan node,
      Map<String, DeniedLeaves> denied,
      Expression condition,
      Map<String, String> reasons,
      List<Object> renamed) {
    LogicalPlan read = table.isNarrowable() ? narrow(node, denied) : node;
    List<Object> columns = new ArrayList<>();
    Iterator<Attribute> narrowed = Trees.output(read).iterator();
    for (Attribute old : Trees.output(node)) {
      Attribute now = narrowed.next();
      if (!reasons.containsKey(old.name())) {
        columns.add(now);
        continue;
      }
      DeniedLeaves leaves = denied.get(old.name());
      boolean isWhole = leaves == null || leaves.readableType(old.dataType()) == null;
      Metadata metadata = isWhole ? MaskedColumn.mark(old.metadata(), reasons.get(old.name())) : old.metadata();
      Expression value = leaves == null ? now : leaves.mask(now, old.dataType(), now.dataType());
      Alias alias = Trees.alias(value, old.name(), metadata, Calls.call(old, "qualifier"));
      renamed.add(new Tuple2<>(old, alias.toAttribute()));
      columns.add(alias);
    }
    LogicalPlan marked = mark.on(read);
    return Trees.project(columns, condition == null ? marked : new Filter(condition, marked));
  }

  /** Returns the node without the denied leaves of nested columns in its schema; Spark itself only narrows structs. */
  private static LogicalPlan narrow(LogicalPlan node, Map<String, DeniedLeaves> denied) {
    HadoopFsRelation relation = ReadTable.relationOf(node);
    StructType schema = relation.dataSchema();
    StructType narrow = new StructType();
    for (StructField field : schema.fields()) {
      narrow = narrow.add(field.name(), readableType(denied, field.name(), field.dataType()), field.nullable(), field.metadata());
    }
    if (narrow.equals(schema)) {
      return node;
    }
    Object output = Calls.call(node, "output");
    List<Object> attributes = new ArrayList<>();
    for (Attribute old : Trees.output(node)) {
      DataType type = readableType(denied, old.name(), old.dataType());
      attributes.add(type.equals(old.dataType()) ? old : old.withDataType(type));
    }
    Object[] values = Calls.values(node, relation, Calls.copy(relation, schema, narrow));
    for (int i = 0; i < values.length; i++) {
      values[i] = values[i] == output ? Calls.scalaList(attributes) : values[i];
    }
    return node.makeCopy(values);
  }

  private static DataType readableType(Map<String, DeniedLeaves> denied, String name, DataType type) {
    DeniedLeaves leaves = denied.get(name);
    DataType left = leaves == null ? type : leaves.readableType(type);
    return left == null ? type : left;
  }
}

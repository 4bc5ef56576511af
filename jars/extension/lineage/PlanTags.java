package io.sparkcrypt;

import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.CTERelationDef;
import org.apache.spark.sql.catalyst.plans.logical.CTERelationRef;
import org.apache.spark.sql.catalyst.plans.logical.Expand;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Generate;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LateralJoin;
import org.apache.spark.sql.catalyst.plans.logical.MergeRows;
import org.apache.spark.sql.catalyst.plans.logical.WithCTE;
import org.apache.spark.sql.catalyst.trees.TreePattern;
import org.apache.spark.sql.types.MapType;

/**
 * The tags that each column of a resolved plan has from the columns that its values come from.
 *
 * <p>Filters, join keys and groups only choose rows, and are not followed. An unknown node gives each column that it makes the
 * tags of all its input.
 */
final class PlanTags {
  /** Leaves whose rows come from a program. */
  private static final Set<String> LOCAL = Set.of("LocalRelation", "LogicalRDD", "ExternalRDD");
  /** Nodes whose columns are those of their children. */
  private static final Set<String> PASSING =
      Set.of(
          "Filter", "Join", "AsOfJoin", "SubqueryAlias", "Sort", "GlobalLimit", "LocalLimit", "Limit", "Offset", "Tail",
          "Distinct", "Deduplicate", "DeduplicateWithinWatermark", "Repartition", "RepartitionByExpression", "RebalancePartitions",
          "ResolvedHint", "Sample", "CollectMetrics", "EventTimeWatermark", "Except");
  private static final Set<String> MAKING = Set.of("Project", "Aggregate", "Window");
  private static final List<String> INSTRUCTIONS =
      List.of("matchedInstructions", "notMatchedInstructions", "notMatchedBySourceInstructions");
  private static final Set<String> BY_POSITION = Set.of("Union", "Intersect", "View");
  /** A recursive query, which Spark 3.5 does not have. */
  private static final String LOOP = "UnionLoop";

  private final TableTags tables;
  private final Map<ExprId, Carried> byId = new HashMap<>();
  private final Map<Long, List<Carried>> byCte = new HashMap<>();
  private final Map<Long, List<Carried>> byLoop = new HashMap<>();
  private final ExpressionTags values;
  private final Carried conditions = new Carried();
  private boolean anyTags;

  /**
   * Creates an object for a plan.
   *
   * @param tables the tags of tables that their columns' metadata do not have
   * @param safeAggregates names of the aggregates whose results have no tags
   */
  PlanTags(TableTags tables, Set<String> safeAggregates) {
    this.tables = tables;
    this.values = new ExpressionTags(byId, safeAggregates, this::visit);
    this.anyTags = VariableRule.isAny();
  }

  /** Returns whether any column of a visited plan carries a tag. */
  boolean anyTags() {
    return anyTags;
  }

  /** Returns the values that were declassified in the plan. */
  List<ExpressionTags.Declassified> declassifiedValues() {
    return values.declassifiedValues();
  }

  /** Returns the tagged columns that were used to choose, join or group rows; no value comes from them. */
  Set<Carried.Origin> conditions() {
    return conditions.origins();
  }

  /** Returns the tags of a column of a visited plan, including those in its own metadata. */
  Carried of(Attribute column) {
    Carried found = new Carried();
    found.addAll(FieldTags.of(column.metadata()));
    Carried known = byId.get(column.exprId());
    if (known != null) {
      found.addAll(known);
    }
    return found;
  }

  /** Returns the tags of a value that stands in no plan, such as a variable's default. */
  Carried of(Expression value) {
    Carried found = new Carried();
    values.add(found, value);
    return found;
  }

  /** Adds tags that a column of a visited plan has for another reason than what it is made of. */
  void add(Attribute column, Set<String> tags) {
    if (!tags.isEmpty()) {
      Carried all = of(column);
      all.addAll(tags);
      byId.put(column.exprId(), all);
      anyTags = true;
    }
  }

  /** Visits a plan, from its leaves up. */
  void visit(QueryPlan<?> plan) {
    if (plan instanceof WithCTE with) {
      for (CTERelationDef definition : Trees.elements(CTERelationDef.class, Calls.call(plan, "cteDefs"))) {
        visit(definition.child());
        byCte.put(definition.id(), columnsOf(definition.child()));
      }
      visit(with.plan());
      return;
    }
    List<QueryPlan<?>> children = Trees.children(plan);
    String name = plan.getClass().getSimpleName();
    if (name.equals(LOOP)) {
      visitLoop(plan, children);
      return;
    }
    children.forEach(this::visit);
    addConditions(plan);
    if (children.isEmpty()) {
      visitLeaf(plan);
    } else if (BY_POSITION.contains(name)) {
      uniteByPosition(plan, children);
    } else if (plan instanceof Generate generate) {
      visitGenerate(generate);
    } else if (plan instanceof Expand) {
      addRows(Trees.output(plan), Calls.call(plan, "projections"));
    } else if (plan instanceof MergeRows) { // of the target and the source, and the rows made of them in each case
      for (String part : INSTRUCTIONS) {
        Trees.expressions(plan, part).forEach(made -> addRows(Trees.output(plan), Calls.call(made, "outputs")));
      }
    } else if (MAKING.contains(name)) {
      Carried[] row = new Carried[1]; // of all columns, for each reference by its position
      values.setRow(() -> row[0] = row[0] == null ? row(children) : row[0]);
      addAliases(Trees.expressions(plan));
    } else if (!PASSING.contains(name)) {
      visitOther(plan, children);
    }
  }

  private void addConditions(QueryPlan<?> plan) {
    if (!anyTags) {
      return;
    }
    if (plan instanceof Filter || plan instanceof Join) {
      Trees.expressions(plan).forEach(this::addCondition);
    } else if (plan instanceof Aggregate) {
      Trees.expressions(plan, "groupingExpressions").forEach(this::addCondition);
    }
  }

  /** Adds a condition: a write records all columns that chose its rows, other queries only what the condition declassifies. */
  private void addCondition(Expression condition) {
    if (tables.forWrite || condition.containsPattern(Declassify.pattern())) {
      values.add(conditions, condition);
    }
  }

  /** Visits a recursive query. Each round may move values between its columns, so it is visited until no column gains anything. */
  private void visitLoop(QueryPlan<?> loop, List<QueryPlan<?>> children) {
    Long id = (Long) Calls.call(loop, "id");
    List<Carried> before;
    do {
      before = columnsOf(loop);
      byLoop.put(id, before);
      children.forEach(this::visit);
      uniteByPosition(loop, children);
    } while (!sizes(columnsOf(loop)).equals(sizes(before)));
  }

  private List<Carried> columnsOf(QueryPlan<?> plan) {
    return Trees.output(plan).stream().map(this::of).toList();
  }

  private static List<Integer> sizes(List<Carried> columns) {
    return columns.stream().map(Carried::size).toList();
  }

  private void visitLeaf(QueryPlan<?> leaf) {
    List<Attribute> columns = Trees.output(leaf);
    List<Carried> known = namedBy(leaf);
    if (known != null) {
      for (int i = 0; i < columns.size(); i++) {
        put(columns.get(i), known.get(i));
      }
      return;
    }
    TableTags.Read read = tables.of(leaf, columns);
    for (int i = 0; i < columns.size(); i++) {
      Attribute column = columns.get(i);
      boolean below = FieldTags.isNested(column.dataType()) && !FieldTags.nestedTags(column.dataType()).isEmpty();
      Carried tags = new Carried();
      tags.addAll(FieldTags.of(column.metadata()));
      tags.addAll(read.tags().getOrDefault(i, Set.of()));
      if (read.source() != null && (below || !tags.isEmpty())) {
        addOrigins(tags, read.source(), column, read.paths().getOrDefault(i, Set.of()));
      }
      noteLost(leaf, column, tags, read.source());
      put(column, tags);
      anyTags |= below;
    }
  }

  private static void addOrigins(Carried tags, String source, Attribute column, Set<List<String>> known) {
    for (List<String> path : LeafPaths.listTagged(column, known)) {
      String text = FileKeys.textOf(FieldTags.longer(List.of(column.name()), path));
      tags.add(new Carried.Placed(new Carried.Origin(source, text), path));
    }
  }

  /** Returns the columns of a leaf that refers to a common table expression, or to a recursive query's last round; else null. */
  private List<Carried> namedBy(QueryPlan<?> leaf) {
    if (leaf instanceof CTERelationRef reference) {
      return byCte.get(reference.cteId());
    }
    return leaf.getClass().getSimpleName().equals(LOOP + "Ref") ? byLoop.get((Long) Calls.call(leaf, "loopId")) : null;
  }

  /** Records the tags of a column of a table; adds what a column of no table may have lost. */
  private void noteLost(QueryPlan<?> leaf, Attribute column, Carried tags, String source) {
    if (source != null) {
      tables.seen.note(source, column.name(), tags.tags());
    } else if (tags.isEmpty() && tables.forWrite && LOCAL.contains(leaf.getClass().getSimpleName())) {
      tables.seen.of(column.name()).forEach(tags::add);
    }
  }

  private void uniteByPosition(QueryPlan<?> plan, List<QueryPlan<?>> children) {
    List<Attribute> columns = Trees.output(plan);
    for (QueryPlan<?> child : children) {
      addRow(columns, Trees.output(child));
    }
  }

  private void visitGenerate(Generate plan) {
    Expression generator = (Expression) plan.generator();
    Carried tags = of(generator);
    List<Attribute> columns = Trees.attributes(plan, "generatorOutput");
    List<List<String>> parts = explodedParts(generator);
    for (int i = 0; i < columns.size(); i++) {
      int part = i - columns.size() + parts.size(); // posexplode has a position before them
      if (part < 0) {
        put(columns.get(i), tags);
      } else {
        Carried taken = of(Trees.children(generator).get(0)).below(parts.get(part));
        taken.addAll(tags.tags());
        put(columns.get(i), taken);
      }
    }
  }

  /** Returns the paths below its operand to the parts that a generator makes columns of; none if it computes something. */
  private static List<List<String>> explodedParts(Expression generator) {
    String name = generator.getClass().getSimpleName();
    if (!name.equals("Explode") && !name.equals("PosExplode")) {
      return List.of();
    }
    boolean isMap = Trees.children(generator).get(0).dataType() instanceof MapType;
    return isMap ? List.of(LeafPaths.KEY, LeafPaths.VALUE) : List.of(LeafPaths.ELEMENT);
  }

  private void addRows(List<Attribute> columns, Object rows) {
    for (Object line : Trees.elements(Object.class, rows)) {
      addRow(columns, Trees.elements(Expression.class, line));
    }
  }

  /** Gives columns the tags of the values at the same positions. */
  private void addRow(List<Attribute> columns, List<? extends Expression> row) {
    for (int i = 0; i < columns.size(); i++) {
      Expression value = row.get(i);
      if (isSame(columns.get(i), value)) {
        continue; // as those of the first child of a union, which may be a union of many
      }
      Carried tags = value instanceof Attribute column ? of(column) : of(value);
      FieldTags.addLost(tags.tags(), value.dataType(), columns.get(i).dataType());
      put(columns.get(i), LeafPaths.areSame(value.dataType(), columns.get(i).dataType()) ? tags : tags.anywhere());
    }
  }

  /** Returns whether a value is a column itself, so that all that is known of it is known already. */
  private static boolean isSame(Attribute column, Expression value) {
    return value instanceof Attribute other
        && other.exprId().equals(column.exprId())
        && other.metadata().equals(column.metadata())
        && other.dataType().equals(column.dataType());
  }

  private void addAliases(List<Expression> expressions) {
    for (Expression expression : expressions) {
      if (expression instanceof Alias column) {
        Carried tags = new Carried();
        tags.addAll(FieldTags.of(column.metadata()));
        if (anyTags || expression.containsPattern(TreePattern.PLAN_EXPRESSION())) {
          values.add(tags, column);
        }
        put(column.exprId(), tags);
      }
    }
  }

  /** Gives the columns that an unknown node makes, such as a Python function over whole rows, the tags of all its input. */
  private void visitOther(QueryPlan<?> plan, List<QueryPlan<?>> children) {
    if (plan instanceof LateralJoin join) {
      visit(join.right().plan());
      return;
    }
    Set<ExprId> known = new HashSet<>();
    for (QueryPlan<?> child : children) {
      Trees.output(child).forEach(column -> known.add(column.exprId()));
    }
    Carried row = row(children);
    for (Attribute column : Trees.output(plan)) {
      if (!known.contains(column.exprId())) {
        put(column, row);
      }
    }
  }

  private Carried row(List<QueryPlan<?>> children) {
    Carried tags = new Carried();
    for (QueryPlan<?> child : children) {
      Trees.output(child).forEach(column -> values.addAll(tags, column));
    }
    return tags.anywhere();
  }

  private void put(Attribute column, Carried tags) {
    put(column.exprId(), tags);
  }

  private void put(ExprId id, Carried tags) {
    if (!tags.isEmpty()) {
      anyTags = true;
      byId.computeIfAbsent(id, unused -> new Carried()).addAll(tags);
    }
  }
}

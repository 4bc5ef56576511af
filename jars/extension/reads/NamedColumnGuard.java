package io.sparkcrypt;

import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.AnalysisContext;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.CaseWhen;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Coalesce;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.LambdaFunction;
import org.apache.spark.sql.catalyst.expressions.PlanExpression;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.catalyst.plans.logical.Command;
import org.apache.spark.sql.catalyst.plans.logical.Deduplicate;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.catalyst.plans.logical.View;
import org.apache.spark.sql.catalyst.rules.Rule;

/**
 * A guard that refuses a query that names a masked column, in sessions under strict projection.
 *
 * <p>It uses the marks of NameRule. If names are not expressions (USING, dropDuplicates, dropna, fillna), or lose their marks (in
 * a lambda), everything that is used there counts as named. It checks a query before Spark removes redundant aliases, since marks
 * on them would be lost.
 */
final class NamedColumnGuard extends Rule<LogicalPlan> {
  private final SparkSession session;

  NamedColumnGuard(SparkSession session) {
    this.session = session;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    boolean isOfReader = AnalysisContext.get().nestedViewDepth() == 0;
    StrictProjection strict = isOfReader && plan.resolved() && ReaderPlan.isConcerned(plan) ? StrictProjection.ofQuery(session) : null;
    if (strict != null) {
      new Search(strict).look(plan, true);
    }
    return plan;
  }

  /**
   * Expressions in which everything counts as named: stars make none of them, {@code fillna} and {@code replace} resolve their
   * names themselves, and a lambda loses marks.
   */
  private static final Set<Class<? extends Expression>> OVER_NAMED = Set.of(Coalesce.class, CaseWhen.class, LambdaFunction.class);

  private static final class Search {
    private final StrictProjection strict;
    private final Map<ExprId, MaskedColumn> masked = new HashMap<>();

    Search(StrictProjection strict) {
      this.strict = strict;
    }

    /** Searches from the tables up; in a view it only finds masked columns, since the view's author wrote the names. */
    void look(QueryPlan<?> node, boolean isOfReader) {
      boolean isBelow = isOfReader && !(node instanceof View);
      Trees.children(node).forEach(child -> look(child, isBelow));
      if (node instanceof Command) {
        Trees.innerChildren(node).stream().filter(LogicalPlan.class::isInstance).forEach(inner -> look(inner, isBelow));
      }
      boolean isAllNamed = node instanceof Join || node instanceof Filter || node instanceof Deduplicate && isBySome((Deduplicate) node);
      Set<String> names = NameRule.namesIn(node);
      Trees.expressions(node).forEach(expression -> find(node, expression, isBelow, isAllNamed, names));
      if (node instanceof Union) {
        addPlaces(node);
      }
    }

    private static boolean isBySome(Deduplicate node) {
      return Trees.attributes(node, "keys").size() < Trees.output(node).size();
    }

    private void find(QueryPlan<?> node, Expression expression, boolean isOfReader, boolean isAllNamed, Set<String> names) {
      ColumnPath path = isOfReader ? ColumnPath.of(expression) : null;
      boolean isListed = path != null && names.contains(path.column().name().toLowerCase(Locale.ROOT));
      if (path != null && (isAllNamed || isListed || NameRule.isNamed(expression, strict.reader()))) {
        refuseMasked(path);
      }
      boolean isAllBelow = isAllNamed || OVER_NAMED.stream().anyMatch(type -> type.isInstance(expression));
      Trees.children(expression).forEach(child -> find(node, child, isOfReader, isAllBelow, names));
      if (expression instanceof PlanExpression<?> subquery) {
        look(subquery.plan(), isOfReader);
      }
      if (expression instanceof Alias alias) {
        add(node, alias);
      }
    }

    /** Notes an alias that is masked in this node, or that renames a masked column. */
    private void add(QueryPlan<?> node, Alias alias) {
      Expression value = alias.child() instanceof Cast cast ? cast.child() : alias.child(); // a view casts to the types of its creation
      MaskedColumn known = value instanceof Attribute column ? masked.get(column.exprId()) : null;
      if (known == null && node instanceof Project project && MaskedColumn.isMasked(alias)) {
        known = MaskedColumn.of(alias, ReaderPlan.tableIn(project));
      }
      if (known != null) {
        masked.put(alias.exprId(), known);
      }
    }

    private void addPlaces(QueryPlan<?> union) {
      List<Attribute> output = Trees.output(union);
      for (QueryPlan<?> child : Trees.children(union)) {
        List<Attribute> columns = Trees.output(child);
        for (int i = 0; i < output.size(); i++) {
          MaskedColumn found = masked.get(columns.get(i).exprId());
          if (found != null) {
            masked.putIfAbsent(output.get(i).exprId(), found);
          }
        }
      }
    }

    private void refuseMasked(ColumnPath path) {
      MaskedColumn known = masked.get(path.column().exprId());
      MaskedColumn column = known == null ? MaskedColumn.of(path.column(), null) : known;
      String reason = column.reasonAt(path.steps());
      if (reason != null) {
        strict.refuse(path.toText(column.name()), column.table(), reason);
      }
    }
  }
}

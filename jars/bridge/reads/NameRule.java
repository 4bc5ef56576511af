package io.sparkcrypt;

import java.util.Arrays;
import java.util.HashSet;
import java.util.Locale;
import java.util.Set;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.analysis.AnalysisContext;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetArrayStructFields;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan$;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
import scala.Function1;

/**
 * Marks what a query names, before names are resolved and stars become columns: afterwards nothing tells them apart.
 *
 * <p>Spark copies such a mark to what it puts in a name's place. The text of a view is not marked: it was its author's.
 */
final class NameRule extends Rule<LogicalPlan> {
  /** On an expression that was written as a name: whose query it is. */
  private static final TreeNodeTag<String> NAMED = new TreeNodeTag<>("sparkcrypt.named");

  /** On a node: names in it that Spark resolves without copying marks, those of a Connect client's {@code frame.column}. */
  private static final TreeNodeTag<Set<String>> NAMES = new TreeNodeTag<>("sparkcrypt.names");

  private static final Set<String> UNRESOLVED = Set.of("UnresolvedAttribute", "UnresolvedExtractValue");
  /** In the metadata of what {@code frame.column} gives, which is resolved already. */
  private static final String OF_FRAME = "__dataset_id";

  private static final String DROPPING = "DataFrameDropColumns";

  /** How an extension gives Spark 4.x a rule that comes before names are resolved. */
  private static final String OFFERED = "injectHintResolutionRule";

  private static final boolean IS_OFFERED =
      Arrays.stream(SparkSessionExtensions.class.getMethods()).anyMatch(method -> method.getName().equals(OFFERED));

  private final SparkSession session;

  NameRule(SparkSession session) {
    this.session = session;
  }

  /** Gives Spark the rule, if it takes it in this way. */
  static void inject(SparkSessionExtensions extensions, Function1<SparkSession, Rule<LogicalPlan>> makeRule) {
    if (IS_OFFERED) {
      Calls.call(extensions, OFFERED, makeRule);
    }
  }

  /** Puts the rule into a session's analyzer, if that has none, and marks the plan that is being resolved. */
  static void install(SparkSession session, LogicalPlan plan) {
    if (!IS_OFFERED && !EarlyNameRule.isIn(session)) {
      NameRule rule = new NameRule(session);
      EarlyNameRule.install(session, rule);
      rule.apply(plan);
    }
  }

  /** Whether a session's queries are marked. */
  static boolean isInForce(SparkSession session) {
    return IS_OFFERED || EarlyNameRule.isIn(session);
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (AnalysisContext.get().nestedViewDepth() == 0) {
      StrictProjection strict = StrictProjection.of(session);
      if (strict != null) {
        markNode(plan, strict.reader());
      }
    }
    return plan;
  }

  /** Whether an expression was written as a name in a query of this reader. */
  static boolean isNamed(Expression expression, String reader) {
    return reader.equals(Calls.orNull(expression.getTagValue(NAMED)));
  }

  /** Names of columns in a node that count as named wherever they stand in it, in lower case. */
  static Set<String> namesIn(QueryPlan<?> node) {
    return node instanceof LogicalPlan plan && plan.getTagValue(NAMES).isDefined() ? plan.getTagValue(NAMES).get() : Set.of();
  }

  private static void markNode(QueryPlan<?> node, String reader) {
    if (node instanceof LogicalPlan plan && plan.analyzed() || node.getClass().getSimpleName().equals(DROPPING)) {
      return; // of an earlier query, which was looked at; or names of what is left out
    }
    Set<String> names = new HashSet<>();
    Trees.expressions(node).forEach(expression -> mark(expression, reader, names));
    if (!names.isEmpty()) {
      ((LogicalPlan) node).setTagValue(NAMES, names);
    }
    Trees.children(node).forEach(child -> markNode(child, reader));
  }

  private static void mark(Expression expression, String reader, Set<String> names) {
    if (isName(expression)) {
      expression.setTagValue(NAMED, reader);
    }
    if (expression instanceof UnresolvedAttribute column && column.getTagValue(LogicalPlan$.MODULE$.PLAN_ID_TAG()).isDefined()) {
      names.add(Trees.elements(String.class, Calls.call(column, "nameParts")).get(0).toLowerCase(Locale.ROOT));
    }
    Trees.children(expression).forEach(child -> mark(child, reader, names));
  }

  private static boolean isName(Expression expression) {
    return UNRESOLVED.contains(expression.getClass().getSimpleName())
        || expression instanceof GetStructField
        || expression instanceof GetArrayStructFields
        || expression instanceof Attribute column && column.resolved() && column.metadata().contains(OF_FRAME);
  }
}

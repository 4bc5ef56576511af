package io.sparkcrypt;

import java.lang.reflect.Field;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Locale;
import java.util.Set;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.analysis.AnalysisContext;
import org.apache.spark.sql.catalyst.analysis.Analyzer;
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
 * A rule that marks the names in a query before they are resolved and stars become columns: afterwards both look the same.
 *
 * <p>Spark copies such a mark to the expression that replaces a name. The text of a view is not marked, since its author wrote
 * it.
 */
final class NameRule extends Rule<LogicalPlan> {
  /** Mark of an expression that was written as a name; its value is the reader whose query it is. */
  private static final TreeNodeTag<String> NAMED = new TreeNodeTag<>("sparkcrypt.named");

  /** Mark of a node: names in it that Spark resolves without copying marks, those of a Connect client's {@code frame.column}. */
  private static final TreeNodeTag<Set<String>> NAMES = new TreeNodeTag<>("sparkcrypt.names");

  private static final Set<String> UNRESOLVED =
      Set.of("ExpressionWithUnresolvedIdentifier", "UnresolvedAttribute", "UnresolvedExtractValue");
  /** Metadata key of an attribute from {@code frame.column}, which is resolved already. */
  private static final String OF_FRAME = "__dataset_id";

  private static final String DROPPING = "DataFrameDropColumns";

  /** The method with which an extension gives Spark 4.x a rule that runs before names are resolved. */
  private static final String OFFERED = "injectHintResolutionRule";

  /** Whether this version of Spark has that method. */
  static final boolean IS_OFFERED =
      Arrays.stream(SparkSessionExtensions.class.getMethods()).anyMatch(method -> method.getName().equals(OFFERED));

  private final SparkSession session;

  NameRule(SparkSession session) {
    this.session = session;
  }

  /** Gives Spark the rule, if this version has the method for it. */
  static void inject(SparkSessionExtensions extensions, Function1<SparkSession, Rule<LogicalPlan>> makeRule) {
    if (IS_OFFERED) {
      Calls.call(extensions, OFFERED, makeRule);
    }
  }

  /** Puts the rule into a session's analyzer, if it has none, and marks the plan that is being resolved. */
  static void install(SparkSession session, LogicalPlan plan) {
    if (!IS_OFFERED && !EarlyNameRule.isIn(session)) {
      NameRule rule = new NameRule(session);
      EarlyNameRule.install(session, rule);
      rule.apply(plan);
    }
  }

  /** Returns whether a session's queries are marked. */
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

  /** Returns whether an expression was written as a name in a query of this reader. */
  static boolean isNamed(Expression expression, String reader) {
    return reader.equals(Calls.orNull(expression.getTagValue(NAMED)));
  }

  /** Returns names of columns, in lower case, that count as named anywhere in a node. */
  static Set<String> namesIn(QueryPlan<?> node) {
    return node instanceof LogicalPlan plan && plan.getTagValue(NAMES).isDefined() ? plan.getTagValue(NAMES).get() : Set.of();
  }

  private static void markNode(QueryPlan<?> node, String reader) {
    if (node instanceof LogicalPlan plan && plan.analyzed() || node.getClass().getSimpleName().equals(DROPPING)) {
      return; // of an earlier query, which was checked then; or names of columns to leave out
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

  /**
   * The rule in an analyzer of Spark 3.5, which takes an extension's rules only after names are resolved.
   *
   * <p>It replaces a rule of Spark's first batch, and passes each plan on to that rule. The analyzer has that rule in a field,
   * which is read again for each query.
   */
  private static final class EarlyNameRule extends Analyzer.WindowsSubstitution$ {
    private static final String FIELD = "WindowsSubstitution$module";

    private final NameRule names;
    private final Rule<LogicalPlan> replaced;

    private EarlyNameRule(Analyzer analyzer, NameRule names) {
      analyzer.super();
      this.names = names;
      this.replaced = analyzer.WindowsSubstitution();
    }

    @Override
    public LogicalPlan apply(LogicalPlan plan) {
      return replaced.apply(names.apply(plan)); // not super.apply: Spark identifies its own rules by their classes
    }

    /** Returns whether the analyzer of a session has the rule. */
    static boolean isIn(SparkSession session) {
      return analyzer(session).WindowsSubstitution() instanceof EarlyNameRule;
    }

    /** Puts the rule into the analyzer of a session; if that fails, strict projection is refused later. */
    static void install(SparkSession session, NameRule names) {
      try {
        Field field = Analyzer.class.getDeclaredField(FIELD);
        field.setAccessible(true);
        field.set(analyzer(session), new EarlyNameRule(analyzer(session), names));
      } catch (ReflectiveOperationException | RuntimeException e) {
        CleanLog.of(EarlyNameRule.class).debug("the analyzer takes no rule before names are resolved", e);
      }
    }

    private static Analyzer analyzer(SparkSession session) {
      return session.sessionState().analyzer();
    }
  }
}

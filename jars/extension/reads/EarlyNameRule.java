package io.sparkcrypt;

import java.lang.reflect.Field;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.Analyzer;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;

/**
 * NameRule in an analyzer of Spark 3.5, which takes an extension's rules only after names are resolved.
 *
 * <p>It replaces a rule of Spark's first batch, and passes each plan on to that rule. The analyzer has that rule in a field,
 * which is read again for each query.
 */
final class EarlyNameRule extends Analyzer.WindowsSubstitution$ {
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

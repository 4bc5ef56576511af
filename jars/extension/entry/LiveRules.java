package io.sparkcrypt;

import java.util.List;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.ColumnarRule;
import org.slf4j.Logger;

/**
 * An addition of analyzer and physical-plan rules to a session that was created before the extension was installed.
 *
 * <p>Spark has no method for this, unlike for optimizer rules: the session keeps such rules in fields, which are read again for
 * each query.
 */
final class LiveRules {
  private static final Logger LOG = CleanLog.of(LiveRules.class);
  private static final String POST_HOC = "postHocResolutionRules";
  private static final String EARLY = "hintResolutionRules";
  private static final String COLUMNAR = "columnarRules";

  private LiveRules() {}

  /** Adds a rule after the others, unless there is one of its class. */
  static void addPostHoc(Object session, Rule<LogicalPlan> rule) {
    add(session, rule, POST_HOC);
  }

  /** Adds a rule that comes before names are resolved, where this version of Spark takes them. */
  static void addEarly(Object session, Rule<LogicalPlan> rule) {
    if (NameRule.IS_OFFERED) {
      add(session, rule, EARLY);
    }
  }

  private static void add(Object session, Rule<LogicalPlan> rule, String field) {
    Object analyzer = Calls.call(Calls.call(session, "sessionState"), "analyzer");
    List<Object> rules = Calls.list(Calls.call(analyzer, field));
    if (rules.stream().anyMatch(present -> present.getClass() == rule.getClass())) {
      return;
    }
    rules.add(rule);
    try {
      Calls.setField(analyzer, field, Calls.scalaList(rules));
    } catch (RuntimeException e) {
      throw missing(analyzer, e);
    }
    if (Calls.list(Calls.call(analyzer, field)).stream().noneMatch(present -> present == rule)) {
      throw missing(analyzer, null);
    }
  }

  /**
   * Adds a rule of physical plans after the others, unless there is one of its class; logs a warning if the session takes none.
   */
  static void addColumnar(Object session, ColumnarRule rule) {
    Object state = Calls.call(session, "sessionState");
    List<Object> rules = Calls.list(Calls.call(state, COLUMNAR));
    if (rules.stream().anyMatch(found -> found.getClass() == rule.getClass())) {
      return;
    }
    rules.add(rule);
    try {
      Calls.setField(state, COLUMNAR, Calls.scalaList(rules));
    } catch (RuntimeException e) {
      LOG.warn("scans of this session get no metrics of skipped files: {}", e.getMessage());
    }
  }

  private static RuntimeException missing(Object analyzer, Throwable cause) {
    return Refusal.of(
        "ConfigError",
        "this session's analyzer (" + analyzer.getClass().getName() + ") takes no further rules, so tags would not follow data in "
            + "it; start it with spark.sql.extensions=" + SparkcryptExtensions.class.getName()
            + " and the jar in spark.jars, as `sparkcrypt conf` prints them, or use its newSession()",
        cause);
  }
}

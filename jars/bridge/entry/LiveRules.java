package io.sparkcrypt;

import java.lang.reflect.Field;
import java.util.List;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;

/**
 * Brings rules of resolution into a session that lives already, whose analyzer was made before the extension came.
 *
 * <p>Spark offers no way to do so, as it does for rules of the optimizer: the analyzer keeps its rules in fields of its own, which
 * are read anew for each query.
 */
final class LiveRules {
  private static final String FIELD = "postHocResolutionRules";

  private LiveRules() {}

  /** Adds a rule after the others, unless one of its class is there. */
  static void addPostHoc(Object session, Rule<LogicalPlan> rule) {
    Object analyzer = Calls.call(Calls.call(session, "sessionState"), "analyzer");
    List<Object> rules = Calls.list(Calls.call(analyzer, FIELD));
    if (rules.stream().anyMatch(one -> one.getClass() == rule.getClass())) {
      return;
    }
    rules.add(rule);
    try {
      Field field = analyzer.getClass().getDeclaredField(FIELD);
      field.setAccessible(true);
      field.set(analyzer, Calls.scalaList(rules));
    } catch (ReflectiveOperationException | RuntimeException e) {
      throw missing(analyzer, e);
    }
    if (Calls.list(Calls.call(analyzer, FIELD)).stream().noneMatch(one -> one == rule)) {
      throw missing(analyzer, null);
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

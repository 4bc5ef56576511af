package io.sparkcrypt;

import java.util.List;
import java.util.Map;
import java.util.WeakHashMap;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.analysis.Analyzer;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.ColumnarRule;
import org.apache.spark.sql.internal.SessionState;
import org.slf4j.Logger;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/**
 * The extension for {@code spark.sql.extensions}: gives every Parquet write and read its table in the catalog, and makes tags
 * follow data.
 *
 * <p>The same class serves Spark 3.5 and 4.x: no signature that is compiled here names a Scala collection.
 */
public final class SparkcryptExtensions extends AbstractFunction1<SparkSessionExtensions, BoxedUnit> {
  static {
    Preload.classes();
  }

  private static final Logger LOG = CleanLog.of(SparkcryptExtensions.class);
  private static final String POST_HOC = "postHocResolutionRules";
  private static final String EARLY = "hintResolutionRules";
  private static final String COLUMNAR = "columnarRules";

  /** The extensions that {@code install} has extended already, by identity. */
  private static final Map<Object, Boolean> EXTENDED = new WeakHashMap<>();

  @Override
  public BoxedUnit apply(SparkSessionExtensions extensions) {
    Reader.protectNames();
    extensions.injectPreCBORule(session -> new TableOptionsRule());
    extensions.injectPreCBORule(session -> new SkipRule());
    extensions.injectColumnar(session -> new SkipRule.Metrics());
    extensions.injectPostHocResolutionRule(NamedColumnGuard::new);
    extensions.injectPostHocResolutionRule(TagRule::new);
    extensions.injectResolutionRule(MaskRule::new);
    extensions.injectCheckRule(MaskedWriteGuard::new);
    NameRule.inject(extensions, NameRule::new);
    NameRule.inject(extensions, VariableRule::new);
    Declassify.inject(extensions);
    return BoxedUnit.UNIT;
  }

  /**
   * Adds the rules to an existing session, and to those that its {@code newSession} creates.
   *
   * @param session a SparkSession
   */
  public static void install(Object session) {
    SparkSession live = (SparkSession) session;
    EarlierTables.of(live); // some writers drop a table before TagRule sees a plan
    add(live, new TagRule(live), POST_HOC);
    if (NameRule.IS_OFFERED) { // rules that come before names are resolved
      add(live, new VariableRule(live), EARLY);
    }
    addColumnar(live, new SkipRule.Metrics());
    Declassify.register(session);
    Object experimental = Calls.call(session, "experimental");
    List<Object> rules = Calls.list(Calls.call(experimental, "extraOptimizations"));
    if (rules.stream().anyMatch(rule -> rule instanceof TableOptionsRule)) {
      return;
    }
    rules.add(new TableOptionsRule());
    rules.add(new SkipRule());
    Calls.call(experimental, "extraOptimizations_$eq", Calls.scalaList(rules));
    Object extensions = Calls.call(session, "extensions");
    synchronized (EXTENDED) {
      if (EXTENDED.put(extensions, true) == null) {
        new SparkcryptExtensions().apply((SparkSessionExtensions) extensions);
      }
    }
  }

  /**
   * Returns whether a session resolves queries with these rules: one that existed before they were added does not.
   *
   * @param session a SparkSession
   */
  public static boolean hasRules(Object session) {
    Object analyzer = ((SparkSession) session).sessionState().analyzer();
    return Calls.list(Calls.call(analyzer, "extendedResolutionRules")).stream().anyMatch(rule -> rule instanceof MaskRule);
  }

  /**
   * Adds a rule to those in a field of the analyzer of an existing session, unless there is one of its class.
   *
   * <p>Spark has no method for this, unlike for optimizer rules; it reads the field again for each query.
   */
  private static void add(SparkSession session, Rule<LogicalPlan> rule, String field) {
    Analyzer analyzer = session.sessionState().analyzer();
    List<Object> rules = Calls.list(Calls.call(analyzer, field));
    if (rules.stream().anyMatch(present -> present.getClass() == rule.getClass())) {
      return;
    }
    rules.add(rule);
    try {
      Calls.setField(analyzer.getClass(), analyzer, field, Calls.scalaList(rules));
    } catch (RuntimeException e) {
      throw missing(analyzer, e);
    }
    if (Calls.list(Calls.call(analyzer, field)).stream().noneMatch(present -> present == rule)) {
      throw missing(analyzer, null);
    }
  }

  /** Adds a rule of physical plans in the same way; logs a warning if the session takes none. */
  private static void addColumnar(SparkSession session, ColumnarRule rule) {
    SessionState state = session.sessionState();
    List<Object> rules = Calls.list(Calls.call(state, COLUMNAR));
    if (rules.stream().anyMatch(found -> found.getClass() == rule.getClass())) {
      return;
    }
    rules.add(rule);
    try {
      Calls.setField(state.getClass(), state, COLUMNAR, Calls.scalaList(rules));
    } catch (RuntimeException e) {
      LOG.warn("scans of this session get no metrics of skipped files: {}", e.getMessage());
    }
  }

  private static RuntimeException missing(Analyzer analyzer, Throwable cause) {
    return Refusal.of(
        "ConfigError",
        "this session's analyzer (" + analyzer.getClass().getName() + ") takes no further rules, so tags would not follow data in "
            + "it; start it with spark.sql.extensions=" + SparkcryptExtensions.class.getName()
            + " and the jar in spark.jars, as `sparkcrypt conf` prints them, or use its newSession()",
        cause);
  }
}

package io.sparkcrypt;

import java.util.List;
import java.util.Map;
import java.util.WeakHashMap;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.SparkSessionExtensions;
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
    SessionState state = live.sessionState();
    try {
      add(state.analyzer(), POST_HOC, new TagRule(live));
      if (NameRule.IS_OFFERED) { // rules that come before names are resolved
        add(state.analyzer(), EARLY, new VariableRule(live));
      }
    } catch (RuntimeException e) {
      throw Refusal.of(
          "ConfigError",
          "this session's analyzer (" + state.analyzer().getClass().getName() + ") takes no further rules, so tags would not follow "
              + "data in it; start it with spark.sql.extensions=" + SparkcryptExtensions.class.getName()
              + " and the jar in spark.jars, as `sparkcrypt conf` prints them, or use its newSession()",
          e);
    }
    try {
      add(state, COLUMNAR, new SkipRule.Metrics());
    } catch (RuntimeException e) {
      LOG.warn("scans of this session get no metrics of skipped files: {}", e.getMessage());
    }
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
   * Adds a rule to those in a field of an existing session, unless there is one of its class.
   *
   * <p>Spark has no method for this, unlike for optimizer rules; it reads the field again for each query.
   */
  private static void add(Object owner, String field, Object rule) {
    List<Object> rules = Calls.list(Calls.call(owner, field));
    if (rules.stream().noneMatch(present -> present.getClass() == rule.getClass())) {
      rules.add(rule);
      Calls.setField(owner.getClass(), owner, field, Calls.scalaList(rules));
      if (Calls.list(Calls.call(owner, field)).stream().noneMatch(present -> present == rule)) {
        throw new IllegalStateException(owner.getClass().getName() + " takes no further rules");
      }
    }
  }
}

package io.sparkcrypt;

import java.util.List;
import java.util.Map;
import java.util.WeakHashMap;
import java.util.function.Function;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.ColumnarRule;
import scala.Function1;
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

  /** The extensions that {@code install} has extended already, by identity. */
  private static final Map<Object, Boolean> EXTENDED = new WeakHashMap<>();

  @Override
  public BoxedUnit apply(SparkSessionExtensions extensions) {
    Reader.protectNames();
    extensions.injectPreCBORule(rule(session -> new TableOptionsRule()));
    extensions.injectPreCBORule(rule(session -> new SkipRule()));
    extensions.injectColumnar(skipMetrics());
    extensions.injectPostHocResolutionRule(rule(NamedColumnGuard::new));
    extensions.injectPostHocResolutionRule(rule(TagRule::new));
    extensions.injectResolutionRule(rule(MaskRule::new));
    extensions.injectCheckRule(maskedWriteGuard());
    NameRule.inject(extensions, rule(NameRule::new));
    NameRule.inject(extensions, rule(VariableRule::new));
    Declassify.inject(extensions);
    return BoxedUnit.UNIT;
  }

  /**
   * Adds the rules to an existing session, and to those that its {@code newSession} creates.
   *
   * @param session a SparkSession
   */
  public static void install(Object session) {
    EarlierTables.of((SparkSession) session); // some writers drop a table before TagRule sees a plan
    LiveRules.addPostHoc(session, new TagRule((SparkSession) session));
    LiveRules.addEarly(session, new VariableRule((SparkSession) session));
    LiveRules.addColumnar(session, new SkipMetrics());
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
    Object analyzer = Calls.call(Calls.call(session, "sessionState"), "analyzer");
    return Calls.list(Calls.call(analyzer, "extendedResolutionRules")).stream().anyMatch(rule -> rule instanceof MaskRule);
  }

  private static Function1<SparkSession, Rule<LogicalPlan>> rule(Function<SparkSession, Rule<LogicalPlan>> make) {
    return new AbstractFunction1<>() {
      @Override
      public Rule<LogicalPlan> apply(SparkSession session) {
        return make.apply(session);
      }
    };
  }

  private static Function1<SparkSession, ColumnarRule> skipMetrics() {
    return new AbstractFunction1<>() {
      @Override
      public ColumnarRule apply(SparkSession session) {
        return new SkipMetrics();
      }
    };
  }

  private static Function1<SparkSession, Function1<LogicalPlan, BoxedUnit>> maskedWriteGuard() {
    return new AbstractFunction1<>() {
      @Override
      public Function1<LogicalPlan, BoxedUnit> apply(SparkSession session) {
        return new MaskedWriteGuard(session);
      }
    };
  }
}

package io.sparkcrypt;

import java.util.List;
import java.util.Map;
import java.util.WeakHashMap;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.SparkSessionExtensions;
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
    extensions.injectPreCBORule(session -> new TableOptionsRule());
    extensions.injectPreCBORule(session -> new SkipRule());
    extensions.injectColumnar(session -> new SkipMetrics());
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
}

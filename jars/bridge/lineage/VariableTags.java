package io.sparkcrypt;

import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.WeakHashMap;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;

/**
 * What the variables of a session have from the tagged columns that they were set from.
 *
 * <p>A variable keeps its tags until the session ends, whatever is put into it later: whether a statement will have set it is not
 * known when it is resolved. Spark 3.5 has no variables.
 */
final class VariableTags {
  private static final int MOST_VARIABLES = 10_000;
  private static final Carried NOTHING = new Carried();
  private static final Map<SparkSession, Map<String, Carried>> BY_SESSION = Collections.synchronizedMap(new WeakHashMap<>());

  private VariableTags() {}

  /** The query whose row a statement puts into variables; null for other plans. */
  static LogicalPlan query(LogicalPlan plan) {
    return plan.getClass().getSimpleName().equals("SetVariable") ? (LogicalPlan) Calls.call(plan, "sourceQuery") : null;
  }

  /** Notes what the variables of a statement will have. */
  static void note(SparkSession session, LogicalPlan statement, LogicalPlan query, PlanTags tags) {
    List<Object> variables = Calls.list(Calls.call(statement, "targetVariables"));
    List<Attribute> columns = Trees.output(query);
    for (int i = 0; i < variables.size(); i++) {
      Carried found = tags.of(columns.get(i));
      if (!found.isEmpty()) {
        Map<String, Carried> known = BY_SESSION.computeIfAbsent(session, unused -> Collections.synchronizedMap(new Newest<>(MOST_VARIABLES)));
        known.merge(name(variables.get(i)), found, VariableTags::united);
      }
    }
  }

  /** What a variable has; nothing for other expressions. */
  static Carried of(Expression expression) {
    boolean isVariable = expression.getClass().getSimpleName().equals("VariableReference");
    Map<String, Carried> known = isVariable ? BY_SESSION.get(SparkSession.active()) : null;
    return known == null ? NOTHING : known.getOrDefault(name(expression), NOTHING);
  }

  /** Both together, in a new one: queries of other threads may be reading what is known. */
  private static Carried united(Carried before, Carried more) {
    Carried all = new Carried();
    all.addAll(before);
    all.addAll(more);
    return all;
  }

  /** Whether the active session has a variable that has something. */
  static boolean isAny() {
    return BY_SESSION.containsKey(SparkSession.active());
  }

  private static String name(Object variable) {
    return Calls.call(variable, "identifier").toString();
  }
}

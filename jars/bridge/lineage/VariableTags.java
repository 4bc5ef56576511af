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
 * The tags that a session's variables have from the columns that they were set from.
 *
 * <p>A variable keeps its tags until the session ends, whatever is assigned to it later: when a statement is resolved, it is not
 * known whether it will run. Spark 3.5 has no variables.
 */
final class VariableTags {
  private static final int MOST_VARIABLES = 10_000;
  private static final Carried NOTHING = new Carried();
  private static final Map<SparkSession, Map<String, Carried>> BY_SESSION = Collections.synchronizedMap(new WeakHashMap<>());

  private VariableTags() {}

  /** Returns the query whose row a statement assigns to variables; null for other plans. */
  static LogicalPlan query(LogicalPlan plan) {
    return plan.getClass().getSimpleName().equals("SetVariable") ? (LogicalPlan) Calls.call(plan, "sourceQuery") : null;
  }

  /** Records the tags that the variables of a statement will have. */
  static void note(SparkSession session, LogicalPlan statement, LogicalPlan query, PlanTags tags) {
    List<Object> variables = Calls.list(Calls.call(statement, "targetVariables"));
    List<Attribute> columns = Trees.output(query);
    for (int i = 0; i < variables.size(); i++) {
      Carried found = tags.of(columns.get(i));
      if (!found.isEmpty()) {
        Map<String, Carried> known = BY_SESSION.computeIfAbsent(session, unused -> Collections.synchronizedMap(new Newest<>(MOST_VARIABLES)));
        known.merge(name(variables.get(i)), found, VariableTags::unite);
      }
    }
  }

  /** Returns the tags of a variable; nothing for other expressions. */
  static Carried of(Expression expression) {
    boolean isVariable = expression.getClass().getSimpleName().equals("VariableReference");
    Map<String, Carried> known = isVariable ? BY_SESSION.get(SparkSession.active()) : null;
    return known == null ? NOTHING : known.getOrDefault(name(expression), NOTHING);
  }

  /** Returns a new object with both, since queries of other threads may be reading the known one. */
  private static Carried unite(Carried before, Carried more) {
    Carried all = new Carried();
    all.addAll(before);
    all.addAll(more);
    return all;
  }

  /** Returns whether the active session has a variable with tags. */
  static boolean isAny() {
    return BY_SESSION.containsKey(SparkSession.active());
  }

  private static String name(Object variable) {
    return Calls.call(variable, "identifier").toString();
  }
}

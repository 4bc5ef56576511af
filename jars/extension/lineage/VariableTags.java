package io.sparkcrypt;

import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.WeakHashMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;

/**
 * The tags that a session's variables have from the columns that they were set from.
 *
 * <p>A variable keeps its tags until the session ends, whatever is assigned to it later: when a statement is resolved, it is not
 * known whether it will run. So a variable of a script shares its tags with others of its name. Spark 3.5 has no variables.
 */
final class VariableTags {
  private static final Carried NOTHING = new Carried();
  private static final String FETCH = "FetchCursor";
  private static final Set<String> ASSIGNING = Set.of("SetVariable", "CreateVariable", FETCH);
  private static final String CURSORS = "org.apache.spark.sql.execution.command.v2.CursorCommandUtils$";
  private static final Map<SparkSession, Map<String, Carried>> BY_SESSION = Collections.synchronizedMap(new WeakHashMap<>());

  private VariableTags() {}

  /** Returns whether a statement declares or sets variables. */
  static boolean isAssigned(LogicalPlan plan) {
    return ASSIGNING.contains(plan.getClass().getSimpleName());
  }

  /** Records the tags that the variables of a statement will have. */
  static void note(SparkSession session, LogicalPlan statement, PlanTags tags) {
    if (statement.getClass().getSimpleName().equals("SetVariable")) {
      List<Object> variables = Calls.list(Calls.call(statement, "targetVariables"));
      LogicalPlan query = (LogicalPlan) Calls.call(statement, "sourceQuery");
      tags.visit(query);
      List<Attribute> columns = Trees.output(query);
      for (int i = 0; i < variables.size(); i++) {
        note(session, variables.get(i), tags.of(columns.get(i)));
      }
    } else if (statement.getClass().getSimpleName().equals(FETCH)) {
      List<Object> variables = Calls.list(Calls.call(statement, "targetVariables"));
      List<Attribute> columns = columnsOf(Calls.call(statement, "cursor"));
      for (int i = 0; i < variables.size(); i++) {
        Carried found = new Carried();
        boolean isEach = variables.size() == columns.size(); // else one variable takes them all
        (isEach ? columns.subList(i, i + 1) : columns).forEach(column -> found.addAll(FieldTags.of(column.metadata())));
        note(session, variables.get(i), found);
      }
    } else {
      Carried found = tags.of((Expression) Calls.call(statement, "defaultExpr"));
      Object several = Calls.callIfPresent(statement, "names"); // Spark 4.0 has one
      List<Object> names = several == null ? List.of(Calls.call(statement, "name")) : Calls.list(several);
      names.forEach(name -> note(session, name, found));
    }
  }

  /** Returns the columns of a cursor that was opened, with the tags that its query was given then; none if it was not. */
  private static List<Attribute> columnsOf(Object cursor) {
    Object context = Calls.call(cursors(), "getScriptingContext", Calls.call(Calls.call(cursor, "definition"), "name"));
    Object state = Calls.orNull(Calls.call(context, "getCursorState", cursor));
    Object columns = state == null ? null : Calls.callIfPresent(state, "outputSchema");
    return columns == null ? List.of() : Trees.elements(Attribute.class, columns);
  }

  private static Object cursors() {
    try { // Spark 4.2 and later have cursors
      return Class.forName(CURSORS, true, LogicalPlan.class.getClassLoader()).getField("MODULE$").get(null);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  private static void note(SparkSession session, Object variable, Carried found) {
    if (!found.isEmpty()) {
      BY_SESSION.computeIfAbsent(session, unused -> new ConcurrentHashMap<>())
          .merge(name(variable), found, VariableTags::unite);
    }
  }

  /** Returns the tags of a variable; nothing for other expressions. */
  static Carried of(Expression expression) {
    boolean isVariable = expression.getClass().getSimpleName().equals("VariableReference");
    return isVariable ? of(SparkSession.active()).getOrDefault(name(expression), NOTHING) : NOTHING;
  }

  /** Returns the tags of a session's variables by their names in lower case. */
  static Map<String, Carried> of(SparkSession session) {
    return BY_SESSION.getOrDefault(session, Map.of());
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
    return ((String) Calls.call(Calls.call(variable, "identifier"), "name")).toLowerCase(Locale.ROOT);
  }
}

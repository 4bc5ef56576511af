package io.sparkcrypt;

import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.WeakHashMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Pivot;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
import org.apache.spark.sql.types.Metadata;

/**
 * The tags that a session's variables have from the columns that they were set from, and a rule for such variables where Spark
 * puts their values into a plan while it resolves it, so that TagRule would see literals.
 *
 * <p>A variable keeps its tags until the session ends, whatever is assigned to it later: when a statement is resolved, it is not
 * known whether it will run. So a variable of a script shares its tags with others of its name. Spark 3.5 has no variables.
 *
 * <p>The rule comes before names are resolved. The columns of an inline table get the tags of the variables in them. A variable is
 * refused where its value would be the text of a statement, a name, or an argument of a statement, which may be either. Names are
 * compared with those of all tagged variables, so a column of such a name counts as the variable.
 */
final class VariableRule extends Rule<LogicalPlan> {
  /** Mark of an inline table whose columns have the tags. */
  private static final TreeNodeTag<Boolean> FOLLOWED = new TreeNodeTag<>("sparkcrypt.followed");

  private static final String INLINE = "UnresolvedInlineTable";
  private static final String IDENTIFIER = "WithUnresolvedIdentifier";

  /** The method that evaluates the arguments of {@code spark.sql(text, args)}. */
  private static final String ARGUMENTS = "resolveAndValidateParameters";

  /** Functions that take names of fields out of their arguments, and the first argument that has any. */
  private static final Map<String, Integer> NAMING =
      Map.of(
          "from_json", 1, "from_csv", 1, "from_xml", 1, "from_avro", 1, "from_protobuf", 1, "variant_get", 2, "try_variant_get", 2);

  private static final String STRUCT = "named_struct";

  private static final Carried NOTHING = new Carried();
  private static final String FETCH = "FetchCursor";
  private static final Set<String> ASSIGNING = Set.of("SetVariable", "CreateVariable", FETCH);
  private static final String CURSORS = "org.apache.spark.sql.execution.command.v2.CursorCommandUtils$";
  private static final Map<SparkSession, Map<String, Carried>> BY_SESSION = Collections.synchronizedMap(new WeakHashMap<>());

  private final SparkSession session;

  VariableRule(SparkSession session) {
    this.session = session;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (tagsIn(session).isEmpty()) {
      return plan;
    }
    if (StackWalker.getInstance().walk(frames -> frames.anyMatch(frame -> frame.getMethodName().equals(ARGUMENTS)))) {
      refuse(Trees.expressions(plan), "is an argument of spark.sql");
    }
    return plan.resolveOperators(new Trees.Steps<>(node -> true, this::follow));
  }

  private LogicalPlan follow(LogicalPlan node) {
    String name = node.getClass().getSimpleName();
    if (name.equals(INLINE)) {
      return node.getTagValue(FOLLOWED).isDefined() ? node : addTags(node);
    }
    if (name.equals("UnresolvedExecuteImmediate")) {
      refuse(List.of((Expression) Calls.call(node, "sqlStmtStr")), "is in the text of EXECUTE IMMEDIATE");
      refuse(Trees.expressions(node, "args"), "is an argument of EXECUTE IMMEDIATE");
      return node;
    }
    if (name.endsWith("ParameterizedQuery")) {
      refuse(Trees.expressions(node), "is an argument of a statement");
    } else if (name.equals("OpenCursor")) {
      refuse(Trees.expressions(node, "args"), "is an argument of a cursor");
    } else if (node instanceof Pivot) {
      List<Expression> unnamed = new ArrayList<>(Trees.expressions(node, "pivotValues"));
      unnamed.removeIf(value -> value instanceof Alias);
      refuse(unnamed, "names a column of PIVOT");
    } else if (name.endsWith(IDENTIFIER)) {
      refuse(List.of((Expression) Calls.call(node, "identifierExpr")), "is in IDENTIFIER");
    }
    Trees.expressions(node).forEach(this::refuseInNames);
    return node;
  }

  /** Refuses variables whose values would be names in an expression. */
  private void refuseInNames(Expression expression) {
    String name = expression.getClass().getSimpleName();
    if (name.endsWith(IDENTIFIER)) {
      refuse(List.of((Expression) Calls.call(expression, "identifierExpr")), "is in IDENTIFIER");
    } else if (name.equals("UnresolvedFunction")) {
      List<String> parts = Trees.elements(String.class, Calls.call(expression, "nameParts"));
      String function = parts.get(parts.size() - 1).toLowerCase(Locale.ROOT);
      List<Expression> arguments = Trees.expressions(expression, "arguments");
      for (int i = 0; i < arguments.size(); i++) {
        if (function.equals(STRUCT) ? i % 2 == 0 : i >= NAMING.getOrDefault(function, arguments.size())) {
          refuse(List.of(arguments.get(i)), "names a field in " + function);
        }
      }
    }
    Trees.children(expression).forEach(this::refuseInNames);
  }

  /** Returns a projection that gives the columns of an inline table the tags of the variables in them. */
  private LogicalPlan addTags(LogicalPlan table) {
    List<String> names = Trees.elements(String.class, Calls.call(table, "names"));
    Map<Integer, Carried> tags = new LinkedHashMap<>();
    for (Object row : Calls.list(Calls.call(table, "rows"))) {
      List<Expression> values = Trees.elements(Expression.class, row);
      for (int i = 0; i < values.size(); i++) {
        Carried ofColumn = tags.computeIfAbsent(i, unused -> new Carried());
        variables(values.get(i)).values().forEach(ofColumn::addAll);
      }
    }
    if (tags.values().stream().allMatch(found -> found.tags().isEmpty())) {
      return table;
    }
    table.setTagValue(FOLLOWED, true);
    List<Object> columns = new ArrayList<>();
    for (int i = 0; i < names.size(); i++) {
      Expression column = UnresolvedAttribute.quoted(names.get(i));
      Set<String> ofColumn = tags.get(i).tags();
      columns.add(ofColumn.isEmpty() ? column : Trees.alias(column, names.get(i), FieldTags.with(Metadata.empty(), ofColumn), null));
    }
    return Trees.project(columns, table);
  }

  private void refuse(List<Expression> places, String place) {
    for (Expression expression : places) {
      variables(expression).forEach((name, carried) -> {
        if (!carried.tags().isEmpty()) {
          throw Refusal.of(
              "PlanError",
              "the variable '" + name + "' " + place + ", and has the tags " + new TreeSet<>(carried.tags()) + " of the columns that "
                  + "it was set from: Spark puts its value there in plaintext, before tags can follow it; allowed: name the variable "
                  + "in a query, as in SELECT " + name + " or WHERE email = " + name + ", in the text of EXECUTE IMMEDIATE too");
        }
      });
    }
  }

  /** Returns the tagged variables that an expression may refer to: all, where it computes a name. */
  private Map<String, Carried> variables(Expression expression) {
    Map<String, Carried> found = new LinkedHashMap<>();
    addVariables(found, tagsIn(session), expression);
    return found;
  }

  private static void addVariables(Map<String, Carried> found, Map<String, Carried> known, Expression expression) {
    String type = expression.getClass().getSimpleName();
    if (type.endsWith(IDENTIFIER)) {
      found.putAll(known);
      return;
    }
    List<String> names = new ArrayList<>();
    if (expression instanceof UnresolvedAttribute) {
      names.addAll(Trees.elements(String.class, Calls.call(expression, "nameParts")));
    } else if (type.equals("VariableReference")) {
      names.add((String) Calls.call(Calls.call(expression, "identifier"), "name"));
    }
    for (String name : Trees.lowerCase(names)) {
      if (known.containsKey(name)) {
        found.put(name, known.get(name));
      }
    }
    Trees.children(expression).forEach(child -> addVariables(found, known, child));
  }

  /** Returns whether a statement declares or sets variables. */
  static boolean isAssigned(LogicalPlan plan) {
    return ASSIGNING.contains(plan.getClass().getSimpleName());
  }

  /** Records the tags that the variables of a statement will have. */
  static void note(SparkSession session, LogicalPlan statement, PlanTags tags) {
    if (statement.getClass().getSimpleName().equals("SetVariable")) {
      LogicalPlan query = (LogicalPlan) Calls.call(statement, "sourceQuery");
      tags.visit(query);
      Iterator<Attribute> columns = Trees.output(query).iterator();
      Calls.list(Calls.call(statement, "targetVariables")).forEach(variable -> note(session, variable, tags.of(columns.next())));
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
          .merge(name(variable), found, VariableRule::unite);
    }
  }

  /** Returns the tags of a variable; nothing for other expressions. */
  static Carried tagsOf(Expression expression) {
    boolean isVariable = expression.getClass().getSimpleName().equals("VariableReference");
    return isVariable ? tagsIn(SparkSession.active()).getOrDefault(name(expression), NOTHING) : NOTHING;
  }

  /** Returns the tags of a session's variables by their names in lower case. */
  private static Map<String, Carried> tagsIn(SparkSession session) {
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

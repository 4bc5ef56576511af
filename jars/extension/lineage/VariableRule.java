package io.sparkcrypt;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Pivot;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
import org.apache.spark.sql.types.Metadata;

/**
 * A rule for tagged variables where Spark puts their values into a plan while it resolves it, so that TagRule would see literals.
 *
 * <p>It comes before names are resolved. The columns of an inline table get the tags of the variables in them. A variable is
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

  private final SparkSession session;

  VariableRule(SparkSession session) {
    this.session = session;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (VariableTags.of(session).isEmpty()) {
      return plan;
    }
    if (StackWalker.getInstance().walk(frames -> frames.anyMatch(frame -> frame.getMethodName().equals(ARGUMENTS)))) {
      refuse(Trees.expressions(plan), "is an argument of spark.sql");
    }
    return plan.resolveOperators(new PlanSteps<>(node -> true, this::follow));
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
      columns.add(ofColumn.isEmpty() ? column : Catalyst.alias(column, names.get(i), FieldTags.with(Metadata.empty(), ofColumn), null));
    }
    return Catalyst.project(columns, table);
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
    Map<String, Carried> known = VariableTags.of(session);
    String type = expression.getClass().getSimpleName();
    if (type.endsWith(IDENTIFIER)) {
      return known;
    }
    Map<String, Carried> found = new LinkedHashMap<>();
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
    Trees.children(expression).forEach(child -> found.putAll(variables(child)));
    return found;
  }
}

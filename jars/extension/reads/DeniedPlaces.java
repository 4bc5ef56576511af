package io.sparkcrypt;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;

/** The leaves of a table that are denied everywhere, and those denied only in some partitions, like those of key templates. */
final class DeniedPlaces {
  private static final String NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__";

  /** Partitions in which the same leaves are denied, including those denied everywhere. */
  record Group(Map<String, DeniedLeaves> leaves, List<Map<String, String>> partitions) {}

  static final DeniedPlaces NONE = new DeniedPlaces(new ReaderDecision.Denied(List.of(), List.of()));

  final Map<String, DeniedLeaves> everywhere;
  final List<Group> groups = new ArrayList<>();

  DeniedPlaces(ReaderDecision.Denied denied) {
    List<ReaderDecision.Leaf> always = denied.leaves().stream().filter(leaf -> leaf.partitions() == null).toList();
    everywhere = byColumn(always);
    Map<TreeSet<Integer>, List<Map<String, String>>> bySet = new LinkedHashMap<>();
    for (int place = 0; place < denied.partitions().size(); place++) {
      TreeSet<Integer> here = new TreeSet<>();
      for (int i = 0; i < denied.leaves().size(); i++) {
        List<Integer> places = denied.leaves().get(i).partitions();
        if (places != null && places.contains(place)) {
          here.add(i);
        }
      }
      if (!here.isEmpty()) {
        bySet.computeIfAbsent(here, unused -> new ArrayList<>()).add(denied.partitions().get(place));
      }
    }
    bySet.forEach(
        (here, partitions) -> {
          List<ReaderDecision.Leaf> leaves = new ArrayList<>(always);
          here.forEach(i -> leaves.add(denied.leaves().get(i)));
          groups.add(new Group(byColumn(leaves), partitions));
        });
  }

  boolean isNone() {
    return everywhere.isEmpty() && groups.isEmpty();
  }

  /** Returns column -> why it is denied somewhere. */
  Map<String, String> reasons() {
    Map<String, String> found = new LinkedHashMap<>();
    everywhere.forEach((column, leaves) -> found.put(column, leaves.why()));
    for (Group group : groups) {
      group.leaves().forEach((column, leaves) -> found.putIfAbsent(column, leaves.why() + " in some partitions"));
    }
    return found;
  }

  /** Returns the condition that a row of this table's node is in one of these partitions. */
  static Expression isIn(List<Map<String, String>> partitions, LogicalPlan node) {
    List<Expression> conditions = new ArrayList<>();
    for (Map<String, String> values : partitions) {
      conditions.add(is(values, node));
    }
    return either(conditions);
  }

  private static Expression is(Map<String, String> values, LogicalPlan node) {
    Expression all = null;
    for (Map.Entry<String, String> entry : values.entrySet()) {
      Attribute column = column(entry.getKey(), node);
      boolean isNull = entry.getValue() == null || entry.getValue().equals(NULL_FOLDER);
      Expression value = isNull ? new Literal(null, column.dataType()) : Catalyst.cast(Catalyst.text(entry.getValue()), column.dataType());
      Expression same = new EqualNullSafe(column, value);
      all = all == null ? same : new And(all, same);
    }
    return all;
  }

  private static Attribute column(String name, LogicalPlan node) {
    for (Object column : Calls.list(Calls.call(node, "output"))) {
      if (((Attribute) column).name().equalsIgnoreCase(name)) {
        return (Attribute) column;
      }
    }
    throw Refusal.of("PlanError", "a key template names partition column " + name + ", which the table does not have");
  }

  /** Returns one OR of all, as deep as the logarithm of their number, since Spark traverses expressions by recursion. */
  private static Expression either(List<Expression> conditions) {
    int half = conditions.size() / 2;
    return half == 0
        ? conditions.get(0)
        : new Or(either(conditions.subList(0, half)), either(conditions.subList(half, conditions.size())));
  }

  private static Map<String, DeniedLeaves> byColumn(List<ReaderDecision.Leaf> leaves) {
    Map<String, DeniedLeaves> found = new LinkedHashMap<>();
    for (ReaderDecision.Leaf leaf : leaves) {
      List<String> path = leaf.path();
      found.computeIfAbsent(path.get(0), unused -> new DeniedLeaves()).add(path.subList(1, path.size()), leaf.why());
    }
    return found;
  }
}

package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Cast$;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.EvalMode$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import scala.Option;

/** The leaves of a table that are denied everywhere, and those denied only in some partitions, like those of key templates. */
final class DeniedPlaces {
  private static final String NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__";

  /** Partitions in which the same leaves are denied, including those denied everywhere. */
  record Group(Map<String, DeniedLeaves> leaves, List<Map<String, String>> partitions) {}

  static final DeniedPlaces NONE = new DeniedPlaces(Wire.array(), List.of());

  final Map<String, DeniedLeaves> everywhere;
  final List<Group> groups = new ArrayList<>();

  /**
   * Creates an object from the helper's answer.
   *
   * @param leaves the masked leaves; those that are masked only in some partitions have the numbers of these
   * @param partitions the values of the columns that key templates need
   */
  DeniedPlaces(JsonNode leaves, List<Map<String, String>> partitions) {
    List<JsonNode> every = new ArrayList<>();
    leaves.forEach(every::add);
    List<JsonNode> always = every.stream().filter(leaf -> !leaf.path("partitions").isArray()).toList();
    everywhere = byColumn(always);
    Map<Integer, List<Integer>> byPlace = new TreeMap<>();
    for (int leaf = 0; leaf < every.size(); leaf++) {
      for (String place : new LinkedHashSet<>(Wire.texts(every.get(leaf).path("partitions")))) {
        byPlace.computeIfAbsent(Integer.valueOf(place), unused -> new ArrayList<>()).add(leaf);
      }
    }
    Map<List<Integer>, List<Map<String, String>>> bySet = new LinkedHashMap<>();
    byPlace.forEach((place, here) -> bySet.computeIfAbsent(here, unused -> new ArrayList<>()).add(partitions.get(place)));
    bySet.forEach((here, in) -> {
      List<JsonNode> all = new ArrayList<>(always);
      here.forEach(leaf -> all.add(every.get(leaf)));
      groups.add(new Group(byColumn(all), in));
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
    Map<String, Attribute> columns = new HashMap<>();
    Trees.output(node).forEach(column -> columns.putIfAbsent(column.name().toLowerCase(Locale.ROOT), column));
    return either(partitions.stream().map(values -> is(values, columns)).toList());
  }

  private static Expression is(Map<String, String> values, Map<String, Attribute> columns) {
    Expression all = null;
    for (Map.Entry<String, String> entry : values.entrySet()) {
      Attribute column = column(entry.getKey(), columns);
      boolean isNull = entry.getValue() == null || entry.getValue().equals(NULL_FOLDER);
      Expression value =
          isNull
              ? new Literal(null, column.dataType())
              : Cast$.MODULE$.apply(Trees.text(entry.getValue()), column.dataType(), Option.empty(), EvalMode$.MODULE$.LEGACY());
      Expression same = new EqualNullSafe(column, value);
      all = all == null ? same : new And(all, same);
    }
    return all;
  }

  private static Attribute column(String name, Map<String, Attribute> columns) {
    Attribute found = columns.get(name.toLowerCase(Locale.ROOT));
    if (found == null) {
      throw Refusal.of("PlanError", "a key template names partition column " + name + ", which the table does not have");
    }
    return found;
  }

  /** Returns one OR of all, as deep as the logarithm of their number, since Spark traverses expressions by recursion. */
  private static Expression either(List<Expression> conditions) {
    int half = conditions.size() / 2;
    return half == 0
        ? conditions.get(0)
        : new Or(either(conditions.subList(0, half)), either(conditions.subList(half, conditions.size())));
  }

  private static Map<String, DeniedLeaves> byColumn(List<JsonNode> leaves) {
    Map<String, DeniedLeaves> found = new LinkedHashMap<>();
    for (JsonNode leaf : leaves) {
      List<String> path = Wire.texts(leaf.path("path"));
      String why = "key " + leaf.path("key").asText() + " of tag " + leaf.path("tag").asText() + " is " + leaf.path("why").asText();
      found.computeIfAbsent(path.get(0), unused -> new DeniedLeaves()).add(path.subList(1, path.size()), why);
    }
    return found;
  }
}

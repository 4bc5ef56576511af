package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.SparkContext;
import org.apache.spark.api.java.JavaSparkContext;
import org.slf4j.Logger;

/**
 * Evaluation of a query's files by the parts of a store that is too large to be kept open
 * (sparkcrypt/skipping/query/skip_files.py).
 *
 * <p>The driver's helper evaluates a few parts, one after another. Many are evaluated in tasks, one part each, by the executors'
 * helpers; a part that no executor can read, for example on a disk of the driver, then goes to the driver's helper.
 */
final class StoreParts {
  private static final Logger LOG = CleanLog.of(StoreParts.class);
  private static final int FEW = 4;
  /** The most parts that the driver evaluates if tasks cannot: it takes about a minute for them. */
  private static final int MOST_HERE = 64;
  private static final String DESCRIPTION = "spark.job.description";
  private static final String CANCELLED = "SPARK_JOB_CANCELLED";
  private static final List<String> SENT = List.of("policy", "path", "properties", "schema", "types", "predicate", "lifetime_seconds");

  private StoreParts() {}

  /**
   * Returns a store's answer for listed files, once its parts are evaluated.
   *
   * @param table its name in messages
   * @param request skip_files, as it was sent
   * @param answer the helper's, with the parts to evaluate; without parts if it has evaluated the files itself
   */
  static JsonNode judge(SparkContext context, String table, ObjectNode request, JsonNode answer) {
    JsonNode parts = Wire.requireField(answer, "parts");
    if (parts.isEmpty()) {
      return answer;
    }
    ObjectNode asked = Wire.request("judge_part");
    SENT.forEach(name -> asked.set(name, request.get(name)));
    List<String> identities = new ArrayList<>();
    parts.forEach(part -> identities.add(part.path("part").toString()));
    List<JsonNode> judgements =
        parts.size() <= FEW
            ? identities.stream().map(identity -> ask(asked, identity)).toList()
            : inTasks(context, table, asked, identities);
    return merge((ObjectNode) answer, parts, judgements);
  }

  private static JsonNode ask(ObjectNode asked, String identity) {
    ObjectNode request = asked.deepCopy();
    request.set("part", Wire.parse(identity));
    return Helper.ask(request);
  }

  private static List<JsonNode> inTasks(SparkContext context, String table, ObjectNode asked, List<String> identities) {
    List<JsonNode> found = new ArrayList<>();
    int failed = 0;
    for (String judgement : run(context, table, asked.toString(), identities)) {
      JsonNode judged = Wire.parse(judgement);
      if (judged.has("error")) {
        String why = judged.path("error").asText();
        if (++failed > MOST_HERE) {
          throw Refusal.of("StorageError", "more than " + MOST_HERE + " parts of its store cannot be judged by executors: " + why);
        }
        LOG.info("{}: the driver judges a part of its store that an executor could not: {}", table, why);
        judged = ask(asked, identities.get(found.size()));
      }
      found.add(judged);
    }
    return found;
  }

  /** Runs a task for each part, and returns their results; a task that cannot be run counts as failed. */
  private static List<String> run(SparkContext context, String table, String asked, List<String> identities) {
    String before = context.getLocalProperty(DESCRIPTION);
    context.setLocalProperty(DESCRIPTION, "sparkcrypt: judges " + identities.size() + " parts of the store of " + table);
    try {
      JavaSparkContext spark = JavaSparkContext.fromSparkContext(context);
      return spark.parallelize(identities, identities.size()).map(identity -> judge(asked, identity)).collect();
    } catch (Exception e) { // Spark's exceptions are checked, and Scala declares none
      String why = String.valueOf(e.getMessage());
      if (e instanceof InterruptedException || why.contains(CANCELLED)) {
        throw Refusal.<RuntimeException>raise(e); // the query was cancelled
      }
      return Collections.nCopies(identities.size(), failure("its tasks failed: " + why.lines().findFirst().orElse("")));
    } finally {
      context.setLocalProperty(DESCRIPTION, before);
    }
  }

  /** Asks the helper of the executor's JVM. A failure is a result too, so that Spark does not retry the task. */
  private static String judge(String asked, String identity) {
    try {
      return ask((ObjectNode) Wire.parse(asked), identity).toString();
    } catch (RuntimeException | RefusedError | LinkageError e) {
      return failure(String.valueOf(e.getMessage()));
    }
  }

  private static String failure(String why) {
    return Wire.object().put("error", why).toString();
  }

  private static ObjectNode merge(ObjectNode answer, JsonNode parts, List<JsonNode> judgements) {
    TreeMap<Integer, Map<String, BitSet>> excluded = new TreeMap<>();
    ObjectNode unused = Wire.object();
    for (int i = 0; i < parts.size(); i++) {
      excluded.put(Wire.requireField(parts.get(i), "first").asInt(), bitmaps(judgements.get(i)));
      unused.setAll((ObjectNode) Wire.requireField(judgements.get(i), "unused"));
    }
    ArrayNode skipped = Wire.array();
    ObjectNode by = Wire.object();
    int number = 0;
    for (JsonNode row : Wire.requireField(answer, "rows")) {
      Map.Entry<Integer, Map<String, BitSet>> part = row.asInt() < 0 ? null : excluded.floorEntry(row.asInt());
      String index = part == null ? null : indexOf(part.getValue(), row.asInt() - part.getKey());
      if (index != null) {
        skipped.add(number);
        by.put(index, by.path(index).asInt() + 1);
      }
      number++;
    }
    answer.set("skipped", skipped);
    answer.set("by", by);
    answer.set("unused", unused);
    return answer;
  }

  private static Map<String, BitSet> bitmaps(JsonNode judgement) {
    Map<String, BitSet> found = new LinkedHashMap<>();
    JsonNode rows = Wire.requireField(judgement, "rows");
    rows.fieldNames().forEachRemaining(index -> found.put(index, BitSet.valueOf(Wire.bytes(rows, index))));
    return found;
  }

  private static String indexOf(Map<String, BitSet> part, int row) {
    for (Map.Entry<String, BitSet> entry : part.entrySet()) {
      if (entry.getValue().get(row)) {
        return entry.getKey();
      }
    }
    return null;
  }
}

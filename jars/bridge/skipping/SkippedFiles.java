package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.metric.SQLMetrics;

/**
 * Counts of the files that one scan does not open, in all and by index, as metrics of Spark.
 *
 * <p>Metrics are made before the store is asked: one for each kind of index of each column that a filter names. Their names hold
 * names of columns, and no value.
 */
final class SkippedFiles {
  private static final String KEY = "filesSkipped";
  private static final String KEY_BY = KEY + "By:";
  private static final String SEVERAL = KEY_BY + "several";
  private static final String TEXT = "number of files skipped";
  /** As skipper.py names them. */
  private static final List<String> KINDS = List.of("minmax", "valuelist", "bloomfilter");

  private final Map<String, SQLMetric> metrics = new LinkedHashMap<>();

  /** The metrics by their keys; the copies of a scan share them. */
  synchronized Map<String, SQLMetric> metrics(SparkContext context, Iterable<String> columns) {
    add(context, KEY, TEXT);
    for (String column : columns) {
      for (String kind : KINDS) {
        add(context, KEY_BY + column + " " + kind, TEXT + " by " + column + " " + kind);
      }
    }
    add(context, SEVERAL, TEXT + " by several indexes together");
    return new LinkedHashMap<>(metrics);
  }

  /**
   * Takes what a listing came to.
   *
   * @param by index, or several of them -> how many files it left out
   */
  synchronized void set(JsonNode by) {
    metrics.values().forEach(metric -> metric.set(0));
    by.properties()
        .forEach(
            entry -> {
              add(KEY, entry.getValue().asLong());
              add(metrics.containsKey(KEY_BY + entry.getKey()) ? KEY_BY + entry.getKey() : SEVERAL, entry.getValue().asLong());
            });
  }

  private void add(SparkContext context, String key, String text) {
    metrics.computeIfAbsent(key, unused -> SQLMetrics.createMetric(context, text));
  }

  private void add(String key, long files) {
    SQLMetric metric = metrics.get(key);
    if (metric != null) { // a listing of a plan that does not run, or not yet, counts for nobody
      metric.add(files);
    }
  }
}

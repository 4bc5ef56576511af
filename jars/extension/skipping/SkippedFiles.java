package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.metric.SQLMetrics;

/**
 * Counts of the files that one scan does not open, in total and by index, as Spark's metrics.
 *
 * <p>Metrics are created before the store is asked: one for each kind of index of each column that a filter names. Their names
 * contain names of columns, and no values.
 */
final class SkippedFiles {
  private static final String KEY = "filesSkipped";
  private static final String KEY_BY = KEY + "By:";
  private static final String SEVERAL = KEY_BY + "several";
  private static final String TEXT = "number of files skipped";
  /** The same names as in sparkcrypt/skipping/format/naming.py. */
  private static final List<String> KINDS = List.of("minmax", "valuelist", "bloomfilter");

  private final Map<String, SQLMetric> metrics = new LinkedHashMap<>();

  /** Returns the metrics by their keys; the copies of a scan share them. */
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
   * Sets the counts of a listing.
   *
   * @param by index, or several of them -> number of files left out
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
    if (metric != null) { // a listing of a plan that does not run, or not yet, is not counted
      metric.add(files);
    }
  }
}

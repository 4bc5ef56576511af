package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.metric.SQLMetrics;
import org.slf4j.Logger;

/**
 * A client of the helper that finds listed files of one table which a query need not open
 * (sparkcrypt/skipping/query/skip_files.py).
 *
 * <p>On any failure every file is opened, with one warning: a store makes queries faster and never changes a result.
 */
final class FileSkipper {
  private static final Logger LOG = CleanLog.of(FileSkipper.class);

  private final SessionPolicy policy;
  private final ReadTable table;
  private final FilterForms forms;
  private final Set<String> read;
  private final String obstacle;
  private final SkippedFiles skippedFiles = new SkippedFiles();
  private volatile ObjectNode outcome;
  private volatile boolean isTold;

  /**
   * Creates a client for one scan.
   *
   * @param read the columns that the query reads
   * @param obstacle why no index may be used; null if one may
   */
  FileSkipper(SessionPolicy policy, ReadTable table, FilterForms forms, Set<String> read, String obstacle) {
    this.policy = policy;
    this.table = table;
    this.forms = forms;
    this.read = read;
    this.obstacle = obstacle;
  }

  /** Returns the result of the last listing, as sparkcrypt.skipping_report shows it; null if nothing was listed yet. */
  ObjectNode outcome() {
    return outcome;
  }

  /** Returns the metrics of files left out by listings with these filters, by their keys. */
  Map<String, SQLMetric> metrics(SparkContext context, List<Expression> filters) {
    return skippedFiles.metrics(context, forms.columns(filters));
  }

  /**
   * Returns the files to open, in their partitions; null if all of them must be opened.
   *
   * @param partitions Spark's listing, each with partition values and files
   */
  List<Object> keepFiles(List<Object> partitions, List<Expression> filters) {
    int listed = partitions.stream().mapToInt(partition -> Calls.list(Calls.call(partition, "files")).size()).sum();
    skippedFiles.set(Wire.object());
    ObjectNode noted = Wire.object().put("table", table.name()).put("listed", listed).put("opened", listed);
    try {
      ArrayNode predicate = forms.of(filters);
      String why = obstacle != null ? obstacle : predicate == null ? "no filter says anything of a column in files" : null;
      if (why != null || listed == 0) {
        outcome = noted.put("why", why);
        return null;
      }
      JsonNode answer = ask(partitions, predicate);
      Set<Integer> skipped = skippedNumbers(answer, listed);
      List<Object> kept = skipped.isEmpty() ? null : without(partitions, skipped);
      outcome = note(noted, answer, listed - skipped.size());
      skippedFiles.set(answer.path("by"));
      return kept;
    } catch (RuntimeException | RefusedError | LinkageError e) {
      outcome = noted.put("why", e.getMessage());
      if (!isTold) {
        isTold = true;
        LOG.warn("{}: no file is skipped, since its store cannot be used: {}", table.name(), e.getMessage());
      }
      return null;
    }
  }

  private JsonNode ask(List<Object> partitions, ArrayNode predicate) {
    Configuration conf = policy.hadoopConf();
    SessionConf session = new SessionConf(conf);
    ObjectNode request = session.request("skip_files", new Path(table.folder()), table.readerProperties());
    session.addLifetime(request);
    request.put("schema", table.schema().json()).set("types", forms.types);
    read.forEach(request.putArray("read")::add);
    request.set("predicate", predicate);
    List<Path> paths = addFiles(request, partitions);
    JsonNode answer = Helper.ask(request);
    if (!answer.path("undecided").isEmpty()) {
      ReaderDecision.sample(conf, paths, null).forEach(request.putArray("key_metadata")::add);
      answer = Helper.ask(request);
      if (!answer.path("undecided").isEmpty()) {
        throw Refusal.of("KeyServiceError", "whether keys of columns that it reads are denied cannot be told: " + answer.path("undecided"));
      }
    }
    return StoreParts.judge(policy.sparkContext(), table.name(), request, answer);
  }

  private static List<Path> addFiles(ObjectNode request, List<Object> partitions) {
    Map<Path, Integer> folders = new LinkedHashMap<>();
    List<Path> paths = new ArrayList<>();
    ArrayNode files = request.putArray("files");
    for (Object partition : partitions) {
      for (FileStatusWithMetadata file : Calls.<FileStatusWithMetadata>list(Calls.call(partition, "files"))) {
        Path path = file.getPath();
        int folder = folders.computeIfAbsent(path.getParent(), unused -> folders.size());
        files.addArray().add(folder).add(path.getName()).add(file.getModificationTime()).add(file.getLen());
        paths.add(path);
      }
    }
    ArrayNode named = request.putArray("folders");
    folders.keySet().forEach(folder -> named.add(folder.toString()));
    return paths;
  }

  private static Set<Integer> skippedNumbers(JsonNode answer, int listed) {
    Set<Integer> found = new HashSet<>();
    for (JsonNode number : Wire.requireField(answer, "skipped")) {
      if (!number.isInt() || number.asInt() < 0 || number.asInt() >= listed || !found.add(number.asInt())) {
        throw Refusal.of("BridgeError", "the helper names a file that was not listed; jar and helper do not belong together");
      }
    }
    return found;
  }

  private static List<Object> without(List<Object> partitions, Set<Integer> skipped) {
    List<Object> found = new ArrayList<>();
    int number = 0;
    for (Object partition : partitions) {
      Object files = Calls.call(partition, "files");
      List<Object> kept = new ArrayList<>();
      for (Object file : Calls.list(files)) {
        if (!skipped.contains(number++)) {
          kept.add(file);
        }
      }
      if (!kept.isEmpty()) {
        found.add(Calls.copy(partition, files, Calls.scalaList(kept)));
      }
    }
    return found;
  }

  private ObjectNode note(ObjectNode noted, JsonNode answer, int opened) {
    noted.put("opened", opened);
    for (String name : List.of("by", "unused", "store", "generation", "why")) {
      noted.set(name, answer.path(name));
    }
    LOG.info("{}: {} of {} files are opened; {}", table.name(), opened, noted.path("listed"), noted);
    return noted;
  }

  /**
   * Counts of the files that one scan does not open, in total and by index, as Spark's metrics.
   *
   * <p>Metrics are created before the store is asked: one for each kind of index of each column that a filter names. Their names
   * contain names of columns, and no values.
   */
  private static final class SkippedFiles {
    private static final String KEY = "filesSkipped";
    private static final String KEY_BY = KEY + "By:";
    private static final String SEVERAL = KEY_BY + "several";
    private static final String TEXT = "number of files skipped";
    /** The same names as in sparkcrypt/skipping/format/description.py. */
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
}

package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.StackWalker.StackFrame;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import java.util.regex.Pattern;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructType;
import org.slf4j.Logger;

/**
 * A guard against values of encrypted columns in what is in clear: metadata of columns, statistics in plaintext footers, names of
 * files and columns.
 *
 * <p>The helper decides (sparkcrypt/decide/values_in_clear.py).
 */
final class ClearValuesGuard {
  private static final Logger LOG = CleanLog.of(ClearValuesGuard.class);
  /** Methods that collect values for names: the first in Spark 3.5, where the second is missing. */
  private static final List<String> PIVOTS = List.of("pivot", "collectPivotValues");

  /** What a schema has where it may say values, whatever its tags: metadata, VARIANT, and types with bounds beside statistics. */
  private static final Pattern SAYING = Pattern.compile("\"metadata\":\\{[^}]|\"(variant|geometry|geography)\\b");

  private static final List<String> OPTIONS = List.of("options", "writeOptions");
  private final SessionPolicy policy;

  ClearValuesGuard(SessionPolicy policy) {
    this.policy = policy;
  }

  /**
   * Judges a write of tagged columns.
   *
   * @param command the command that writes
   * @param written the columns that it writes, with all of their tags
   * @param target the folder and properties of its table
   * @return the metadata of the columns that may not be written with all that they have
   */
  Map<String, Metadata> checkWrite(LogicalPlan command, StructType written, LostTagsGuard.Target target) {
    Object table = WriteQueries.createdTable(command);
    Map<String, String> options = table == null ? new TreeMap<>() : optionsIn(Calls.call(Calls.call(table, "storage"), "properties"));
    OPTIONS.forEach(name -> options.putAll(optionsIn(Calls.callIfPresent(command, name))));
    ObjectNode request = request("check_written", target.folder(), written, target.properties(), options);
    request.put("is_parquet", SinkGuard.sinkOf(command) == null);
    Map<String, Metadata> kept = new LinkedHashMap<>();
    textsIn(Helper.ask(request).path("metadata")).forEach((name, json) -> kept.put(name, Metadata.fromJson(json)));
    return kept;
  }

  /** Judges the metadata of a table that is created without rows. */
  void checkEmpty(Object table) {
    if (FieldTags.hasMetadata(TableEntry.schema(table))) {
      Helper.ask(request("check_written", folderOf(table), TableEntry.schema(table), TableEntry.writerProperties(table), new TreeMap<>()));
    }
  }

  /** Judges a write of Parquet files, and returns the options that it needs. */
  Map<String, String> optionsOf(StructType written, String folder, Map<String, String> told, Object options) {
    if (!SAYING.matcher(written.json()).find()) {
      return Map.of(); // the helper takes some 10 ms for a thousand columns
    }
    ObjectNode request = request("check_written", folder, written, told, optionsIn(options)).put("is_parquet", true);
    return textsIn(Helper.ask(request).path("options"));
  }

  /**
   * Judges the columns that a table is bucketed by.
   *
   * @param table the description of the table
   * @param columns its columns, with their tags
   * @param isNew whether it is being made
   */
  void checkBuckets(Object table, StructType columns, boolean isNew) {
    Object buckets = Calls.orNull(Calls.call(table, "bucketSpec"));
    if (buckets != null) {
      ObjectNode request = request("check_bucketing", folderOf(table), columns, TableEntry.writerProperties(table), new TreeMap<>());
      request.put("target", TableEntry.name(table)).put("is_new", isNew);
      Calls.list(Calls.call(buckets, "bucketColumnNames")).forEach(name -> request.withArray("columns").add((String) name));
      Helper.ask(request).path("warnings").forEach(warning -> LOG.warn("{}", warning.asText()));
    }
  }

  /** Refuses a query whose values Spark is about to take for names of columns, if they have a tag that encrypts. */
  void checkNaming(StructType columns) {
    if (columns.json().contains(TableEntry.TAGS_KEY)) {
      StackWalker.getInstance()
          .walk(frames -> frames.map(ClearValuesGuard::naming).filter(Objects::nonNull).findFirst())
          .ifPresent(operation -> {
            StructType naming = new StructType().add(columns.fields()[0]); // of transpose's query, the column that names the others
            Helper.ask(request("refuse_naming", "/", naming, Map.of(), new TreeMap<>()).put("operation", operation));
          });
    }
  }

  private static String naming(StackFrame frame) {
    String owner = frame.getClassName();
    if (PIVOTS.contains(frame.getMethodName()) && owner.contains(".RelationalGroupedDataset")) {
      return "pivot";
    }
    return owner.contains(".ResolveTranspose") ? "transpose" : null;
  }

  private ObjectNode request(
      String op, String folder, StructType columns, Map<String, String> told, Map<String, String> options) {
    ObjectNode request = policy.request(op, folder, options.remove(Names.SESSION_TOKEN)).put("schema", columns.json());
    told.forEach(((ObjectNode) request.get("properties"))::put);
    options.forEach(((ObjectNode) request.get("properties"))::put);
    return request;
  }

  private static Map<String, String> textsIn(JsonNode answer) {
    Map<String, String> found = new LinkedHashMap<>();
    answer.fieldNames().forEachRemaining(name -> found.put(name, answer.path(name).asText()));
    return found;
  }

  private static Map<String, String> optionsIn(Object options) {
    boolean isScala = options != null && !(options instanceof Map); // Java's are of sources of version 2, which encrypt nothing
    return isScala ? TableEntry.ofSparkcrypt(options) : new TreeMap<>();
  }

  private static String folderOf(Object table) {
    String folder = TableEntry.folder(table);
    return folder == null ? "/" : folder;
  }
}

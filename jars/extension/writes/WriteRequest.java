package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Pattern;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.types.StructType;
import org.slf4j.Logger;

/**
 * One question to the helper about a write that is being planned: the aspects by which the policy may refuse it.
 *
 * <p>The helper decides (sparkcrypt/decide/judge_write.py), in the order in which aspects were added.
 */
final class WriteRequest {
  private static final Logger LOG = CleanLog.of(WriteRequest.class);

  /** What a schema has where it may say values, whatever its tags: metadata, VARIANT, and types with bounds beside statistics. */
  private static final Pattern SAYING = Pattern.compile("\"metadata\":\\{[^}]|\"(variant|geometry|geography)\\b");

  private final SessionPolicy policy;
  private final String folder;
  private final Map<String, String> properties;
  private final String schema;
  private final ObjectNode aspects = Wire.object();

  /**
   * Creates a question without aspects.
   *
   * @param folder the folder that is written to; null if it is none
   * @param properties those of the table that is written to
   * @param written the columns that are written, with their tags
   */
  WriteRequest(SessionPolicy policy, String folder, Map<String, String> properties, StructType written) {
    this.policy = policy;
    this.folder = folder;
    this.properties = properties;
    this.schema = written.json();
  }

  boolean hasTags() {
    return schema.contains(TableEntry.TAGS_KEY);
  }

  /** Adds an aspect, and returns its fields. */
  ObjectNode add(String aspect) {
    return aspects.putObject(aspect);
  }

  /** Adds partition columns that have tags: their values would be names of folders. */
  WriteRequest addPartitions(List<Attribute> columns, String target) {
    for (Attribute column : columns) {
      String metadata = column.metadata().json();
      if (metadata.contains(TableEntry.TAGS_KEY)) {
        aspects.withObject("/partitioning").put("target", target).withArray("columns").addObject()
            .put("name", column.name()).put("metadata", metadata);
      }
    }
    return this;
  }

  /** Adds the columns that a table is bucketed by, if there are any: a hash of their values is in the names of its files. */
  WriteRequest addBuckets(CatalogTable table, boolean isNew) {
    Object buckets = Calls.orNull(table.bucketSpec());
    if (buckets != null) {
      ObjectNode bucketing = add("bucketing").put("target", TableEntry.name(table)).put("is_new", isNew);
      bucketing.put("table_schema", table.schema().json());
      Calls.list(Calls.call(buckets, "bucketColumnNames")).forEach(name -> bucketing.withArray("columns").add((String) name));
    }
    return this;
  }

  /**
   * Adds what the written columns say of values beside the data, if they say anything.
   *
   * @param options the options of the write; a token among them counts if it is of a policy for this write alone
   */
  WriteRequest addWritten(Map<String, String> options, boolean isParquet) {
    if (SAYING.matcher(schema).find()) { // the helper takes some 10 ms for a thousand columns
      Map<String, String> more = new TreeMap<>(options);
      String token = more.remove(Names.SESSION_TOKEN);
      properties.forEach(more::putIfAbsent);
      ObjectNode own = policy.requestOfWrite("", folder, more, token);
      ObjectNode written = add("written").put("is_parquet", isParquet);
      written.set("policy", own.get("policy"));
      written.set("properties", own.get("properties"));
    }
    return this;
  }

  /** Asks the helper, if there is an aspect, and logs its warnings; returns the answer to each aspect. */
  JsonNode ask() {
    return ask(Wire.object());
  }

  /** Asks the same with fields that several aspects use. */
  JsonNode ask(ObjectNode shared) {
    if (aspects.isEmpty()) {
      return aspects;
    }
    ObjectNode request = policy.request("judge_write", folder, properties).put("schema", schema);
    request.setAll(shared);
    request.set("aspects", aspects);
    JsonNode answer = Helper.ask(request);
    answer.forEach(aspect -> aspect.path("warnings").forEach(warning -> LOG.warn("{}", warning.asText())));
    return answer;
  }
}

package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.crypto.ParquetCryptoRuntimeException;
import org.apache.spark.sql.types.StructType;

/** The helper's decision on one table's leaves for this session: which are null, everywhere or in some partitions. */
record ReaderDecision(SessionPolicy policy, String onDenied) {
  private static final int MOST_SAMPLES = 8;

  /** Returns whether anything can be masked at all, by the session's setting or a tag's. */
  boolean isAsked() {
    return "mask".equals(onDenied) || !"error".equals(onDenied) && policy.masksBySomeTag();
  }

  DeniedPlaces of(ReadTable table) {
    ObjectNode request = policy.request("decide", table.folder(), table.readerProperties());
    request.put("on_denied", onDenied).put("schema", table.schema().json());
    try {
      return decide(table, request);
    } catch (ParquetCryptoRuntimeException e) {
      noteRefused(table, request, String.valueOf(e.getMessage()).split(": ", 2)[0]);
      throw e;
    }
  }

  private DeniedPlaces decide(ReadTable table, ObjectNode request) {
    JsonNode answer = Helper.ask(request);
    List<Map<String, String>> partitions = partitions(table, answer.path("partition_columns"));
    if (!partitions.isEmpty()) {
      ArrayNode listed = request.putArray("partitions");
      partitions.forEach(values -> values.forEach(listed.addObject()::put));
      answer = Helper.ask(request);
    }
    if (!answer.path("undecided").isEmpty()) {
      ArrayNode samples = request.putArray("key_metadata");
      List<Path> files = table.files().stream().map(file -> new Path(java.net.URI.create(file))).toList();
      sample(policy.hadoopConf(), files, table.isOrc() ? table.schema() : null).forEach(samples::add);
      answer = Helper.ask(request);
    }
    note(table, request, answer);
    return new DeniedPlaces(Wire.requireField(answer, "columns"), partitions);
  }

  /** Notes an access event for the footer, without whose key nothing can be decided. */
  private void noteRefused(ReadTable table, ObjectNode request, String type) {
    AccessLogPlace place = AccessLogPlace.of(request.path("policy").asText());
    if (place != null && type.startsWith("Key")) {
      AccessEvents.noteRefused(place, Reader.onDriver(policy.sparkContext()).withPrincipal(policy.principal()), table.name(), policy.footerKey(), null, type);
    }
  }

  /** Notes an access event for each masked leaf, in the log of the policy that the session is pinned to. */
  private void note(ReadTable table, ObjectNode request, JsonNode answer) {
    AccessLogPlace place = AccessLogPlace.of(request.path("policy").asText());
    if (place != null) {
      Reader reader = Reader.onDriver(policy.sparkContext()).withPrincipal(policy.principal());
      String name = answer.path("table").asText(table.name());
      for (JsonNode column : answer.path("columns")) {
        String why = column.path("why").asText();
        AccessEvents.noteMasked(place, reader, name, column.path("key").asText(), column.path("column").asText(), why);
      }
    }
  }

  /** Returns the distinct values of the partition columns that key templates need. */
  private static List<Map<String, String>> partitions(ReadTable table, JsonNode needed) {
    if (needed.isEmpty()) {
      return List.of();
    }
    List<Map<String, String>> found = table.partitions();
    found.forEach(values -> values.keySet().retainAll(Wire.texts(needed)));
    return found.stream().filter(values -> !values.isEmpty()).distinct().toList();
  }

  /**
   * Returns key metadata of the columns of some files, for key services that can only be asked with a key to unwrap.
   *
   * @param orc the columns of ORC files; null for Parquet files
   */
  static List<String> sample(Configuration conf, List<Path> files, StructType orc) {
    Set<String> found = new LinkedHashSet<>();
    SessionConf session = new SessionConf(conf);
    int step = Math.max(1, files.size() / MOST_SAMPLES);
    for (int i = 0; i < files.size() && i / step < MOST_SAMPLES; i += step) {
      Path path = files.get(i);
      try {
        FileKeys keys = new FileKeys(session, conf, path);
        ObjectNode facts =
            orc == null ? FooterFacts.read(new Tail(conf, path), keys).toJson() : OrcFacts.read(conf, path, orc, keys).toJson();
        for (JsonNode column : facts.path("columns")) {
          if (column.path("key_metadata").isTextual()) {
            found.add(column.path("key_metadata").asText());
          }
        }
      } catch (IOException e) {
        throw Refusal.of("StorageError", path + ": its footer cannot be read: " + e.getMessage(), e);
      }
    }
    return List.copyOf(found);
  }
}

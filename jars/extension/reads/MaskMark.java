package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import org.apache.spark.sql.types.Metadata;

/**
 * The mark in the metadata of a masked column: a tag that no policy defines, so that no write stores its nulls as data, and the
 * reason.
 */
final class MaskMark {
  static final String TAG = "!masked";
  static final String REASON = "sparkcrypt.masked";
  private static final String TAGS = "tags";

  private MaskMark() {}

  /** Returns the reason in a metadata's JSON, or null. */
  static String reasonIn(String json) {
    try {
      return json.contains(REASON) ? Wire.parse(json.getBytes(StandardCharsets.UTF_8)).path(REASON).asText(null) : null;
    } catch (IOException e) {
      throw Refusal.of("BridgeError", "a column's metadata is not JSON", e);
    }
  }

  static Metadata on(Metadata metadata, String reason) {
    try {
      ObjectNode document = (ObjectNode) Wire.parse(metadata.json().getBytes(StandardCharsets.UTF_8));
      JsonNode present = document.get(TAGS);
      ArrayNode tags = document.putArray(TAGS);
      if (present != null && present.isTextual()) {
        for (String tag : present.asText().split(",")) {
          tags.add(tag.trim());
        }
      } else if (present != null) {
        present.forEach(tags::add);
      }
      tags.add(TAG);
      return Metadata.fromJson(document.put(REASON, reason).toString());
    } catch (IOException e) {
      throw Refusal.of("BridgeError", "a column's metadata is not JSON", e);
    }
  }
}

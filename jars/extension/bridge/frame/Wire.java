package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.MissingNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.DataInputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;

/** The bridge's frames: a 4-byte big-endian length and one JSON object in UTF-8 (sparkcrypt/bridge/protocol.py). */
final class Wire {
  static final int MAX_FRAME_BYTES = 64 * 1024 * 1024;
  private static final ObjectMapper JSON = new ObjectMapper();

  private Wire() {}

  static ObjectNode object() {
    return JSON.createObjectNode();
  }

  static ArrayNode array() {
    return JSON.createArrayNode();
  }

  static ObjectNode request(String op) {
    return object().put("op", op);
  }

  /** Returns the document that a text is; a missing node if it is null or no JSON. */
  static JsonNode parse(String text) {
    return parse(text == null ? new byte[0] : text.getBytes(StandardCharsets.UTF_8));
  }

  /** Returns the same for a text in UTF-8. */
  static JsonNode parse(byte[] text) {
    try {
      JsonNode document = JSON.readTree(text);
      return document == null ? MissingNode.getInstance() : document;
    } catch (IOException e) {
      return MissingNode.getInstance();
    }
  }

  /** Returns the texts in an array. */
  static List<String> texts(JsonNode array) {
    List<String> found = new ArrayList<>();
    array.forEach(text -> found.add(text.asText()));
    return found;
  }

  static byte[] text(JsonNode document) throws IOException {
    return JSON.writeValueAsBytes(document);
  }

  static byte[] frame(ObjectNode document) throws IOException {
    byte[] body = text(document);
    if (body.length > MAX_FRAME_BYTES) {
      throw Refusal.of(
          "BridgeError",
          "a request of " + body.length + " bytes; allowed: " + MAX_FRAME_BYTES + "; the schema or policy is too large");
    }
    return ByteBuffer.allocate(4 + body.length).putInt(body.length).put(body).array();
  }

  /** Reads one frame; EOFException at the end of the stream, IOException for anything that is not a frame. */
  static JsonNode read(DataInputStream stream) throws IOException {
    int length = stream.readInt();
    if (length < 2 || length > MAX_FRAME_BYTES) {
      throw new IOException("a frame of " + Integer.toUnsignedString(length) + " bytes; allowed: 2 to " + MAX_FRAME_BYTES);
    }
    byte[] body = new byte[length];
    stream.readFully(body);
    JsonNode document = JSON.readTree(body);
    if (document == null || !document.isObject()) {
      throw new IOException("a frame that is not a JSON object");
    }
    return document;
  }

  static String base64(byte[] bytes) {
    return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
  }

  /** Returns the bytes of a base64 field; null if the field is absent or null. */
  static byte[] bytes(JsonNode document, String field) {
    JsonNode value = document.get(field);
    return value == null || value.isNull() ? null : Base64.getDecoder().decode(value.asText());
  }

  /** Returns a field that every answer of the helper has, or raises BridgeError. */
  static JsonNode requireField(JsonNode answer, String field) {
    JsonNode value = answer.get(field);
    if (value == null || value.isNull()) {
      throw Refusal.of("BridgeError", "the helper's answer has no '" + field + "'; jar and helper do not belong together");
    }
    return value;
  }
}

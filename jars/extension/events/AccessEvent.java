package io.sparkcrypt;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import java.util.TreeSet;

/**
 * One event of a log in this JVM: how often the same reader asked for the same key with the same outcome, and for which columns.
 */
final class AccessEvent {
  private static final int MOST_COLUMNS = 256;
  private static final int MOST_CHARACTERS = 1_000;

  /**
   * The values by which two events are counted as one.
   *
   * @param kind access or query
   * @param table null for a query
   * @param key null for a query
   * @param outcome opened, refused, masked, failed or declassified; for a query the digest of its text, or null
   * @param why null if a key was opened
   */
  record Same(AccessLogPlace place, String kind, Reader reader, String table, String key, String outcome, String why) {}

  final Same same;
  private final long firstMillis = System.currentTimeMillis();
  private final TreeSet<String> columns = new TreeSet<>();
  private List<String> tags = List.of();
  private long lastMillis = firstMillis;
  private boolean isOfFooter;
  private long count;

  AccessEvent(Same same) {
    this.same = same;
  }

  /** Counts one more request; a null column is the footer. */
  void add(String column) {
    count++;
    lastMillis = System.currentTimeMillis();
    if (column == null) {
      isOfFooter = true;
    } else if (columns.size() < MOST_COLUMNS) {
      columns.add(column.length() > MOST_CHARACTERS ? column.substring(0, MOST_CHARACTERS) : column);
    }
  }

  /** Sets the tags that were removed from the columns. */
  void setTags(List<String> tags) {
    this.tags = tags;
  }

  ObjectNode toJson(long number) {
    Reader reader = same.reader();
    ObjectNode json = Wire.object().put("kind", same.kind()).put("number", number).put("count", count);
    json.put("first_ms", firstMillis).put("last_ms", lastMillis);
    json.put("principal", reader.principal()).put("session_user", reader.sessionUser()).put("route", reader.route());
    json.put("application", reader.application()).put("execution", reader.execution());
    if (same.kind().equals(AccessEvents.QUERY)) {
      return json.put("query_digest", same.outcome());
    }
    json.put("table", same.table()).put("key", same.key()).put("outcome", same.outcome()).put("why", same.why());
    json.put("footer", isOfFooter);
    ArrayNode listed = json.putArray("columns");
    columns.forEach(listed::add);
    if (!tags.isEmpty()) {
      tags.forEach(json.putArray("tags")::add);
    }
    return json;
  }
}

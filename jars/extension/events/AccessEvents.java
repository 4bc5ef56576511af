package io.sparkcrypt;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.slf4j.Logger;

/**
 * The access events of this JVM: counted here, and sent to the helper in batches by a separate thread.
 *
 * <p>A read waits for them only if the policy's access_log is required: then an execution's first opening of a column's key is
 * written before the key is handed out. Events that cannot be written are kept, up to a bound, and sent again; beyond it they are
 * counted as lost, and the count is written once the log can be.
 */
final class AccessEvents {
  private static final String ACCESS = "access";
  private static final String QUERY = "query";
  private static final Logger LOG = CleanLog.of(AccessEvents.class);
  private static final Map<String, String> REFUSALS = Map.of("KeyAccessDeniedError", "denied", "KeyNotFoundError", "shredded");
  private static final int MOST_COLUMNS = 256;
  private static final int MOST_CHARACTERS = 1_000;
  private static final int MOST_PENDING = 10_000;
  private static final int SOON_PENDING = 1_000;
  private static final int MOST_AT_ONCE = 100;
  private static final int MOST_WRITTEN = 10_000;
  private static final long PERIOD_MILLIS = 3_000;
  private static final long END_MILLIS = 5_000;
  private static final String PROCESS = ProcessHandle.current().pid() + "-" + Long.toHexString(new SecureRandom().nextLong());

  private static final Object WAKE = new Object();
  private static final Object SENDING = new Object();
  private static Map<Same, AccessEvent> pending = new LinkedHashMap<>(); // guarded by WAKE
  private static final Map<AccessLogPlace, Long> lost = new HashMap<>(); // guarded by WAKE
  private static boolean started; // guarded by WAKE
  private static boolean isWarned; // guarded by SENDING
  private static final Map<AccessLogPlace, List<ObjectNode>> unsent = new LinkedHashMap<>(); // guarded by SENDING
  private static final Map<Object, Boolean> written = Newest.synchronizedMap(MOST_WRITTEN); // only if the log is required
  private static long number; // guarded by SENDING

  /**
   * The values by which two events are counted as one.
   *
   * @param kind access or query
   * @param table null for a query
   * @param key null for a query
   * @param outcome opened, refused, masked, failed or declassified; for a query the digest of its text, or null
   * @param why null if a key was opened
   */
  private record Same(AccessLogPlace place, String kind, Reader reader, String table, String key, String outcome, String why) {}

  private AccessEvents() {}

  /**
   * Notes that a key was opened.
   *
   * @param column the dotted path, or null for the footer
   * @throws RuntimeException the log is required, and the event could not be written
   */
  static void noteOpened(AccessLogPlace place, Reader reader, String table, String key, String column) {
    note(new Same(place, ACCESS, reader, table, key, "opened", null), column);
  }

  /**
   * Notes that a key was not handed out; raises nothing, since another error tells the reader why.
   *
   * @param type the name of that error's class
   */
  static void noteRefused(AccessLogPlace place, Reader reader, String table, String key, String column, String type) {
    String why = REFUSALS.getOrDefault(type, type);
    count(new Same(place, ACCESS, reader, table, key, REFUSALS.containsKey(type) ? "refused" : "failed", why), column);
  }

  /**
   * Notes that a query gets nulls in place of a column.
   *
   * @throws RuntimeException the log is required, and the event could not be written
   */
  static void noteMasked(AccessLogPlace place, Reader reader, String table, String key, String column, String why) {
    note(new Same(place, ACCESS, reader, table, key, "masked", why), column);
  }

  /**
   * Writes at once that tags were removed from columns, whether or not the log is required.
   *
   * @throws RuntimeException it could not be written
   */
  static void writeDeclassified(AccessLogPlace place, Reader reader, String table, List<String> columns, List<String> tags, String reason) {
    AccessEvent event = new AccessEvent(new Same(place, ACCESS, reader, table, null, "declassified", reason));
    columns.forEach(event::add);
    event.tags = tags;
    synchronized (SENDING) {
      send(place, List.of(event.toJson(number++)));
    }
  }

  /** Notes an execution's query, of which only the driver has the digest. */
  static void noteQuery(AccessLogPlace place, Reader reader, String digest) {
    count(new Same(place, QUERY, reader, null, null, digest, null), null);
  }

  private static void note(Same same, String column) {
    if (!same.place().isRequired || !writeFirst(same, column)) {
      count(same, column);
    }
  }

  /**
   * Writes an event at once unless the same one was written; threads wait for each other, so none continues before it is written.
   */
  private static boolean writeFirst(Same same, String column) {
    List<Object> entry = List.of(same, String.valueOf(column));
    if (written.containsKey(entry)) {
      return false;
    }
    synchronized (SENDING) {
      if (written.containsKey(entry)) {
        return false;
      }
      AccessEvent event = new AccessEvent(same);
      event.add(column);
      send(same.place(), List.of(event.toJson(number++)));
      written.put(entry, true);
      return true;
    }
  }

  private static void count(Same same, String column) {
    synchronized (WAKE) {
      AccessEvent event = pending.get(same);
      if (event == null && pending.size() >= MOST_PENDING) {
        lost.merge(same.place(), 1L, Long::sum);
        return;
      }
      if (event == null) {
        event = new AccessEvent(same);
        pending.put(same, event);
      }
      event.add(column);
      if (!started) {
        started = true;
        start();
      }
      if (pending.size() == SOON_PENDING) {
        WAKE.notifyAll();
      }
    }
  }

  private static void start() {
    Helper.beforeEnd(AccessEvents::flushAtEnd);
    Thread thread = new Thread(AccessEvents::run, "sparkcrypt-access-events");
    thread.setDaemon(true);
    thread.setContextClassLoader(AccessEvents.class.getClassLoader());
    thread.start();
  }

  private static void run() {
    while (true) {
      try {
        synchronized (WAKE) {
          WAKE.wait(PERIOD_MILLIS);
        }
        flush();
      } catch (InterruptedException e) {
        return; // only the end of the JVM interrupts it
      }
    }
  }

  /** Wakes the thread that sends pending events, when an application ends and its JVM may live on. */
  static void flushSoon() {
    synchronized (WAKE) {
      WAKE.notifyAll();
    }
  }

  /** Sends pending events as this JVM ends, waiting at most some seconds for it. */
  private static void flushAtEnd() {
    Thread last = new Thread(AccessEvents::flush, "sparkcrypt-access-events-end");
    last.setDaemon(true);
    last.start();
    try {
      last.join(END_MILLIS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  private static void flush() {
    synchronized (SENDING) {
      take();
      for (AccessLogPlace place : List.copyOf(unsent.keySet())) {
        try {
          sendAll(place, unsent.get(place));
          unsent.remove(place);
          isWarned = false;
        } catch (RuntimeException | Error e) {
          warn(e);
        }
      }
    }
  }

  /** Makes batches of the counted events, except for logs whose last batch is still unsent. */
  private static void take() {
    Map<Same, AccessEvent> counted = new LinkedHashMap<>();
    Map<AccessLogPlace, Long> missed = new HashMap<>();
    synchronized (WAKE) {
      Map<Same, AccessEvent> kept = new LinkedHashMap<>();
      pending.forEach((same, event) -> (unsent.containsKey(same.place()) ? kept : counted).put(same, event));
      pending = kept;
      lost.forEach((place, events) -> missed.merge(place, unsent.containsKey(place) ? 0L : events, Long::sum));
      missed.values().removeIf(events -> events == 0);
      lost.keySet().removeAll(missed.keySet());
    }
    Map<AccessLogPlace, List<ObjectNode>> made = new LinkedHashMap<>();
    counted.forEach((same, event) -> made.computeIfAbsent(same.place(), unused -> new ArrayList<>()).add(event.toJson(number++)));
    missed.forEach((place, events) -> made.computeIfAbsent(place, unused -> new ArrayList<>()).add(lostEvent(events)));
    unsent.putAll(made);
  }

  private static ObjectNode lostEvent(long events) {
    long now = System.currentTimeMillis();
    ObjectNode json = Wire.object().put("kind", "lost").put("number", number++).put("count", events);
    json.put("first_ms", now).put("last_ms", now);
    return json.put("principal", Launch.principal()).put("application", Launch.conf("spark.app.id"));
  }

  /** Sends events in requests of a bounded size, and removes those that were sent. */
  private static void sendAll(AccessLogPlace place, List<ObjectNode> events) {
    while (!events.isEmpty()) {
      List<ObjectNode> some = events.subList(0, Math.min(events.size(), MOST_AT_ONCE));
      send(place, some);
      some.clear();
    }
  }

  private static void send(AccessLogPlace place, List<ObjectNode> events) {
    ObjectNode request = Wire.request("access_events").put("policy", place.policy).put("process", PROCESS);
    request.put("application", Launch.conf("spark.app.id"));
    events.forEach(request.putArray("events")::add);
    Helper.ask(request);
  }

  private static void warn(Throwable e) {
    if (!isWarned) {
      isWarned = true;
      LOG.warn(
          "access events cannot be recorded now, and reads go on: {}; up to {} kinds of them are kept and written later, more are "
              + "counted as lost",
          e.getMessage(),
          MOST_PENDING);
    }
  }

  /** One event of a log: how often the same reader asked for the same key with the same outcome, and for which columns. */
  private static final class AccessEvent {
    private final Same same;
    private final long firstMillis = System.currentTimeMillis();
    private final TreeSet<String> columns = new TreeSet<>();
    List<String> tags = List.of();
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

    ObjectNode toJson(long number) {
      Reader reader = same.reader();
      ObjectNode json = Wire.object().put("kind", same.kind()).put("number", number).put("count", count);
      json.put("first_ms", firstMillis).put("last_ms", lastMillis);
      json.put("principal", reader.principal()).put("session_user", reader.sessionUser()).put("route", reader.route());
      json.put("application", reader.application()).put("execution", reader.execution());
      if (same.kind().equals(QUERY)) {
        return json.put("query_digest", same.outcome());
      }
      json.put("table", same.table()).put("key", same.key()).put("outcome", same.outcome()).put("why", same.why());
      json.put("footer", isOfFooter);
      columns.forEach(json.putArray("columns")::add);
      if (!tags.isEmpty()) {
        tags.forEach(json.putArray("tags")::add);
      }
      return json;
    }
  }
}

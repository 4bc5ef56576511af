package io.sparkcrypt;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.SparkSession;

/**
 * A guard that asks the policy whether the values that a query declassifies may lose their tags, and logs each in the access log.
 *
 * <p>Queries that write nothing are judged as well, since a checkpoint of them has no tags. They are resolved repeatedly, so a
 * result is asked for again only after ten minutes.
 */
final class DeclassifyGuard {
  private static final long AGAIN_NANOS = 600_000_000_000L;
  private static final int MOST = 1_000;
  private static final Map<Asked, Long> ALLOWED = Newest.synchronizedMap(MOST);

  private record Asked(String policy, Reader reader, String reason, List<Carried.Origin> columns, List<String> tags) {
    Map<String, List<String>> byTable() {
      Map<String, List<String>> found = new LinkedHashMap<>();
      columns.forEach(origin -> found.computeIfAbsent(origin.table(), unused -> new ArrayList<>()).add(origin.column()));
      return found;
    }
  }

  private DeclassifyGuard() {}

  /**
   * Judges what a query declassifies.
   *
   * @param writes whether the query's rows are written: then each value is asked for and recorded each time
   */
  static void check(SparkSession session, SessionPolicy policy, List<ExpressionTags.Declassified> found, boolean writes) {
    if (found.isEmpty()) {
      return;
    }
    Reader reader = Reader.onDriver(session.sparkContext()).withPrincipal(policy.principal());
    Set<Asked> each = new LinkedHashSet<>();
    for (ExpressionTags.Declassified value : found) {
      List<Carried.Origin> columns = List.copyOf(value.formerTags().origins());
      each.add(new Asked(policy.text(), reader, value.reason(), columns, List.copyOf(value.formerTags().tags())));
    }
    for (Asked asked : each) {
      Long before = writes ? null : ALLOWED.get(asked);
      if (before == null || System.nanoTime() - before > AGAIN_NANOS) {
        Helper.ask(request(policy, asked));
        record(asked);
        ALLOWED.put(asked, System.nanoTime());
      }
    }
  }

  private static ObjectNode request(SessionPolicy policy, Asked asked) {
    ObjectNode request = policy.request("check_declassified", null, Map.of()).put("reason", asked.reason());
    request.put("principal", asked.reader().principal());
    asked.tags().forEach(request.putArray("tags")::add);
    ObjectNode columns = request.putObject("columns");
    asked.byTable().forEach((table, names) -> names.forEach(columns.putArray(table)::add));
    return request;
  }

  private static void record(Asked asked) {
    AccessLogPlace place = AccessLogPlace.of(asked.policy());
    asked.byTable().forEach((table, names) -> AccessEvents.writeDeclassified(place, asked.reader(), table, names, asked.tags(), asked.reason()));
    if (asked.columns().isEmpty()) { // values of no file, such as a checkpoint's
      AccessEvents.writeDeclassified(place, asked.reader(), null, List.of(), asked.tags(), asked.reason());
    }
  }
}

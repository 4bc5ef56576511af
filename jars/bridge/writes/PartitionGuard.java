package io.sparkcrypt;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;

/** A guard that refuses a partition column whose tags require encryption: its values would be names of folders. */
final class PartitionGuard {
  private final SessionPolicy policy;

  PartitionGuard(SessionPolicy policy) {
    this.policy = policy;
  }

  /**
   * Asks the helper whether tagged columns may be partition columns.
   *
   * @param columns attributes of Spark
   * @param target the table or folder that is written to, for the message
   */
  void check(List<Object> columns, String target) {
    ObjectNode request = null;
    for (Object column : columns) {
      String metadata = (String) Calls.call(Calls.call(column, "metadata"), "json");
      if (metadata.contains("\"tags\"")) {
        request = request == null ? policy.request("check_partitioning", "/").put("target", target) : request;
        ObjectNode told = request.withArray("columns").addObject();
        told.put("name", (String) Calls.call(column, "name")).put("metadata", metadata);
      }
    }
    if (request != null) {
      Helper.ask(request);
    }
  }
}

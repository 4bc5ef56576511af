package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.SparkSession;

/** The policy that a session is under, as far as the driver needs it: which tables it has rules for. */
final class SessionPolicy {
  private final SparkSession session;
  private final String text;
  private final JsonNode document;

  /** Returns null for a session without a policy, whose plans nobody changes. */
  static SessionPolicy of(SparkSession session) {
    Object conf = Calls.call(Calls.call(session, "sessionState"), "conf");
    String text = (String) Calls.call(conf, "getConfString", Names.POLICY, "");
    if (text.isBlank()) {
      text = session.sparkContext().hadoopConfiguration().get(Names.POLICY, "");
    }
    return text.isBlank() ? null : new SessionPolicy(session, text);
  }

  private SessionPolicy(SparkSession session, String text) {
    this.session = session;
    this.text = text;
    JsonNode parsed;
    try {
      parsed = Wire.parse(text.getBytes(StandardCharsets.UTF_8));
    } catch (IOException e) {
      parsed = Wire.object(); // the helper refuses it in each write and read
    }
    document = parsed == null ? Wire.object() : parsed;
  }

  String text() {
    return text;
  }

  /** Names of the tables that have a rule, as the policy writes them. */
  List<String> ruledTables() {
    List<String> names = new ArrayList<>();
    document.path("tables").fieldNames().forEachRemaining(names::add);
    return names;
  }

  /** A request to the helper about a write that is only planned yet. */
  ObjectNode request(String op, String path) {
    Configuration conf = (Configuration) Calls.call(Calls.call(session, "sessionState"), "newHadoopConf");
    return new SessionConf(conf).request(op, new Path(path));
  }
}

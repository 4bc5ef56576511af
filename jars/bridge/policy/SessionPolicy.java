package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.SparkSession;

/** The policy that a session is under, as far as the driver needs it: which tables it has rules for. */
final class SessionPolicy {
  private static final int MOST = 64;
  /** By their texts, which are asked for several times in each query; nobody changes one. */
  private static final Map<String, JsonNode> DOCUMENTS = Collections.synchronizedMap(new Newest<>(MOST));

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
    return text.isBlank() ? null : new SessionPolicy(session, PrincipalBinding.bind(session, text));
  }

  private SessionPolicy(SparkSession session, String text) {
    this.session = session;
    this.text = text;
    this.document = DOCUMENTS.computeIfAbsent(text, SessionPolicy::parsed);
  }

  private static JsonNode parsed(String text) {
    try {
      JsonNode document = Wire.parse(text.getBytes(StandardCharsets.UTF_8));
      return document == null ? Wire.object() : document;
    } catch (IOException e) {
      return Wire.object(); // the helper refuses it in each write and read
    }
  }

  String text() {
    return text;
  }

  String footerKey() {
    return document.path("footer").path("key").asText();
  }

  SparkContext sparkContext() {
    return session.sparkContext();
  }

  /**
   * The key service that the session is under.
   *
   * @throws RuntimeException its configuration has another policy, as after a SET
   */
  String pinnedKeyService() {
    Object conf = Calls.call(Calls.call(session, "sessionState"), "conf");
    String token = (String) Calls.call(conf, "getConfString", Names.SESSION_TOKEN, "");
    return PinnedPolicy.keyServiceOf(text, token.isBlank() ? session.sparkContext().hadoopConfiguration().get(Names.SESSION_TOKEN) : token);
  }

  /** What the session's configuration says under a name; empty where it says nothing. */
  String setting(String name) {
    return (String) Calls.call(Calls.call(Calls.call(session, "sessionState"), "conf"), "getConfString", name, "");
  }

  /** Who reads and writes by this session. */
  String principal() {
    return PrincipalBinding.principalOf(session);
  }

  /** Names of the tables that have a rule, as the policy writes them. */
  List<String> ruledTables() {
    List<String> names = new ArrayList<>();
    document.path("tables").fieldNames().forEachRemaining(names::add);
    return names;
  }

  /** Refuses a table that names another policy or key service: Hive's SerDe would pass over it in silence. */
  void refuseOther(Object table) {
    Configuration conf = hadoopConf();
    for (Object properties : List.of(Calls.call(Calls.call(table, "storage"), "properties"), Calls.call(table, "properties"))) {
      for (String name : List.of(Names.POLICY, Names.KEY_SERVICE)) {
        Object value = Calls.orNull(Calls.call(properties, "get", name));
        if (value != null) {
          conf.set(name, (String) value);
        }
      }
    }
    PinnedPolicy.of(conf);
  }

  /** Whether the policy says where stores for data skipping are. */
  boolean hasStores() {
    return document.path("index").path("location").isTextual();
  }

  /** Whether tagged columns of ORC files are encrypted, and not refused. */
  boolean encryptsOrc() {
    for (JsonNode format : document.path("formats")) {
      if (format.asText().equals("orc")) {
        return true;
      }
    }
    return false;
  }

  /** Whether a rule for some table or location lays tags over its columns. */
  boolean hasTaggedTables() {
    for (JsonNode rule : document.path("tables")) {
      if (rule.has("tags")) {
        return true;
      }
    }
    return false;
  }

  /** Whether some tag gives nulls for its columns unless the session asks for an error. */
  boolean masksBySomeTag() {
    for (JsonNode tag : document.path("tags")) {
      if (tag.path(1).path("on_denied").asText().equals("mask")) {
        return true;
      }
    }
    return false;
  }

  /** Whether it is an error to name a column that is null for want of its key. */
  boolean isStrictProjection() {
    return document.path("strict_projection").asBoolean();
  }

  /** Names of the aggregates whose results do not carry the tags of what they are made of. */
  Set<String> safeAggregates() {
    if (!document.has("safe_aggregates")) {
      return Set.of("count");
    }
    Set<String> names = new HashSet<>();
    document.path("safe_aggregates").forEach(name -> names.add(name.asText()));
    return names;
  }

  /** A request to the helper about a write or read that is only planned yet. */
  ObjectNode request(String op, String path) {
    return new SessionConf(hadoopConf()).request(op, new Path(path));
  }

  Configuration hadoopConf() {
    return (Configuration) Calls.call(Calls.call(session, "sessionState"), "newHadoopConf");
  }
}

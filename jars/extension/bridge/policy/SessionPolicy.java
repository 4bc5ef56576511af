package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.internal.SQLConf;

/**
 * The policy that a session is under, as far as the driver needs it.
 *
 * @param text the policy's JSON
 * @param document the same, parsed
 */
record SessionPolicy(SparkSession session, String text, JsonNode document) {
  private static final int MOST = 64;
  /** Parsed policies by their texts, which several rules of each query ask for; they are never changed. */
  private static final Map<String, JsonNode> DOCUMENTS = Newest.synchronizedMap(MOST);

  /** Returns null for a session without a policy, whose plans are not changed. */
  static SessionPolicy of(SparkSession session) {
    SQLConf conf = session.sessionState().conf();
    String text = conf.getConfString(Names.POLICY, "");
    if (text.isBlank()) {
      text = session.sparkContext().hadoopConfiguration().get(Names.POLICY, "");
    }
    if (text.isBlank()) {
      return null;
    }
    String bound = PrincipalBinding.bind(session, text);
    return new SessionPolicy(session, bound, DOCUMENTS.computeIfAbsent(bound, Wire::parse)); // the helper refuses what is no policy
  }

  String footerKey() {
    return document.path("footer").path("key").asText();
  }

  SparkContext sparkContext() {
    return session.sparkContext();
  }

  /**
   * Returns the key service that the session is under.
   *
   * @throws RuntimeException its configuration has another policy, as after a SET
   */
  String pinnedKeyService() {
    return PinnedPolicy.keyServiceOf(text, token());
  }

  /** Returns whether writes and reads of this session may name Parquet's own crypto factory. */
  boolean allowsStock() {
    return RegisteredPolicies.allowsStock(token());
  }

  private String token() {
    String token = setting(Names.SESSION_TOKEN);
    return token.isBlank() ? session.sparkContext().hadoopConfiguration().get(Names.SESSION_TOKEN) : token;
  }

  /** Returns a setting of the session's configuration; empty if it is not set. */
  String setting(String name) {
    return session.sessionState().conf().getConfString(name, "");
  }

  /** Returns the principal that reads and writes in this session. */
  String principal() {
    return PrincipalBinding.principalOf(session);
  }

  /** Returns the names of the tables that have a rule, as the policy writes them. */
  List<String> ruledTables() {
    return document.path("tables").properties().stream().map(Map.Entry::getKey).toList();
  }

  /** Returns the policy's aliases: a place by a name of it, and by the name that counts. */
  Map<String, String> aliases() {
    Map<String, String> found = new LinkedHashMap<>();
    document.path("aliases").properties().forEach(alias -> found.put(alias.getKey(), alias.getValue().asText()));
    return found;
  }

  /** Refuses a table that names another policy or key service: Hive's SerDe would ignore it silently. */
  void refuseOther(CatalogTable table) {
    Configuration conf = hadoopConf();
    for (scala.collection.immutable.Map<String, String> properties : List.of(table.storage().properties(), table.properties())) {
      for (String name : List.of(Names.POLICY, Names.KEY_SERVICE)) {
        if (properties.contains(name)) {
          conf.set(name, properties.get(name).get());
        }
      }
    }
    PinnedPolicy.of(conf);
  }

  /** Returns whether the policy names the location of stores for data skipping. */
  boolean hasStores() {
    return document.path("index").path("location").isTextual();
  }

  /** Returns whether tagged columns of ORC files are encrypted rather than refused. */
  boolean encryptsOrc() {
    return Wire.texts(document.path("formats")).contains("orc");
  }

  /** Returns whether a rule for some table or location adds tags to its columns. */
  boolean hasTaggedTables() {
    return document.path("tables").properties().stream().anyMatch(rule -> rule.getValue().has("tags"));
  }

  /** Returns whether columns of some tag are masked unless the session asks for an error. */
  boolean masksBySomeTag() {
    for (JsonNode tag : document.path("tags")) {
      if (tag.path(1).path("on_denied").asText().equals("mask")) {
        return true;
      }
    }
    return false;
  }

  /** Returns whether it is an error to name a column that is null because its key is denied. */
  boolean isStrictProjection() {
    return document.path("strict_projection").asBoolean();
  }

  /** Returns the names of the aggregates whose results do not carry the tags of their inputs. */
  Set<String> safeAggregates() {
    return document.has("safe_aggregates") ? Set.copyOf(Wire.texts(document.path("safe_aggregates"))) : Set.of("count");
  }

  /**
   * Returns a request to the helper about a write or read that is being planned.
   *
   * @param folder where it writes or reads; null if that is no folder
   * @param more properties of the table, besides those of the session
   */
  ObjectNode request(String op, String folder, Map<String, String> more) {
    return request(hadoopConf(), op, folder, more);
  }

  /**
   * Returns such a request about one write of the program.
   *
   * @param token the token among the options of the write; it counts if it is of a policy for this write alone
   */
  ObjectNode requestOfWrite(String op, String folder, Map<String, String> more, String token) {
    Configuration conf = hadoopConf();
    if (RegisteredPolicies.isOwn(token)) {
      conf.set(Names.SESSION_TOKEN, token);
      conf.set(Names.POLICY, RegisteredPolicies.policyOf(token));
      conf.unset(Names.KEY_SERVICE);
    }
    return request(conf, op, folder, more);
  }

  private static ObjectNode request(Configuration conf, String op, String folder, Map<String, String> more) {
    return new SessionConf(conf).request(op, new Path(folder == null ? "/" : folder), more);
  }

  Configuration hadoopConf() {
    return session.sessionState().newHadoopConf();
  }
}

package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;
import org.apache.spark.sql.SparkSession;

/**
 * The places of keys, credentials, state and stores, which queries do not reach: those that the launch's policy, the session's
 * and their key services name, and those where key services look for credentials unless told otherwise.
 */
final class ProtectedPlaces {
  private static final Pattern NAMES_FILE = Pattern.compile("(.*_)?(path|file|folder|directory)");
  private static final String KUBERNETES = "/var/run/secrets";
  private static final Map<String, List<String>> USUAL =
      Map.of(
          "vault", List.of("~/.vault-token", KUBERNETES),
          "aws", List.of("~/.aws", KUBERNETES),
          "gcp", List.of("~/.config/gcloud", KUBERNETES),
          "azure", List.of("~/.azure", KUBERNETES));
  /** Environment variables that name a file with a credential. */
  private static final List<String> VARIABLES =
      List.of(
          "AWS_SHARED_CREDENTIALS_FILE",
          "AWS_CONFIG_FILE",
          "AWS_WEB_IDENTITY_TOKEN_FILE",
          "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
          "GOOGLE_APPLICATION_CREDENTIALS",
          "AZURE_FEDERATED_TOKEN_FILE",
          "AZURE_CLIENT_CERTIFICATE_PATH",
          "HADOOP_TOKEN_FILE_LOCATION");

  private static final int MOST = 64;
  private static final Map<Asked, ProtectedPlaces> KNOWN = Newest.synchronizedMap(MOST);

  private record Asked(List<String> policies, boolean isOfUser) {}

  /** Texts of places, and what is there. */
  private final Map<String, String> texts = new LinkedHashMap<>();

  private ProtectedPlaces() {}

  static ProtectedPlaces of(SparkSession session, SessionPolicy policy) {
    String launched = session.sparkContext().hadoopConfiguration().get(Names.POLICY, "");
    List<String> policies = List.of(policy.text(), launched, PinnedPolicy.textOf(policy.setting(Names.SESSION_TOKEN)));
    return KNOWN.computeIfAbsent(new Asked(policies, PrincipalBinding.isOfUser(session)), ProtectedPlaces::find);
  }

  private static ProtectedPlaces find(Asked asked) {
    ProtectedPlaces places = new ProtectedPlaces();
    asked.policies().forEach(text -> places.addPolicy(Wire.parse(text), asked.isOfUser()));
    VARIABLES.forEach(name -> places.add(System.getenv(name), "a credential"));
    places.add(Launch.conf(Interpreter.ENVIRONMENT_CONF), "the helper's environment");
    if (asked.isOfUser()) {
      places.add(Launch.conf("spark.eventLog.dir"), "the event log");
    }
    return places;
  }

  private void addPolicy(JsonNode policy, boolean isOfUser) {
    addFiles(policy.path("key_service"));
    add(policy.path("run_state").asText(null), "the state of runs");
    add(policy.path("index").path("location").asText(null), "stores for data skipping");
    if (isOfUser) {
      add(policy.path("access_log").path("location").asText(null), "the access log");
    }
  }

  private void addFiles(JsonNode options) {
    if (options.has("type")) {
      USUAL.getOrDefault(options.path("type").asText(), List.of()).forEach(file -> add(file, "credentials of the key service"));
    }
    for (Map.Entry<String, JsonNode> option : options.properties()) {
      if (option.getValue().isTextual() && NAMES_FILE.matcher(option.getKey()).matches()) {
        add(option.getValue().asText(), "the key service's " + option.getKey());
      }
    }
    options.forEach(this::addFiles);
  }

  private void add(String named, String what) {
    if (named == null || named.isBlank()) {
      return;
    }
    String text = named.startsWith("~/") ? System.getProperty("user.home") + named.substring(1) : named;
    int end = text.indexOf(PrincipalBinding.PLACEHOLDER);
    String place = end < 0 ? text : text.substring(0, Math.max(text.lastIndexOf('/', end), 1));
    texts.put(place, what);
    if (Place.of(place).scheme() == null) {
      texts.put("file:" + place, what); // of the helper, whatever Spark's default file system is
    }
  }

  /** Returns what is known of each place, by where it really is. */
  PlaceIndex<String> index(RealPlaces real) {
    PlaceIndex<String> index = new PlaceIndex<>();
    texts.forEach((text, what) -> index.add(real.of(text), what));
    return index;
  }

  /** Returns a text that is equal for equal places. */
  String text() {
    return texts.keySet().toString();
  }
}

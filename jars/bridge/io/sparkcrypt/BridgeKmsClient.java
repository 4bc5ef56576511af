package io.sparkcrypt;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import org.apache.hadoop.conf.Configuration;
import org.apache.parquet.crypto.keytools.KmsClient;

/**
 * parquet-mr's door to sparkcrypt's key services.
 *
 * <p>It works with the stock PropertiesDrivenCryptoFactory too: the key service comes from parquet.sparkcrypt.key_service, or
 * from the policy in parquet.sparkcrypt.policy. Key ids stand percent-encoded in Parquet's properties and key material; the
 * helper decodes them. Parquet shares one instance among all task threads; it holds nothing that changes.
 */
public class BridgeKmsClient implements KmsClient {
  static {
    Preload.classes();
  }

  private String field;
  private String text;

  @Override
  public void initialize(Configuration conf, String kmsInstanceId, String kmsInstanceUrl, String accessToken) {
    // The instance URL may come from the footer of a file, which anyone may have written: it is not used.
    field = conf.get(Names.KEY_SERVICE) == null ? "policy" : "key_service";
    text = conf.get(Names.KEY_SERVICE, conf.get(Names.POLICY));
    if (text == null) {
      throw Refusal.of(
          "ConfigError",
          "no key service is configured; set " + Names.KEY_SERVICE + " or " + Names.POLICY
              + " in the session, as sparkcrypt.configure or `sparkcrypt conf` do");
    }
    text = unescaped(text);
  }

  /** Hive's SerDe hands a table's properties on with Java's escapes ({@code \"}), all of which are JSON's as well. */
  private static String unescaped(String json) {
    if (!json.startsWith("{\\\"")) {
      return json;
    }
    try {
      return Wire.parse(('"' + json + '"').getBytes(StandardCharsets.UTF_8)).asText();
    } catch (IOException e) {
      return json; // the helper says that it is not JSON
    }
  }

  @Override
  public String wrapKey(byte[] keyBytes, String masterKeyIdentifier) {
    return Helper.ask(request("wrap", masterKeyIdentifier).put("key", Wire.base64(keyBytes))).path("wrapped").asText();
  }

  @Override
  public byte[] unwrapKey(String wrappedKey, String masterKeyIdentifier) {
    return Wire.bytes(Helper.ask(request("unwrap", masterKeyIdentifier).put("wrapped", wrappedKey)), "key");
  }

  private ObjectNode request(String op, String keyId) {
    return Wire.request(op).put(field, text).put("key_id", keyId);
  }
}

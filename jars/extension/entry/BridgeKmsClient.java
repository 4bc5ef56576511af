package io.sparkcrypt;

import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.hadoop.conf.Configuration;
import org.apache.parquet.crypto.keytools.KmsClient;

/**
 * parquet-mr's client of sparkcrypt's key services.
 *
 * <p>It also works with the stock PropertiesDrivenCryptoFactory: the key service is the one that the session is under
 * (PinnedPolicy). Without Spark it opens nothing: that factory checks no file,
 * and a table's properties can name it. Key ids are percent-encoded in Parquet's properties and key material; the helper decodes them. Parquet shares
 * one instance among all task threads; its state does not change after initialize.
 */
public class BridgeKmsClient implements KmsClient {
  static {
    Preload.classes();
  }

  private String keyService;

  @Override
  public void initialize(Configuration conf, String kmsInstanceId, String kmsInstanceUrl, String accessToken) {
    if (!Launch.isSpark()) {
      throw Refusal.of(
          "ConfigError",
          Names.CRYPTO_FACTORY + " names a factory that does not check files; allowed without Spark: " + Names.CRYPTO_FACTORY_CLASS
              + "; set it, or remove the other from the table's properties");
    }
    // The instance URL may come from the footer of a file, which anyone may have written: it is not used.
    keyService = PinnedPolicy.of(conf).keyService();
    if (keyService == null) {
      throw Refusal.of(
          "ConfigError",
          "no key service is configured; set " + Names.KEY_SERVICE + " or " + Names.POLICY
              + ", as sparkcrypt.configure or `sparkcrypt conf` do");
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
    return Wire.request(op).put("key_service", keyService).put("key_id", keyId);
  }
}

package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.security.Key;
import java.util.List;
import java.util.function.Supplier;
import javax.crypto.spec.SecretKeySpec;
import org.apache.hadoop.conf.Configuration;
import org.apache.orc.EncryptionAlgorithm;
import org.apache.orc.impl.HadoopShims;
import org.apache.orc.impl.KeyProvider;
import org.apache.orc.impl.LocalKey;
import org.apache.parquet.crypto.ParquetCryptoRuntimeException;
import org.apache.spark.rdd.InputFileBlockHolder;

/**
 * A provider of local keys of ORC files, which are wrapped in the same way as data keys of Parquet files.
 *
 * <p>ORC keeps one provider for each value of {@code orc.key.provider}, for the whole JVM. The value ends with a digest of the
 * session's token, so readers with other policies and principals have their own providers. Whoever knows the digest gets the
 * provider from ORC without a call of ours; so Spark's source checks its configuration before each file (OrcReadCheck), and
 * other readers get no key of a principal.
 *
 * <p>ORC treats an IOException of a provider as a denied key, and returns masked values. Every failure here is therefore an
 * Error: with {@code ignoreCorruptFiles} Spark would skip the file on any exception.
 */
final class OrcKeyProvider implements KeyProvider {
  private final String kind;
  private final PinnedPolicy pinned;
  private final EncryptionAlgorithm algorithm;

  OrcKeyProvider(String kind, Configuration conf) {
    this.kind = kind;
    pinned = callOrRaiseError(() -> pinnedPolicy(kind, conf));
    algorithm = callOrRaiseError(() -> algorithmOf(pinned));
  }

  private static PinnedPolicy pinnedPolicy(String kind, Configuration conf) {
    refuseOther(kind, conf);
    return PinnedPolicy.of(conf);
  }

  private static void refuseOther(String kind, Configuration conf) {
    if (!kind.equals(kind(conf))) {
      throw Refusal.of("ConfigError", Names.ORC_KEY_PROVIDER + " is not that of this session; take it away, or RESET it");
    }
  }

  /** Refuses a configuration that names the provider of another session. */
  static void refuseOther(Configuration conf) {
    String kind = conf.get(Names.ORC_KEY_PROVIDER, "");
    if (RegisteredPolicies.isOrcKeyProvider(kind)) {
      refuseOther(kind, conf);
    }
  }

  /** Returns the result of an action, whose every failure becomes an Error. */
  private static <T> T callOrRaiseError(Supplier<T> action) {
    try {
      return action.get();
    } catch (ParquetCryptoRuntimeException e) {
      throw new RefusedError(e.getMessage());
    } catch (RuntimeException e) {
      throw new RefusedError("BridgeError: the provider of ORC's keys failed unexpectedly: " + e, e);
    }
  }

  /** Returns the value that {@code orc.key.provider} must have in a session. */
  static String kind(Configuration conf) {
    return RegisteredPolicies.orcKeyProvider(conf.get(Names.SESSION_TOKEN));
  }

  private static EncryptionAlgorithm algorithmOf(PinnedPolicy pinned) {
    JsonNode policy = Wire.parse(pinned.policy());
    if (pinned.policy() != null && policy.isMissingNode()) {
      throw Refusal.of("ConfigError", Names.POLICY + " is not a policy; leave it to sparkcrypt.configure");
    }
    return policy.path("data_key_bits").asInt() == 256 ? EncryptionAlgorithm.AES_CTR_256 : EncryptionAlgorithm.AES_CTR_128;
  }

  @Override
  public List<String> getKeyNames() {
    return List.of();
  }

  @Override
  public HadoopShims.KeyMetadata getCurrentKeyVersion(String keyName) {
    return new HadoopShims.KeyMetadata(keyName, 0, algorithm);
  }

  @Override
  public LocalKey createLocalKey(HadoopShims.KeyMetadata key) {
    return callOrRaiseError(() -> newLocalKey(key));
  }

  private LocalKey newLocalKey(HadoopShims.KeyMetadata key) {
    String identity = OrcWrite.identity();
    if (identity == null) {
      throw new RefusedError(
          "PlanError: nothing says which file a local key of ORC is for, and keys are bound to their files; allowed: writes by "
              + "Spark's own ORC source under the commit protocols that sparkcrypt.configure sets");
    }
    ObjectNode request = request("make_key").put("key_id", key.getKeyName()).put("bits", key.getAlgorithm().keyLength() * 8);
    JsonNode answer = Helper.ask(request.put("file_identity", identity));
    return new LocalKey(key.getAlgorithm(), Wire.bytes(answer, "key"), Wire.bytes(answer, "key_metadata"));
  }

  @Override
  public Key decryptLocalKey(HadoopShims.KeyMetadata key, byte[] encryptedKey) {
    return callOrRaiseError(() -> openLocalKey(key, encryptedKey));
  }

  private Key openLocalKey(HadoopShims.KeyMetadata key, byte[] encryptedKey) {
    String file = currentFile();
    FileKeys judged = OrcReadCheck.keysOf(kind, file);
    byte[] opened = judged == null ? openForFile(file, key, encryptedKey) : judged.getKey(encryptedKey);
    if (opened == null || opened.length != key.getAlgorithm().keyLength()) {
      throw new RefusedError("VerificationError: " + file + ": a local key is not as long as its algorithm says");
    }
    return new SecretKeySpec(opened, key.getAlgorithm().getAlgorithm());
  }

  /** Opens a key for a reader other than Spark's own source, by the file's path alone: the file was not checked. */
  private byte[] openForFile(String file, HadoopShims.KeyMetadata key, byte[] encryptedKey) {
    AccessLogPlace place = AccessLogPlace.of(pinned.policy());
    if (file.isEmpty() || pinned.isBound() || place != null && place.isRequired) {
      throw new RefusedError(
          "ConfigError: "
              + (file.isEmpty()
                  ? "this reader does not say which ORC file it reads, so nothing tells whether a key belongs to it"
                  : pinned.isBound()
                      ? file + ": the key service is another for each principal, and this reader of ORC does not say for whom it reads"
                      : file + ": the policy's access_log is required, and this reader of ORC leaves no access events")
              + "; allowed: reads by Spark's own ORC source (spark.sql.orc.impl=native, and spark.sql.hive.convertMetastoreOrc=true)");
    }
    ObjectNode request = request("open_key").put("key_metadata", Wire.base64(encryptedKey)).put("expected_key_id", key.getKeyName());
    request.put("owner", "a column under key " + key.getKeyName()).put("principal", pinned.principal());
    return Wire.bytes(Helper.ask(request.put("path", file)), "key");
  }

  @Override
  public HadoopShims.KeyProviderKind getKind() {
    return HadoopShims.KeyProviderKind.UNKNOWN;
  }

  private ObjectNode request(String op) {
    return Wire.request(op).put("policy", pinned.policy()).put("key_service", pinned.keyService());
  }

  /** Returns the file that this thread's task reads, as Spark names it; empty if Spark names none. */
  private static String currentFile() {
    try {
      return InputFileBlockHolder.getInputFilePath().toString();
    } catch (LinkageError e) {
      return "";
    }
  }
}

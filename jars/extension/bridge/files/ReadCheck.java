package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.security.MessageDigest;
import java.util.Arrays;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.crypto.FileDecryptionProperties;
import org.slf4j.Logger;

/** A check of a file's footer by the helper, whose answer is converted into parquet-mr's decryption properties. */
record ReadCheck(SessionConf session, FileKeys keys) {
  private static final Logger LOG = CleanLog.of(ReadCheck.class);

  /**
   * Returns properties with which no footer can be read, plaintext or encrypted.
   *
   * <p>A reader that gives no path cannot be checked, so it may open nothing. No exception is raised here, since parquet-mr 1.13
   * (Spark 3.5) asks once more without a path after it has read a plaintext file's footer, and ignores the answer.
   */
  static FileDecryptionProperties opensNothing() {
    return FileDecryptionProperties.builder()
        .withKeyRetriever(
            unused -> {
              throw Refusal.of(
                  "BridgeError",
                  "this reader gives the crypto factory no path, so the file's footer cannot be checked; read through Spark");
            })
        .build();
  }

  /**
   * Checks a file's footer; returns null for a plaintext file that may be read, so parquet-mr opens no encrypted file in its
   * place.
   */
  FileDecryptionProperties check(Configuration conf, Path path) throws IOException {
    FooterFacts facts = FooterFacts.read(new Tail(conf, path), keys);
    String requested = Launch.isSpark() ? conf.get(Names.REQUESTED_SCHEMA) : null; // of Spark's reader alone
    ObjectNode request = session.request("resolve_read", path).put("requested_schema", requested);
    request.set("footer", facts.toJson());
    JsonNode answer = Helper.ask(request);
    answer.path("warnings").forEach(warning -> LOG.warn("{}", warning.asText()));
    keys.belongTo(answer.path("table").asText(null));
    if (facts.mode.equals("plaintext")) {
      return null;
    }
    return properties(path, facts, Wire.bytes(answer, "aad_prefix"));
  }

  private FileDecryptionProperties properties(Path path, FooterFacts facts, byte[] expectedPrefix) {
    FileDecryptionProperties.Builder builder = FileDecryptionProperties.builder().withKeyRetriever(keys);
    if (facts.supplyAadPrefix) {
      return builder.withAADPrefix(expectedPrefix).build();
    }
    if (!Arrays.equals(facts.aadPrefix, expectedPrefix)) {
      throw mismatch(path);
    }
    if (expectedPrefix != null) {
      builder.withAADPrefixVerifier(stored -> {
        if (!MessageDigest.isEqual(stored, expectedPrefix)) {
          throw mismatch(path);
        }
      });
    }
    return builder.build();
  }

  private static RuntimeException mismatch(Path path) {
    return Refusal.of(
        "VerificationError",
        path + ": its AAD prefix is not the one that belongs here: it was moved, copied or replaced");
  }
}

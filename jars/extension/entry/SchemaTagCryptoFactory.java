package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.crypto.FileDecryptionProperties;
import org.apache.parquet.crypto.FileEncryptionProperties;
import org.apache.parquet.crypto.keytools.PropertiesDrivenCryptoFactory;
import org.apache.parquet.hadoop.api.WriteSupport.WriteContext;

/**
 * A crypto factory that encrypts each file by its schema's tags and the policy, and refuses to read a file that violates them.
 *
 * <p>The helper decides; parquet-mr encrypts. If anything is missing (policy, path, helper, answer), an exception is raised:
 * null, which means plaintext, is returned only if the helper decides so.
 */
public class SchemaTagCryptoFactory extends PropertiesDrivenCryptoFactory {
  static {
    Preload.classes();
  }

  @Override
  public FileEncryptionProperties getFileEncryptionProperties(Configuration conf, Path tempFilePath, WriteContext context) {
    SessionConf session = new SessionConf(conf);
    if (tempFilePath == null || context == null) {
      throw Refusal.of(
          "BridgeError",
          "this writer gives the crypto factory no " + (tempFilePath == null ? "path" : "schema")
              + ", so its columns cannot be told; write through Spark, or use parquet.encryption.* with the stock factory");
    }
    ObjectNode request =
        session
            .request("resolve_write", tempFilePath)
            .put("target", Targets.of(tempFilePath))
            .put("untold_stream", conf.get(Names.STREAM) == null && Reader.isOfStream())
            .put("format", TableFormats.ofCaller())
            .put("schema", context.getExtraMetaData().get(Names.SPARK_SCHEMA));
    SchemaJson.addFields(request.putArray("message_type"), context.getSchema());
    JsonNode answer = Helper.ask(request);
    addNote(context, Names.POLICY_DIGEST, Wire.requireField(answer, "policy_digest").asText());
    if (!Wire.requireField(answer, "encrypt").asBoolean(true)) {
      return null;
    }
    if (!Launch.isSpark()) {
      throw Refusal.of(
          "PlanError",
          tempFilePath + " would have columns to be encrypted, and is not written by Spark: other writers rename files, which are "
              + "bound to their names, and have no tags of what they write; allowed without Spark: reads, and writes of tables "
              + "without such columns; write this one with Spark");
    }
    if (answer.path("schema").isTextual()) {
      addNote(context, Names.SPARK_SCHEMA, answer.path("schema").asText());
    }
    WriteKeys keys = new WriteKeys(answer);
    return keys.rebuild(super.getFileEncryptionProperties(keys.properties(conf), tempFilePath, context));
  }

  @Override
  public FileDecryptionProperties getFileDecryptionProperties(Configuration conf, Path filePath) {
    SessionConf session = new SessionConf(conf);
    if (session.ignoresCorruptFiles()) {
      throw new RefusedError(
          "ConfigError: ignoreCorruptFiles is true, with which Spark reads a denied or forged file as one without rows; set "
              + "spark.sql.files.ignoreCorruptFiles (or the read's option ignoreCorruptFiles) to false");
    }
    if (filePath == null) {
      return ReadCheck.opensNothing();
    }
    FileKeys keys = new FileKeys(session, conf, filePath);
    try {
      return new ReadCheck(session, keys).check(conf, filePath);
    } catch (IOException e) {
      throw Refusal.<RuntimeException>raise(e); // Spark handles a missing file, or a failing file system, by the exception's class
    }
  }

  /**
   * Adds an entry to the key-value metadata that a writer will put into its footer.
   *
   * <p>ParquetOutputFormat reads WriteContext's metadata after the crypto factory has returned, and neither class has a method to
   * add to it; so the private field is replaced. If parquet-mr changes it, the write fails here rather than without its note.
   */
  private static void addNote(WriteContext context, String key, String value) {
    Map<String, String> entries = new HashMap<>(context.getExtraMetaData());
    entries.put(key, value);
    try {
      Calls.setField(WriteContext.class, context, "extraMetaData", Collections.unmodifiableMap(entries));
    } catch (IllegalStateException e) {
      throw Refusal.of("BridgeError", "this version of parquet-mr does not let the policy's digest into the footer", e);
    }
    if (!value.equals(context.getExtraMetaData().get(key))) {
      throw Refusal.of("BridgeError", "this version of parquet-mr keeps the policy's digest out of the footer");
    }
  }
}

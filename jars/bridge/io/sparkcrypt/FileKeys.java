package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.crypto.DecryptionKeyRetriever;
import org.apache.parquet.crypto.ParquetCryptoRuntimeException;

/**
 * The keys of one file, opened for the key metadata that was checked and for no other.
 *
 * <p>parquet-mr reads the footer again after the check; a file that was replaced in between shows other key metadata and gets no
 * key. Key material that an external file holds (parquet-mr's key.material.store.internally=false) is read here and treated as
 * if it stood in the footer, rather than by parquet-mr's own retriever, whose static caches hold keys by access token alone.
 */
final class FileKeys implements DecryptionKeyRetriever {
  private static final long serialVersionUID = 1L;
  private static final long MOST_EXTERNAL_BYTES = 64L * 1024 * 1024;

  private final transient SessionConf session;
  private final transient Configuration conf;
  private final transient Path file;
  private final transient Map<ByteBuffer, byte[]> materialByMetadata = new ConcurrentHashMap<>();
  private final transient Map<ByteBuffer, String> ownerByMetadata = new ConcurrentHashMap<>();
  private transient JsonNode external;

  FileKeys(SessionConf session, Configuration conf, Path file) {
    this.session = session;
    this.conf = conf;
    this.file = file;
  }

  /** Notes the key metadata of an owner, for messages, and returns the key material that it is or refers to. */
  byte[] note(byte[] keyMetadata, String owner) throws IOException {
    if (keyMetadata == null) {
      return null;
    }
    byte[] known = materialByMetadata.get(ByteBuffer.wrap(keyMetadata));
    if (known == null) {
      known = material(keyMetadata);
      materialByMetadata.put(ByteBuffer.wrap(keyMetadata.clone()), known);
      ownerByMetadata.put(ByteBuffer.wrap(keyMetadata.clone()), owner);
    }
    return known;
  }

  @Override
  public byte[] getKey(byte[] keyMetadata) {
    byte[] material = keyMetadata == null ? null : materialByMetadata.get(ByteBuffer.wrap(keyMetadata));
    if (material == null) {
      throw Refusal.of("VerificationError", file + ": its footer changed while it was opened; read it again");
    }
    String owner = ownerByMetadata.get(ByteBuffer.wrap(keyMetadata));
    try {
      return session.openKey(material, owner, file);
    } catch (ParquetCryptoRuntimeException e) {
      String[] parts = String.valueOf(e.getMessage()).split(": ", 2);
      if (isOfKey(parts[0]) && Launch.isSpark()) {
        // Spark would call an exception of a footer a corrupt file; the helper has named owner, key and principal.
        throw new RefusedError(e.getMessage());
      }
      throw Refusal.of(parts[0], file + ": " + owner + ": " + parts[parts.length - 1], e);
    }
  }

  private static boolean isOfKey(String type) {
    return type.equals("KeyAccessDeniedError") || type.equals("KeyNotFoundError");
  }

  private byte[] material(byte[] keyMetadata) throws IOException {
    JsonNode parsed;
    try {
      parsed = Wire.parse(keyMetadata);
    } catch (IOException e) {
      return keyMetadata; // not parquet-mr's: the helper says so with the column's name
    }
    JsonNode internal = parsed == null ? null : parsed.get("internalStorage");
    if (internal == null || internal.asBoolean(true)) {
      return keyMetadata;
    }
    JsonNode text = externalFile().path(parsed.path("keyReference").asText());
    JsonNode material = text.isTextual() ? Wire.parse(text.asText().getBytes(java.nio.charset.StandardCharsets.UTF_8)) : null;
    if (!(material instanceof ObjectNode)) {
      throw Refusal.of("FormatError", file + ": its key material file has no usable entry " + parsed.path("keyReference"));
    }
    return Wire.text(((ObjectNode) material).put("internalStorage", true));
  }

  private JsonNode externalFile() throws IOException {
    if (external == null) {
      Path path = new Path(file.getParent(), "_KEY_MATERIAL_FOR_" + file.getName() + ".json");
      FileSystem fileSystem = path.getFileSystem(conf);
      long length = fileSystem.getFileStatus(path).getLen();
      if (length > MOST_EXTERNAL_BYTES) {
        throw Refusal.of("FormatError", path + ": " + length + " bytes of key material; allowed: " + MOST_EXTERNAL_BYTES);
      }
      byte[] text = new byte[(int) length];
      try (FSDataInputStream stream = fileSystem.open(path)) {
        stream.readFully(0, text);
      }
      external = Wire.parse(text);
    }
    return external;
  }
}

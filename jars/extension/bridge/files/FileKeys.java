package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.net.URLDecoder;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.crypto.DecryptionKeyRetriever;
import org.apache.parquet.crypto.ParquetCryptoRuntimeException;

/**
 * The keys of one file, opened only for the key metadata that was checked.
 *
 * <p>parquet-mr reads the footer again after the check; a file that was replaced in between has other key metadata and gets no
 * key. Key material in an external file (parquet-mr's key.material.store.internally=false) is read here and treated as if it were
 * in the footer. parquet-mr's own retriever is not used for it, since its static caches keep keys by access token alone.
 */
final class FileKeys implements DecryptionKeyRetriever {
  private static final long serialVersionUID = 1L;
  private static final long MOST_EXTERNAL_BYTES = 64L * 1024 * 1024;

  private final transient SessionConf session;
  private final transient Configuration conf;
  private final transient Path file;
  private final transient Map<ByteBuffer, Noted> notedByMetadata = new ConcurrentHashMap<>();
  private transient JsonNode external;
  private transient volatile String table;

  /**
   * Key metadata that was checked.
   *
   * @param material the key material that it is or refers to
   * @param column the dotted path; null for the footer
   */
  private record Noted(byte[] material, String column) {
    String owner() {
      return column == null ? "the footer" : "column " + column;
    }
  }

  FileKeys(SessionConf session, Configuration conf, Path file) {
    this.session = session;
    this.conf = conf;
    this.file = file;
  }

  /** Notes the key metadata of a column, or of the footer (null), and returns the key material that it is or refers to. */
  byte[] note(byte[] keyMetadata, List<String> column) throws IOException {
    if (keyMetadata == null) {
      return null;
    }
    Noted known = notedByMetadata.get(ByteBuffer.wrap(keyMetadata));
    if (known == null) {
      known = new Noted(material(keyMetadata), column == null ? null : textOf(column));
      notedByMetadata.put(ByteBuffer.wrap(keyMetadata.clone()), known);
    }
    return known.material();
  }

  /** Returns a column path as text, with percent signs and dots inside names escaped. */
  static String textOf(List<String> path) {
    return path.stream().map(name -> name.replace("%", "%25").replace(".", "%2E")).collect(Collectors.joining("."));
  }

  /** Sets the name of the table that the file belongs to. */
  void belongTo(String name) {
    table = name;
  }

  @Override
  public byte[] getKey(byte[] keyMetadata) {
    Noted noted = keyMetadata == null ? null : notedByMetadata.get(ByteBuffer.wrap(keyMetadata));
    if (noted == null) {
      throw Refusal.of("VerificationError", file + ": its footer changed while it was opened; read it again");
    }
    String owner = noted.owner();
    byte[] key;
    try {
      key = session.openKey(noted.material(), owner, file);
    } catch (ParquetCryptoRuntimeException e) {
      String[] parts = String.valueOf(e.getMessage()).split(": ", 2);
      if (!(e.getCause() instanceof InterruptedException)) { // a task that Spark ended: nobody was refused, and nothing failed
        noteRefused(noted, parts[0]);
      }
      if (isOfKey(parts[0])) { // the helper's message names owner, key and principal
        if (Launch.isSpark()) {
          throw new RefusedError(e.getMessage()); // Spark would report an exception raised for a footer as a corrupt file
        }
        throw new ParquetCryptoRuntimeException(e.getMessage(), e); // a KeyAccessDeniedException is a hidden column there, unnamed
      }
      throw Refusal.of(parts[0], file + ": " + owner + ": " + parts[parts.length - 1], e);
    }
    noteOpened(noted);
    return key;
  }

  private void noteOpened(Noted noted) {
    AccessLogPlace place = noted.column() == null ? null : AccessLogPlace.of(session.pinned.policy());
    if (place == null) {
      return;
    }
    try {
      AccessEvents.noteOpened(place, reader(), tableName(), keyId(noted), noted.column());
    } catch (ParquetCryptoRuntimeException e) {
      String text = e.getMessage() + " The policy's access_log is required, so " + noted.owner() + " of " + file + " is not read.";
      if (Launch.isSpark()) {
        throw new RefusedError(text);
      }
      throw Refusal.of("StorageError", text, e);
    }
  }

  private void noteRefused(Noted noted, String type) {
    AccessLogPlace place = AccessLogPlace.of(session.pinned.policy());
    if (place != null) {
      AccessEvents.noteRefused(place, reader(), tableName(), keyId(noted), noted.column(), type);
    }
  }

  private Reader reader() {
    return Reader.current().withPrincipal(session.pinned.principal());
  }

  /** Returns the table's name from the policy or the catalog, or else its folder. */
  private String tableName() {
    String known = table == null ? session.table() : table;
    if (known != null) {
      return known;
    }
    Path folder = file.getParent();
    while (folder.getParent() != null && folder.getName().contains("=")) {
      folder = folder.getParent();
    }
    return folder.toString();
  }

  /** Returns the master key's id, which is percent-encoded in key material; an id that cannot be decoded is returned unchanged. */
  private static String keyId(Noted noted) {
    String spelt = Wire.parse(noted.material()).path("masterKeyID").asText(null);
    try {
      return spelt == null ? null : URLDecoder.decode(spelt.replace("+", "%2B"), StandardCharsets.UTF_8);
    } catch (IllegalArgumentException e) {
      return spelt;
    }
  }

  private static boolean isOfKey(String type) {
    return type.equals("KeyAccessDeniedError") || type.equals("KeyNotFoundError") || type.equals("KeyRetiredError");
  }

  private byte[] material(byte[] keyMetadata) throws IOException {
    JsonNode parsed = Wire.parse(keyMetadata);
    if (parsed.path("internalStorage").asBoolean(true)) {
      return keyMetadata; // also what is not parquet-mr's: the helper refuses it and names the column
    }
    JsonNode text = externalFile().path(parsed.path("keyReference").asText());
    if (!(Wire.parse(text.textValue()) instanceof ObjectNode material)) {
      throw Refusal.of("FormatError", file + ": its key material file has no usable entry " + parsed.path("keyReference"));
    }
    return Wire.text(material.put("internalStorage", true));
  }

  private JsonNode externalFile() throws IOException {
    if (external == null) {
      Path path = new Path(file.getParent(), "_KEY_MATERIAL_FOR_" + file.getName() + ".json");
      FileSystem fileSystem = path.getFileSystem(conf);
      long length = fileSystem.getFileStatus(path).getLen();
      if (length == 0 || length > MOST_EXTERNAL_BYTES) { // a pipe or a device has no length, and reading it may never end
        throw Refusal.of("FormatError", path + ": " + length + " bytes of key material; allowed: 1 to " + MOST_EXTERNAL_BYTES);
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

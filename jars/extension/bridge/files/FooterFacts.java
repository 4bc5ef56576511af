package io.sparkcrypt;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.crypto.AesCipher;
import org.apache.parquet.crypto.AesMode;
import org.apache.parquet.crypto.ModuleCipherFactory;
import org.apache.parquet.format.ColumnChunk;
import org.apache.parquet.format.ColumnCryptoMetaData;
import org.apache.parquet.format.EncryptionAlgorithm;
import org.apache.parquet.format.FileCryptoMetaData;
import org.apache.parquet.format.FileMetaData;
import org.apache.parquet.format.RowGroup;
import org.apache.parquet.format.Util;

/**
 * The facts of a file's footer about its encryption, read independently of parquet-mr.
 *
 * <p>parquet-mr gives a crypto factory neither the algorithm, which no authentication tag protects, nor the columns' keys;
 * without this check it would accept a footer in which either was forged. Layout: parquet-format's Encryption.md, sections 5.4
 * and 5.5.
 */
final class FooterFacts {
  final String mode;
  final String algorithm;
  final byte[] aadPrefix;
  final boolean supplyAadPrefix;
  private final byte[] aadFileUnique;
  private byte[] footerKeyMetadata;
  private long rowGroups;
  private final Map<List<String>, Column> columns = new LinkedHashMap<>();
  private final ArrayNode fields = Wire.object().putArray("fields");

  /** The facts of one column; keyMetadata is null under the footer key. */
  private static final class Column {
    final boolean encrypted;
    final byte[] keyMetadata;
    boolean hasBounds;

    Column(boolean encrypted, byte[] keyMetadata) {
      this.encrypted = encrypted;
      this.keyMetadata = keyMetadata;
    }

    boolean isSameAs(Column other) {
      return encrypted == other.encrypted && Arrays.equals(keyMetadata, other.keyMetadata);
    }
  }

  static FooterFacts read(Tail tail, FileKeys keys) throws IOException {
    return tail.hasEncryptedFooter ? readEncrypted(tail, keys) : readPlaintext(tail, keys);
  }

  private FooterFacts(String mode, EncryptionAlgorithm thrift) {
    this.mode = mode;
    boolean gcm = thrift != null && thrift.isSetAES_GCM_V1();
    boolean ctr = thrift != null && !gcm && thrift.isSetAES_GCM_CTR_V1();
    algorithm = gcm ? "AES_GCM_V1" : ctr ? "AES_GCM_CTR_V1" : null;
    aadPrefix = gcm ? thrift.getAES_GCM_V1().getAad_prefix() : ctr ? thrift.getAES_GCM_CTR_V1().getAad_prefix() : null;
    aadFileUnique =
        gcm ? thrift.getAES_GCM_V1().getAad_file_unique() : ctr ? thrift.getAES_GCM_CTR_V1().getAad_file_unique() : null;
    supplyAadPrefix =
        gcm && thrift.getAES_GCM_V1().isSupply_aad_prefix() || ctr && thrift.getAES_GCM_CTR_V1().isSupply_aad_prefix();
  }

  private static FooterFacts readEncrypted(Tail tail, FileKeys keys) throws IOException {
    ByteArrayInputStream stream = new ByteArrayInputStream(tail.footer);
    FileCryptoMetaData crypto = Util.readFileCryptoMetaData(stream);
    FooterFacts facts = new FooterFacts("encrypted", crypto.getEncryption_algorithm());
    if (facts.supplyAadPrefix) {
      throw Refusal.of(
          "VerificationError",
          tail.path + ": its AAD prefix is not stored in it, so its footer cannot be opened for checking; allowed: files that "
              + "store their prefix, as sparkcrypt's do");
    }
    if (facts.aadFileUnique == null || crypto.getKey_metadata() == null) {
      throw tail.formatError("its footer names no " + (facts.aadFileUnique == null ? "AAD file-unique" : "footer key"));
    }
    tail.checkModuleLength(stream.available());
    facts.footerKeyMetadata = keys.note(crypto.getKey_metadata(), null);
    byte[] key = keys.getKey(crypto.getKey_metadata());
    byte[] aad = AesCipher.createFooterAAD(facts.fileAad());
    FileMetaData footer = Util.readFileMetaData(stream, ModuleCipherFactory.getDecryptor(AesMode.GCM, key), aad);
    facts.addSchema(tail, footer, keys);
    return facts;
  }

  private static FooterFacts readPlaintext(Tail tail, FileKeys keys) throws IOException {
    FileMetaData footer = Util.readFileMetaData(new ByteArrayInputStream(tail.footer));
    boolean signed = footer.isSetEncryption_algorithm();
    FooterFacts facts = new FooterFacts(signed ? "plaintext_signed" : "plaintext", footer.getEncryption_algorithm());
    if (signed) {
      facts.footerKeyMetadata = keys.note(footer.getFooter_signing_key_metadata(), null);
    }
    facts.addSchema(tail, footer, keys);
    if (!signed && facts.columns.values().stream().anyMatch(column -> column.encrypted)) {
      throw Refusal.of(
          "VerificationError",
          tail.path + ": has encrypted columns, but its footer's algorithm and signature were taken away");
    }
    return facts;
  }

  private byte[] fileAad() {
    if (aadPrefix == null) {
      return aadFileUnique;
    }
    byte[] joined = Arrays.copyOf(aadPrefix, aadPrefix.length + aadFileUnique.length);
    System.arraycopy(aadFileUnique, 0, joined, aadPrefix.length, aadFileUnique.length);
    return joined;
  }

  private void addSchema(Tail tail, FileMetaData footer, FileKeys keys) throws IOException {
    if (!SchemaJson.addFields(fields, footer.getSchema())) {
      throw tail.formatError("its footer's schema is no tree of fields, or is nested too deeply");
    }
    addColumns(tail.path, footer, keys);
  }

  /** Adds the columns; refuses row groups that differ in them, since parquet-mr decrypts each row group by its own metadata. */
  private void addColumns(Path path, FileMetaData footer, FileKeys keys) throws IOException {
    for (RowGroup rowGroup : footer.getRow_groups()) {
      int seen = 0;
      for (ColumnChunk chunk : rowGroup.getColumns()) {
        List<String> name = columnName(path, chunk);
        Column column = column(path, name, chunk, keys);
        Column before = rowGroups == 0 ? columns.putIfAbsent(name, column) : columns.get(name);
        if (rowGroups == 0 ? before != null : before == null || !before.isSameAs(column)) {
          throw Refusal.of(
              "VerificationError",
              path + ": column " + String.join(".", name) + " is twice in a row group, or differs between row groups");
        }
        columns.get(name).hasBounds |= hasBounds(chunk);
        seen++;
      }
      if (seen != columns.size()) {
        throw Refusal.of("VerificationError", path + ": its row groups do not have the same columns");
      }
      rowGroups++;
    }
  }

  /** Returns whether bounds of an encrypted column are in clear; Spark 3.5 knows no geospatial statistics. */
  private static boolean hasBounds(ColumnChunk chunk) {
    return chunk.isSetEncrypted_column_metadata()
        && chunk.isSetMeta_data()
        && (chunk.getMeta_data().isSetStatistics()
            || Boolean.TRUE.equals(Calls.callIfPresent(chunk.getMeta_data(), "isSetGeospatial_statistics")));
  }

  private static List<String> columnName(Path path, ColumnChunk chunk) {
    List<String> stated = chunk.isSetMeta_data() ? chunk.getMeta_data().getPath_in_schema() : null;
    ColumnCryptoMetaData crypto = chunk.getCrypto_metadata();
    List<String> keyed =
        crypto != null && crypto.isSetENCRYPTION_WITH_COLUMN_KEY()
            ? crypto.getENCRYPTION_WITH_COLUMN_KEY().getPath_in_schema()
            : stated;
    if (keyed == null || stated != null && !Objects.equals(stated, keyed)) {
      throw Refusal.of("VerificationError", path + ": a column chunk has no path, or two: " + stated + " and " + keyed);
    }
    return new ArrayList<>(keyed);
  }

  private static Column column(Path path, List<String> name, ColumnChunk chunk, FileKeys keys) throws IOException {
    ColumnCryptoMetaData crypto = chunk.getCrypto_metadata();
    if (crypto == null) {
      return new Column(false, null);
    }
    if (crypto.isSetENCRYPTION_WITH_FOOTER_KEY()) {
      return new Column(true, null);
    }
    byte[] keyMetadata = crypto.getENCRYPTION_WITH_COLUMN_KEY().getKey_metadata();
    if (keyMetadata == null) {
      throw Refusal.of("VerificationError", path + ": column " + String.join(".", name) + " names no key");
    }
    return new Column(true, keys.note(keyMetadata, name));
  }

  ObjectNode toJson() {
    ObjectNode json =
        Wire.object()
            .put("mode", mode)
            .put("algorithm", algorithm)
            .put("aad_prefix", Wire.base64(aadPrefix))
            .put("supply_aad_prefix", supplyAadPrefix)
            .put("aad_file_unique", Wire.base64(aadFileUnique))
            .put("footer_key_metadata", Wire.base64(footerKeyMetadata))
            .put("row_groups", rowGroups);
    json.set("fields", fields);
    ArrayNode list = json.putArray("columns");
    columns.forEach((name, column) -> {
      ObjectNode entry = list.addObject();
      name.forEach(entry.putArray("path")::add);
      entry.put("encrypted", column.encrypted).put("bounds", column.hasBounds).put("key_metadata", Wire.base64(column.keyMetadata));
    });
    return json;
  }
}

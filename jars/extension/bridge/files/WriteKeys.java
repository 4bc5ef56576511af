package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.parquet.crypto.ColumnEncryptionProperties;
import org.apache.parquet.crypto.FileEncryptionProperties;
import org.apache.parquet.crypto.ParquetCipher;
import org.apache.parquet.hadoop.metadata.ColumnPath;

/**
 * The helper's decision on one file, converted into properties for parquet-mr's own factory, and that factory's keys converted
 * back.
 *
 * <p>The factory parses columns from one text, in which names cannot contain {@code . , ; :}. It is therefore given aliases (c0,
 * c1, …), and its keys are then assigned to the real paths, together with the AAD prefix, for which it has no property.
 */
final class WriteKeys {
  private static final String PREFIX = Names.ENCRYPTION_PREFIX;

  private final JsonNode answer;
  private final Map<ColumnPath, String> aliases = new LinkedHashMap<>(); // null: under the footer key
  private final Map<String, StringBuilder> aliasesByKey = new LinkedHashMap<>();

  WriteKeys(JsonNode answer) {
    this.answer = answer;
    int number = 0;
    for (JsonNode column : Wire.requireField(answer, "columns")) {
      JsonNode key = column.path("key");
      String alias = key.isTextual() ? "c" + number++ : null;
      if (aliases.put(path(column.path("path")), alias) != null) {
        throw Refusal.of("BridgeError", "the helper's answer names column " + column.path("path") + " twice");
      }
      if (alias != null) {
        aliasesByKey.computeIfAbsent(key.asText(), unused -> new StringBuilder()).append(alias).append(',');
      }
    }
    if (aliases.isEmpty()) {
      throw Refusal.of("BridgeError", "the helper's answer asks for encryption and names no column");
    }
  }

  /** Returns a copy of the configuration with this file's encryption properties and none that was set by hand. */
  Configuration properties(Configuration conf) {
    Configuration copy = new Configuration(conf);
    for (Map.Entry<String, String> entry : conf) {
      if (entry.getKey().startsWith(PREFIX) && !entry.getKey().equals(Names.CACHE_LIFETIME)) {
        copy.unset(entry.getKey());
      }
    }
    if (aliasesByKey.isEmpty()) {
      copy.set(PREFIX + "uniform.key", text("footer_key")); // the factory refuses a footer key without column keys
    } else {
      StringBuilder columnKeys = new StringBuilder();
      aliasesByKey.forEach((key, columns) -> columnKeys.append(key).append(':').append(columns).append(';'));
      copy.set(PREFIX + "footer.key", text("footer_key"));
      copy.set(PREFIX + "column.keys", columnKeys.toString());
    }
    copy.set(PREFIX + "data.key.length.bits", text("data_key_bits"));
    copy.set(PREFIX + "kek.length.bits", text("data_key_bits"));
    copy.set(PREFIX + "double.wrapping", "true");
    copy.set(PREFIX + "key.material.store.internally", "true");
    copy.set(PREFIX + "kms.client.class", Names.KMS_CLIENT_CLASS);
    copy.set(PREFIX + "key.access.token", text("access_token"));
    copy.set(Names.KEY_SERVICE, text("key_service"));
    return copy;
  }

  FileEncryptionProperties rebuild(FileEncryptionProperties made) {
    Map<ColumnPath, ColumnEncryptionProperties> columns = new HashMap<>();
    aliases.forEach((path, alias) -> columns.put(path, column(path, alias, made)));
    FileEncryptionProperties.Builder builder =
        FileEncryptionProperties.builder(made.getFooterKey())
            .withFooterKeyMetadata(made.getFooterKeyMetadata())
            .withAlgorithm(ParquetCipher.valueOf(text("algorithm")))
            .withEncryptedColumns(columns)
            .withAADPrefix(Wire.bytes(answer, "aad_prefix"));
    return answer.path("plaintext_footer").asBoolean() ? builder.withPlaintextFooter().build() : builder.build();
  }

  private static ColumnEncryptionProperties column(ColumnPath path, String alias, FileEncryptionProperties made) {
    ColumnEncryptionProperties.Builder builder = ColumnEncryptionProperties.builder(path);
    if (alias != null) {
      ColumnEncryptionProperties keyed = made.getEncryptedColumns().get(ColumnPath.get(alias));
      builder.withKey(keyed.getKeyBytes()).withKeyMetaData(keyed.getKeyMetaData());
    }
    return builder.build();
  }

  private String text(String field) {
    return Wire.requireField(answer, field).asText();
  }

  private static ColumnPath path(JsonNode names) {
    return ColumnPath.get(Wire.texts(names).toArray(String[]::new));
  }
}

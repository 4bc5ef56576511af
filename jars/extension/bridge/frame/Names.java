package io.sparkcrypt;

/** Names of configuration properties, and of the classes that they name; sparkcrypt/names.py has the same. */
final class Names {
  static final String CRYPTO_FACTORY_CLASS = "io.sparkcrypt.SchemaTagCryptoFactory";
  static final String STOCK_CRYPTO_FACTORY_CLASS = "org.apache.parquet.crypto.keytools.PropertiesDrivenCryptoFactory";
  static final String COMMIT_PROTOCOL_CLASS = "io.sparkcrypt.IdentityCommitProtocol";
  static final String STREAM_COMMIT_PROTOCOL_CLASS = "io.sparkcrypt.StreamCommitProtocol";
  static final String KMS_CLIENT_CLASS = "io.sparkcrypt.BridgeKmsClient";
  static final String CRYPTO_FACTORY = "parquet.crypto.factory.class";
  static final String KMS_CLIENT = "parquet.encryption.kms.client.class";
  static final String SKIPPING = "spark.sparkcrypt.skipping";
  static final String PREFIX = "parquet.sparkcrypt.";
  static final String POLICY = PREFIX + "policy";
  static final String KEY_SERVICE = PREFIX + "key_service";
  static final String SESSION_TOKEN = PREFIX + "session_token";
  static final String STREAM = PREFIX + "stream";
  static final String TABLE = PREFIX + "table";
  static final String TABLE_NAME = PREFIX + "table.name";
  static final String TABLE_UUID = PREFIX + "table.uuid";
  static final String QUERY_SCHEMA = PREFIX + "query.schema";
  static final String LOCATIONS = PREFIX + "locations";
  static final String PARTITION = PREFIX + "partition";
  static final String TAGS_PREFIX = PREFIX + "tags.";
  static final String TABLE_SCHEMA = PREFIX + "table.schema";
  static final String OWNER_SCHEMAS = PREFIX + "owner.schemas";
  static final String FIELD_METADATA = PREFIX + "field_metadata";
  static final String ALLOW_MASKED = PREFIX + "allow_masked";
  static final String RULE_MARK = "sparkcrypt.rule";
  static final String PREDECESSOR = "sparkcrypt.predecessor";
  static final String NAME_PREFIX = "sparkcrypt.name.";
  static final String REQUIRE_ENCRYPTION = PREFIX + "require_encryption";
  static final String ENCRYPTION_PREFIX = "parquet.encryption.";
  static final String ORC_SCHEMA = PREFIX + "orc.schema";
  static final String ORC_KEY_PROVIDER = "orc.key.provider";
  static final String SUMMARY_LEVEL = "parquet.summary.metadata.level";
  static final String SUMMARY_ENABLED = "parquet.enable.summary-metadata";
  static final String CACHE_LIFETIME = ENCRYPTION_PREFIX + "cache.lifetime.seconds";
  static final String SPARK_SCHEMA = "org.apache.spark.sql.parquet.row.metadata";
  static final String REQUESTED_SCHEMA = "org.apache.spark.sql.parquet.row.requested_schema";
  static final String POLICY_DIGEST = "sparkcrypt.policy.digest";

  private Names() {}
}

"""Names that Spark, Parquet, the jar and this package share: properties, classes, algorithms.

Everything that must travel with a table begins with ``parquet.``: those are the only table properties that reach a
Parquet writer on every path of Spark, the Hive SerDe one included.
"""

from __future__ import annotations

from typing import Final, Literal

Algorithm = Literal["AES_GCM_V1", "AES_GCM_CTR_V1"]
"""An algorithm of Parquet's encryption, as its specification names it."""
AES_GCM_V1: Final[Algorithm] = "AES_GCM_V1"
AES_GCM_CTR_V1: Final[Algorithm] = "AES_GCM_CTR_V1"
ALGORITHMS: tuple[Algorithm, ...] = (AES_GCM_V1, AES_GCM_CTR_V1)

FileFormat = Literal["parquet", "orc"]
"""A format of data files whose columns can be encrypted, under Spark's name for it."""
FILE_FORMATS: tuple[FileFormat, ...] = ("parquet", "orc")

CRYPTO_FACTORY_CLASS = "io.sparkcrypt.SchemaTagCryptoFactory"
KMS_CLIENT_CLASS = "io.sparkcrypt.BridgeKmsClient"
STOCK_CRYPTO_FACTORY_CLASS = "org.apache.parquet.crypto.keytools.PropertiesDrivenCryptoFactory"
COMMIT_PROTOCOL_CLASS = "io.sparkcrypt.IdentityCommitProtocol"
STREAM_COMMIT_PROTOCOL_CLASS = "io.sparkcrypt.StreamCommitProtocol"
EXTENSIONS_CLASS = "io.sparkcrypt.SparkcryptExtensions"
STATISTICS_GUARD_CLASS = "io.sparkcrypt.StatisticsGuard"
SKIPPING_REPORT_CLASS = "io.sparkcrypt.SkippingReport"
FOLDER_LISTING_CLASS = "io.sparkcrypt.FolderListing"

COMMIT_PROTOCOL = "spark.sql.sources.commitProtocolClass"
STREAM_COMMIT_PROTOCOL = "spark.sql.streaming.commitProtocolClass"
CRYPTO_FACTORY = "parquet.crypto.factory.class"
KMS_CLIENT = "parquet.encryption.kms.client.class"
ORC_KEY_PROVIDER = "orc.key.provider"
ORC_KEY_PROVIDER_KIND = "sparkcrypt"
SUMMARY_LEVEL = "parquet.summary.metadata.level"
SUMMARY_ENABLED = "parquet.enable.summary-metadata"
CACHE_LIFETIME = "parquet.encryption.cache.lifetime.seconds"

PREFIX = "parquet.sparkcrypt."
POLICY = PREFIX + "policy"
"""Canonical policy JSON (session or launch conf)."""
KEY_SERVICE = PREFIX + "key_service"
"""Canonical key service JSON, for the stock crypto factory, which needs no policy."""
SESSION_TOKEN = PREFIX + "session_token"
"""A random token that ``configure`` puts into a session; the driver keeps the session's policy under it.

Spark redacts properties with ``token`` in their names.
"""
STREAM = PREFIX + "stream"
"""Set in a job's configuration by commit protocols that passed its writers the table that a stream writes, if any."""
LOCATIONS = PREFIX + "locations"
"""JSON: table location -> {"table": name, "uuid": uuid or null}; how a write or read by path finds its table."""
TABLE = PREFIX + "table"
"""Table name, ``db.table``, if the writer has it."""
TABLE_NAME = PREFIX + "table.name"
"""The catalog's name of a table, which the jar's Spark extension sets for each write and read; never stored."""
TABLE_UUID = PREFIX + "table.uuid"
TABLE_SCHEMA = PREFIX + "table.schema"
"""Spark schema JSON of the table, with its tags, if the writer's own schema is not the table's (a stream's)."""
QUERY_SCHEMA = PREFIX + "query.schema"
"""Spark schema JSON of the written rows, for a writer that is given no schema (Hive's SerDe); never stored."""
OWNER_SCHEMAS = PREFIX + "owner.schemas"
"""JSON list of the Spark schemas, with tags, of other tables in whose folders a table is written; never stored."""
REQUIRE_ENCRYPTION = PREFIX + "require_encryption"
PARTITION = PREFIX + "partition"
"""Partition path (``p=0/q=1``) of a write whose target folder does not show it."""
TAGS_PREFIX = PREFIX + "tags."
"""+ column path -> comma-separated tags."""
HISTORY_PREFIX = PREFIX + "history."
"""+ column path -> comma-separated percent-encoded key ids, or ``plaintext``, that readers still accept."""
TABLE_MARK = "sparkcrypt.table"
"""Table property that reaches no writer and is not copied by LIKE: UUID and creation time of the table that owns it."""
RULE_MARK = "sparkcrypt.rule"
"""Table property that reaches no writer: JSON of the other properties that a policy's rule set, for their removal."""
PREDECESSOR = "sparkcrypt.predecessor"
"""Table property that reaches no writer: UUID of the table whose name, tags and requirements this one took over."""
NAME_PREFIX = "sparkcrypt.name."
"""+ table: property of a database that records what tables of this name require."""
ALLOW_MASKED = PREFIX + "allow_masked"
"""Option of one write, or session conf: ``true`` if nulls in place of denied columns may be stored."""
MASKED = "sparkcrypt.masked"
"""In the metadata of a masked column: why it is null."""
MASKED_TAG = "!masked"
"""A tag that masked columns carry and no policy defines."""
IN_SOME_PARTITIONS = " in some partitions"
"""End of the reason of a column that has its values in other partitions."""
POLICY_DIGEST = "sparkcrypt.policy.digest"
"""Key of the footer's key-value metadata."""
PURGED = "sparkcrypt.purged"
"""Key of the footer's key-value metadata: columns replaced by nulls, and the shredded keys they were under, as JSON."""
SPARK_SCHEMA = "org.apache.spark.sql.parquet.row.metadata"
"""Key of the footer's key-value metadata under which Spark keeps its schema as JSON."""

PYTHON = "spark.sparkcrypt.python"
"""Launch conf only: the interpreter of the helper."""
ALLOW_HTTP = "spark.sparkcrypt.allow_http"
"""Launch conf only: ``true`` if services on other machines may be reached over plain http."""
STOCK_FACTORY = "spark.sparkcrypt.stock_factory"
"""Launch conf only: ``true`` if writes and reads may name Parquet's own crypto factory, as ``parquet_options`` does."""
PRINCIPAL = "spark.sparkcrypt.principal"
"""Launch conf only: the reader's name, as messages show it; by default the user that Spark runs as."""
ON_DENIED = "spark.sparkcrypt.on_denied"
"""Launch or session conf: ``error`` or ``mask``: what a reader gets for columns whose keys are denied."""
STRICT_PROJECTION = "spark.sparkcrypt.strict_projection"
"""Launch or session conf: ``true`` if naming a column that is null because its key cannot be used is an error."""
SKIPPING = "spark.sparkcrypt.skipping"
"""Launch or session conf, or option of one read: ``true`` if queries use stores for data skipping."""

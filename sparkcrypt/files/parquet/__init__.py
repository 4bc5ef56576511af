"""The native Parquet layer: reads, verifies and rewrites files without decoding a page and without Spark.

Importing it needs only the standard library; ``cryptography`` is imported when a key is first used, and ``pyarrow``
only if the caller passes one of its file systems.
"""

from __future__ import annotations

from sparkcrypt.files.output import RewriteResult, Target, folders_synced_once
from sparkcrypt.files.parquet.file.footer import ColumnCrypto, Footer, KnownColumns, read_footer
from sparkcrypt.files.parquet.file.modules import AadPrefix, KeyRequest, RetrieveKey
from sparkcrypt.files.parquet.file.schema import leaf_paths, message_type
from sparkcrypt.files.parquet.rewrite.encryption import FOOTER_KEY, PLAINTEXT, DataKey, FileEncryption
from sparkcrypt.files.parquet.rewrite.file import Encryption, rewrite_file
from sparkcrypt.files.parquet.rewrite.rewrap import NewKeys, WrapKey, rewrap_file
from sparkcrypt.files.parquet.summary import ColumnSummary, FileSummary, inspect_file, summarise
from sparkcrypt.files.parquet.verify.file import Verification, verify_file, verify_keys
from sparkcrypt.files.source import Source

__all__ = [
    "FOOTER_KEY",
    "PLAINTEXT",
    "AadPrefix",
    "ColumnCrypto",
    "ColumnSummary",
    "DataKey",
    "Encryption",
    "FileEncryption",
    "FileSummary",
    "Footer",
    "KeyRequest",
    "KnownColumns",
    "NewKeys",
    "RetrieveKey",
    "RewriteResult",
    "Source",
    "Target",
    "Verification",
    "WrapKey",
    "folders_synced_once",
    "inspect_file",
    "leaf_paths",
    "message_type",
    "read_footer",
    "rewrap_file",
    "rewrite_file",
    "summarise",
    "verify_file",
    "verify_keys",
]

"""The native Parquet layer: reads, verifies and rewrites files without decoding a page and without Spark.

Importing it needs only the standard library; ``cryptography`` is imported when a key is first used, and ``pyarrow``
only if the caller passes one of its file systems.
"""

from __future__ import annotations

from sparkcrypt.parquet.file.columns import ColumnCrypto
from sparkcrypt.parquet.file.footer import Footer, read_footer
from sparkcrypt.parquet.file.keys import KeyRequest, RetrieveKey, VerifyAad
from sparkcrypt.parquet.file.schema import leaf_paths, message_type
from sparkcrypt.parquet.file.source import Source
from sparkcrypt.parquet.rewrite.encryption import FOOTER_KEY, PLAINTEXT, DataKey, FileEncryption
from sparkcrypt.parquet.rewrite.file import Encryption, rewrite_file
from sparkcrypt.parquet.rewrite.open_keys import verify_keys
from sparkcrypt.parquet.rewrite.output import Target, folders_synced_once
from sparkcrypt.parquet.rewrite.result import RewriteResult
from sparkcrypt.parquet.rewrite.rewrap import WrapKey, rewrap_file
from sparkcrypt.parquet.summary import ColumnSummary, FileSummary, inspect_file, summarise
from sparkcrypt.parquet.verify.file import Verification, verify_file

__all__ = [
    "FOOTER_KEY",
    "PLAINTEXT",
    "ColumnCrypto",
    "ColumnSummary",
    "DataKey",
    "Encryption",
    "FileEncryption",
    "FileSummary",
    "Footer",
    "KeyRequest",
    "RetrieveKey",
    "RewriteResult",
    "Source",
    "Target",
    "Verification",
    "VerifyAad",
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

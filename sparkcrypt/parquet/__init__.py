"""The native Parquet layer: footers, modules and pages, read without an engine.  Knows nothing of Spark.

Importing it needs nothing but the standard library; ``cryptography`` is imported when a key is first used, ``pyarrow``
never, unless the caller brings one of its file systems.
"""

from __future__ import annotations

from sparkcrypt.parquet.columns import ColumnCrypto
from sparkcrypt.parquet.footer import Footer, read_footer
from sparkcrypt.parquet.keys import KeyRequest, RetrieveKey, VerifyAad
from sparkcrypt.parquet.schema import leaf_paths, message_type
from sparkcrypt.parquet.source import Source
from sparkcrypt.parquet.summary import ColumnSummary, FileSummary, inspect_file, summarise
from sparkcrypt.parquet.verify import Verification, verify_file

__all__ = [
    "ColumnCrypto",
    "ColumnSummary",
    "FileSummary",
    "Footer",
    "KeyRequest",
    "RetrieveKey",
    "Source",
    "Verification",
    "VerifyAad",
    "inspect_file",
    "leaf_paths",
    "message_type",
    "read_footer",
    "summarise",
    "verify_file",
]

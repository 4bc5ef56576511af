"""The native ORC layer: inspects, verifies and rewrites files without decoding a value and without Spark.

Importing it needs only the standard library; ``cryptography`` is imported when a key is first used, ``pyarrow`` when
Snappy or Zstandard is first needed.  Only `sparkcrypt.files.orc.read` decodes rows; it needs pyarrow and numpy.
"""

from __future__ import annotations

from sparkcrypt.files.orc.file.tail import Tail, is_orc, read_tail
from sparkcrypt.files.orc.rewrite.encryption import OrcEncryption, OrcKey
from sparkcrypt.files.orc.rewrite.file import rewrap_orc, rewrite_orc
from sparkcrypt.files.orc.summary import ColumnSummary, OrcSummary, inspect_orc, read_identity, summarise_orc
from sparkcrypt.files.orc.verify.file import OrcVerification, check_key_name, verify_orc, verify_orc_keys

__all__ = [
    "ColumnSummary",
    "OrcEncryption",
    "OrcKey",
    "OrcSummary",
    "OrcVerification",
    "Tail",
    "check_key_name",
    "inspect_orc",
    "is_orc",
    "read_identity",
    "read_tail",
    "rewrap_orc",
    "rewrite_orc",
    "summarise_orc",
    "verify_orc",
    "verify_orc_keys",
]

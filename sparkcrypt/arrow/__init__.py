"""Tables under a policy for pyarrow, pandas, polars and DuckDB, with decisions, keys and denials of Spark's readers.

`open_table` and `read_table` judge every file before it is read.  `crypto_factory`, `decryption_properties` and
`encryption_properties` are the same key services for those who open files with pyarrow themselves; then nothing is
judged.
"""

from __future__ import annotations

from sparkcrypt.arrow.open import OnDenied, open_table, read_table
from sparkcrypt.arrow.properties import (
    DEFAULT_LIFETIME_SECONDS,
    ArrowKmsClient,
    FileProperties,
    crypto_factory,
    decryption_properties,
    encryption_properties,
)
from sparkcrypt.arrow.table import GuardedTable

__all__ = [
    "DEFAULT_LIFETIME_SECONDS",
    "ArrowKmsClient",
    "FileProperties",
    "GuardedTable",
    "OnDenied",
    "crypto_factory",
    "decryption_properties",
    "encryption_properties",
    "open_table",
    "read_table",
]

"""Tables under a policy for pyarrow, pandas, polars and DuckDB, with decisions, keys and denials of Spark's readers.

`open_table` and `read_table` judge every file before it is read; `open_orc` opens one ORC file, in which nothing can be
judged.  `crypto_factory`, `decryption_properties` and `encryption_properties` are the same key services for those who
open files with pyarrow themselves; then nothing is judged either.
"""

from __future__ import annotations

from sparkcrypt.arrow.crypto_properties import (
    DEFAULT_LIFETIME_SECONDS,
    ArrowKmsClient,
    FileProperties,
    crypto_factory,
    decryption_properties,
    encryption_properties,
)
from sparkcrypt.arrow.open import OnDenied, open_table, read_table
from sparkcrypt.arrow.orc import GuardedOrc, open_orc
from sparkcrypt.arrow.table import GuardedTable

__all__ = [
    "DEFAULT_LIFETIME_SECONDS",
    "ArrowKmsClient",
    "FileProperties",
    "GuardedOrc",
    "GuardedTable",
    "OnDenied",
    "crypto_factory",
    "decryption_properties",
    "encryption_properties",
    "open_orc",
    "open_table",
    "read_table",
]

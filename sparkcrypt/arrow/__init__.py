"""Tables under a policy for pyarrow, pandas, polars and DuckDB, with the same checks and keys as in Spark's readers.

`open_table` and `read_table` judge every Parquet file before they read it; `open_orc` judges and opens one ORC file.
`crypto_factory`, `decryption_properties` and `encryption_properties` give pyarrow itself access to the key services;
files that it opens with them are not judged.
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
from sparkcrypt.arrow.open import TableOptions, open_table, read_table
from sparkcrypt.arrow.orc import GuardedOrc, open_orc
from sparkcrypt.arrow.reader import ReadOptions
from sparkcrypt.arrow.table import GuardedTable
from sparkcrypt.policy.model import ReadMode as OnDenied

__all__ = [
    "DEFAULT_LIFETIME_SECONDS",
    "ArrowKmsClient",
    "FileProperties",
    "GuardedOrc",
    "GuardedTable",
    "OnDenied",
    "ReadOptions",
    "TableOptions",
    "crypto_factory",
    "decryption_properties",
    "encryption_properties",
    "open_orc",
    "open_table",
    "read_table",
]

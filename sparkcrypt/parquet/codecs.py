"""Which compression a file's column chunks have, as far as its footer shows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from sparkcrypt.parquet.file.footer import Footer

NAMES = ("uncompressed", "snappy", "gzip", "lzo", "brotli", "lz4", "zstd", "lz4_raw")
"""By their numbers in ``CompressionCodec`` of parquet.thrift."""


def codecs_of(footer: Footer) -> Mapping[str, int]:
    """Return how many column chunks of a file have each codec.

    The metadata of a column with a key of its own is hidden where the footer is encrypted, and its codec with it.
    """
    found: Counter[str] = Counter()
    for row_group in footer.metadata.row_groups if footer.metadata is not None else ():
        for chunk in row_group.columns:
            if chunk.meta_data is not None:
                number = chunk.meta_data.codec
                found[NAMES[number] if 0 <= number < len(NAMES) else f"codec {number}"] += 1
    return found

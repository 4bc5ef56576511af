"""Counts the compression codecs of a file's column chunks, as far as its footer shows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from sparkcrypt.files.parquet.file.footer import Footer

NAMES = ("uncompressed", "snappy", "gzip", "lzo", "brotli", "lz4", "zstd", "lz4_raw")
"""The codecs' names, by their numbers in ``CompressionCodec`` of parquet.thrift."""


def codecs_of(footer: Footer) -> Mapping[str, int]:
    """Return the number of column chunks of a file with each codec.

    In a file with an encrypted footer, columns with a key of their own are not counted: their metadata is hidden.
    """
    found: Counter[str] = Counter()
    for row_group in footer.metadata.row_groups if footer.metadata is not None else ():
        for chunk in row_group.columns:
            if chunk.meta_data is not None:
                number = chunk.meta_data.codec
                found[NAMES[number] if 0 <= number < len(NAMES) else f"codec {number}"] += 1
    return found

"""Reads the statistics of columns: those in clear from footer and metadata, and those of a variant with its key.

Each is kept as the bytes of its ``ColumnStatistics``, so that it can be copied unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparkcrypt.errors import FormatError
from sparkcrypt.files.orc.file.cipher import LocalKey
from sparkcrypt.files.orc.file.encryption import FILE_STATISTICS_KIND, STRIPE_STATISTICS_KIND, Variant
from sparkcrypt.files.orc.file.protobuf import MAX_FIELDS, decode
from sparkcrypt.files.orc.file.tail import STATISTICS, Tail
from sparkcrypt.files.source import Input

_VALUES = 1
_TYPED = (*range(2, 10), 13)
"""Fields of ``ColumnStatistics`` that hold statistics of one type."""
_COLLECTION, _TOTAL = 12, 3


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of consecutive columns: of the file, and of each stripe; empty if a file has none."""

    file: tuple[bytes, ...]
    stripes: tuple[tuple[bytes, ...], ...]


def clear_statistics(file: Input, tail: Tail) -> Statistics:
    """Return the statistics in clear of all columns.

    Raises:
        FormatError: their number is not that of the columns, or of the stripes and columns.
        StorageError: the storage failed.
    """
    columns = len(tail.columns)
    of_file = tuple(tail.footer.read_repeated(STATISTICS))
    if len(of_file) not in (0, columns):
        raise FormatError(f"the footer has statistics of {len(of_file)} columns; expected {columns}")
    length = tail.footer_offset - tail.metadata_offset
    raw = tail.compression.inflate(file.read(tail.metadata_offset, length, "the metadata"), "the metadata")
    metadata = decode(raw, "the metadata", max_fields=max(MAX_FIELDS, file.size))
    stripes = tuple(tuple(message.read_repeated(1)) for message in metadata.messages(1, "statistics of a stripe"))
    if len(stripes) not in (0, len(tail.stripes)) or any(len(stripe) != columns for stripe in stripes):
        raise FormatError(
            f"the metadata has statistics of {len(stripes)} stripes; expected {len(tail.stripes)}, each of {columns} "
            "columns"
        )
    return Statistics(of_file, stripes)


def variant_statistics(file: Input, tail: Tail, variant: Variant, key: LocalKey, start: int) -> Statistics:
    """Return a variant's statistics of its root and all columns below it.

    Args:
        file: the open file.
        tail: its tail.
        variant: one of its variants.
        key: the local key of the variant's ``encrypted_key``.
        start: the offset of its stripe statistics, at which those of the previous variant end.

    Raises:
        FormatError: they do not decrypt to statistics, or some are missing.
        StorageError: the storage failed.
    """
    root, count = variant.root.number, variant.root.last - variant.root.number + 1
    what = f"file statistics of variant {variant.number}"
    if variant.file_statistics is None:
        raise FormatError(f"{what} are missing; expected them for {count} columns")
    cipher = key.stream(root, FILE_STATISTICS_KIND, tail.footer_id)
    raw = tail.compression.inflate(cipher.update(variant.file_statistics), what)
    of_file = tuple(decode(raw, what).read_repeated(1))
    if len(of_file) != count:
        raise FormatError(f"{what} are of {len(of_file)} columns; expected {count}")
    columns: dict[int, list[bytes]] = {}
    offset = start
    for column, length in variant.stripe_statistics:
        what = f"stripe statistics of column {column} of variant {variant.number}"
        cipher = key.stream(column, STRIPE_STATISTICS_KIND, tail.footer_id)
        raw = tail.compression.inflate(cipher.update(file.read(offset, length, what)), what)
        found = decode(raw, what, max_fields=max(MAX_FIELDS, file.size)).read_repeated(1)
        if len(found) != len(tail.stripes) or column in columns:
            raise FormatError(f"{what} are of {len(found)} stripes; expected {len(tail.stripes)}, and each column once")
        columns[column] = found
        offset += length
    if len(columns) != count:
        raise FormatError(f"variant {variant.number} has stripe statistics of {len(columns)} columns; expected {count}")
    stripes = range(len(tail.stripes))
    return Statistics(of_file, tuple(tuple(columns[root + n][s] for n in range(count)) for s in stripes))


def tells_nothing(statistics: bytes) -> bool:
    """Return whether statistics are those of no values: the count is zero, and so is everything else in them.

    The total number of elements is not checked: ORC's Java writer sums lengths of vectors that a mask has left unset.

    Raises:
        FormatError: they are not ``ColumnStatistics``.
    """
    message = decode(statistics, "column statistics")
    if message.integer(_VALUES):
        return False
    typed = [part for number in _TYPED for part in message.messages(number, "statistics of a type")]
    found = [value for part in typed for _, value in part.fields]
    for part in message.messages(_COLLECTION, "statistics of a collection"):
        found += [value for key, value in part.fields if key >> 3 != _TOTAL]
    return all(map(_is_zero, found))


def _is_zero(value: int | bytes) -> bool:
    return not value.strip(b"\0") or value == b"0" if isinstance(value, bytes) else value == 0

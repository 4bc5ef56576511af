"""Reads the tail of an ORC file: postscript, footer, and the offsets of stripes and statistics.

Layout: ``ORC | stripes | encrypted stripe statistics | metadata | footer | postscript | length (1 byte)``.
Source: ORC specification v1, "File Tail"; ``ReaderImpl.extractFileTail`` of ORC's Java reader.

Reads the statistics of columns: those in clear from footer and metadata, and those of a variant with its key.  Each is
kept as the bytes of its ``ColumnStatistics``, so that it can be copied unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sparkcrypt.errors import FormatError, UnsupportedFileError
from sparkcrypt.files.orc.file.compression import DEFAULT_BLOCK_BYTES, MAX_BLOCK_BYTES, NAMES, Compression
from sparkcrypt.files.orc.file.encryption import (
    FILE_STATISTICS_KIND,
    STRIPE_STATISTICS_KIND,
    Encryption,
    LocalKey,
    Variant,
    read_encryption,
)
from sparkcrypt.files.orc.file.protobuf import MAX_FIELDS, Message, decode, message
from sparkcrypt.files.orc.file.schema import Column, read_columns
from sparkcrypt.files.parquet.summary import describe_purged, parse_purged
from sparkcrypt.files.source import Input, Source, naming, open_source
from sparkcrypt.names import PURGED
from sparkcrypt.schema import Path

MAGIC = b"ORC"
READ_BYTES = 16 * 1024
"""The number of bytes first read at the end of a file."""
MAX_STRIPES = (1 << 24) - 2
"""The most stripes that the IV of a stream can number, together with the footer's own number."""

PS_FOOTER_LENGTH, PS_COMPRESSION, PS_BLOCK, PS_VERSION, PS_METADATA_LENGTH, PS_WRITER_VERSION = range(1, 7)
PS_STATISTICS_LENGTH, PS_MAGIC = 7, 8000
HEADER_LENGTH, CONTENT_LENGTH, STRIPES, TYPES, USER_METADATA, ROWS, STATISTICS, STRIDE = range(1, 9)
WRITER, ENCRYPTION, CALENDAR, SOFTWARE_VERSION = range(9, 13)
STRIPE_OFFSET, STRIPE_INDEX, STRIPE_DATA, STRIPE_FOOTER, STRIPE_ROWS, STRIPE_ID, STRIPE_KEYS = range(1, 8)


@dataclass(frozen=True, slots=True)
class Stripe:
    """The offset and lengths of a stripe, in bytes, and the keys of its streams.

    ``id`` is its number in IVs; ``local_keys`` are the wrapped local keys, one for each variant.
    """

    number: int
    offset: int
    index_length: int
    data_length: int
    footer_length: int
    rows: int
    id: int
    local_keys: tuple[bytes, ...] = field(repr=False)

    @property
    def footer_offset(self) -> int:
        """The offset of the stripe's footer."""
        return self.offset + self.index_length + self.data_length

    @property
    def end(self) -> int:
        """The offset of the stripe's end."""
        return self.footer_offset + self.footer_length


@dataclass(frozen=True, slots=True)
class Tail:
    """The tail of a file.

    ``stripe_keys`` has each distinct list of the stripes' wrapped local keys once; most stripes share one.
    ``statistics_offset`` is the start of the variants' stripe statistics, before which all stripes must end;
    ``metadata_offset`` and ``footer_offset`` are the starts of these parts.
    """

    file: str
    postscript: Message
    footer: Message
    compression: Compression
    columns: tuple[Column, ...]
    stripes: tuple[Stripe, ...]
    stripe_keys: tuple[tuple[bytes, ...], ...] = field(repr=False)
    encryption: Encryption | None
    rows: int
    stride: int
    statistics_offset: int
    metadata_offset: int
    footer_offset: int

    @property
    def footer_id(self) -> int:
        """The number that IVs of statistics have in place of a stripe id."""
        return len(self.stripes) + 1

    def keys_of(self, variant: Variant) -> tuple[bytes, ...]:
        """Return the wrapped local keys of a variant, each once: that of its statistics, and those of its stripes."""
        return tuple(dict.fromkeys((variant.encrypted_key, *(keys[variant.number] for keys in self.stripe_keys))))

    def wrapped_keys(self) -> set[bytes]:
        """Return every wrapped local key of the file: of variants, and of their stripes."""
        variants = () if self.encryption is None else self.encryption.variants
        return {key for variant in variants for key in self.keys_of(variant)}


def read_tail(source: Source) -> Tail:
    """Read a file's tail.

    Raises:
        FormatError: it is not an ORC file, or its tail violates the specification.
        StorageError: it cannot be reached.
    """
    with open_source(source) as file, naming(file.name):
        return tail_of(file)


def is_orc(source: Source) -> bool:
    """Return whether a file begins with ORC's magic.

    Raises:
        StorageError: it cannot be reached.
        FormatError: it does not exist.
    """
    with open_source(source) as file:
        return file.size >= len(MAGIC) and file.read(0, len(MAGIC), "the start of the file") == MAGIC


def tail_of(file: Input) -> Tail:
    """Read the tail of an open file; messages do not name it: `naming` adds the name.

    Raises:
        FormatError, StorageError: as `read_tail`.
    """
    if file.size < 2 * len(MAGIC) or file.read(0, len(MAGIC), "the start of the file") != MAGIC:
        raise FormatError("offset 0: expected ORC, with which ORC files begin")
    end = file.read(max(0, file.size - READ_BYTES), min(file.size, READ_BYTES), "the end of the file")
    length = end[-1]
    postscript = decode(end[-1 - length : -1] if length < len(end) else b"", "the postscript")
    if postscript.data(PS_MAGIC) not in (MAGIC, None):  # Hive 0.11 wrote none
        raise FormatError(f"offset {file.size - 1 - length}: expected a postscript that holds ORC")
    postscript_offset = file.size - 1 - length
    compression = _compression(postscript)
    lengths = [postscript.integer(number) for number in (PS_FOOTER_LENGTH, PS_METADATA_LENGTH, PS_STATISTICS_LENGTH)]
    footer_offset = postscript_offset - lengths[0]
    metadata_offset = footer_offset - lengths[1]
    statistics_offset = metadata_offset - lengths[2]
    if statistics_offset < len(MAGIC):
        raise FormatError(
            f"footer, metadata and statistics of {lengths[0]}, {lengths[1]} and {lengths[2]} bytes; expected them "
            f"between offset {len(MAGIC)} and the postscript at {postscript_offset}"
        )
    content = compression.inflate(file.read(footer_offset, lengths[0], "the footer"), "the footer")
    footer = decode(content, "the footer", max_fields=max(MAX_FIELDS, file.size))
    columns = read_columns(footer.messages(TYPES, "a type"))
    encrypted = footer.message(ENCRYPTION, "the encryption")
    encryption = None if encrypted is None else read_encryption(encrypted, columns)
    stripes = _stripes(footer, encryption, statistics_offset)
    rows = footer.integer(ROWS, bits=63)
    if sum(stripe.rows for stripe in stripes) != rows:
        raise FormatError(
            f"the stripes have {sum(stripe.rows for stripe in stripes)} rows; expected the footer's {rows}"
        )
    _check_statistics(encryption, metadata_offset - statistics_offset)
    return Tail(
        file=file.name,
        postscript=postscript,
        footer=footer,
        compression=compression,
        columns=columns,
        stripes=stripes,
        stripe_keys=tuple({id(stripe.local_keys): stripe.local_keys for stripe in stripes}.values()),
        encryption=encryption,
        rows=rows,
        stride=footer.integer(STRIDE, bits=32),
        statistics_offset=statistics_offset,
        metadata_offset=metadata_offset,
        footer_offset=footer_offset,
    )


def _compression(postscript: Message) -> Compression:
    kind = postscript.integer(PS_COMPRESSION, bits=31)
    block = postscript.integer(PS_BLOCK, DEFAULT_BLOCK_BYTES)
    if kind >= len(NAMES):
        raise UnsupportedFileError(f"the postscript names compression {kind}; expected 0 to {len(NAMES) - 1}")
    if kind and not 0 < block <= MAX_BLOCK_BYTES:
        raise FormatError(f"the postscript has chunks of {block} bytes; expected 1 to {MAX_BLOCK_BYTES}")
    return Compression(NAMES[kind], block)


def _stripes(footer: Message, encryption: Encryption | None, limit: int) -> tuple[Stripe, ...]:
    """Return the stripes, after checking that they do not overlap and end before ``limit``.

    A stripe without an id has the previous stripe's plus one, and a stripe without keys has the previous stripe's keys.
    """
    variants = len(encryption.variants) if encryption is not None else 0
    stripes: list[Stripe] = []
    last_id, keys = 0, ()  # type: int, tuple[bytes, ...]
    for number, entry in enumerate(footer.messages(STRIPES, "a stripe's entry")):
        last_id = entry.integer(STRIPE_ID, last_id + 1)
        keys = tuple(entry.read_repeated(STRIPE_KEYS)) or keys
        if variants and (len(keys) != variants or not 0 < last_id <= MAX_STRIPES):
            raise FormatError(
                f"stripe {number} has {len(keys)} local keys and id {last_id}; expected {variants} and 1 to "
                f"{MAX_STRIPES}"
            )
        stripes.append(
            Stripe(
                number,
                entry.integer(STRIPE_OFFSET, bits=63),
                entry.integer(STRIPE_INDEX, bits=63),
                entry.integer(STRIPE_DATA, bits=63),
                entry.integer(STRIPE_FOOTER, bits=63),
                entry.integer(STRIPE_ROWS, bits=63),
                last_id,
                keys,
            )
        )
    if len(stripes) > MAX_STRIPES:
        raise FormatError(f"{len(stripes)} stripes; expected at most {MAX_STRIPES}")
    _check_apart(stripes, limit)
    return tuple(stripes)


def _check_apart(stripes: Sequence[Stripe], limit: int) -> None:
    end = len(MAGIC)
    for stripe in sorted(stripes, key=lambda stripe: stripe.offset):
        if stripe.offset < end or stripe.end > limit:
            raise FormatError(
                f"stripe {stripe.number} is said to be at offset {stripe.offset} to {stripe.end}; expected after "
                f"{end} and before {limit}, apart from the others"
            )
        end = stripe.end


def _check_statistics(encryption: Encryption | None, length: int) -> None:
    variants = () if encryption is None else encryption.variants
    total = sum(size for variant in variants for _, size in variant.stripe_statistics)
    if total != length:
        raise FormatError(f"the variants' stripe statistics have {total} bytes; expected the postscript's {length}")


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


_NAME, _VALUE = 1, 2


def is_purged_note(item: bytes) -> bool:
    """Return whether an entry of the user metadata is this note."""
    try:
        return decode(item, "user metadata").data(_NAME) == PURGED.encode()
    except FormatError:
        return False


def encode_purged_note(purged: Mapping[Path, str]) -> bytes:
    """Return the note as an entry of the user metadata."""
    return message("user metadata", (_NAME, PURGED.encode()), (_VALUE, describe_purged(purged).encode())).encode()


def read_purged_note(footer: Message) -> dict[Path, str]:
    """Return the columns of a footer's note, which nothing in ORC authenticates; empty if there is no note."""
    own = (item for item in footer.read_repeated(USER_METADATA) if is_purged_note(item))
    try:
        text = decode(next(own, b""), "user metadata").text(_VALUE)
    except FormatError:
        return {}
    return parse_purged(text)

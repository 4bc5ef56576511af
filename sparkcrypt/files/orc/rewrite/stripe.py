"""Writes one stripe: the same streams under other keys, masks of the encrypted ones, and its footer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from sparkcrypt.errors import WRITE_ORC_ANEW, FormatError, UnsupportedFileError
from sparkcrypt.files.orc.file.encryption import STREAM_COLUMN, STREAM_KIND, STREAM_LENGTH
from sparkcrypt.files.orc.file.protobuf import MAX_FIELDS, Message, decode, message
from sparkcrypt.files.orc.file.schema import Column
from sparkcrypt.files.orc.file.stripe import (
    BLOOM_FILTERS,
    ENCRYPTED_DATA,
    ENCRYPTED_INDEX,
    FOOTER_COLUMNS,
    FOOTER_ENCRYPTION,
    FOOTER_STREAMS,
    INDEX_KINDS,
    PRESENT,
    ROW_INDEX,
    VARIANT_ENCODINGS,
    VARIANT_STREAMS,
    Stream,
    StripeFooter,
    read_pieces,
    read_stream_whole,
    read_stripe_footer,
)
from sparkcrypt.files.orc.file.tail import (
    STRIPE_DATA,
    STRIPE_FOOTER,
    STRIPE_ID,
    STRIPE_INDEX,
    STRIPE_KEYS,
    STRIPE_OFFSET,
    Stripe,
)
from sparkcrypt.files.orc.rewrite.encryption import AnyVariant, DarkVariant, TargetVariant
from sparkcrypt.files.orc.rewrite.mask import (
    Extent,
    MaskStream,
    extent_of_counts,
    extent_of_present,
    extent_of_rows,
    mask_encoding,
    mask_streams,
)
from sparkcrypt.files.orc.rewrite.source import OrcSource
from sparkcrypt.files.output import Output
from sparkcrypt.schema import Path, join_dotted

LEAST_MASKS = 16 * 1024 * 1024
MOST_MASKS = 64
"""The most bytes of a target's masks: this many times the source's size, or `LEAST_MASKS` if that is more."""


@dataclass(slots=True)
class Masked:
    """The state of a target's masks while stripes are written.

    ``filled`` has the (stripe, root) of masks whose column has at least one value or null; ``dropped`` the columns that
    lost a Bloom filter; ``size`` the estimated bytes of all masks.
    """

    filled: set[tuple[int, int]] = field(default_factory=set)
    dropped: dict[Path, None] = field(default_factory=dict)
    size: int = 0


_ByColumn: TypeAlias = dict[int, dict[int, Stream]]
"""Column -> kind -> stream, of those that the target gets."""


class StripeWriter:
    """A writer of the stripes of one target, front to back."""

    def __init__(
        self,
        source: OrcSource,
        variants: Sequence[AnyVariant],
        statistics: Sequence[Sequence[bytes]],
        output: Output,
    ) -> None:
        self.masked = Masked()
        self._source = source
        self._tail = source.tail
        self._variants = variants
        self._statistics = statistics
        self._output = output
        self._target: dict[int, AnyVariant] = {
            column: variant for variant in variants for column in range(variant.root.number, variant.root.last + 1)
        }
        self._keeps_ids = any(isinstance(variant, DarkVariant) for variant in variants)
        self._purged = {
            column for variant in source.purged for column in range(variant.root.number, variant.root.last + 1)
        }

    def write(self, stripe: Stripe, entry: Message) -> Message:
        """Write a stripe; return its entry in the target's footer."""
        footer = read_stripe_footer(self._source.file, self._tail, stripe)
        start = self._output.position
        streams = [stream for stream in footer.streams if self._keeps(stream)]
        live = [variant for variant in self._variants if isinstance(variant, TargetVariant)]
        by_column: _ByColumn = {}
        for stream in streams:
            by_column.setdefault(stream.column, {})[stream.kind] = stream
        masks = [mask for variant in live for mask in self._mask(footer, by_column, variant)]
        described: list[list[Message]] = [[] for _ in range(len(self._variants) + 1)]
        ends = []
        for index, placeholder in ((True, ENCRYPTED_INDEX), (False, ENCRYPTED_DATA)):
            area = [stream for stream in streams if (stream.kind in INDEX_KINDS) is index]
            shown = [mask for mask in masks if (mask.kind in INDEX_KINDS) is index]
            self._write_area(stripe, area, shown, described, placeholder)
            ends.append(self._output.position)
        self._output.write(self._footer(footer, described))
        lengths = (start, ends[0] - start, ends[1] - ends[0], self._output.position - ends[1])
        for number, value in zip((STRIPE_OFFSET, STRIPE_INDEX, STRIPE_DATA, STRIPE_FOOTER), lengths, strict=True):
            entry = entry.replace_field(number, [value])
        return self._number(stripe, entry)

    def _number(self, stripe: Stripe, entry: Message) -> Message:
        """Return an entry with the stripe's id for IVs and its local keys, if it has its own.

        If the target has dark columns, stripes keep their ids, and have keys if they have some in the source.
        """
        first = bool(self._variants) and stripe.number == 0
        if self._keeps_ids:
            own = bool(entry.read_repeated(STRIPE_KEYS))
        else:
            own, entry = first, entry.replace_field(STRIPE_ID, [1] if first else [])
        keys = [
            stripe.local_keys[variant.source.number] if isinstance(variant, DarkVariant) else variant.wrapped
            for variant in self._variants
        ]
        return entry.replace_field(STRIPE_KEYS, keys if own else [])

    def _keeps(self, stream: Stream) -> bool:
        """Return whether the target gets a stream; it does not get Bloom filters that would reveal encrypted values."""
        dark = isinstance(self._target.get(stream.column), DarkVariant)
        hidden = stream.column in self._purged or (stream.column in self._target and not dark)
        if stream.kind in BLOOM_FILTERS and (
            hidden or (stream.variant is None and (dark or not self._source.is_seen(stream)))
        ):
            self.masked.dropped[self._tail.columns[stream.column].path] = None
            return False
        return dark or self._source.is_seen(stream)

    def _home(self, stream: Stream) -> AnyVariant | None:
        """Return the target's variant for a stream; None for one in clear, such as those of a dark column's mask."""
        variant = self._target.get(stream.column)
        return None if isinstance(variant, DarkVariant) and stream.variant is None else variant

    def _write_area(
        self,
        stripe: Stripe,
        streams: Sequence[Stream],
        masks: Sequence[MaskStream],
        described: Sequence[list[Message]],
        placeholder: int,
    ) -> None:
        """Write the index streams, or the data streams: those in clear by column, then those of each variant."""
        homes: dict[int | None, list[Stream]] = {}
        for stream in streams:
            home = self._home(stream)
            homes.setdefault(None if home is None else home.number, []).append(stream)
        in_clear: Sequence[Stream | MaskStream] = homes.get(None, [])
        for item in sorted([*in_clear, *masks], key=lambda item: (item.column, item.kind)):
            if isinstance(item, MaskStream):
                self._output.write(item.data)
            else:
                self._move(stripe, item, None)
            described[0].append(_describe(item))
        middle = self._output.position
        for variant in self._variants:
            for stream in homes.get(variant.number, []):
                self._move(stripe, stream, variant)
                described[variant.number + 1].append(_describe(stream))
        if self._variants:
            hidden = self._output.position - middle
            described[0].append(message("a stream", (STREAM_KIND, placeholder), (STREAM_LENGTH, hidden)))

    def _move(self, stripe: Stripe, stream: Stream, variant: AnyVariant | None) -> None:
        """Write a stream of the source, decrypted, and encrypted under its variant's key; a dark one unchanged."""
        dark = isinstance(variant, DarkVariant)
        opened = None if dark else self._source.cipher(stripe, stream)
        cipher = None
        if isinstance(variant, TargetVariant):
            number = stripe.id if self._keeps_ids else stripe.number + 1
            cipher = variant.key.stream(stream.column, stream.kind, number)
        if cipher is None and opened is None:
            self._output.copy(self._source.file, stream.offset, stream.length, str(stream))
            return
        for piece in read_pieces(self._source.file, stream, opened):
            self._output.write(piece if cipher is None else cipher.update(piece))

    def _footer(self, footer: StripeFooter, described: Sequence[Sequence[Message]]) -> bytes:
        columns = self._tail.columns
        in_clear = [self._encoding_in_clear(footer, column) for column in columns]
        variants = [self._describe_variant(footer, variant, described) for variant in self._variants]
        made = footer.message.replace_field(FOOTER_STREAMS, [stream.encode() for stream in described[0]])
        made = made.replace_field(FOOTER_COLUMNS, in_clear).replace_field(FOOTER_ENCRYPTION, variants)
        return self._tail.compression.deflate(made.encode())

    def _encoding_in_clear(self, footer: StripeFooter, column: Column) -> bytes:
        variant = self._target.get(column.number)
        if variant is None:
            return self._source.encoding(footer, column.number)
        return footer.encodings[column.number].encode() if isinstance(variant, DarkVariant) else mask_encoding(column)

    def _describe_variant(
        self, footer: StripeFooter, variant: AnyVariant, described: Sequence[Sequence[Message]]
    ) -> bytes:
        encodings = [
            self._source.encoding(footer, column.number) for column in _columns_of(self._tail.columns, variant)
        ]
        return message(
            "a variant",
            *((VARIANT_STREAMS, stream.encode()) for stream in described[variant.number + 1]),
            *((VARIANT_ENCODINGS, encoding) for encoding in encodings),
        ).encode()

    def _mask(self, footer: StripeFooter, streams: _ByColumn, variant: TargetVariant) -> list[MaskStream]:
        """Return the streams in clear of an encrypted column."""
        stripe, stride = footer.stripe, self._tail.stride
        columns = _columns_of(self._tail.columns, variant)
        indexed = [column.number for column in columns if ROW_INDEX in streams.get(column.number, {})]
        groups = -(-stripe.rows // stride) if stride else 0
        extent = self._extent(footer, streams, variant.root, groups)
        self.masked.size += extent.size // 65 + 1 + groups * len(columns)
        if self.masked.size > (most := max(LEAST_MASKS, MOST_MASKS * self._source.file.size)):
            raise FormatError(
                f"stripe {stripe.number}: so many rows are said to be there that their masks take more than {most} "
                "bytes; expected fewer"
            )
        if extent.size:
            self.masked.filled.add((stripe.number, variant.root.number))
        return mask_streams(columns, extent, indexed, groups, self._tail.compression)

    def _extent(self, footer: StripeFooter, streams: _ByColumn, root: Column, groups: int) -> Extent:
        stripe, number = footer.stripe, root.number
        if self._has_each_row(root, streams):
            return extent_of_rows(stripe.rows, self._tail.stride, groups)
        what = f"stripe {stripe.number}, column {join_dotted(root.path)}"
        raw = streams.get(number, {})
        entries = self._entries(stripe, raw[ROW_INDEX]) if ROW_INDEX in raw else []
        if groups and len(entries) != groups:
            raise UnsupportedFileError(
                f"{what}: has {len(entries)} entries in its row index and not {groups}, so nothing tells where row "
                f"groups begin; {WRITE_ORC_ANEW}"
            )
        if PRESENT in raw:
            pieces = read_pieces(self._source.file, raw[PRESENT], self._source.cipher(stripe, raw[PRESENT]))
            return extent_of_present(b"".join(pieces), entries, self._tail.compression, what)
        return extent_of_counts(entries, self._statistics[stripe.number][number], what)

    def _has_each_row(self, root: Column, streams: _ByColumn) -> bool:
        """Return whether a column has one value for each row: all columns above it are structs without nulls."""
        columns, number = self._tail.columns, root.parent
        while number >= 0:
            if columns[number].kind != "struct" or PRESENT in streams.get(number, {}):
                return False
            number = columns[number].parent
        return True

    def _entries(self, stripe: Stripe, stream: Stream) -> list[Message]:
        cipher = self._source.cipher(stripe, stream)
        raw = read_stream_whole(self._source.file, stream, cipher, self._tail.compression)
        return decode(raw, str(stream), max_fields=max(MAX_FIELDS, self._source.file.size)).messages(1, "an entry")


def _columns_of(columns: Sequence[Column], variant: AnyVariant) -> Sequence[Column]:
    return columns[variant.root.number : variant.root.last + 1]


def _describe(stream: Stream | MaskStream) -> Message:
    length = len(stream.data) if isinstance(stream, MaskStream) else stream.length
    return message("a stream", (STREAM_KIND, stream.kind), (STREAM_COLUMN, stream.column), (STREAM_LENGTH, length))

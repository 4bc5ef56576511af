"""Reads the footer of a stripe, and computes the offset of each of its streams.

Index streams come before data streams; within both, streams in clear come before those of variant 1, 2, ….
Source: ORC specification v1, "Stripes"; ``StripePlanner.findStreams`` of ORC's Java reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sparkcrypt.errors import WRITE_ORC_ANEW, FormatError, UnsupportedFileError
from sparkcrypt.files.orc.file.compression import HEADER_BYTES, Compression
from sparkcrypt.files.orc.file.encryption import StreamCipher, read_stream
from sparkcrypt.files.orc.file.protobuf import MAX_FIELDS, Message, decode
from sparkcrypt.files.orc.file.tail import Stripe, Tail
from sparkcrypt.files.source import Input

PRESENT, DATA, LENGTH, DICTIONARY_DATA, DICTIONARY_COUNT, SECONDARY, ROW_INDEX = range(7)
BLOOM_FILTER, BLOOM_FILTER_UTF8, ENCRYPTED_INDEX, ENCRYPTED_DATA = range(7, 11)
BLOOM_FILTERS = frozenset((BLOOM_FILTER, BLOOM_FILTER_UTF8))
PLACEHOLDERS = frozenset((ENCRYPTED_INDEX, ENCRYPTED_DATA))
INDEX_KINDS = frozenset((ROW_INDEX, DICTIONARY_COUNT, *BLOOM_FILTERS, ENCRYPTED_INDEX))
KIND_NAMES = (
    *("PRESENT", "DATA", "LENGTH", "DICTIONARY_DATA", "DICTIONARY_COUNT", "SECONDARY", "ROW_INDEX"),
    *("BLOOM_FILTER", "BLOOM_FILTER_UTF8", "ENCRYPTED_INDEX", "ENCRYPTED_DATA"),
)

FOOTER_STREAMS, FOOTER_COLUMNS, FOOTER_TIMEZONE, FOOTER_ENCRYPTION = range(1, 5)
VARIANT_STREAMS, VARIANT_ENCODINGS = 1, 2


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream of a stripe; ``variant`` is the number of its variant, None if it is in clear."""

    kind: int
    column: int
    offset: int
    length: int
    variant: int | None

    def __str__(self) -> str:
        name = KIND_NAMES[self.kind] if self.kind < len(KIND_NAMES) else f"kind {self.kind}"
        return f"stream {name} of column {self.column}"


@dataclass(frozen=True, slots=True)
class StripeFooter:
    """The footer of a stripe: its streams in clear and of each variant, and the encodings of their columns.

    ``encodings`` has the encodings in clear of all columns; ``variant_encodings`` has those of each variant, from its
    root on.
    """

    stripe: Stripe
    message: Message
    streams: tuple[Stream, ...]
    encodings: tuple[Message, ...]
    variant_encodings: tuple[tuple[Message, ...], ...]


def read_stripe_footer(file: Input, tail: Tail, stripe: Stripe) -> StripeFooter:
    """Read the footer of a stripe.

    Raises:
        FormatError: it violates the specification, or a stream is outside its part of the stripe.
        UnsupportedFileError: index streams come after data streams, which readers place differently.
        StorageError: the storage failed.
    """
    what = f"the footer of stripe {stripe.number}"
    raw = file.read(stripe.footer_offset, stripe.footer_length, what)
    message = decode(tail.compression.inflate(raw, what), what, max_fields=max(MAX_FIELDS, file.size))
    variants = message.messages(FOOTER_ENCRYPTION, f"a variant in {what}")
    expected = 0 if tail.encryption is None else len(tail.encryption.variants)
    if len(variants) != expected:
        raise FormatError(f"{what} has {len(variants)} variants; expected {expected}")
    columns = len(tail.columns)
    described = [[read_stream(part, columns) for part in message.messages(FOOTER_STREAMS, "a stream")]]
    described += [
        [read_stream(variant, columns) for variant in variant.messages(VARIANT_STREAMS, "a stream")]
        for variant in variants
    ]
    encodings = tuple(message.messages(FOOTER_COLUMNS, "an encoding"))
    variant_encodings = tuple(tuple(variant.messages(VARIANT_ENCODINGS, "an encoding")) for variant in variants)
    _check_encodings(tail, encodings, variant_encodings, what)
    _check_order(described[0], what)
    streams = tuple(_place_streams(described, stripe, what))
    _check_variants(tail, streams, what)
    return StripeFooter(stripe, message, streams, encodings, variant_encodings)


def _place_streams(described: Sequence[Sequence[tuple[int, int, int]]], stripe: Stripe, what: str) -> Iterator[Stream]:
    position = stripe.offset
    for index, end in ((True, stripe.offset + stripe.index_length), (False, stripe.footer_offset)):
        for number, streams in enumerate(described):
            for kind, column, length in streams:
                if (kind in INDEX_KINDS) is not index or kind in PLACEHOLDERS:
                    continue
                stream = Stream(kind, column, position, length, number - 1 if number else None)
                position += length
                if position > end:
                    raise FormatError(f"{what}: {stream} ends at offset {position}; expected at most {end}")
                yield stream
        if position != end:
            raise FormatError(f"{what}: streams end at offset {position}; expected {end}, as the footer says")


def _check_order(streams: Iterable[tuple[int, int, int]], what: str) -> None:
    areas = [kind in INDEX_KINDS for kind, _, _ in streams]
    if areas != sorted(areas, reverse=True):
        raise UnsupportedFileError(
            f"{what} names index streams after data streams, which readers place differently; {WRITE_ORC_ANEW}"
        )


def _check_encodings(
    tail: Tail, encodings: Sequence[Message], variants: Sequence[Sequence[Message]], what: str
) -> None:
    if len(encodings) != len(tail.columns):
        raise FormatError(f"{what} has {len(encodings)} encodings; expected {len(tail.columns)}")
    for variant, found in zip(() if tail.encryption is None else tail.encryption.variants, variants, strict=True):
        expected = variant.root.last - variant.root.number + 1
        if len(found) != expected:
            raise FormatError(f"{what} has {len(found)} encodings of variant {variant.number}; expected {expected}")


def _check_variants(tail: Tail, streams: Iterable[Stream], what: str) -> None:
    """Check that no stream occurs twice, since both would share an IV, and that each is of a column of its variant."""
    places = set()
    for stream in streams:
        place = (stream.variant, stream.column, stream.kind)
        if place in places:
            raise FormatError(f"{what} has {stream} twice; expected it once")
        places.add(place)
        if stream.variant is not None and tail.encryption is not None:
            variant = tail.encryption.variants[stream.variant]
            if not variant.covers(stream.column):
                raise FormatError(
                    f"{what} has {stream} in variant {stream.variant}; expected columns {variant.root.number} to "
                    f"{variant.root.last}"
                )


PIECE_BYTES = 256 * 1024
"""The number of bytes decrypted, digested and written at a time, small enough to stay in the processor's cache."""


def read_pieces(file: Input, stream: Stream, cipher: StreamCipher | None) -> Iterator[bytes]:
    """Yield a stream's bytes, decrypted if there is a cipher, in pieces of at most 256 KiB.

    Raises:
        FormatError, StorageError: as `Input.read`.
    """
    for start in range(0, stream.length, PIECE_BYTES):
        size = min(PIECE_BYTES, stream.length - start)
        data = file.read(stream.offset + start, size, str(stream))
        yield data if cipher is None else cipher.update(data)


def read_stream_whole(file: Input, stream: Stream, cipher: StreamCipher | None, compression: Compression) -> bytes:
    """Return a stream's content, decrypted and decompressed.

    Raises:
        FormatError: it does not decompress.
        StorageError: the storage failed.
    """
    return compression.inflate(b"".join(read_pieces(file, stream, cipher)), str(stream))


class ChunkCheck:
    """A check that decompresses the chunks of a stream, which is passed in pieces, and keeps no content."""

    __slots__ = ("_compression", "_rest", "_stored", "_what")

    def __init__(self, compression: Compression, what: str) -> None:
        self._compression = compression
        self._what = what
        self._rest = b""
        self._stored = 0  # missing bytes of an uncompressed chunk

    def feed(self, piece: bytes) -> None:
        """Check the next bytes.

        Raises:
            FormatError: a chunk does not decompress, or is too large.
        """
        if self._compression.codec == "none":
            return
        data = memoryview(self._rest + piece if self._rest else piece)
        position = min(self._stored, len(data))
        self._stored -= position
        while position + HEADER_BYTES <= len(data):
            header = int.from_bytes(data[position : position + HEADER_BYTES], "little")
            begin, size = position + HEADER_BYTES, header >> 1
            if size > self._compression.block_bytes:
                raise FormatError(
                    f"{self._what}: a chunk of {size} bytes; expected at most {self._compression.block_bytes}"
                )
            if header & 1:
                position = min(begin + size, len(data))
                self._stored = begin + size - position
            elif begin + size > len(data):
                break
            else:
                self._compression.inflate_chunk(data[begin : begin + size], self._what)
                position = begin + size
        self._rest = bytes(data[position:])

    def finish(self) -> None:
        """Check that the stream ended with a whole chunk.

        Raises:
            FormatError: it did not.
        """
        if self._rest or self._stored:
            difference = (
                f"{len(self._rest)} bytes after its chunks" if self._rest else f"{self._stored} bytes are missing"
            )
            raise FormatError(f"{self._what}: {difference}; expected whole ones")

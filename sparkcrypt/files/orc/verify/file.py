"""Decrypts and checks every stream of a file, and digests the file's content.

ORC authenticates nothing.  It is verified that the keys open the file, that streams are whole compression chunks, that
statistics and row indexes are valid, and that the form in clear of an encrypted column reveals nothing.

Digests of a file's content, independent of its encryption and of the offsets of its parts.  They are equal for a file
and its rewrite.  The parts: ``schema`` (types), ``layout`` (codec, rows, stride, time zones, calendar), ``streams``
(encodings and bytes of each column's streams, as readers with the keys see them), ``bloom_filters`` (as readers with
the keys see them), ``statistics`` (likewise), ``user_metadata`` (without this package's own) and ``unopened``: all
bytes, wrapped keys and masks of dark columns, whose keys no longer exist.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sparkcrypt.errors import ConfigError, FormatError, VerificationError
from sparkcrypt.files.orc.file.encryption import (
    Encryption,
    LocalKey,
    LocalKeys,
    StreamCipher,
    Variant,
    variants_holding,
)
from sparkcrypt.files.orc.file.protobuf import MAX_FIELDS, decode
from sparkcrypt.files.orc.file.schema import leaves, without_encryption
from sparkcrypt.files.orc.file.stripe import (
    BLOOM_FILTERS,
    FOOTER_TIMEZONE,
    PRESENT,
    ROW_INDEX,
    ChunkCheck,
    Stream,
    StripeFooter,
    read_pieces,
    read_stripe_footer,
)
from sparkcrypt.files.orc.file.tail import (
    CALENDAR,
    TYPES,
    USER_METADATA,
    Statistics,
    Stripe,
    Tail,
    clear_statistics,
    is_purged_note,
    read_tail,
    tail_of,
    variant_statistics,
)
from sparkcrypt.files.orc.summary import OrcSummary, summarise_orc
from sparkcrypt.files.orc.verify.mask_check import NullCheck, check_masked
from sparkcrypt.files.parquet.file.footer import NOTHING_KNOWN, KnownColumns
from sparkcrypt.files.parquet.file.modules import RetrieveKey, SecretFingerprint
from sparkcrypt.files.source import Input, Source, naming, open_source
from sparkcrypt.keys.material import KeyMaterial, parse_key_material
from sparkcrypt.schema import Path, join_dotted

_FINGERPRINT = b"sparkcrypt orc 1 stream bytes "
DIGEST_PARTS = ("schema", "layout", "streams", "bloom_filters", "statistics", "user_metadata", "unopened")
STREAMS_SEEN = ("streams", "bloom_filters")
STREAM_PARTS = (*STREAMS_SEEN, "unopened")


class StreamDigest:
    """The digest of one stream, updated piece by piece; under a key it digests the fingerprint of each piece."""

    __slots__ = ("_fingerprint", "_hash")

    def __init__(self, digest: hmac.HMAC, fingerprint: SecretFingerprint | None) -> None:
        self._hash = digest
        self._fingerprint = fingerprint

    def update(self, piece: bytes) -> None:
        """Add the next bytes."""
        self._hash.update(piece if self._fingerprint is None else self._fingerprint.next_fingerprint(piece))

    def digest(self) -> bytes:
        """Return the digest."""
        return self._hash.digest()


class ContentDigest:
    """The digests of a file's parts, updated while it is read; a key makes them HMACs.

    Under a key, streams are digested as fingerprints of their pieces (GMAC under a key derived from it), which takes a
    tenth of the time.  For equal digests, streams of a part must then be added in the same order, in pieces of the same
    lengths.
    """

    __slots__ = ("_fingerprints", "_key", "_parts")

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key
        self._parts = {part: self._new_digest() for part in DIGEST_PARTS}
        self._fingerprints = {
            part: None if key is None else SecretFingerprint(hmac.digest(key, _FINGERPRINT + part.encode(), "sha256"))
            for part in STREAM_PARTS
        }

    def open_stream(self, part: str) -> StreamDigest:
        """Return the digest of the next stream of a part, which is one of `STREAM_PARTS`."""
        return StreamDigest(self._new_digest(), self._fingerprints[part])

    def _new_digest(self) -> hmac.HMAC:
        return hmac.new(self._key or b"sparkcrypt orc", digestmod=hashlib.sha256)

    def add(self, part: str, *values: bytes | int | str) -> None:
        """Append values to a part, each with its length."""
        digest = self._parts[part]
        for value in values:
            data = value if isinstance(value, bytes) else str(value).encode()
            digest.update(len(data).to_bytes(8, "big") + data)

    def digests(self) -> Mapping[str, str]:
        """Return the digest of each part, in hexadecimal."""
        return {part: digest.hexdigest() for part, digest in self._parts.items()}


def verify_orc_keys(source: Source, *, retrieve_key: RetrieveKey, shredded: Collection[str] = ()) -> Tail:
    """Open every local key of a file, without reading its streams.

    Args:
        source: as `read_tail`.
        retrieve_key: called once for each local key.
        shredded: master keys whose local keys are not opened.

    Returns:
        The file's tail.

    Raises:
        FormatError, VerificationError: as `check_keys`.
    """
    tail = read_tail(source)
    if tail.encryption is not None:
        with naming(tail.file):
            named = [variant for variant in tail.encryption.variants if variant.key.key_id in shredded]
            dark = {variant.number for variant in named if check_key_name(variant, variant.encrypted_key) is not None}
            check_keys(tail, tail.encryption, LocalKeys(tail.file, retrieve_key), dark)
    return tail


def check_keys(tail: Tail, encryption: Encryption, keys: LocalKeys, dark: Collection[int] = ()) -> None:
    """Open every local key, except those of the variants whose numbers are in ``dark``.

    Raises:
        FormatError: a key's length is not its algorithm's.
        VerificationError: a wrapped key is under another master key than the file names, or one local key encrypts
            two variants, or two stripes of the same id: different data would be encrypted with the same key stream.
    """
    variants: dict[LocalKey, Variant] = {}
    for variant in encryption.variants:
        uses = [
            (variant.encrypted_key, tail.footer_id),
            *((stripe.local_keys[variant.number], stripe.id) for stripe in tail.stripes),
        ]
        ids: dict[bytes, set[int]] = {}
        for wrapped, stripe_id in uses[1:]:
            if stripe_id in ids.setdefault(wrapped, set()):
                raise VerificationError(
                    f"variant {variant.number} has one local key for two stripes of id {stripe_id}; expected another "
                    "key or id for each: write the file again"
                )
            ids[wrapped].add(stripe_id)
        for wrapped in dict.fromkeys(wrapped for wrapped, _ in uses):
            check_key_name(variant, wrapped)
            if variant.number in dark:
                continue
            key = keys.open(variant, wrapped)
            if key in variants:
                raise VerificationError(
                    f"variants {variants[key].number} and {variant.number} have one local key; expected one for each: "
                    "write the file again"
                )
            variants[key] = variant


def check_key_name(variant: Variant, wrapped: bytes) -> KeyMaterial | None:
    """Return the key material of a variant's wrapped local key, or None for a form of another writer.

    Raises:
        VerificationError: the file names another master key for the variant.
    """
    try:
        material = parse_key_material(wrapped)
    except FormatError:
        return None
    if material.master_key_id != variant.key.key_id:
        raise VerificationError(
            f"{join_dotted(variant.root.path)} is said to be under {variant.key.key_id!r}, and its local key is "
            f"wrapped by {material.master_key_id!r}; expected one master key: somebody altered the file"
        )
    return material


UNAUTHENTICATED = "all of it: ORC authenticates nothing"
"""What is listed as unauthenticated of an encrypted file."""


@dataclass(frozen=True, slots=True)
class OrcVerification:
    """The result of verifying an ORC file.

    ``columns`` maps encrypted leaf columns to their key ids; ``plaintext_columns`` are the others.  ``streams`` is the
    number of streams, ``decrypted`` the number of those that were decrypted.  ``notes`` list data of encrypted columns
    that are in clear.  ``opened`` is the tail as it was read.  ``digests`` are those of the parts that
    `sparkcrypt.files.orc.verify.file` lists.
    """

    file: str
    rows: int
    stripes: int
    streams: int
    decrypted: int
    columns: Mapping[Path, str]
    plaintext_columns: tuple[Path, ...]
    notes: tuple[str, ...]
    opened: Tail = field(repr=False)
    digests: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def unauthenticated(self) -> tuple[str, ...]:
        """What nothing authenticates in an encrypted file; nothing for a file in plaintext."""
        return self.not_authenticated if self.columns else ()

    @property
    def not_authenticated(self) -> tuple[str, ...]:
        """What nothing authenticates."""
        return (UNAUTHENTICATED,)

    @property
    def authenticated(self) -> Literal["none"]:
        """How much was authenticated."""
        return "none"

    @property
    def in_clear(self) -> tuple[str, ...]:
        """What a footer says of the values of encrypted columns: such are errors, or among ``notes``."""
        return ()

    @property
    def summary(self) -> OrcSummary:
        """The summary of the tail that was verified."""
        return summarise_orc(self.opened)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values, without digests: digests of plaintext confirm guesses of the content."""
        return {
            "file": self.file,
            "format": "orc",
            "rows": self.rows,
            "stripes": self.stripes,
            "streams": self.streams,
            "decrypted": self.decrypted,
            "columns": {join_dotted(path): key_id for path, key_id in self.columns.items()},
            "plaintext_columns": [join_dotted(path) for path in self.plaintext_columns],
            "authenticated": self.authenticated,
            "notes": list(self.notes),
        }


def verify_orc(
    source: Source,
    *,
    retrieve_key: RetrieveKey | None = None,
    equal_to: Mapping[str, str] | None = None,
    digest_key: bytes | None = None,
    known: KnownColumns = NOTHING_KNOWN,
) -> OrcVerification:
    """Check a whole file: its keys, every stream, the statistics, and the form in clear of encrypted columns.

    Args:
        source: as `read_tail`.
        retrieve_key: called once for each local key; not needed for a file that is not encrypted.
        equal_to: those of another file's `OrcVerification.digests` that must be equal.  With ``layout`` and a part of
            streams, the streams of that part are digested and not decompressed: the equal ones of the other file were.
        digest_key: makes the digests HMACs.  Use one if they are stored: unkeyed ones confirm guesses of the content.
        known: of dark columns the stored bytes are digested.  If a rewrite is about to change the file, Bloom filters
            of the columns that it will encrypt are not digested, since the target has none, and a Bloom filter in clear
            of an encrypted column is a note, not an error; the variants of purged columns are not read, and their form
            in clear is digested as the target's content.

    Raises:
        FormatError: the file violates the specification, or does not decrypt to valid content.
        VerificationError: keys are used twice, or are not those that the file names; data of an encrypted column are in
            clear; the content is not that of ``equal_to``; a column that must hold only nulls holds a value; or a dark
            or purged column is not encrypted.
        ConfigError: the file is encrypted and ``retrieve_key`` is missing; or ``equal_to`` has an unknown part.
    """
    with open_source(source) as file, naming(file.name):
        tail = tail_of(file)
        if known.check is not None:
            known.check(summarise_orc(tail))
        if tail.encryption is not None and tail.encryption.variants and retrieve_key is None:
            raise ConfigError(f"{file.name}: the file is encrypted and no key is given; pass retrieve_key")
        keys = None if retrieve_key is None else LocalKeys(file.name, retrieve_key)
        inflated = set(STREAM_PARTS) & set(equal_to or ()) if "layout" in (equal_to or ()) else ()
        found = _Check(file, tail, keys, known, ContentDigest(digest_key), inflated).run()
        if equal_to is not None:
            _check_equal(found.digests, equal_to)
        return found


def _check_equal(found: Mapping[str, str], expected: Mapping[str, str]) -> None:
    if unknown := sorted(expected.keys() - set(DIGEST_PARTS)):
        raise ConfigError(f"equal_to has {', '.join(unknown)}; allowed: {', '.join(DIGEST_PARTS)}")
    if differing := [part for part in DIGEST_PARTS if part in expected and found[part] != expected[part]]:
        raise VerificationError(f"its content is another in {', '.join(differing)}; restore it, or rewrite it again")


class _Check:
    """The verification of one file."""

    def __init__(
        self,
        file: Input,
        tail: Tail,
        keys: LocalKeys | None,
        known: KnownColumns,
        digest: ContentDigest,
        inflated: Collection[str],
    ) -> None:
        self.file = file
        self.tail = tail
        self.keys = keys
        self.digest = digest
        self.encryption: Encryption | None = tail.encryption
        self.will_be_rewritten = known.will_encrypt is not None
        roots = set(known.will_encrypt or ())
        self.loses_filters = {
            column.number
            for column in (tail.columns if roots else ())
            if any(column.path[:length] in roots for length in range(len(column.path) + 1))
        }
        self.inflated = inflated
        self.dark = variants_holding(self.encryption, known.dark)
        self.purged = variants_holding(self.encryption, known.purged)
        for variant in () if self.encryption is None else self.encryption.variants:
            if variant.number in self.dark | self.purged:  # no rewrite keeps their Bloom filters in clear
                self.loses_filters.update(range(variant.root.number, variant.root.last + 1))
        self.nulls = NullCheck(tail, known.nulls)
        self.streams = self.decrypted = 0
        self.notes: dict[str, None] = {}

    def run(self) -> OrcVerification:
        tail, encryption = self.tail, self.encryption
        if encryption is not None and self.keys is not None:
            check_keys(tail, encryption, self.keys, self.dark | self.purged)
        self._digest_layout()
        clear = clear_statistics(self.file, tail)
        self._statistics(clear)
        for stripe in tail.stripes:
            self._stripe(stripe, clear)
        covering = {column: self._variant(column.number) for column in leaves(tail.columns)}
        return OrcVerification(
            file=self.file.name,
            rows=tail.rows,
            stripes=len(tail.stripes),
            streams=self.streams,
            decrypted=self.decrypted,
            columns={item.path: variant.key.key_id for item, variant in covering.items() if variant is not None},
            plaintext_columns=tuple(item.path for item, variant in covering.items() if variant is None),
            notes=tuple(self.notes),
            digests=self.digest.digests(),
            opened=tail,
        )

    def _variant(self, column: int) -> Variant | None:
        found = None if self.encryption is None else self.encryption.variant_of(column)
        return None if found is not None and found.number in self.purged else found

    def _is_dark(self, variant: Variant | None) -> bool:
        return variant is not None and variant.number in self.dark

    def _digest_layout(self) -> None:
        tail, digest = self.tail, self.digest
        types = tail.footer.messages(TYPES, "a type")
        digest.add("schema", *(without_encryption(kind).encode() for kind in types))
        calendar = tail.footer.integer(CALENDAR)
        digest.add("layout", tail.compression.codec, tail.compression.block_bytes, tail.rows, tail.stride, calendar)
        digest.add(
            "user_metadata", *(item for item in tail.footer.read_repeated(USER_METADATA) if not is_purged_note(item))
        )

    def _statistics(self, clear: Statistics) -> None:
        """Check all statistics; digest those that readers with the keys see, column by column."""
        of_variants: dict[int, Statistics] = {}
        position = self.tail.statistics_offset
        for variant in () if self.encryption is None else self.encryption.variants:
            if variant.number in self.dark:
                digest_dark_variant(self.file, self.tail, variant, position, self.digest)
            elif variant.number not in self.purged:
                key = self._key(variant, variant.encrypted_key)
                of_variants[variant.number] = variant_statistics(self.file, self.tail, variant, key, position)
            position += sum(length for _, length in variant.stripe_statistics)
            if len(clear.file) != len(self.tail.columns) or len(clear.stripes) != len(self.tail.stripes):
                raise FormatError("statistics in clear are missing; expected those of the masked values")
        for column in range(len(self.tail.columns)):
            column_variant = self._variant(column)
            closed = self._is_dark(column_variant)
            found, at = clear, column
            if column_variant is not None and not closed:
                found, at = of_variants[column_variant.number], column - column_variant.root.number
            for data in (*found.file[at : at + 1], *(stripe[at] for stripe in found.stripes)):
                decode(data, "column statistics")
                self.nulls.check_statistics(column, data)
                self.digest.add("unopened" if closed else "statistics", data)

    def _key(self, variant: Variant, wrapped: bytes) -> LocalKey:
        if self.keys is None:
            raise ConfigError(f"{self.file.name}: the file is encrypted and no key is given; pass retrieve_key")
        return self.keys.open(variant, wrapped)

    def _stripe(self, stripe: Stripe, clear: Statistics) -> None:
        footer = read_stripe_footer(self.file, self.tail, stripe)
        self.digest.add("layout", stripe.rows, footer.message.text(FOOTER_TIMEZONE) or "")
        if self.encryption is not None:
            for note in check_masked(
                self.file, self.tail, self.encryption, footer, clear, will_be_rewritten=self.will_be_rewritten
            ):
                self.notes[note] = None
        for stream in sorted(footer.streams, key=lambda stream: (stream.column, stream.kind)):
            if stream.variant is None or stream.variant not in self.purged:
                self._stream(stripe, stream)
        self.nulls.finish_stripe(stripe)
        for column in range(len(self.tail.columns)):
            part = "unopened" if self._is_dark(self._variant(column)) else "streams"
            self.digest.add(part, *self._encodings(footer, column))

    def _encodings(self, footer: StripeFooter, column: int) -> Iterator[bytes]:
        """Yield the encoding of a column as readers with the keys see it; for a dark column, that in clear too."""
        variant = self._variant(column)
        if variant is None or self._is_dark(variant):
            yield footer.encodings[column].encode()
        if variant is not None:
            yield footer.variant_encodings[variant.number][column - variant.root.number].encode()

    def _stream(self, stripe: Stripe, stream: Stream) -> None:
        """Read and check one stream; digest it if readers with the keys use it, or if it is of a dark column."""
        closed = stream.variant is not None and stream.variant in self.dark
        cipher = None if closed else self._cipher(stripe, stream)
        self.streams += 1
        what = f"stripe {stripe.number}, {stream}"
        part = self._part(stream, closed=closed)
        digest = None if part is None else self.digest.open_stream(part)
        check = None if closed or part in self.inflated else ChunkCheck(self.tail.compression, what)
        small = bytearray()
        for piece in read_pieces(self.file, stream, cipher):
            if digest is not None:
                digest.update(piece)
            if check is not None:
                check.feed(piece)
            if stream.kind == ROW_INDEX or (stream.kind == PRESENT and self.nulls.has(stream.column)):
                small += piece
        if check is not None:
            check.finish()
        if stream.kind == ROW_INDEX and not closed:
            self._row_index(stripe, bytes(small), what)
        if part in STREAMS_SEEN:
            self.nulls.check_stream(stream, bytes(small))
        if part is not None and digest is not None:
            self.digest.add(part, stripe.number, stream.column, stream.kind, stream.length, digest.digest())

    def _cipher(self, stripe: Stripe, stream: Stream) -> StreamCipher | None:
        if stream.variant is None or self.encryption is None:
            return None
        self.decrypted += 1
        key = self._key(self.encryption.variants[stream.variant], stripe.local_keys[stream.variant])
        return key.stream(stream.column, stream.kind, stripe.id)

    def _part(self, stream: Stream, *, closed: bool) -> str | None:
        """Return the part of the digests that a stream belongs to; None if a rewrite may change or omit the stream."""
        variant, is_filter = self._variant(stream.column), stream.kind in BLOOM_FILTERS
        if is_filter and stream.column in self.loses_filters and not closed:
            return None
        if self._is_dark(variant):
            return "unopened"
        if (None if variant is None else variant.number) != stream.variant:
            return None
        return "bloom_filters" if is_filter else "streams"

    def _row_index(self, stripe: Stripe, raw: bytes, what: str) -> None:
        content = self.tail.compression.inflate(raw, what)
        entries = decode(content, what, max_fields=max(MAX_FIELDS, self.file.size)).read_repeated(1)
        expected = -(-stripe.rows // self.tail.stride) if self.tail.stride else 0
        if self.tail.stride and len(entries) != expected:
            raise FormatError(f"{what} has {len(entries)} entries; expected {expected}")


def digest_dark_variant(file: Input, tail: Tail, variant: Variant, start: int, digest: ContentDigest) -> None:
    """Digest a variant's wrapped keys, the numbers in the IVs of its streams, its mask and its encrypted statistics.

    If they and the streams are equal in two files, a reader with the key would see the same values in both.

    Args:
        file: the open file.
        tail: its tail.
        variant: one of its variants.
        start: the offset of its stripe statistics.
        digest: everything is added to its part ``unopened``.

    Raises:
        FormatError, StorageError: as `Input.read`.
    """
    key, root = variant.key, variant.root.number
    digest.add("unopened", root, key.name, key.version, key.algorithm, variant.encrypted_key, tail.footer_id)
    mask = None if tail.encryption is None else tail.encryption.mask_of(variant)
    digest.add("unopened", *(() if mask is None else (mask.name, *mask.parameters)))
    for stripe in tail.stripes:
        digest.add("unopened", stripe.id, stripe.local_keys[variant.number])
    digest.add("unopened", variant.file_statistics or b"")
    for column, length in variant.stripe_statistics:
        digest.add("unopened", column, file.read(start, length, f"stripe statistics of column {column}"))
        start += length

"""Reads a source as readers with the keys see it: each column's streams, encodings and statistics of its variant."""

from __future__ import annotations

from collections.abc import Collection

from sparkcrypt.errors import WRITE_ORC_ANEW, ConfigError, FormatError, UnsupportedFileError
from sparkcrypt.files.orc.file.encryption import (
    NULLIFY,
    Encryption,
    LocalKey,
    LocalKeys,
    StreamCipher,
    Variant,
    variants_holding,
)
from sparkcrypt.files.orc.file.protobuf import decode
from sparkcrypt.files.orc.file.stripe import Stream, StripeFooter
from sparkcrypt.files.orc.file.tail import (
    PS_VERSION,
    USER_METADATA,
    Statistics,
    Stripe,
    Tail,
    clear_statistics,
    variant_statistics,
)
from sparkcrypt.files.source import Input
from sparkcrypt.schema import Path, join_dotted

_VERSIONS: tuple[list[int], ...] = ([], [0, 11], [0, 12])
_ACID_COLUMNS = ("operation", "originalTransaction", "bucket", "rowId", "currentTransaction", "row")
_ACID_WORD = "hive.acid."


class OrcSource:
    """A file to rewrite: its tail, and its keys, each requested once.

    Args:
        file: the open file.
        tail: its tail.
        keys: opens local keys; None for a file without any.
        dark: leaf columns whose keys no longer exist, and whose variants stay unchanged.
        purge: leaf columns whose keys no longer exist, and whose variants are left out: their form in clear is used.

    Raises:
        VerificationError: a column of ``dark`` or ``purge`` is not encrypted.
        ConfigError: the file is encrypted and ``keys`` is None.
    """

    def __init__(
        self, file: Input, tail: Tail, keys: LocalKeys | None, dark: Collection[Path] = (), purge: Collection[Path] = ()
    ) -> None:
        self.file = file
        self.tail = tail
        self._keys = keys
        self._dark = variants_holding(tail.encryption, dark)
        self._purged = variants_holding(tail.encryption, purge)
        encrypted: Encryption | None = tail.encryption
        if encrypted is not None and encrypted.variants and keys is None:
            raise ConfigError(f"{file.name}: the file is encrypted and no key is given; pass retrieve_key")
        self.variants = () if encrypted is None else encrypted.variants

    @property
    def dark(self) -> tuple[Variant, ...]:
        """The variants that stay unchanged."""
        return tuple(variant for variant in self.variants if variant.number in self._dark)

    @property
    def purged(self) -> tuple[Variant, ...]:
        """The variants that are left out."""
        return tuple(variant for variant in self.variants if variant.number in self._purged)

    def variant_of(self, column: int) -> Variant | None:
        """Return the variant that holds a column; None if the column is in clear."""
        found = None if self.tail.encryption is None else self.tail.encryption.variant_of(column)
        return None if found is not None and found.number in self._purged else found

    def is_seen(self, stream: Stream) -> bool:
        """Return whether readers with the keys use a stream; they do not use those of masks."""
        variant = self.variant_of(stream.column)
        return stream.variant == (None if variant is None else variant.number)

    def cipher(self, stripe: Stripe, stream: Stream) -> StreamCipher | None:
        """Return the cipher that decrypts a stream; None if it is in clear."""
        if stream.variant is None:
            return None
        key = self._key(self.variants[stream.variant], stripe.local_keys[stream.variant])
        return key.stream(stream.column, stream.kind, stripe.id)

    def encoding(self, footer: StripeFooter, column: int) -> bytes:
        """Return the encoding of a column in a stripe."""
        variant = self.variant_of(column)
        if variant is None:
            return footer.encodings[column].encode()
        return footer.variant_encodings[variant.number][column - variant.root.number].encode()

    def statistics(self) -> Statistics:
        """Return the statistics of all columns, of the file and of each stripe; those in clear for dark columns.

        Raises:
            FormatError: they are damaged, or do not decrypt.
        """
        clear = clear_statistics(self.file, self.tail)
        of_file, of_stripes = list(clear.file), [list(stripe) for stripe in clear.stripes]
        if self.variants and (not of_file or len(of_stripes) != len(self.tail.stripes)):
            raise FormatError("statistics in clear are missing; expected those of the masked values")
        position = self.tail.statistics_offset
        for variant in self.variants:
            first, end = variant.root.number, variant.root.last + 1
            start, position = position, position + sum(length for _, length in variant.stripe_statistics)
            if variant.number in self._dark | self._purged:
                continue
            key = self._key(variant, variant.encrypted_key)
            found = variant_statistics(self.file, self.tail, variant, key, start)
            of_file[first:end] = found.file
            for stripe, replacement in zip(of_stripes, found.stripes, strict=True):
                stripe[first:end] = replacement
        return Statistics(tuple(of_file), tuple(map(tuple, of_stripes)))

    def dark_statistics(self, variant: Variant) -> bytes:
        """Return the encrypted stripe statistics of a dark variant as stored in the file.

        Raises:
            FormatError, StorageError: as `Input.read`.
        """
        before = self.variants[: variant.number]
        start = self.tail.statistics_offset + sum(size for other in before for _, size in other.stripe_statistics)
        length = sum(size for _, size in variant.stripe_statistics)
        return self.file.read(start, length, f"stripe statistics of variant {variant.number}")

    def _key(self, variant: Variant, wrapped: bytes) -> LocalKey:
        if self._keys is None:
            raise ConfigError(f"{self.file.name}: the file is encrypted and no key is given; pass retrieve_key")
        return self._keys.open(variant, wrapped)


def check_supported(source: OrcSource, *, encrypts: bool) -> None:
    """Refuse a file that cannot be rewritten without decoding; the message names the reason.

    Raises:
        UnsupportedFileError: the file is an ACID file; a column is in several variants; a purged column has another
            mask than nullify, or is the key of a map; a file with dark columns has two stripes of one number; or, if
            the target is encrypted, the file has another version of the format, another mask, or a root that is not a
            struct.
    """
    tail = source.tail
    names = [decode(item, "user metadata").text(1) or "" for item in tail.footer.read_repeated(USER_METADATA)]
    of_root = tuple(tail.columns[number].path[-1] for number in tail.columns[0].children)
    if of_root == _ACID_COLUMNS or any(name.startswith(_ACID_WORD) for name in names):
        raise UnsupportedFileError(
            "is a file of a Hive ACID table, whose readers and compactions keep keys of rows beside it; let Hive write "
            "the table without transactions"
        )
    covered = sum(variant.root.last - variant.root.number + 1 for variant in source.variants)
    if tail.encryption is not None and covered != len(tail.encryption.by_column):
        raise UnsupportedFileError(
            f"a column stands in several variants, of which one alone could stay; {WRITE_ORC_ANEW}"
        )
    _check_purged(source)
    _check_dark(source)
    if not encrypts:
        return
    version = tail.postscript.integers(PS_VERSION)
    if version not in _VERSIONS:
        version_text = ".".join(map(str, version)) or "not told"
        raise UnsupportedFileError(
            f"its version is {version_text}, and masks are made for 0.11 and 0.12 alone; {WRITE_ORC_ANEW}"
        )
    if tail.columns[0].kind != "struct":
        raise UnsupportedFileError(f"its root is no struct, and the root is never encrypted; {WRITE_ORC_ANEW}")
    for variant in source.variants:
        if (name := _mask_name(source, variant)) != NULLIFY:
            raise UnsupportedFileError(
                f"{join_dotted(variant.root.path)} stands in clear masked by {name}, and no mask but {NULLIFY} is made "
                f"without decoding; use --rewrap, which keeps it, or {WRITE_ORC_ANEW}"
            )


def _mask_name(source: OrcSource, variant: Variant) -> str:
    mask = None if source.tail.encryption is None else source.tail.encryption.mask_of(variant)
    return "an unknown mask" if mask is None else mask.name


def _check_purged(source: OrcSource) -> None:
    columns = source.tail.columns
    for variant in source.purged:
        name, above = join_dotted(variant.root.path), columns[variant.root.parent]
        if (mask := _mask_name(source, variant)) != NULLIFY:
            raise UnsupportedFileError(
                f"{name} stands in clear masked by {mask}, so leaving its variant out would not replace it by nulls; "
                "rewrite the file with Spark without the column"
            )
        if above.kind == "map" and variant.root.number == above.children[0]:
            raise UnsupportedFileError(
                f"{name} is the key of a map, and maps have no null keys, so nulls cannot take its place; rewrite the "
                "file with Spark without the map"
            )


def _check_dark(source: OrcSource) -> None:
    ids = [stripe.id for stripe in source.tail.stripes]
    if source.dark and len(set(ids)) != len(ids):
        raise UnsupportedFileError(
            "was joined from several encrypted files, so two of its stripes have one number; new local keys would be "
            "used twice beside columns whose keys are gone, which must keep these numbers; rewrap it, or purge these "
            "columns"
        )

"""Rewrites an ORC file under another encryption, or none, in one pass that decodes no value; or rewraps its keys."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from typing import TypeAlias

from sparkcrypt.errors import WRITE_ORC_ANEW, ConfigError, FormatError, UnsupportedFileError
from sparkcrypt.files.orc.file.encryption import (
    ENCRYPTION_KEY,
    ENCRYPTION_VARIANTS,
    KEY_ALGORITHM,
    VARIANT_ENCRYPTED_KEY,
    VARIANT_KEY,
    Encryption,
    LocalKeys,
    Variant,
    variants_holding,
)
from sparkcrypt.files.orc.file.protobuf import Message
from sparkcrypt.files.orc.file.tail import (
    ENCRYPTION,
    MAGIC,
    PS_METADATA_LENGTH,
    PS_STATISTICS_LENGTH,
    STRIPE_KEYS,
    STRIPES,
    Tail,
    tail_of,
)
from sparkcrypt.files.orc.rewrite.encryption import AnyVariant, OrcEncryption, choose_variants, order_variants
from sparkcrypt.files.orc.rewrite.end import KEY_VERSION_NUMBER, describe_key, write_end, write_footer
from sparkcrypt.files.orc.rewrite.source import OrcSource, check_supported
from sparkcrypt.files.orc.rewrite.stripe import StripeWriter
from sparkcrypt.files.orc.summary import OrcSummary, summarise_orc
from sparkcrypt.files.output import Output, RewriteResult, Target, open_target
from sparkcrypt.files.parquet.file.modules import KeyRequest, RetrieveKey
from sparkcrypt.files.source import Source, naming, open_source
from sparkcrypt.keys.ids import encode_key_id
from sparkcrypt.schema import Path, join_dotted

TargetEncryption: TypeAlias = OrcEncryption | Callable[[OrcSummary], OrcEncryption | None] | None
"""The encryption of the target, None for plaintext; a callable is called with the summary of the source's tail."""


def rewrite_orc(
    source: Source,
    target: Target,
    *,
    retrieve_key: RetrieveKey | None = None,
    encryption: TargetEncryption = None,
    dark: Collection[Path] = (),
    purge: Collection[Path] = (),
) -> RewriteResult:
    """Write the source's streams to the target under another encryption, or none.

    Streams keep their encoding, compression and order in a column; statistics, row indexes and user metadata stay
    unchanged.  Streams, statistics and row indexes of an encrypted column are written to its variant, and readers
    without the key see nulls.  Only one piece of a stream, the positions of row groups, and the file's tail are held in
    memory.

    Args:
        source: as `read_tail`.
        target: a path or a (pyarrow filesystem, path) that does not exist yet; the file appears there whole or not at
            all.
        retrieve_key: called once for each local key of an encrypted source.
        encryption: of the target; None writes plaintext.
        dark: leaf columns whose keys can no longer be opened: all their data stay unchanged, under the same wrapped
            local keys.
        purge: leaf columns whose keys can no longer be opened: their variants are left out, and every reader sees the
            nulls that are in clear, which are encrypted if ``encryption`` names the columns.

    Raises:
        FormatError: the source violates the specification.
        UnsupportedFileError: it cannot be rewritten without decoding: see the message.
        ConfigError: the target already exists, a key is missing, or the encryption names an unknown column, or one that
            is inside a dark column or contains one.
        VerificationError: a column of ``dark`` or ``purge`` is not encrypted.
    """
    with ExitStack() as stack:
        file = stack.enter_context(open_source(source))
        with naming(file.name):
            tail = tail_of(file)
        chosen = encryption(summarise_orc(tail)) if callable(encryption) else encryption
        stack.enter_context(naming(file.name))
        keys = None if retrieve_key is None else LocalKeys(file.name, retrieve_key)
        opened = OrcSource(file, tail, keys, dark, purge)
        check_supported(opened, encrypts=chosen is not None or bool(dark))
        variants = order_variants(choose_variants(chosen, tail.columns), opened.dark)
        output = stack.enter_context(open_target(target, file.access))
        notes, left_out = _write(opened, variants, output)
        return RewriteResult(notes=tuple(notes), left_out=tuple(left_out))


def _write(source: OrcSource, variants: Sequence[AnyVariant], output: Output) -> tuple[list[str], list[str]]:
    """Write the whole target; return notes on what it lost, and the names of user metadata that was left out."""
    tail, statistics = source.tail, source.statistics()
    if variants and (not statistics.file or len(statistics.stripes) != len(tail.stripes)):
        raise UnsupportedFileError(
            f"has no statistics of its columns, which encrypted columns must have; {WRITE_ORC_ANEW}"
        )
    output.write(MAGIC)
    writer = StripeWriter(source, variants, statistics.stripes, output)
    entries = _entries(tail, writer)
    left_out = write_end(source, variants, statistics, entries, writer.masked.filled, output)
    notes = [
        f"the Bloom filter of {join_dotted(path)} was left out: ORC writers leave it in clear, where values of an "
        "encrypted column can be probed"
        for path in writer.masked.dropped
    ]
    notes += [f"user metadata {name!r} may tell of encrypted columns, and was left out" for name in left_out]
    return notes, left_out


def _entries(tail: Tail, writer: StripeWriter) -> list[bytes]:
    described = tail.footer.messages(STRIPES, "a stripe's entry")
    return [writer.write(stripe, entry).encode() for stripe, entry in zip(tail.stripes, described, strict=True)]


WrapOrcKey: TypeAlias = Callable[[KeyRequest, bytes], tuple[bytes, str]]
"""Returns the newly wrapped local key, and the id of the master key that wrapped it; the request's column is the
variant's root."""


def rewrap_orc(
    source: Source, target: Target, *, retrieve_key: RetrieveKey, wrap_key: WrapOrcKey, dark: Collection[Path] = ()
) -> RewriteResult:
    """Write a copy of an encrypted file with rewrapped local keys.

    The local keys stay the same, so this is not revocation: a reader who kept the old footer, or a key, can still read
    the data.  Nothing in an ORC file shows whether a wrapped key was copied there from another file; verify the file
    first.

    Args:
        source: as `read_tail`; must be encrypted.
        target: as `rewrite_orc`.
        retrieve_key: called once for each local key.
        wrap_key: called once for each local key.
        dark: leaf columns whose keys can no longer be opened: their wrapped keys stay unchanged.

    Raises:
        FormatError: the source violates the specification, or a variant would be under two master keys.
        ConfigError: it is not encrypted, or the target already exists.
        VerificationError: a column of ``dark`` is not encrypted.
    """
    with ExitStack() as stack:
        file = stack.enter_context(open_source(source))
        stack.enter_context(naming(file.name))
        tail = tail_of(file)
        if tail.encryption is None or not tail.encryption.variants:
            raise ConfigError(f"{file.name}: the file is not encrypted; rewrite it with an encryption instead")
        wrapping = _Wrapping(file.name, retrieve_key, wrap_key, variants_holding(tail.encryption, dark))
        footer = _rewrap_footer(tail, tail.encryption, wrapping)
        output = stack.enter_context(open_target(target, file.access))
        output.copy(file, 0, tail.footer_offset, "the data")
        metadata, statistics = (tail.postscript.integer(key) for key in (PS_METADATA_LENGTH, PS_STATISTICS_LENGTH))
        write_footer(tail, footer, output, metadata_length=metadata, statistics_length=statistics)
        return RewriteResult()


class _Wrapping:
    """The rewrapped local keys of a file, each made once; those of dark variants stay unchanged."""

    def __init__(self, file: str, retrieve_key: RetrieveKey, wrap_key: WrapOrcKey, dark: Collection[int] = ()) -> None:
        self._dark = dark
        self._file = file
        self._retrieve_key = retrieve_key
        self._wrap_key = wrap_key
        self._made: dict[tuple[int, bytes], bytes] = {}
        self.masters: dict[int, str] = {}

    def wrap(self, variant: Variant, wrapped: bytes) -> bytes:
        """Return the rewrapped form of a variant's key.

        Raises:
            FormatError: the key's length is not its algorithm's, or keys of the variant got different master keys.
        """
        if variant.number in self._dark:
            return wrapped
        wrapped_key = self._made.get((variant.number, wrapped))
        if wrapped_key is None:
            request = KeyRequest(self._file, variant.root.path, wrapped)
            key = self._retrieve_key(request)
            if len(key) != variant.key.key_bytes:
                raise FormatError(
                    f"the local key of variant {variant.number} has {len(key)} bytes; expected "
                    f"{variant.key.key_bytes} for {variant.key.algorithm}"
                )
            wrapped_key, master = self._wrap_key(request, key)
            if self.masters.setdefault(variant.number, master) != master:
                raise FormatError(f"variant {variant.number} would have two master keys; expected one")
            self._made[variant.number, wrapped] = wrapped_key
        return wrapped_key

    def name(self, variant: Variant, algorithm: int) -> tuple[str, int, int]:
        """Return a variant's master key as the new footer names it, its version, and this algorithm."""
        if variant.number in self._dark:
            return variant.key.name, variant.key.version, algorithm
        return encode_key_id(self.masters[variant.number]), KEY_VERSION_NUMBER, algorithm


def _rewrap_footer(tail: Tail, encryption: Encryption, keys: _Wrapping) -> Message:
    variants = encryption.variants
    stripes = []
    described = tail.footer.messages(STRIPES, "a stripe's entry")
    for entry in described:
        own = entry.read_repeated(STRIPE_KEYS)
        pairs = zip(variants, own, strict=True) if own else ()
        stripes.append(entry.replace_field(STRIPE_KEYS, [keys.wrap(*pair) for pair in pairs]).encode())
    message = tail.footer.message(ENCRYPTION, "the encryption") or Message("the encryption")
    wrapped = [keys.wrap(variant, variant.encrypted_key) for variant in variants]
    algorithms = [
        entry.integer(KEY_ALGORITHM, bits=31) for entry in message.messages(ENCRYPTION_KEY, "an encryption key")
    ]
    parts = message.messages(ENCRYPTION_VARIANTS, "an encryption variant")
    uses = [
        keys.name(variant, algorithms[part.integer(VARIANT_KEY, bits=32)])
        for variant, part in zip(variants, parts, strict=True)
    ]
    masters = sorted(set(uses))
    new = [
        part.replace_field(VARIANT_KEY, [masters.index(use)]).replace_field(VARIANT_ENCRYPTED_KEY, [data]).encode()
        for part, use, data in zip(parts, uses, wrapped, strict=True)
    ]
    message = message.replace_field(ENCRYPTION_KEY, [describe_key(*master) for master in masters])
    message = message.replace_field(ENCRYPTION_VARIANTS, new)
    return tail.footer.replace_field(STRIPES, stripes).replace_field(ENCRYPTION, [message.encode()])

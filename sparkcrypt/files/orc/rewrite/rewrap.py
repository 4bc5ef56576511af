"""Rewraps the local keys of an encrypted ORC file: copies the data unchanged and writes a new footer."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import ExitStack
from typing import TypeAlias

from sparkcrypt.errors import ConfigError, FormatError
from sparkcrypt.files.orc.file.encryption import (
    ENCRYPTION_KEY,
    ENCRYPTION_VARIANTS,
    KEY_ALGORITHM,
    VARIANT_ENCRYPTED_KEY,
    VARIANT_KEY,
    Encryption,
    Variant,
    variants_holding,
)
from sparkcrypt.files.orc.file.protobuf import Message
from sparkcrypt.files.orc.file.schema import leaves
from sparkcrypt.files.orc.file.tail import (
    ENCRYPTION,
    PS_METADATA_LENGTH,
    PS_STATISTICS_LENGTH,
    STRIPE_KEYS,
    STRIPES,
    Tail,
    tail_of,
)
from sparkcrypt.files.orc.rewrite.end import KEY_VERSION_NUMBER, describe_key, write_footer
from sparkcrypt.files.orc.rewrite.result import OrcRewriteResult
from sparkcrypt.files.output import Target, open_target
from sparkcrypt.files.parquet.file.keys import KeyRequest, RetrieveKey
from sparkcrypt.files.source import Source, naming, open_source
from sparkcrypt.keys.ids import encode_key_id
from sparkcrypt.schema import Path

WrapOrcKey: TypeAlias = Callable[[KeyRequest, bytes], tuple[bytes, str]]
"""Returns the newly wrapped local key, and the id of the master key that wrapped it; the request's column is the
variant's root."""


def rewrap_orc(
    source: Source, target: Target, *, retrieve_key: RetrieveKey, wrap_key: WrapOrcKey, dark: Collection[Path] = ()
) -> OrcRewriteResult:
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
        variant_of = tail.encryption.variant_of
        columns = {column.path: variant_of(column.number) is not None for column in leaves(tail.columns)}
        return OrcRewriteResult.of(file, target, tail, output, columns)


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

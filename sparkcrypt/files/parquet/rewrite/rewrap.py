"""Opens each key of an encrypted file, and replaces its key metadata: copies the data and writes a new footer."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TypeAlias

from sparkcrypt.errors import ConfigError
from sparkcrypt.files.output import Output, RewriteResult, Target, open_target
from sparkcrypt.files.parquet.file.footer import (
    NOTHING_KNOWN,
    ColumnCrypto,
    Footer,
    KnownColumns,
    check_dark,
    check_magic_and_unique,
    footer_of,
    known_aad,
)
from sparkcrypt.files.parquet.file.modules import AadPrefix, FileCiphers, KeyRequest, ModuleCipher, RetrieveKey
from sparkcrypt.files.parquet.file.schema import Path
from sparkcrypt.files.parquet.rewrite.footer_writer import FooterSeal, crypto_metadata, in_id_order, write_footer
from sparkcrypt.files.parquet.rewrite.source_chunk import source_chunks
from sparkcrypt.files.parquet.summary import summarise
from sparkcrypt.files.parquet.thrift.compact import STRUCT, List, Struct
from sparkcrypt.files.parquet.thrift.metadata import ColumnChunk, FileMetaData, RowGroup
from sparkcrypt.files.source import Input, Source, naming, open_source
from sparkcrypt.schema import join_dotted


def open_columns(file: Input, footer: Footer, ciphers: FileCiphers, dark: Collection[Path] = ()) -> None:
    """Open the metadata of every column chunk, except those of dark columns.

    Raises:
        ConfigError: the footer is not decrypted, or a dark column has no key of its own.
        FormatError: two row groups have the same ordinal.
        VerificationError: a chunk's metadata do not authenticate under its key and place.
    """
    if footer.metadata is None or footer.columns is None:
        raise ConfigError("the footer is encrypted and no key is given; pass retrieve_key")
    check_dark(footer.columns, dark)
    for chunks in source_chunks(file, footer, ciphers, dark):
        for _ in chunks:
            pass


WrapKey: TypeAlias = Callable[[KeyRequest, bytes], bytes]
"""Returns new key metadata for a data key; the request is the one that the key was retrieved for."""
KeepKey: TypeAlias = Callable[[Path, bytes], bytes | None]
"""Returns new key metadata for a column's present key metadata if its data key need not be opened, else None."""


@dataclass(frozen=True, slots=True)
class NewKeys:
    """The new key metadata of a file whose data keys are rewrapped.

    Attributes:
        wrap: called once for the new key metadata of each data key.
        keep: called for each column with a key of its own, before that is opened; not for dark columns.
        key_values: entries to set in the footer's key-value metadata.
    """

    wrap: WrapKey
    keep: KeepKey = lambda column, key_metadata: None
    key_values: Mapping[str, str] = field(default_factory=dict)


def rewrap_file(
    source: Source,
    target: Target,
    *,
    retrieve_key: RetrieveKey,
    new_keys: NewKeys,
    aad_prefix: AadPrefix | None = None,
    known: KnownColumns = NOTHING_KNOWN,
) -> RewriteResult:
    """Write a copy of an encrypted file with rewrapped data keys.

    The data keys stay the same, so this is not revocation: a reader who kept the old footer, or a key, can still read
    the data.  Before anything is written the footer is authenticated, and one module of each key under the file's AAD,
    so that key material copied from another column or file is not wrapped for whoever placed it there.

    Args:
        source: as `read_footer`; must be encrypted.
        target: as `rewrite_file`.
        retrieve_key: called once for each data key.
        new_keys: their new wrappings.
        aad_prefix: of the source, as `read_footer`.
        known: for dark columns no key is requested, and their key material stays unchanged.

    Raises:
        FormatError: the source violates the specification.
        VerificationError: the footer or a key's module does not authenticate.
        ConfigError: the source is not encrypted, the target already exists, or a dark column has no key of its own.
    """
    with ExitStack() as stack:
        file, dark = stack.enter_context(open_source(source)), known.dark
        keys = _Keys(retrieve_key, new_keys.wrap)
        ciphers = FileCiphers(file.name, keys.retrieve)
        footer = footer_of(file, ciphers, aad_prefix)
        stack.enter_context(naming(file.name))
        if known.check is not None:
            known.check(summarise(footer))
        if footer.metadata is None or footer.columns is None or footer.mode == "plaintext":
            raise ConfigError(f"{file.name}: the file is not encrypted; rewrite it with an encryption instead")
        check_magic_and_unique(file, footer)
        kept = kept_keys(footer.columns, dark, new_keys.keep)
        open_columns(file, footer, ciphers, {*dark, *kept})
        keys.wrap_all()
        keys.wrapped.update(kept.items())
        metadata = _rewrap_columns(footer, footer.metadata, footer.columns, keys.wrapped, dark)
        seal = _seal(footer, ciphers.cipher(None, footer.footer_key_metadata), keys.wrapped[None])
        output = stack.enter_context(open_target(target, file.access))
        output.copy(file, 0, footer.offset, "the data")
        write_footer(output, metadata, seal, new_keys.key_values)
        return RewriteResult(
            unauthenticated=(
                "pages: only the footer and one module of each key were opened",
                *(f"column {join_dotted(path)}: its key is gone" for path in sorted(dark)),
                *(f"column {join_dotted(path)}: its key was not opened" for path in sorted(kept)),
            )
        )


def kept_keys(columns: Iterable[ColumnCrypto], dark: Collection[Path], keep_key: KeepKey) -> dict[Path, bytes]:
    """Return the new key metadata of each column, except dark ones, whose data key need not be opened."""
    own = (column for column in columns if column.own_key and column.path not in dark)
    kept = {column.path: keep_key(column.path, column.key_metadata or b"") for column in own}
    return {path: metadata for path, metadata in kept.items() if metadata is not None}


class _Keys:
    """The data keys of a file, recorded as they are retrieved, and the new key metadata of each."""

    def __init__(self, retrieve_key: RetrieveKey, wrap_key: WrapKey) -> None:
        self._retrieve_key = retrieve_key
        self._wrap_key = wrap_key
        self._found: dict[Path | None, tuple[KeyRequest, bytes]] = {}
        self.wrapped: dict[Path | None, bytes] = {}

    def retrieve(self, request: KeyRequest) -> bytes:
        key = self._retrieve_key(request)
        self._found[request.column] = (request, key)
        return key

    def wrap_all(self) -> None:
        """Request new key metadata for every key that was retrieved."""
        self.wrapped = {column: self._wrap_key(request, key) for column, (request, key) in self._found.items()}


def inline_footer(footer: Footer, footer_key: bytes) -> bytes:
    """Return the bytes from the footer to the end of a file, as they would be with its key material inside.

    Args:
        footer: the decrypted footer of a file whose key material is in a file beside it.
        footer_key: the data key of the footer.

    Raises:
        ConfigError: the footer is not decrypted, or the file is not encrypted.
    """
    if footer.metadata is None or footer.columns is None or footer.mode == "plaintext":
        raise ConfigError(f"{footer.file}: its footer is not revealed; pass retrieve_key when you read it")
    inside: dict[Path | None, bytes] = {column.path: column.key_metadata or b"" for column in footer.columns}
    end = io.BytesIO()
    output = Output(end, None)
    seal = _seal(footer, ModuleCipher(footer_key), footer.footer_key_metadata or b"")
    write_footer(output, _rewrap_columns(footer, footer.metadata, footer.columns, inside, ()), seal, {})
    output.flush()
    return end.getvalue()


def _seal(footer: Footer, cipher: ModuleCipher, key_metadata: bytes) -> FooterSeal:
    return FooterSeal(
        cipher,
        key_metadata,
        "encrypted" if footer.mode == "encrypted" else "plaintext",
        footer.algorithm or "AES_GCM_V1",
        footer.aad_prefix,
        footer.supply_aad_prefix,
        footer.aad_file_unique or b"",
        known_aad(footer),
    )


def _rewrap_columns(
    footer: Footer,
    metadata: FileMetaData,
    columns: tuple[ColumnCrypto, ...],
    wrapped: Mapping[Path | None, bytes],
    dark: Collection[Path],
) -> Struct:
    rewritten = Struct(metadata.struct)
    groups = []
    for group in metadata.row_groups:
        chunks = []
        for chunk, column in zip(group.columns, columns, strict=True):
            copy = Struct(chunk.struct)
            if column.own_key and column.path not in dark:
                copy[ColumnChunk.crypto_metadata.key] = crypto_metadata(column.path, wrapped[column.path])
            elif column.own_key and footer.external_material:  # the new file has no file of key material
                copy[ColumnChunk.crypto_metadata.key] = crypto_metadata(column.path, column.key_metadata)
            chunks.append(in_id_order(copy))
        copied = Struct(group.struct)
        copied[RowGroup.columns.key] = List(STRUCT, chunks)
        groups.append(copied)
    rewritten[FileMetaData.row_groups.key] = List(STRUCT, groups)
    return rewritten

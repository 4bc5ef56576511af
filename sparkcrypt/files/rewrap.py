"""Rewraps the data keys of one file, or copies it, and proves that nothing else changed, without decrypting pages.

Dark columns, whose master keys were shredded, stay unchanged: their key metadata, and every byte.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from sparkcrypt.errors import FormatError, VerificationError
from sparkcrypt.files.open_places import Place, remove_file, size_of
from sparkcrypt.files.orders import FileOrder, FileOutcome
from sparkcrypt.files.output import open_target
from sparkcrypt.files.parquet import (
    FileSummary,
    Footer,
    RetrieveKey,
    VerifyAad,
    WrapKey,
    read_footer,
    rewrap_file,
    summarise,
)
from sparkcrypt.files.parquet.file.modules import FileCiphers
from sparkcrypt.files.parquet.file.schema import leaf_paths
from sparkcrypt.files.parquet.rewrite.footer_writer import crypto_metadata
from sparkcrypt.files.parquet.rewrite.rewrap import KeepKey, kept_keys, open_every_key
from sparkcrypt.files.parquet.thrift.compact import STRUCT, List, Struct, encode_struct
from sparkcrypt.files.parquet.thrift.metadata import ColumnChunk, ColumnCryptoMetaData, FileMetaData, KeyValue, RowGroup
from sparkcrypt.files.parquet.verify.digest import OWN_KEYS_PREFIX
from sparkcrypt.files.source import Input, Source, open_source
from sparkcrypt.schema import Path, join_dotted

COMPARED_BYTES = 4 << 20
_LEFT_OUT = (
    FileMetaData.encryption_algorithm.key,
    FileMetaData.footer_signing_key_metadata.key,
    FileMetaData.key_value_metadata.key,
    FileMetaData.row_groups.key,
)


def rewrap_order(
    order: FileOrder,
    source: Place,
    target: Place,
    retrieve_key: RetrieveKey,
    wrap_key: WrapKey,
    verify_aad: VerifyAad | None,
    keep_key: KeepKey,
) -> FileOutcome:
    """Write a file whose data keys are wrapped as ordered, and prove it.

    The source's footer and a module of each of its keys are authenticated before anything is wrapped.  The target's
    data are compared with the source's as stored, byte by byte, so a damaged page remains one that every reader
    refuses.  Then the target's keys are opened, and its footer is compared with the source's.  A column whose KEK the
    key service rewrapped is not opened: its key metadata is the source's with the KEK's new wrapping.

    Args:
        order: what to do.
        source: the file to rewrap.
        target: the file to write; it is removed if this fails.
        retrieve_key: opens data keys.
        wrap_key: wraps them, as ordered.
        verify_aad: checks that the source is the file that was listed.
        keep_key: returns the new key metadata of columns whose data keys need not be opened.

    Raises:
        FormatError, VerificationError: the source is not valid or not as listed, or the target is not as ordered.
    """
    footers: list[Footer] = []

    def check_footer(footer: Footer) -> None:
        order.refuse_algorithm(footer.algorithm)
        refuse_other_keys(order, footer)
        footers.append(footer)

    key_values = None if order.encryption is None else order.encryption.key_values
    result = rewrap_file(
        source,
        target,
        retrieve_key=retrieve_key,
        wrap_key=wrap_key,
        verify_aad=verify_aad,
        key_values=key_values,
        dark=order.dark,
        keep_key=keep_key,
        check_footer=check_footer,
    )
    (before,) = footers
    kept = kept_keys(before.columns or (), order.dark, keep_key)
    try:
        summary = prove_rewrapped(before, source, order.target, target, retrieve_key, order.dark, kept)
        unmet = None if order.encryption is None else order.encryption.describe_difference(summary, order.dark)
        if unmet:
            raise VerificationError(f"{order.target}: {unmet}; it was ordered otherwise")
    except BaseException:
        remove_file(target)
        raise
    return _outcome(order, source, target, summary, result.unauthenticated, tuple(kept))


def copy_order(
    order: FileOrder, source: Place, target: Place, retrieve_key: RetrieveKey, verify_aad: VerifyAad | None
) -> FileOutcome:
    """Copy a file with dark columns byte for byte, and prove it; its footer and its other keys are opened.

    Args:
        order: what to do.
        source: the file to copy.
        target: the file to write; it is removed if this fails.
        retrieve_key: opens data keys.
        verify_aad: checks that the source is the file that was listed.

    Raises:
        FormatError, VerificationError: the source is not valid or not as listed, or the target differs from it.
    """
    before = read_footer(source, retrieve_key=retrieve_key, verify_aad=verify_aad)
    order.refuse_algorithm(before.algorithm)
    refuse_other_keys(order, before)
    refuse_material_beside(order.source, external=before.external_material)
    with open_source(source) as file, open_target(target, file.access) as output:
        output.copy(file, 0, file.size, "the file")
    try:
        summary = prove_rewrapped(before, source, order.target, target, retrieve_key, order.dark)
    except BaseException:
        remove_file(target)
        raise
    return _outcome(order, source, target, summary, ("pages: copied, and only one module of each key was opened",))


def _outcome(
    order: FileOrder,
    source: Place,
    target: Place,
    summary: FileSummary,
    unauthenticated: tuple[str, ...],
    unopened: tuple[Path, ...] = (),
) -> FileOutcome:
    return FileOutcome(
        source=order.source,
        target=order.target,
        rows=summary.rows or 0,
        bytes_before=size_of(source),
        bytes_after=size_of(target),
        unauthenticated=unauthenticated,
        unopened=unopened,
    )


def refuse_material_beside(source: str, *, external: bool) -> None:
    """Refuse to copy a file whose key material is in a file beside it: nothing would open the copy.

    Args:
        source: the file's path.
        external: whether its key material is in a file beside it.

    Raises:
        VerificationError: it is; the file was listed with its key material inside, and was replaced since.
    """
    if external:
        raise VerificationError(
            f"{source}: its key material stands in a file beside it now, so nothing would open a copy; someone "
            "replaced the file; run again, which looks at it anew"
        )


def refuse_other_keys(order: FileOrder, footer: Footer) -> None:
    """Refuse a source with a dark column that is not under the shredded key that it was listed with.

    Raises:
        VerificationError: a column is under another key; names the column and both keys.
    """
    found = summarise(footer).columns or {}
    for path, key_id in order.dark.items():
        held = found[path].key_id if path in found else None
        if held != key_id:
            raise VerificationError(
                f"{order.source}: column {join_dotted(path)} is under {held!r}, and was under the shredded {key_id!r} "
                "when it was listed; someone replaced the file"
            )


def prove_rewrapped(
    before: Footer,
    source: Source,
    name: str,
    target: Source,
    retrieve_key: RetrieveKey,
    dark: Collection[Path],
    kept: Mapping[Path, bytes] = MappingProxyType({}),
) -> FileSummary:
    """Check that a file differs from its source only in key metadata and that its keys open; return its summary.

    Args:
        before: the source's footer, decrypted.
        source: the file that it was made from.
        name: the file's name in messages.
        target: the file to check.
        retrieve_key: opens data keys.
        dark: columns whose keys cannot be opened; their key metadata must be unchanged too.
        kept: columns whose keys are not opened -> the key metadata that they must have.

    Raises:
        VerificationError: something else differs, or a key does not open.
    """
    try:
        with open_source(target) as file:
            after = open_every_key(file, FileCiphers(file.name, retrieve_key), dark={*dark, *kept})
    except FormatError as error:
        raise VerificationError(f"{name}: the rewrapped file cannot be read back: {error}") from error
    found = {column.path: column.key_metadata for column in after.columns or ()}
    for path, metadata in kept.items():
        if found.get(path) != metadata:
            raise VerificationError(f"{name}: the key metadata of column {join_dotted(path)} is not what was ordered")
    if before.metadata is None or after.metadata is None:
        raise VerificationError(f"{name}: a footer is not revealed, so it is not proven")
    if _strip_keys(before, before.metadata, dark) != _strip_keys(after, after.metadata, dark):
        raise VerificationError(f"{name}: its footer says something else than that of {before.file}")
    with open_source(source) as first, open_source(target) as second:
        if before.offset != after.offset or not _is_equal(first, second, before.offset):
            raise VerificationError(f"{name}: its data are not the bytes of {before.file}")
    return summarise(after)


def _is_equal(source: Input, target: Input, length: int) -> bool:
    for start in range(0, length, COMPARED_BYTES):
        size = min(COMPARED_BYTES, length - start)
        if source.read(start, size, "the data") != target.read(start, size, "the data"):
            return False
    return True


def _strip_keys(
    footer: Footer, metadata: FileMetaData, dark: Collection[Path]
) -> tuple[bytes, tuple[bytes, ...], tuple[bytes, ...]]:
    """Return a footer's content without its key metadata and without this package's own key-values.

    The key metadata of dark columns is included, in the form in which a file stores it inside.
    """
    rest = {key: value for key, value in metadata.struct.items() if key not in _LEFT_OUT}
    entries = metadata.struct.get(FileMetaData.key_value_metadata.key)
    kept = sorted(
        encode_struct(_sort_fields(entry))
        for entry in (entries if isinstance(entries, List) else ())
        if isinstance(entry, Struct) and not _is_own(entry)
    )
    paths = leaf_paths(metadata)
    materials = [column.key_metadata for column in footer.columns or ()] if footer.external_material else None
    groups = tuple(encode_struct(_group_less_keys(group, paths, dark, materials)) for group in metadata.row_groups)
    return encode_struct(_sort_fields(Struct(rest))), tuple(kept), groups


def _group_less_keys(
    group: RowGroup, paths: Sequence[Path], dark: Collection[Path], materials: Sequence[bytes | None] | None
) -> Struct:
    chunks = []
    for place, (chunk, path) in enumerate(zip(group.columns, paths, strict=True)):
        copy = Struct(chunk.struct)
        crypto = chunk.crypto_metadata
        if crypto is not None and crypto.column_key() is not None:
            if path not in dark:
                copy[ColumnChunk.crypto_metadata.key] = Struct(
                    {ColumnCryptoMetaData.encryption_with_column_key.key: Struct()}
                )
            elif materials is not None:
                copy[ColumnChunk.crypto_metadata.key] = crypto_metadata(path, materials[place])
        chunks.append(_sort_fields(copy))
    return _sort_fields(Struct({**group.struct, RowGroup.columns.key: List(STRUCT, chunks)}))


def _is_own(entry: Struct) -> bool:
    name = entry.get(KeyValue.key.key)
    return isinstance(name, bytes) and name.startswith(OWN_KEYS_PREFIX.encode())


def _sort_fields(struct: Struct) -> Struct:
    return Struct(sorted(struct.items()))

"""Rewraps the data keys of one file, and proves that nothing else of it is another; no page is decrypted for that."""

from __future__ import annotations

from sparkcrypt.errors import FormatError, VerificationError
from sparkcrypt.native.open_places import Place, remove_file, size_of
from sparkcrypt.native.orders import FileOrder, FileOutcome
from sparkcrypt.parquet import Footer, RetrieveKey, VerifyAad, WrapKey, read_footer, rewrap_file, verify_keys
from sparkcrypt.parquet.file.source import Input, open_source
from sparkcrypt.parquet.thrift.compact import STRUCT, List, Struct
from sparkcrypt.parquet.thrift.encode import encode_struct
from sparkcrypt.parquet.thrift.metadata import ColumnChunk, ColumnCryptoMetaData, FileMetaData, KeyValue, RowGroup
from sparkcrypt.parquet.verify.digest import OWN_KEYS_PREFIX

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
) -> FileOutcome:
    """Write a file whose data keys are wrapped as ordered, and prove it.

    The source's footer and a module of each key of it are authenticated before anything is wrapped.  The target's data
    are compared with the source's as they lie there, byte by byte: so a page that was damaged stays one that no reader
    takes.  The target's keys are then opened, and its footer says what the source's does.

    Args:
        order: what is to be done.
        source: what it is made of.
        target: where it goes; nothing is left there when this fails.
        retrieve_key: opens data keys.
        wrap_key: wraps them, as ordered.
        verify_aad: sees that the source is the file that was listed.

    Raises:
        FormatError, VerificationError: the source is not what it should be, or the target not what was ordered.
    """
    before = read_footer(source, retrieve_key=retrieve_key, verify_aad=verify_aad)
    order.refuse_algorithm(before.algorithm)
    key_values = None if order.encryption is None else order.encryption.key_values
    result = rewrap_file(
        source, target, retrieve_key=retrieve_key, wrap_key=wrap_key, verify_aad=verify_aad, key_values=key_values
    )
    try:
        rows = _prove(order, before, source, target, retrieve_key)
    except BaseException:
        remove_file(target)
        raise
    return FileOutcome(
        source=order.source,
        target=order.target,
        rows=rows,
        bytes_before=size_of(source),
        bytes_after=size_of(target),
        unauthenticated=result.unauthenticated,
    )


def _prove(order: FileOrder, before: Footer, source: Place, target: Place, retrieve_key: RetrieveKey) -> int:
    """See that the target is the source but for its key metadata, and that its keys open; return its rows.

    Raises:
        VerificationError: it is not.
    """
    try:
        summary = verify_keys(target, retrieve_key=retrieve_key)
        after = read_footer(target, retrieve_key=retrieve_key)
    except FormatError as error:
        raise VerificationError(f"{order.target}: the rewrapped file cannot be read back: {error}") from error
    unmet = None if order.encryption is None else order.encryption.unmet(summary)
    if unmet:
        raise VerificationError(f"{order.target}: {unmet}; it was ordered otherwise")
    if before.metadata is None or after.metadata is None or _less_keys(before.metadata) != _less_keys(after.metadata):
        raise VerificationError(f"{order.target}: its footer says something else than that of {order.source}")
    with open_source(source) as old, open_source(target) as new:
        if before.offset != after.offset or not _is_equal(old, new, before.offset):
            raise VerificationError(f"{order.target}: its data are not the bytes of {order.source}")
    return summary.rows or 0


def _is_equal(source: Input, target: Input, length: int) -> bool:
    for start in range(0, length, COMPARED_BYTES):
        size = min(COMPARED_BYTES, length - start)
        if source.read(start, size, "the data") != target.read(start, size, "the data"):
            return False
    return True


def _less_keys(metadata: FileMetaData) -> tuple[bytes, tuple[bytes, ...], tuple[bytes, ...]]:
    """Return what a footer says, but for its key metadata and what is written for this package's own use."""
    rest = {key: value for key, value in metadata.struct.items() if key not in _LEFT_OUT}
    entries = metadata.struct.get(FileMetaData.key_value_metadata.key)
    kept = sorted(
        encode_struct(_sort_fields(entry))
        for entry in (entries if isinstance(entries, List) else ())
        if isinstance(entry, Struct) and not _is_own(entry)
    )
    groups = tuple(encode_struct(_group_less_keys(group)) for group in metadata.row_groups)
    return encode_struct(_sort_fields(Struct(rest))), tuple(kept), groups


def _group_less_keys(group: RowGroup) -> Struct:
    chunks = []
    for chunk in group.columns:
        copy = Struct(chunk.struct)
        crypto = chunk.crypto_metadata
        if crypto is not None and crypto.column_key() is not None:
            copy[ColumnChunk.crypto_metadata.key] = Struct(
                {ColumnCryptoMetaData.encryption_with_column_key.key: Struct()}
            )
        chunks.append(_sort_fields(copy))
    return _sort_fields(Struct({**group.struct, RowGroup.columns.key: List(STRUCT, chunks)}))


def _is_own(entry: Struct) -> bool:
    name = entry.get(KeyValue.key.key)
    return isinstance(name, bytes) and name.startswith(OWN_KEYS_PREFIX.encode())


def _sort_fields(struct: Struct) -> Struct:
    return Struct(sorted(struct.items()))

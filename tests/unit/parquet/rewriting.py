"""What the tests of rewriting share: keys of targets, sources with everything in them, and a second look at modules."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe

from sparkcrypt.files.parquet import (
    DataKey,
    FileEncryption,
    Footer,
    KeyRequest,
    RetrieveKey,
    Verification,
    read_footer,
    verify_file,
)
from sparkcrypt.files.parquet.file.modules import ModuleCipher, ModuleType, module_aad
from sparkcrypt.files.parquet.thrift.compact import List, Struct, decode_struct, encode_struct
from sparkcrypt.files.parquet.thrift.metadata import ColumnChunk, ColumnMetaData, FileMetaData, OffsetIndex
from sparkcrypt.keys.ids import encode_key_id
from sparkcrypt.keys.material import KeyMaterial
from tests.unit.parquet.writers import PlainKms, table

SSN, AMOUNT, NAME, PHONE = ("ssn",), ("amount",), ("person", "name"), ("phones", "list", "element")
REDACTED = ("key_value_metadata", "sorting_columns")
"""The parts of a digest that a plaintext footer may have to lose."""


class ArrowKms(PlainKms):
    """`PlainKms` as pyarrow asks it on reading: what is wrapped is text then."""

    def unwrap_key(self, wrapped_key: str | bytes, master_key_identifier: str) -> bytes:
        """Return the key."""
        wrapped = wrapped_key.encode() if isinstance(wrapped_key, str) else wrapped_key
        return PlainKms.unwrap_key(self, wrapped, master_key_identifier)


def new_key(master_key: str = "k", bits: int = 256, *, footer: bool = False) -> DataKey:
    """Make a data key whose key metadata `Keys` and pyarrow's factory over `ArrowKms` understand."""
    key = os.urandom(bits // 8)
    instance = "DEFAULT" if footer else None
    wrapped = base64.b64encode(key).decode() + "@" + encode_key_id(master_key)
    return DataKey(key, KeyMaterial(footer, instance, instance, master_key, wrapped, None, None).to_bytes())


def new_encryption(*own: tuple[str, ...], bits: int = 256, **more: Any) -> FileEncryption:
    """Make the encryption of one file with new keys; columns in ``own`` have one each, ``columns`` adds protections."""
    columns = {**{path: new_key("-".join(path), bits) for path in own}, **more.pop("columns", {})}
    return FileEncryption(new_key("footer-key", bits, footer=True), columns=columns, **more)


def write_plain(path: Path, content: pa.Table | None = None, **options: Any) -> Path:
    """Write `table`, or another, in three row groups with all that pyarrow can add to pages."""
    added: dict[str, Any] = {
        "row_group_size": 100,
        "max_rows_per_page": 30,
        "write_page_index": True,
        "write_page_checksum": True,
    }
    pq.write_table(table() if content is None else content, path, **{**added, **options})
    return path


def arrow_decryption() -> Any:
    """Return what pyarrow reads targets with, whatever their keys."""
    return pe.CryptoFactory(ArrowKms).file_decryption_properties(pe.KmsConnectionConfig())


def arrow_read(path: Path, *, decrypt: bool = True, **options: Any) -> pa.Table:
    """Read a file with pyarrow, checksums of pages checked."""
    properties = arrow_decryption() if decrypt else None
    with pq.ParquetFile(path, decryption_properties=properties, page_checksum_verification=True) as file:
        return file.read(**options)


def equal_but(found: Verification, expected: Verification, *parts: str) -> bool:
    """Tell whether two files say the same, less some parts of their digests."""
    return {k: v for k, v in found.digests.items() if k not in parts} == {
        k: v for k, v in expected.digests.items() if k not in parts
    }


def source_digest(path: Path, retrieve_key: RetrieveKey | None = None, **options: Any) -> str:
    """Return the digest of a file."""
    return verify_file(path, retrieve_key=retrieve_key, **options).digest


def left_over(folder: Path) -> list[str]:
    """Return the names in a folder, hidden ones too."""
    return sorted(path.name for path in folder.iterdir())


def patch_footer(path: Path, change: Callable[[Struct], None]) -> Path:
    """Rewrite a plaintext footer."""
    content = path.read_bytes()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    struct, _ = decode_struct(content[start:-8])
    change(struct)
    footer = encode_struct(struct)
    path.write_bytes(content[:start] + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    return path


def column_chunks(footer: Struct) -> list[ColumnChunk]:
    """Return every chunk of a footer, row group by row group; what is changed behind them is changed in the footer."""
    return [chunk for group in FileMetaData(footer).row_groups for chunk in group.columns]


def clear_metadata(chunk: ColumnChunk) -> ColumnMetaData:
    """Return the metadata of a chunk that has them in clear."""
    assert chunk.meta_data is not None
    return chunk.meta_data


def revealed(footer: Footer, retrieve_key: RetrieveKey | None = None) -> Iterator[tuple[int, int, Struct, Struct]]:
    """Yield row group, column, ``ColumnChunk`` and ``ColumnMetaData`` in clear of every chunk."""
    assert footer.metadata is not None and footer.columns is not None
    for index, group in enumerate(footer.metadata.row_groups):
        for column, (chunk, crypto) in enumerate(zip(group.columns, footer.columns, strict=True)):
            sealed = chunk.encrypted_column_metadata
            if sealed is None:
                assert chunk.meta_data is not None
                yield index, column, chunk.struct, chunk.meta_data.struct
                continue
            assert retrieve_key is not None and footer.file_aad is not None
            request = KeyRequest("", crypto.path, crypto.key_metadata) if crypto.own_key else None
            request = request or KeyRequest("", None, footer.footer_key_metadata)
            aad = module_aad(footer.file_aad, ModuleType.COLUMN_META_DATA, index, column)
            clear = ModuleCipher(retrieve_key(request)).decrypt(sealed, aad, "metadata")
            yield index, column, chunk.struct, decode_struct(clear)[0]


def metadata_of(path: Path, retrieve_key: RetrieveKey | None = None, **options: Any) -> dict[Any, ColumnMetaData]:
    """Return the metadata of every chunk by (row group, column)."""
    footer = read_footer(path, retrieve_key=retrieve_key, **options)
    return {(group, column): ColumnMetaData(clear) for group, column, _, clear in revealed(footer, retrieve_key)}


def frames(data: bytes, start: int, end: int) -> Iterator[bytes]:
    """Yield the framed modules of a range, which must hold nothing else."""
    while start < end:
        size = 4 + int.from_bytes(data[start : start + 4], "little")
        assert start + size <= end
        yield data[start : start + size]
        start += size


def nonces(path: Path, retrieve_key: RetrieveKey, **options: Any) -> Mapping[bytes, list[bytes]]:
    """Return the nonces of all modules of a file of V1 pages, by the key that they were used with."""
    data, footer = path.read_bytes(), read_footer(path, retrieve_key=retrieve_key, **options)
    assert footer.columns is not None
    footer_key = retrieve_key(KeyRequest("", None, footer.footer_key_metadata))
    found: dict[bytes, list[bytes]] = {footer_key: [_footer_nonce(data, footer)]}
    for _, column, chunk, clear in revealed(footer, retrieve_key):
        crypto, view = footer.columns[column], ColumnMetaData(clear)
        if not crypto.encrypted:
            continue
        key = retrieve_key(KeyRequest("", crypto.path, crypto.key_metadata)) if crypto.own_key else footer_key
        indexes = ColumnChunk(chunk)
        places = [
            (view.dictionary_page_offset or view.data_page_offset, view.total_compressed_size),
            (indexes.offset_index_offset, indexes.offset_index_length),
            (indexes.column_index_offset, indexes.column_index_length),
            (view.bloom_filter_offset, view.bloom_filter_length),
        ]
        ranges = [(begin, begin + (size or 0)) for begin, size in places if begin is not None]
        modules = [frame for begin, end in ranges for frame in frames(data, begin, end)]
        sealed = chunk.get(0x98)
        modules += [sealed] if isinstance(sealed, bytes) else []
        found.setdefault(key, []).extend(module[4:16] for module in modules)
    return found


def _footer_nonce(data: bytes, footer: Footer) -> bytes:
    if footer.mode == "plaintext_signed":
        return data[-36:-24]
    end = decode_struct(data[footer.offset : -8])[1]
    return data[footer.offset + end + 4 : footer.offset + end + 16]


def drop_a_location(path: str) -> None:
    """Take one page out of a file's offset index of ``id``."""
    content = bytearray(Path(path).read_bytes())

    def change(footer: Struct) -> None:
        chunk = column_chunks(footer)[0]
        at, size = chunk.offset_index_offset, chunk.offset_index_length
        assert at is not None and size is not None
        index = decode_struct(bytes(content[at : at + size]))[0]
        locations = index[OffsetIndex.page_locations.key]
        assert isinstance(locations, List)
        locations.pop()
        wire = encode_struct(index)
        content[at : at + len(wire)] = wire

    patch_footer(Path(path), change)
    Path(path).write_bytes(bytes(content))

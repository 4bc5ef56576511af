"""Builds and writes the footer of a rewritten file: column metadata in clear, redacted or encrypted."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from sparkcrypt.errors import UnsupportedFileError
from sparkcrypt.files.output import Output
from sparkcrypt.files.parquet.file.footer import ENCRYPTED_MAGIC, PLAINTEXT_MAGIC
from sparkcrypt.files.parquet.file.modules import ModuleCipher, ModuleType, module_aad
from sparkcrypt.files.parquet.file.schema import Path
from sparkcrypt.files.parquet.rewrite.encryption import ChunkSeal, FileCipherSuite, FooterMode
from sparkcrypt.files.parquet.rewrite.redact import SCHEMAS, redact_arrow_schema, redact_schema
from sparkcrypt.files.parquet.thrift.compact import BINARY, I32, STRUCT, List, Struct, encode_struct
from sparkcrypt.files.parquet.thrift.metadata import (
    AesAlgorithm,
    ColumnChunk,
    ColumnCryptoMetaData,
    ColumnMetaData,
    EncryptionAlgorithm,
    EncryptionWithColumnKey,
    FileCryptoMetaData,
    FileMetaData,
    KeyValue,
    PageEncodingStats,
    RowGroup,
    SortingColumn,
)
from sparkcrypt.names import AES_GCM_V1, Algorithm
from sparkcrypt.schema import join_dotted

_IN_CLEAR = (
    ColumnMetaData.type.key,
    ColumnMetaData.encodings.key,
    ColumnMetaData.path_in_schema.key,
    ColumnMetaData.codec.key,
    ColumnMetaData.num_values.key,
    ColumnMetaData.total_uncompressed_size.key,
    ColumnMetaData.total_compressed_size.key,
    ColumnMetaData.data_page_offset.key,
    ColumnMetaData.dictionary_page_offset.key,
)
"""The only metadata fields of an encrypted column in a plaintext footer: fields unknown today may reveal its values."""

_CHUNK_IN_CLEAR = frozenset(
    field.key
    for field in (
        ColumnChunk.file_offset,
        ColumnChunk.meta_data,
        ColumnChunk.offset_index_offset,
        ColumnChunk.offset_index_length,
        ColumnChunk.column_index_offset,
        ColumnChunk.column_index_length,
        ColumnChunk.crypto_metadata,
        ColumnChunk.encrypted_column_metadata,
    )
)

_LEAKING_KEYS = ("PANDAS_ATTRS", "geo", "huggingface", "r")
_LEAKING_WORDS = ("hoodie", "hudi")
_ARROW_SCHEMA = "ARROW:schema"


def magic(suite: FileCipherSuite | None) -> bytes:
    """Return the magic at both ends of a file with this encryption."""
    encrypted = suite is not None and suite.encryption.footer_mode == "encrypted"
    return ENCRYPTED_MAGIC if encrypted else PLAINTEXT_MAGIC


def in_id_order(struct: Struct) -> Struct:
    """Return a struct with its fields by ascending id, as all writers order them."""
    return Struct({key: struct[key] for key in sorted(struct)})


def set_encodings(metadata: Struct, counted: Counter[tuple[int, int]], dictionary: bool) -> None:
    """Set the encodings in an encrypted chunk's metadata so that they agree with its pages about dictionaries.

    parquet-mr expects the first page to be a dictionary page if encoding_stats contain one and data pages that use it,
    or, without encoding_stats, if ``encodings`` contain a dictionary encoding; a wrong guess gives it a wrong AAD.
    """
    encodings = ColumnMetaData.encodings.key
    values = list(ColumnMetaData(metadata).encodings) if encodings in metadata else []
    values.extend(encoding for encoding in dict.fromkeys(e for _, e in counted) if encoding not in values)
    used = any(kind != _DICTIONARY_PAGE and encoding in _DICTIONARY_ENCODINGS for kind, encoding in counted)
    metadata.pop(ColumnMetaData.encoding_stats.key, None)
    if dictionary and not used:  # no page uses the dictionary: only ``encodings`` can indicate it
        if not any(value in _DICTIONARY_ENCODINGS for value in values):
            values.append(_RLE_DICTIONARY)
    else:
        metadata[ColumnMetaData.encoding_stats.key] = List(
            STRUCT,
            [
                Struct(
                    {
                        PageEncodingStats.page_type.key: kind,
                        PageEncodingStats.encoding.key: encoding,
                        PageEncodingStats.count.key: count,
                    }
                )
                for (kind, encoding), count in counted.items()
            ],
        )
    metadata[encodings] = List(I32, values)


_DICTIONARY_PAGE = 2
_PLAIN_DICTIONARY, _RLE_DICTIONARY = 2, 8
_DICTIONARY_ENCODINGS = (_PLAIN_DICTIONARY, _RLE_DICTIONARY)


def protect(chunk: Struct, metadata: Struct, path: Path, seal: ChunkSeal | None, suite: FileCipherSuite | None) -> None:
    """Put a chunk's metadata into its ``ColumnChunk``: in clear, encrypted, or redacted beside the encrypted form.

    Raises:
        UnsupportedFileError: the chunk has unknown fields, which would be in clear.
    """
    for key in (ColumnChunk.crypto_metadata.key, ColumnChunk.encrypted_column_metadata.key):
        chunk.pop(key, None)
    chunk[ColumnChunk.meta_data.key] = metadata
    if seal is None or suite is None:
        return
    own = seal.own
    chunk[ColumnChunk.crypto_metadata.key] = crypto_metadata(path, None if own is None else own.key_metadata)
    in_clear = suite.encryption.footer_mode == "plaintext"
    if own is None and not in_clear:
        return
    if in_clear:
        _refuse_unknown(chunk, path)
    framed = seal.seal(encode_struct(metadata), ModuleType.COLUMN_META_DATA)
    chunk[ColumnChunk.encrypted_column_metadata.key] = framed
    if in_clear:
        chunk[ColumnChunk.meta_data.key] = Struct({k: v for k, v in metadata.items() if k in _IN_CLEAR})
    else:
        del chunk[ColumnChunk.meta_data.key]


def _refuse_unknown(chunk: Struct, path: Path) -> None:
    unknown = [str(key >> 4) for key in sorted(chunk.keys() - _CHUNK_IN_CLEAR)]
    if unknown:
        raise UnsupportedFileError(
            f"the footer says of a chunk of column {join_dotted(path)} what is not known: field {', '.join(unknown)} "
            "of its ColumnChunk; in a plaintext footer it could tell of encrypted values; use the Spark engine, which "
            "leaves it out, or footer mode encrypted"
        )


def crypto_metadata(path: Path, key_metadata: bytes | None) -> Struct:
    """Return a chunk's ``crypto_metadata``: for the footer's key if ``key_metadata`` is None, else for its own key."""
    if key_metadata is None:
        return Struct({ColumnCryptoMetaData.encryption_with_footer_key.key: Struct()})
    own = Struct(
        {
            EncryptionWithColumnKey.path_in_schema.key: List(BINARY, [name.encode() for name in path]),
            EncryptionWithColumnKey.key_metadata.key: key_metadata,
        }
    )
    return Struct({ColumnCryptoMetaData.encryption_with_column_key.key: own})


def redact_order(row_group: Struct, suite: FileCipherSuite) -> bool:
    """Cut a row group's sorting columns before the first encrypted one; return whether any were cut."""
    clear = {index for index, column in enumerate(suite.columns) if column is None}
    return _cut_order(row_group, lambda index: index in clear)


def cut_order(row_group: Struct, replaced: Collection[int]) -> bool:
    """Cut a row group's sorting columns before the first replaced one; return whether any were cut."""
    return _cut_order(row_group, lambda index: index not in replaced)


def _cut_order(row_group: Struct, keeps: Callable[[int], bool]) -> bool:
    key = RowGroup.sorting_columns.key
    columns = row_group.get(key)
    if not isinstance(columns, List):
        return False
    kept = []
    for column in columns:
        index = column.get(SortingColumn.column_idx.key) if isinstance(column, Struct) else None
        if not isinstance(index, int) or not keeps(index):
            break
        kept.append(column)
    if kept:
        row_group[key] = List(STRUCT, kept)
    else:
        del row_group[key]
    return len(kept) < len(columns)


def _set_key_values(metadata: Struct, entries: Mapping[str, str]) -> None:
    """Set entries of the footer's key-value metadata."""
    if entries:
        kept = [value for value in _key_values(metadata) if KeyValue(value).key not in entries]
        new = [
            Struct({KeyValue.key.key: name.encode(), KeyValue.value.key: value.encode()})
            for name, value in entries.items()
        ]
        metadata[FileMetaData.key_value_metadata.key] = List(STRUCT, [*kept, *new])


def redact_key_values(metadata: Struct) -> list[str]:
    """Remove key-value metadata in which other tools store bounds or keys of rows, and what schemas say of values.

    Returns:
        What was removed: the names of entries, or ``metadata of fields in`` an entry.
    """
    kept, dropped = [], []
    for entry in _key_values(metadata):
        view = KeyValue(entry)
        text, changed = _redact_entry(view.key, view.value or "")
        if text is not None:
            kept.append(entry if text == view.value else Struct({**entry, KeyValue.value.key: text.encode()}))
        if changed:
            dropped.append(view.key if text is None else f"metadata of fields in {view.key}")
    if FileMetaData.key_value_metadata.key in metadata:
        metadata[FileMetaData.key_value_metadata.key] = List(STRUCT, kept)
    return dropped


def _redact_entry(name: str, text: str) -> tuple[str | None, bool]:
    """Return what a plaintext footer may have of an entry, None if nothing; and whether anything was removed."""
    if name in SCHEMAS:
        return redact_schema(name, text)
    if name == _ARROW_SCHEMA:
        kept = _redact_arrow(text)
        return kept, kept != text
    leaks = name in _LEAKING_KEYS or any(word in name for word in _LEAKING_WORDS)
    return None if leaks else text, leaks


def _redact_arrow(text: str) -> str | None:
    """Return a serialised Arrow schema, which repeats the key-value metadata, without what leaves these too."""
    try:
        schema = base64.b64decode(text)
    except ValueError:
        return None
    kept = redact_arrow_schema(schema, lambda name, value: _redact_entry(name, value)[0])
    if kept is None or kept == schema:
        return None if kept is None else text
    return base64.b64encode(kept).decode()


def _key_values(metadata: Struct) -> Iterable[Struct]:
    entries = metadata.get(FileMetaData.key_value_metadata.key)
    return [entry for entry in entries if isinstance(entry, Struct)] if isinstance(entries, List) else []


@dataclass(frozen=True, slots=True)
class FooterSeal:
    """The cipher that encrypts or signs a footer, and the encryption parameters that the file stores.

    ``aad_prefix`` is the stored prefix; ``file_aad`` begins the AAD of every module.
    """

    cipher: ModuleCipher
    key_metadata: bytes
    mode: FooterMode
    algorithm: Algorithm
    aad_prefix: bytes | None
    supply_aad_prefix: bool
    file_unique: bytes
    file_aad: bytes

    @classmethod
    def of(cls, suite: FileCipherSuite) -> FooterSeal:
        """Return the seal of a new file."""
        encryption = suite.encryption
        stored = encryption.aad_prefix or None if encryption.store_aad_prefix else None
        return cls(
            suite.footer,
            encryption.footer.key_metadata,
            encryption.footer_mode,
            encryption.algorithm,
            stored,
            not encryption.store_aad_prefix,
            suite.file_unique,
            suite.file_aad,
        )

    def aad(self) -> bytes:
        """Return the AAD of the footer."""
        return module_aad(self.file_aad, ModuleType.FOOTER)

    def parameters(self) -> Struct:
        """Return the ``EncryptionAlgorithm`` of the file."""
        parameters = Struct()
        if self.aad_prefix is not None:
            parameters[AesAlgorithm.aad_prefix.key] = self.aad_prefix
        parameters[AesAlgorithm.aad_file_unique.key] = self.file_unique
        parameters[AesAlgorithm.supply_aad_prefix.key] = self.supply_aad_prefix
        gcm = self.algorithm == AES_GCM_V1
        return Struct({(EncryptionAlgorithm.aes_gcm_v1 if gcm else EncryptionAlgorithm.aes_gcm_ctr_v1).key: parameters})


def write_footer(output: Output, metadata: Struct, seal: FooterSeal | None, key_values: Mapping[str, str]) -> None:
    """Append footer and trailer (specification, section 5): plaintext, signed or encrypted."""
    for key in (FileMetaData.encryption_algorithm.key, FileMetaData.footer_signing_key_metadata.key):
        metadata.pop(key, None)
    _set_key_values(metadata, key_values)
    start = output.position
    if seal is None:
        output.write(encode_struct(in_id_order(metadata)))
    elif seal.mode == "encrypted":
        fields = FileCryptoMetaData
        clear = Struct({fields.encryption_algorithm.key: seal.parameters(), fields.key_metadata.key: seal.key_metadata})
        output.write(encode_struct(clear))
        output.write(seal.cipher.encrypt(encode_struct(in_id_order(metadata)), seal.aad()))
    else:
        metadata[FileMetaData.encryption_algorithm.key] = seal.parameters()
        metadata[FileMetaData.footer_signing_key_metadata.key] = seal.key_metadata
        footer = encode_struct(in_id_order(metadata))
        output.write(footer)
        output.write(seal.cipher.sign(footer, seal.aad()))
    output.write((output.position - start).to_bytes(4, "little"))
    output.write(ENCRYPTED_MAGIC if seal is not None and seal.mode == "encrypted" else PLAINTEXT_MAGIC)

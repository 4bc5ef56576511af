"""Summarises a file's footer, for reports and for comparing files with a plan."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkcrypt.errors import FormatError
from sparkcrypt.files.parquet.file.footer import ColumnCrypto, Footer, Mode, read_footer
from sparkcrypt.files.parquet.file.modules import AadPrefix, RetrieveKey
from sparkcrypt.files.parquet.file.schema import Path, message_type
from sparkcrypt.files.parquet.pages.leniency import read_row_total
from sparkcrypt.files.source import Source
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.keys.material import KeyMaterial, Wrapping, parse_key_material, wrapping_of
from sparkcrypt.names import PURGED, Algorithm, FileFormat
from sparkcrypt.schema import join_dotted


@dataclass(frozen=True, slots=True)
class ColumnSummary(JsonObject):
    """The encryption of a leaf column.

    ``encrypted`` is None if the file has no row group.  ``key_id`` is the master key's, decoded; None if the column is
    not encrypted or its key metadata is not key material.
    """

    encrypted: bool | None
    key_id: str | None


@dataclass(frozen=True, slots=True)
class FileSummary:
    """The summary of a file's footer; None for values that the footer hides or does not have.

    ``footer_key`` is a master key id, decoded, or None if the key metadata is foreign.  ``wrappings`` are the wrappings
    of its data keys, each once and sorted: a reader calls the key service once for each.  ``purged`` are the columns
    that, according to the footer, were replaced by nulls -> the shredded keys that they were under.
    ``external_material`` is True if key material is in a file beside this one.  ``fields`` are the fields of the
    message type as JSON, which many files have in common.

    For an ORC file, ``columns`` have ORC's names, ``footer`` is ``plaintext`` even if columns are encrypted,
    ``row_groups`` is the number of stripes, there are no algorithm and no fields, and ``aad_prefix`` is the identity
    that the local keys are bound to.
    """

    path: str
    footer: Mode
    algorithm: Algorithm | None
    footer_key: str | None
    aad_prefix: bytes | None
    supply_aad_prefix: bool
    aad_file_unique: bytes | None
    rows: int | None
    row_groups: int | None
    columns: Mapping[Path, ColumnSummary] | None
    wrappings: tuple[Wrapping, ...] = ()
    purged: Mapping[Path, str] = field(default_factory=dict)
    format: FileFormat = "parquet"
    external_material: bool = False
    fields: str | None = None

    @property
    def encrypted(self) -> bool:
        """Whether anything in the file is encrypted."""
        return self.footer != "plaintext" or any(column.encrypted for column in (self.columns or {}).values())

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as JSON values: column paths dotted, bytes of the prefix that are not UTF-8 escaped."""
        prefix = self.aad_prefix
        return {
            "path": self.path,
            "footer": self.footer,
            "algorithm": self.algorithm,
            "footer_key": self.footer_key,
            "aad_prefix": None if prefix is None else prefix.decode("utf-8", "backslashreplace"),
            **({"external_material": True} if self.external_material else {}),
            "rows": self.rows,
            "row_groups": self.row_groups,
            "columns": None
            if self.columns is None
            else {join_dotted(path): column.to_dict() for path, column in self.columns.items()},
        }


def columns_under(summary: FileSummary, key_ids: Collection[str]) -> dict[Path, str]:
    """Return the columns whose own data keys are under some master keys -> that key; not if it is the footer's too."""
    return {
        path: column.key_id
        for path, column in (summary.columns or {}).items()
        if column.encrypted and column.key_id in key_ids and column.key_id not in (None, summary.footer_key)
    }


def inspect_file(
    source: Source,
    *,
    retrieve_key: RetrieveKey | None = None,
    aad_prefix: AadPrefix | None = None,
) -> FileSummary:
    """Summarise a file's footer; no key is needed.

    Args:
        source: as `read_footer`.
        retrieve_key: returns data keys, used to decrypt and authenticate the footer.
        aad_prefix: as `read_footer`.

    Raises:
        FormatError: not a Parquet file, or its footer violates the specification.
        VerificationError: as `read_footer`.
        ConfigError: as `read_footer`.
    """
    return summarise(read_footer(source, retrieve_key=retrieve_key, aad_prefix=aad_prefix))


def summarise(footer: Footer) -> FileSummary:
    """Return the summary of a footer."""
    metadata, columns = footer.metadata, footer.columns
    footer_material = _material(footer.footer_key_metadata)
    footer_key = None if footer_material is None else footer_material.master_key_id
    own = {column.path: _material(column.key_metadata) for column in columns or () if column.own_key}
    materials = [material for material in (footer_material, *own.values()) if material is not None]
    return FileSummary(
        path=footer.file,
        footer=footer.mode,
        algorithm=footer.algorithm,
        footer_key=footer_key,
        aad_prefix=footer.aad_prefix,
        supply_aad_prefix=footer.supply_aad_prefix,
        aad_file_unique=footer.aad_file_unique,
        rows=None if metadata is None else read_row_total(metadata),
        row_groups=None if metadata is None else len(metadata.row_groups),
        columns=None if columns is None else {column.path: _column(column, own, footer_key) for column in columns},
        wrappings=tuple(sorted({wrapping_of(material) for material in materials})),
        purged=_read_purged(footer),
        external_material=footer.external_material,
        fields=None if metadata is None else json.dumps(message_type(metadata), separators=(",", ":")),
    )


def _column(column: ColumnCrypto, own: Mapping[Path, KeyMaterial | None], footer_key: str | None) -> ColumnSummary:
    if not column.encrypted:
        return ColumnSummary(column.encrypted, None)
    if not column.own_key:
        return ColumnSummary(True, footer_key)
    material = own[column.path]
    return ColumnSummary(True, None if material is None else material.master_key_id)


def describe_purged(purged: Mapping[Path, str]) -> str:
    """Return the footer's entry `sparkcrypt.names.PURGED`: the columns that were replaced by nulls, as JSON."""
    return json.dumps([[list(path), key_id] for path, key_id in sorted(purged.items())], separators=(",", ":"))


def parse_purged(text: str | None) -> dict[Path, str]:
    """Return the columns that `describe_purged` wrote; text of any other form gives none."""
    try:
        return {tuple(map(str, path)): str(key_id) for path, key_id in json.loads(text or "[]")}
    except (ValueError, TypeError, RecursionError):
        return {}


def _read_purged(footer: Footer) -> dict[Path, str]:
    try:
        entries = (footer.metadata and footer.metadata.key_value_metadata) or ()
        return parse_purged(next((entry.value for entry in entries if entry.key == PURGED), None))
    except FormatError:
        return {}


def _material(key_metadata: bytes | None) -> KeyMaterial | None:
    try:
        return parse_key_material(key_metadata) if key_metadata else None
    except FormatError:
        return None


NAMES = ("uncompressed", "snappy", "gzip", "lzo", "brotli", "lz4", "zstd", "lz4_raw")
"""The codecs' names, by their numbers in ``CompressionCodec`` of parquet.thrift."""


def codecs_of(footer: Footer) -> Mapping[str, int]:
    """Return the number of column chunks of a file with each codec.

    In a file with an encrypted footer, columns with a key of their own are not counted: their metadata is hidden.
    """
    found: Counter[str] = Counter()
    for row_group in footer.metadata.row_groups if footer.metadata is not None else ():
        for chunk in row_group.columns:
            if chunk.meta_data is not None:
                number = chunk.meta_data.codec
                found[NAMES[number] if 0 <= number < len(NAMES) else f"codec {number}"] += 1
    return found

"""What can be told of a file without its data, for people and for comparing files with a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparkcrypt.errors import FormatError
from sparkcrypt.names import Algorithm
from sparkcrypt.parquet.file.columns import ColumnCrypto
from sparkcrypt.parquet.file.footer import Footer, Mode, read_footer
from sparkcrypt.parquet.file.keys import RetrieveKey, VerifyAad
from sparkcrypt.parquet.file.schema import Path
from sparkcrypt.parquet.file.source import Source
from sparkcrypt.parquet.pages.leniency import told_rows
from sparkcrypt.schema import join_dotted


@dataclass(frozen=True, slots=True)
class ColumnSummary:
    """How a leaf column is encrypted.

    ``encrypted`` is None when the file has no row group.  ``key_id`` is the master key's, decoded; None when the column
    is not encrypted or its key metadata is not key material of internal storage.
    """

    encrypted: bool | None
    key_id: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return the column as JSON values."""
        return {"encrypted": self.encrypted, "key_id": self.key_id}


@dataclass(frozen=True, slots=True)
class FileSummary:
    """A file's footer in short; None is what the footer hides or does not have.

    ``footer_key`` is a master key id, decoded, or None when the key metadata is foreign.
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

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as JSON values: column paths dotted, bytes of the prefix that are no text as escapes."""
        prefix = self.aad_prefix
        return {
            "path": self.path,
            "footer": self.footer,
            "algorithm": self.algorithm,
            "footer_key": self.footer_key,
            "aad_prefix": None if prefix is None else prefix.decode("utf-8", "backslashreplace"),
            "rows": self.rows,
            "row_groups": self.row_groups,
            "columns": None
            if self.columns is None
            else {join_dotted(path): column.to_dict() for path, column in self.columns.items()},
        }


def inspect_file(
    source: Source,
    *,
    retrieve_key: RetrieveKey | None = None,
    aad_prefix: bytes | None = None,
    verify_aad: VerifyAad | None = None,
) -> FileSummary:
    """Summarise a file's footer; no key is needed.

    Args:
        source: as `read_footer`.
        retrieve_key: reveals what an encrypted footer hides, and authenticates the footer.
        aad_prefix: as `read_footer`.
        verify_aad: as `read_footer`.

    Raises:
        FormatError: not a Parquet file, or its footer is against the specification.
        VerificationError: as `read_footer`.
        ConfigError: as `read_footer`.
    """
    return summarise(read_footer(source, retrieve_key=retrieve_key, aad_prefix=aad_prefix, verify_aad=verify_aad))


def summarise(footer: Footer) -> FileSummary:
    """Return the summary of a footer that was read."""
    metadata = footer.metadata
    footer_key = _key_id(footer.footer_key_metadata)
    return FileSummary(
        path=footer.file,
        footer=footer.mode,
        algorithm=footer.algorithm,
        footer_key=footer_key,
        aad_prefix=footer.aad_prefix,
        supply_aad_prefix=footer.supply_aad_prefix,
        aad_file_unique=footer.aad_file_unique,
        rows=None if metadata is None else told_rows(metadata),
        row_groups=None if metadata is None else len(metadata.row_groups),
        columns=None
        if footer.columns is None
        else {column.path: _column(column, footer_key) for column in footer.columns},
    )


def _column(column: ColumnCrypto, footer_key: str | None) -> ColumnSummary:
    if not column.encrypted:
        return ColumnSummary(column.encrypted, None)
    return ColumnSummary(True, _key_id(column.key_metadata) if column.own_key else footer_key)


def _key_id(key_metadata: bytes | None) -> str | None:
    if not key_metadata:
        return None
    from sparkcrypt.keys.material import parse_key_material

    try:
        return parse_key_material(key_metadata).master_key_id
    except FormatError:
        return None

"""The proof of a unit's staged files: what was verified of them, and that their content equals the old files'."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sparkcrypt.files.parquet import FileSummary
from sparkcrypt.ledger.unit import Folder
from sparkcrypt.schema import Path
from sparkcrypt.spark.tasks.digest import RowsDigest


@dataclass(frozen=True, slots=True)
class StagedUnit:
    """The result of verifying a staged unit."""

    folders: tuple[Folder, ...]
    summaries: Mapping[str, FileSummary]
    total_bytes: int
    rows: int
    not_authenticated: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Proof:
    """The proof that staged files are correct, and that their content equals the old files'.

    Attributes:
        unit: the verified staged files.
        rows: the number of rows in them.
        row_digests: folder -> digest of its rows, equal before and after, from an engine that rewrites rows.
        pairs: new file -> old file with the same pages, from an engine that works file by file.
        carried: new file -> its columns under shredded keys, with these, copied byte for byte from the old file.
        purged: new file -> its columns that were replaced by nulls, with the shredded keys that the old file's had.
    """

    unit: StagedUnit
    rows: int
    row_digests: Mapping[str, RowsDigest] = field(default_factory=dict)
    pairs: Mapping[str, str] = field(default_factory=dict)
    carried: Mapping[str, Mapping[Path, str]] = field(default_factory=dict)
    purged: Mapping[str, Mapping[Path, str]] = field(default_factory=dict)

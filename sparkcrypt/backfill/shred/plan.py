"""What `sparkcrypt shred` would do: keys whose data are past retention, what goes dark, and what stands against it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sparkcrypt.backfill.audit.read_key_audit import Hold, Tombstone
from sparkcrypt.errors import EXIT_DRIFT, VerificationError
from sparkcrypt.policy.key_retention import KeyRetention
from sparkcrypt.text import utc_text

if TYPE_CHECKING:
    from sparkcrypt.backfill.shred.find_copies import Export
    from sparkcrypt.backfill.shred.scan_tables import KeyPlace


REPORT_KIND, REPORT_VERSION = "sparkcrypt shred", 1


@dataclass(frozen=True, slots=True)
class DarkTable:
    """What of one table goes dark with a key: values of these columns in these partitions."""

    table: str
    partitions: tuple[str, ...]
    columns: tuple[str, ...]
    files: int
    total_bytes: int
    rows: int

    @classmethod
    def of(cls, place: KeyPlace) -> DarkTable:
        """Return it of what a scan found."""
        return cls(
            place.table,
            tuple(sorted(place.partitions)),
            tuple(sorted(place.columns)),
            place.amount.files,
            place.amount.total_bytes,
            place.rows,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "table": self.table,
            "partitions": list(self.partitions),
            "columns": list(self.columns),
            "files": self.files,
            "bytes": self.total_bytes,
            "rows": self.rows,
        }


@dataclass(frozen=True, slots=True)
class ShreddableKey:
    """One key that is past its retention, or was named.

    Attributes:
        retention: why it is due.
        is_there: the key service has it.
        begun: an earlier command wrote down that it is deleted, and did not end.
        dark: what goes dark, table by table.
        holds: what keeps it from being shredded.
        refused: why it is not shredded, besides holds.
        defeated_by: where values that should go dark stay readable.
        exports: copies of values of its columns elsewhere, of this bucket or another.
    """

    retention: KeyRetention
    is_there: bool
    begun: bool
    dark: tuple[DarkTable, ...] = ()
    holds: tuple[Hold, ...] = ()
    refused: tuple[str, ...] = ()
    defeated_by: tuple[str, ...] = ()
    exports: tuple[Export, ...] = ()

    @property
    def key_id(self) -> str:
        """The master key."""
        return self.retention.key_id

    @property
    def may_go(self) -> bool:
        """Nothing stands against it."""
        return not self.holds and not self.refused

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        over = self.retention.over_at
        return {
            "key_id": self.key_id,
            "tags": list(self.retention.tags),
            "retention_over": None if over is None else utc_text(over),
            "is_there": self.is_there,
            "begun": self.begun,
            "dark": [table.to_dict() for table in self.dark],
            "holds": [hold.to_dict() for hold in self.holds],
            "refused": list(self.refused),
            "defeated_by": list(self.defeated_by),
            "exports": [export.to_dict() for export in self.exports],
        }


@dataclass(frozen=True, slots=True)
class LateData:
    """Rows that came after the key of their bucket was gone: their key, how long the policy keeps it, and where."""

    retention: KeyRetention
    tables: tuple[DarkTable, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        over = self.retention.over_at
        return {
            "key_id": self.retention.key_id,
            "tags": list(self.retention.tags),
            "retention_over": None if over is None else utc_text(over),
            "tables": [table.to_dict() for table in self.tables],
        }


@dataclass(frozen=True, slots=True)
class ShredPlan:
    """What would be shredded.

    Attributes:
        as_of: by which time retention is over.
        keys: the keys that are due, or were named.
        left_out: key id -> why no date tells whether it is due.
        shredded: tombstones of keys under which files of these tables are still.
        not_scanned: table -> why nobody looked at it.
        passed_over: views and tables of other formats, each with the reason.
        head: of the audit of keys, as ``--head`` takes it.
        doubts: why the state directory may be an earlier copy of itself, in which holds are missing.
        warnings: what people must know besides.
        late_data: what is under keys of late data, due or not.
    """

    as_of: datetime
    keys: tuple[ShreddableKey, ...]
    left_out: dict[str, str] = field(default_factory=dict)
    shredded: tuple[Tombstone, ...] = ()
    not_scanned: dict[str, str] = field(default_factory=dict)
    passed_over: dict[str, str] = field(default_factory=dict)
    head: str = "none"
    doubts: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    late_data: tuple[LateData, ...] = ()

    @property
    def chosen(self) -> Sequence[ShreddableKey]:
        """The keys against which nothing stands."""
        return [key for key in self.keys if key.may_go]

    @property
    def exit_code(self) -> int:
        """74: a key is due and refused, or something was not looked at; 2: a key would be shredded; 0: none is due."""
        if any(key.refused for key in self.keys) or self.not_scanned or self.doubts:
            return VerificationError.exit_code
        return EXIT_DRIFT if self.chosen else 0

    def to_report(self) -> dict[str, Any]:
        """Return it as a report of a shredding that was only planned, as JSON values."""
        return {"kind": REPORT_KIND, "version": REPORT_VERSION, "outcome": "dry run", **self.to_dict()}

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "as_of": utc_text(self.as_of),
            "keys": [key.to_dict() for key in self.keys],
            "left_out": [{"key_id": key_id, "reason": reason} for key_id, reason in sorted(self.left_out.items())],
            "shredded": [tombstone.to_dict() for tombstone in self.shredded],
            "not_scanned": [{"table": table, "reason": reason} for table, reason in sorted(self.not_scanned.items())],
            "passed_over": [{"table": table, "reason": reason} for table, reason in sorted(self.passed_over.items())],
            "head": self.head,
            "doubts": list(self.doubts),
            "warnings": list(self.warnings),
            "late_data": [late.to_dict() for late in self.late_data],
        }

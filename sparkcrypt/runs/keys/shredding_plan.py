"""The plan of `sparkcrypt shred`: keys whose data are past retention, what becomes dark, and reasons against it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sparkcrypt.errors import EXIT_DRIFT, VerificationError
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.ledger.audit.key_audit import Hold, Tombstone
from sparkcrypt.policy.key_retention import KeyRetention
from sparkcrypt.text import utc_text

if TYPE_CHECKING:
    from sparkcrypt.runs.keys.find_copies import Export
    from sparkcrypt.runs.keys.scan_tables import KeyPlace


REPORT_KIND, REPORT_VERSION = "sparkcrypt shred", 1


@dataclass(frozen=True, slots=True)
class DarkTable(JsonObject, json_names={"total_bytes": "bytes"}):
    """The data of one table that become dark with a key: values of these columns in these partitions."""

    table: str
    partitions: tuple[str, ...]
    columns: tuple[str, ...]
    files: int
    total_bytes: int
    rows: int

    @classmethod
    def of(cls, place: KeyPlace) -> DarkTable:
        """Return it from the result of a scan."""
        return cls(
            place.table,
            tuple(sorted(place.partitions)),
            tuple(sorted(place.columns)),
            place.amount.files,
            place.amount.total_bytes,
            place.rows,
        )


@dataclass(frozen=True, slots=True)
class ShreddableKey:
    """A key that is past its retention, was named, or that an earlier command began to shred.

    Attributes:
        retention: the retention of the data under it.
        is_there: whether the key service has it.
        begun: whether an earlier command recorded its deletion and did not finish.
        dark: the data that become dark, table by table.
        holds: the legal holds on it.
        refused: further reasons not to shred it.
        defeated_by: the places where values that should become dark stay readable.
        exports: copies of its columns' values elsewhere, of this bucket or of others.
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
        """Whether neither a hold nor another reason prevents shredding it."""
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
    """Rows that were written after their bucket's key was shredded: their key with its retention, and their tables."""

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
    """The keys that would be shredded.

    Attributes:
        as_of: the time by which retention must be over.
        keys: the keys that are due, were named, or that an earlier command began to shred.
        left_out: key id -> why no date determines whether it is due.
        shredded: the tombstones of keys that files of these tables use, or should use by the plan.
        not_scanned: table -> why it could not be scanned.
        passed_over: views and tables of other formats, each with the reason.
        head: the head of the audit of keys, in the form that ``--head`` accepts.
        doubts: why the state directory may be an earlier copy, which may lack holds.
        warnings: warnings about the audit of keys and the access log.
        late_data: the data under keys of late data, due or not.
        tables: the number of tables that were looked at.
        files: the number of their files.
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
    tables: int = 0
    files: int = 0

    @property
    def chosen(self) -> Sequence[ShreddableKey]:
        """The keys that may be shredded."""
        return [key for key in self.keys if key.may_go]

    @property
    def exit_code(self) -> int:
        """The exit code: 74 if a key is refused, a table not scanned or in doubt; else 2 if a key may go, else 0."""
        if any(key.refused for key in self.keys) or self.not_scanned or self.doubts:
            return VerificationError.exit_code
        return EXIT_DRIFT if self.chosen else 0

    def to_report(self) -> dict[str, Any]:
        """Return it as the report of a dry run, as JSON values."""
        return {"kind": REPORT_KIND, "version": REPORT_VERSION, "outcome": "dry run", **self.to_dict()}

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "as_of": utc_text(self.as_of),
            "tables": self.tables,
            "files": self.files,
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

"""The plan of `sparkcrypt shred` and the report on it.

The plan has the keys whose data are past retention, what becomes dark, and reasons against it; the report has the
deleted keys, when their deletion takes effect, and what else must be deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from sparkcrypt.errors import EXIT_DRIFT, VerificationError
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.ledger.audit.key_audit import Hold, Tombstone
from sparkcrypt.policy.key_retention import KeyRetention
from sparkcrypt.text import SHOWN, Printable, align_table, count_of, cut_lines, size_of, utc_text

if TYPE_CHECKING:
    from sparkcrypt.runs.keys.scan_tables import KeyPlace

REPORT_KIND, REPORT_VERSION = "sparkcrypt shred", 1
_DARK_HEAD = ("goes dark: table", "partitions", "columns", "files", "bytes", "rows")


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
class Export(JsonObject):
    """Values of a column outside of it.

    Attributes:
        kind: ``derived``: in another column; ``declassified``: values that a query returned without their tags.
        source: the leaf of the values, ``db.table.column``; if the log names no table, the tags of the values.
        place: for derived values the leaf, ``db.table.column``; for declassified ones the principal in the log.
        state: for derived values their protection; for declassified ones the reason.
        count: the number of files, or of uses.
    """

    kind: Literal["derived", "declassified"]
    source: str
    place: str
    state: str
    count: int

    def to_text(self) -> str:
        """Return it as a sentence."""
        if self.kind == "derived":
            return f"{self.place} came from {self.source}: {self.state} in {count_of(self.count, 'file')}"
        return f"{self.place} declassified values of {self.source}: {self.state!r}, {count_of(self.count, 'use')}"


@dataclass(frozen=True, slots=True)
class ShreddableKey(JsonObject, json_names={"retention": None}):
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
        return {**_describe_retention(self.retention), **JsonObject.to_dict(self)}


@dataclass(frozen=True, slots=True)
class LateData(JsonObject, json_names={"retention": None}):
    """Rows that were written after their bucket's key was shredded: their key with its retention, and their tables."""

    retention: KeyRetention
    tables: tuple[DarkTable, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {**_describe_retention(self.retention), **JsonObject.to_dict(self)}


def _describe_retention(retention: KeyRetention) -> dict[str, Any]:
    over = retention.over_at
    return {
        "key_id": retention.key_id,
        "tags": list(retention.tags),
        "retention_over": None if over is None else utc_text(over),
    }


@dataclass(frozen=True, slots=True)
class ShredPlan(Printable):
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

    def to_text(self) -> str:
        """Return the plan as text."""
        lines = [f"keys whose data are past retention as of {utc_text(self.as_of)}: {len(self.keys)}"]
        for key in self.keys:
            lines += ["", *_describe_key(key)]
        lines.append("")
        lines += [tombstone.to_text() for tombstone in self.shredded]
        lines += [_describe_late(late) for late in self.late_data]
        lines += [f"left out: key {key_id!r}: {reason}" for key_id, reason in sorted(self.left_out.items())]
        lines += [f"NOT looked at: {table}: {reason}" for table, reason in sorted(self.not_scanned.items())]
        lines += cut_lines([f"skipped: {table}: {reason}" for table, reason in sorted(self.passed_over.items())])
        lines.append(f"looked at {count_of(self.tables, 'table')} of the catalog, {count_of(self.files, 'file')}")
        lines += [f"REFUSED: {doubt}" for doubt in self.doubts]
        lines += [f"warning: {warning}" for warning in self.warnings]
        lines.append(f"head of the audit of keys: {self.head}")
        return "\n".join(lines)

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


@dataclass(frozen=True, slots=True)
class ShreddedKey(JsonObject):
    """A key that was shredded.

    Attributes:
        key_id: the master key.
        effective_at: when no cache serves the key any more, and its deletion can no longer be undone.
        promise: what the key service guarantees about the deletion, and what it does not.
        dark: the data that became dark, table by table.
        remains: what must still be deleted, so that the values exist nowhere else.
    """

    key_id: str
    effective_at: str
    promise: str
    dark: tuple[DarkTable, ...]
    remains: tuple[str, ...]


@dataclass(slots=True)
class ShredReport(Printable):
    """The result of shredding the keys of a plan.

    Attributes:
        plan: the plan, as it was when it was confirmed.
        reason: the reason, as the audit records it for keys that this command began to shred.
        shredded: the keys that were shredded.
        left: key id -> why, of keys that could no longer be shredded when it was their turn.
        head: the head of the audit of keys, to be kept elsewhere.
    """

    plan: ShredPlan
    reason: str
    shredded: list[ShreddedKey] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    head: str = "none"

    @property
    def kept(self) -> list[ShreddableKey]:
        """The keys that were due but held or refused."""
        return [key for key in self.plan.keys if not key.may_go]

    @property
    def outcome(self) -> str:
        """``incomplete`` if a key was refused or a table not surveyed, else ``done`` or ``nothing to do``."""
        if self.left or any(key.refused for key in self.kept) or self.plan.not_scanned:
            return "incomplete"
        return "done" if self.shredded else "nothing to do"

    @property
    def exit_code(self) -> int:
        """The exit code: 74 if the outcome is ``incomplete``, else 0."""
        return VerificationError.exit_code if self.outcome == "incomplete" else 0

    def to_text(self) -> str:
        """Return the report as text."""
        lines = [f"{self.outcome}: {count_of(len(self.shredded), 'key')} shredded"]
        for shredded_key in self.shredded:
            lines += [
                "",
                f"key {shredded_key.key_id!r}: gone, effective {shredded_key.effective_at}",
                f"  {shredded_key.promise}",
            ]
            lines += [f"  must still go: {what}" for what in shredded_key.remains]
        lines.append("")
        for key in self.kept:
            lines += [f"kept: key {key.key_id!r}: HELD: {hold.to_text()}" for hold in key.holds]
            lines += [f"kept: key {key.key_id!r}: REFUSED: {reason}" for reason in key.refused[:SHOWN]]
        lines += [f"kept: key {key_id!r}: {reason}" for key_id, reason in self.left.items()]
        lines += [f"NOT looked at: {table}: {reason}" for table, reason in sorted(self.plan.not_scanned.items())]
        lines += [f"warning: {warning}" for warning in self.plan.warnings]
        lines.append(f"head of the audit of keys: {self.head}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "kind": REPORT_KIND,
            "version": REPORT_VERSION,
            "outcome": self.outcome,
            "reason": self.reason,
            "shredded": [key.to_dict() for key in self.shredded],
            "left": [{"key_id": key_id, "reason": reason} for key_id, reason in self.left.items()],
            "kept": [key.to_dict() for key in self.kept],
            "not_scanned": self.plan.to_dict()["not_scanned"],
            "head": self.head,
            "warnings": list(self.plan.warnings),
        }


def _describe_key(key: ShreddableKey) -> Iterator[str]:
    over = key.retention.over_at
    since = "named, without a date" if over is None else f"retention over since {utc_text(over)}"
    absence = "" if key.is_there else "; the key service has it no more"
    begun = "; a shredding of it was begun" if key.begun else ""
    yield f"key {key.key_id!r} ({', '.join(key.retention.tags)}): {since}{absence}{begun}"
    rows = [
        (
            table.table,
            _shorten(table.partitions),
            ", ".join(table.columns),
            f"{table.files:,}",
            size_of(table.total_bytes),
            f"{table.rows:,}",
        )
        for table in key.dark
    ]
    if rows:
        yield align_table(rows, head=_DARK_HEAD, indent="  ")
    else:
        yield "  no file of the tables that were looked at is under it"
    yield from (f"  HELD: {hold.to_text()}" for hold in key.holds)
    yield from (f"  REFUSED: {reason}" for reason in key.refused[:SHOWN])
    yield from (f"  stays readable: {reason}" for reason in key.defeated_by[:SHOWN])
    yield from (f"  known export: {export.to_text()}" for export in key.exports[:SHOWN])
    more = sum(max(0, len(texts) - SHOWN) for texts in (key.refused, key.defeated_by, key.exports))
    if more:
        yield f"  … and {count_of(more, 'line')}; --json shows all"


def _describe_late(late: LateData) -> str:
    over = late.retention.over_at
    until = "no date ends its retention" if over is None else f"its retention is over on {utc_text(over)}"
    where = "; ".join(
        f"{table.table}: {_shorten(table.partitions)}: {count_of(table.files, 'file')}, {count_of(table.rows, 'row')}"
        for table in late.tables
    )
    return f"late data under key {late.retention.key_id!r} ({until}): {where}"


def _shorten(partitions: tuple[str, ...]) -> str:
    if len(partitions) < 3:
        return ", ".join(partitions)
    return f"{partitions[0]} … {partitions[-1]} ({len(partitions):,})"

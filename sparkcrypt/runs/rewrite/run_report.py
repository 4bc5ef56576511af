"""The report of a run, as JSON and as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from sparkcrypt.json_objects import JsonObject
from sparkcrypt.text import Printable, align_rows, count_of

Outcome: TypeAlias = Literal[
    "done", "nothing to do", "untagged", "dry run", "stopped at budget", "incomplete", "failed"
]
"""How a run or a pass ended; ``untagged``: nothing was to do, since no column has a tag that encrypts."""

NEEDS_CONSENT = "decryption"
"""The start of a warning of a dry run that a run would have to decrypt columns."""
KEY_NOT_KNOWN = "whether key"
"""The start of a warning that the key service did not say if it has a key."""
WRITTEN_IN_CLEAR = "not encrypted:"
"""The start of a warning that files came in clear since the table's last run."""
WITHOUT_EFFECT = "tag without effect:"
"""The start of a warning about a tag that encrypts nothing."""
IN_CLEAR = "in clear:"
"""The start of a warning about names of files that are made of values."""


@dataclass(frozen=True, slots=True)
class Report(Printable, JsonObject):
    """The result of one run.

    Attributes:
        table: ``db.table``, or a folder.
        run_id: the run's id, under which its journal is kept.
        engine: the engine that rewrote the files.
        files_total: files that were examined.
        files_rewritten: files that were replaced by encrypted ones.
        files_skipped: files that matched the plan already.
        rows: rows of the files that were rewritten.
        bytes_before: size of these files, in bytes.
        bytes_after: size of the files that replaced them, in bytes.
        columns: column path -> key id.
        verified: whether every rewritten file was verified before it was swapped in; False if none was and the table
            is untagged, of which nothing can be verified.
        seconds: how long the run took.
        old_location: the folder that has the old files until they expire; None if there are none.
        new_location: the folder that has the new files, which the table or its partitions are in now; None if there are
            none.
        outcome: how the run ended, for systems that read reports but not exit codes.
        swap: how the files were swapped in; None if none were.
        units: the outcome of each unit, as JSON values.
        warnings: warnings for the operator.
        files_left: files that still differ from the plan; ``bytes_left`` and ``units_left`` likewise.
        quarantined: units in which the work failed and that are unchanged, each with the error's class and message.
        drift: ``before`` and ``after``: kind of drift -> number of files.
        coverage: tag -> number and bytes of its files, in all, and of those that match ``before`` and ``after``.
        planned: in a dry run, the work that would be done on each unit.
        estimated_seconds: in a dry run, how long that would take, by the table's earlier runs; None if there are none.
        this_pass: ``files_rewritten``, ``rows``, ``bytes_before`` and ``bytes_after`` of this pass alone; the fields of
            these names, and ``units``, describe the run so far, which earlier passes may have begun.
        earlier: units that earlier passes had done.
        problems: open problems of the table, which the operator must resolve, as JSON values.
        awaiting_expiry: the table's remaining old files, as counted by
            `sparkcrypt.runs.old_folders.old_folder.Awaiting`.
        key_calls: number of calls to the key service that a reader of all files needs: ``before`` this execution, and
            ``after`` it if a rotation counted again.
        index: the state of the table's store for data skipping, if it has one and a unit was swapped: ``state``
            (``carried`` or ``stale``), ``reason``, ``store``, ``generation``, ``known`` (number of new files in it).
        audit: number and digest of the audit's newest entry, to be kept where others cannot write; None without one.
        untagged: whether no column has a tag that encrypts, and no file differs from that or has a column that is
            encrypted without one, so that nothing of the table is encrypted.
        missing_keys: in a dry run, the master keys that a run would need and the key service does not have, as JSON
            values: ``key_id``, how many ``units`` need it, and ``why``: what is known of it, and what to do.
        data_columns: number of columns in files, with those inside of nested ones counted singly.
        key_ids: the master keys under which its files are, as of its end.
    """

    table: str
    run_id: str
    engine: str
    files_total: int
    files_rewritten: int
    files_skipped: int
    rows: int
    bytes_before: int
    bytes_after: int
    columns: Mapping[str, str]
    verified: bool
    seconds: float
    old_location: str | None
    outcome: Outcome
    swap: str | None = None
    units: tuple[Mapping[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()
    audit: Mapping[str, Any] | None = None
    files_left: int = 0
    bytes_left: int = 0
    units_left: int = 0
    quarantined: tuple[Mapping[str, Any], ...] = ()
    drift: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    coverage: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    planned: tuple[Mapping[str, Any], ...] = ()
    estimated_seconds: float | None = None
    this_pass: Mapping[str, int] = field(default_factory=dict)
    earlier: tuple[str, ...] = ()
    problems: tuple[Mapping[str, Any], ...] = ()
    awaiting_expiry: Mapping[str, Any] | None = None
    key_calls: Mapping[str, int] = field(default_factory=dict)
    index: Mapping[str, Any] | None = None
    new_location: str | None = None
    untagged: bool = False
    data_columns: int = 0
    missing_keys: tuple[Mapping[str, Any], ...] = ()
    key_ids: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        absent = [name for name in ("audit", "index", "awaiting_expiry") if not getattr(self, name)]
        return JsonObject.to_dict(self) | dict.fromkeys(absent)

    @property
    def plaintext_awaiting(self) -> tuple[int, int]:
        """The number and the bytes of old files in clear that have not expired."""
        found = self.awaiting_expiry or {}
        return int(found.get("plaintext_files", 0)), int(found.get("plaintext_bytes", 0))

    def to_text(self) -> str:
        """Return the report as text, without a line feed at its end."""
        facts = [
            ("table", self.table),
            ("outcome", self.outcome),
            ("run", self.run_id),
            ("engine", self.engine),
            (
                "files",
                f"{self.files_total:,}: {self.files_rewritten:,} rewritten, {self.files_skipped:,} "
                f"{'in clear' if self.untagged else 'matched already'}",
            ),
            ("rows", f"{self.rows:,}"),
            ("bytes", f"{self.bytes_before:,} became {self.bytes_after:,}"),
            ("verified", self._verified_text()),
            ("seconds", f"{self.seconds:,.1f}"),
            ("swap", self.swap or "none"),
            ("old files", self.old_location or "none"),
            ("new files", self.new_location or "none"),
        ]
        if self.earlier:
            amount = f"{self.this_pass['files_rewritten']:,} files, {self.this_pass['rows']:,} rows"
            facts.append(("this pass", f"{amount}; {len(self.earlier):,} units were done before it"))
        if self.index:
            facts.append(("index", self.index["state"]))
        if self.audit:
            facts.append(("audit", f"head {self.audit['number']}:{self.audit['digest']}"))
        lines = align_rows(facts)
        lines += ["", describe_untagged(self.table, self.data_columns)] if self.untagged else []
        if self.columns:
            lines += ["", *align_rows([("column", "key id"), *sorted(self.columns.items())])]
        if self.units:
            lines += ["", *align_rows([("unit", "files", "rows"), *map(_unit_row, self.units)])]
        if self.units_left:
            lines += ["", f"left: {self.units_left:,} units, {self.files_left:,} files, {self.bytes_left:,} bytes"]
        lines += [f"quarantined: {unit['unit']}: {unit['error']}: {unit['message']}" for unit in self.quarantined]
        if self.warnings:
            lines += ["", *(f"warning: {warning}" for warning in self.warnings)]
        if self.plaintext_awaiting[0]:
            lines += ["", self._awaiting_text()]
        return "\n".join(lines)

    def _verified_text(self) -> str:
        if not self.units:
            return "no file was rewritten"
        return "yes" if self.verified else "NO"

    def _awaiting_text(self) -> str:
        files, total = self.plaintext_awaiting
        waiting = self.awaiting_expiry or {}
        late = ", beyond its grace: run `sparkcrypt backfill expire`" if waiting.get("beyond_grace") else ""
        return f"plaintext awaiting expiry: {files:,} files, {total:,} bytes, since {waiting.get('since')}{late}"


def describe_missing_keys(keys: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a line for each missing master key of a report."""
    return [f"missing key: {key['key_id']!r}, for {count_of(key['units'], 'unit')}: {key['why']}" for key in keys]


def describe_untagged(table: str, data_columns: int) -> str:
    """Return the sentence that nothing of a table or folder is encrypted, with the next step."""
    return (
        f"untagged: {table}: none of its {count_of(data_columns, 'column')} has a tag that encrypts, so nothing of it "
        "is encrypted; look at `sparkcrypt tags show`, and tag what is sensitive with `sparkcrypt tags set`"
    )


def _unit_row(unit: Mapping[str, Any]) -> tuple[str, str, str]:
    return str(unit.get("unit", "?")), str(unit.get("files", "?")), str(unit.get("rows", "?"))

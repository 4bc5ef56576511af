"""The record of the last pass over a table: what it found and did there, for `sparkcrypt status` and later passes.

    cache/passes/<table>/<number>.json

A table that is skipped or refused, or that fails, keeps the figures of the last survey of all of its units, with their
time.  The record has no MAC: it is reported, and nothing is changed because of it; where it was deleted, the next pass
writes it again.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

from sparkcrypt.json_objects import JsonObject
from sparkcrypt.ledger.state.store import LatestRecord, StateStore
from sparkcrypt.runs.old_folders.old_folder import Awaiting
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.runs.rewrite.run_report import Report
from sparkcrypt.text import utc_text

VERSION = 1
FOLDER = "cache/passes/"


@dataclass(frozen=True, slots=True)
class TagCoverage(JsonObject, json_names={"total_bytes": "bytes"}):
    """The files with columns of one tag: their number and bytes, and those of the files that match the plan."""

    files: int = 0
    total_bytes: int = 0
    matching_files: int = 0
    matching_bytes: int = 0

    def __add__(self, other: TagCoverage) -> TagCoverage:
        return TagCoverage(
            self.files + other.files,
            self.total_bytes + other.total_bytes,
            self.matching_files + other.matching_files,
            self.matching_bytes + other.matching_bytes,
        )


@dataclass(frozen=True, slots=True)
class Figures(JsonObject):
    """The figures of a table after a survey of all of its units, and after the run that followed.

    Attributes:
        at: when they were found (ISO 8601, UTC).
        files: the number of its files.
        drift: kind of drift -> files that have it.
        units_left: units that differ from the plan; ``files_left`` and ``bytes_left`` likewise.
        quarantined: units in which the work failed.
        coverage: tag -> its files.
        untagged: whether nothing of the table is encrypted, since no column has a tag that encrypts.
        data_columns: the number of columns in files.
        key_calls: the number of calls to the key service that a reader of all files made before the run.
        key_ids: the master keys under which its files are.
        awaiting: the old files that await expiry.
    """

    at: str
    files: int
    drift: Mapping[str, int]
    units_left: int
    files_left: int
    bytes_left: int
    quarantined: int
    coverage: Mapping[str, TagCoverage]
    untagged: bool
    data_columns: int
    key_calls: int
    key_ids: tuple[str, ...]
    awaiting: Awaiting | None

    @classmethod
    def of(cls, report: Report, at: datetime) -> Figures:
        """Return the figures in the report of a run that surveyed the whole table."""
        waiting = report.awaiting_expiry
        return cls(
            at=utc_text(at),
            files=report.files_total,
            drift=dict(sorted(report.drift.get("after", {}).items())),
            units_left=report.units_left,
            files_left=report.files_left,
            bytes_left=report.bytes_left,
            quarantined=len(report.quarantined),
            coverage={
                tag: TagCoverage(found["files"], found["bytes"], found["after"]["files"], found["after"]["bytes"])
                for tag, found in report.coverage.items()
            },
            untagged=report.untagged,
            data_columns=report.data_columns,
            key_calls=report.key_calls.get("before", 0),
            key_ids=report.key_ids,
            awaiting=None if waiting is None else Awaiting.from_dict(waiting),
        )


@dataclass(frozen=True, slots=True)
class LastPass(JsonObject):
    """What is recorded of the last pass over a table, or of the last run of `sparkcrypt encrypt`.

    Attributes:
        table: its name, or the folder, at that time.
        tried: when it was last worked on, skipped or refused (ISO 8601, UTC).
        outcome: that of its run, or ``unchanged``, ``refused`` or ``failed``.
        reason: why it was refused, or the class of the error; None if neither.
        run_id: the last run of which there is a report; None if there is none.
        seconds: how long that took.
        files_rewritten: the files that it rewrote; ``bytes_rewritten`` likewise, of the old files.
        page: where the HTML report of that pass was to be written; None if none was asked for.
        figures: those of the last survey of all of its units; None if there was none.
    """

    table: str
    tried: str
    outcome: str
    reason: str | None = None
    run_id: str | None = None
    seconds: float = 0.0
    files_rewritten: int = 0
    bytes_rewritten: int = 0
    page: str | None = None
    figures: Figures | None = None

    @property
    def bytes_a_second(self) -> float:
        """The bytes of old files that its last run rewrote in a second; 0 if it rewrote none."""
        return self.bytes_rewritten / self.seconds if self.seconds else 0.0


def covers_table(options: RunOptions) -> bool:
    """Return whether a run with these options surveys every unit of a table, and for every reason to rewrite one."""
    return options.where is None and options.rotate_key is None and options.output is None and not options.home


class PassRecord:
    """The record of the last pass over one table; its owner reads it once.

    Args:
        store: the state directory.
        table_id: the id of the table.
    """

    def __init__(self, store: StateStore, table_id: str) -> None:
        self._store, self._table_id = store, table_id
        self._record = LatestRecord(store, f"{FOLDER}{table_id}/")
        self._fingerprint: str | None = None
        self._last: LastPass | None = None
        self._is_read = False

    @property
    def fingerprint(self) -> str | None:
        """The fingerprint that the table had when a pass last found no drift in it; None if no pass has."""
        self._read()
        return self._fingerprint

    @property
    def last(self) -> LastPass | None:
        """What is recorded of the last pass; None if nothing is."""
        self._read()
        return self._last

    def _read(self) -> None:
        if self._is_read:
            return
        self._is_read = True
        for content in self._record.read():
            with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
                record: dict[str, Any] = json.loads(content)
                if record["version"] != VERSION:
                    continue
                fingerprint, last = record["fingerprint"], record.get("last")
                self._last = None if last is None else LastPass.from_dict(last)
                self._fingerprint = None if fingerprint is None else str(fingerprint)
                return

    def of_table(self, table_id: str) -> PassRecord:
        """Return the record of a table that may have another id now, since its first run gives it a UUID."""
        return self if table_id == self._table_id else PassRecord(self._store, table_id)

    def note(self, table: str, outcome: str, reason: str | None = None) -> None:
        """Record a pass that has no report of the table; the figures of an earlier one stay.

        Figures of a table that is unchanged are as of now.
        """
        self._read()
        now = utc_text(datetime.now(timezone.utc))
        last = replace(self._last or LastPass(table, now, outcome), table=table, tried=now, outcome=outcome)
        if outcome == "unchanged" and last.figures is not None:
            last = replace(last, figures=replace(last.figures, at=now))
        self._replace(replace(last, reason=reason), self._fingerprint)

    def keep(self, report: Report, *, fingerprint: str | None = None, page: str | None = None) -> None:
        """Record the report of a run.

        Args:
            report: the report; the figures of one that failed do not count, since it may have surveyed nothing.
            fingerprint: the table's fingerprint if the run left no drift; by default the one that is recorded stays.
            page: where the HTML report of the pass is to be written.
        """
        self._read()
        now = datetime.now(timezone.utc)
        before = None if self._last is None else self._last.figures
        last = LastPass(
            table=report.table,
            tried=utc_text(now),
            outcome=report.outcome,
            run_id=report.run_id,
            seconds=report.seconds,
            files_rewritten=report.this_pass.get("files_rewritten", report.files_rewritten),
            bytes_rewritten=report.this_pass.get("bytes_before", report.bytes_before),
            page=page,
            figures=before if report.outcome == "failed" else Figures.of(report, now),
        )
        self._replace(last, fingerprint or self._fingerprint)

    def keep_failed(self, table: str, error: str, reports: Sequence[Report]) -> None:
        """Record that the work on a table ended with an error.

        Args:
            table: the name of the table.
            error: the class of the error.
            reports: the reports of its runs in this pass, of which the last may be partial.
        """
        for report in reports[-1:]:
            self.keep(report)
        self.note(table, "failed", error)

    def _replace(self, last: LastPass, fingerprint: str | None) -> None:
        self._last, self._fingerprint = last, fingerprint
        record = {"version": VERSION, "fingerprint": fingerprint, "last": last.to_dict()}
        self._record.replace(json.dumps(record).encode())

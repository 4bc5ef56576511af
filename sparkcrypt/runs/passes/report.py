"""The report of a pass over many tables; a table that fails is recorded with its name, and the others go on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePath
from traceback import extract_tb
from typing import Any

from sparkcrypt.errors import (
    EXIT_DRIFT,
    BridgeError,
    ConfigError,
    KeyNotFoundError,
    KeyServiceUnavailableError,
    PredicateError,
    RunConflictError,
    SparkcryptError,
    VerificationError,
)
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.runs.passes.keys_in_use import Coverage
from sparkcrypt.runs.rewrite.run_report import Outcome, Report
from sparkcrypt.spark.jvm.failures import find_carried_error, short_text
from sparkcrypt.text import Printable

_MET_BY_ALL = (KeyServiceUnavailableError, BridgeError, MemoryError)
"""Errors that every other table would meet too."""


@dataclass(frozen=True, slots=True)
class TableError(JsonObject):
    """A table that failed, with the class name and the message of the error."""

    table: str
    error: str
    message: str


@dataclass(slots=True)
class TableFailures:
    """The tables of one command that failed.

    Attributes:
        found: the tables, each with its error.
    """

    found: list[TableError] = field(default_factory=list)

    @contextmanager
    def of(self, table: str) -> Iterator[None]:
        """Record the error of a table that the block raises, and re-raise it only if every other table would meet it.

        Args:
            table: the name of the table.

        Raises:
            KeyServiceUnavailableError, BridgeError, MemoryError: the error of the block.
        """
        try:
            yield
        except Exception as error:
            carried = error if isinstance(error, SparkcryptError) else find_carried_error(error) or error
            self.found.append(TableError(table, type(carried).__name__, _describe(carried)))
            if isinstance(carried, _MET_BY_ALL):
                raise


def _describe(error: Exception) -> str:
    if isinstance(error, SparkcryptError):
        return str(error)
    frames = extract_tb(error.__traceback__)
    where = f" ({PurePath(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return (
        f"{short_text(error)}{where}: an error that nothing foresaw; the table's journal tells what was done; report "
        "it with this text"
    )


KIND, VERSION = "sparkcrypt backfill", 1

NOT_IN_PLACE = "not in the table's properties:"
"""The start of a warning about parts of the policy's rule that a table's properties lack."""


@dataclass(frozen=True, slots=True)
class Point(JsonObject, json_names={"total_bytes": "bytes"}):
    """The progress of a pass at one moment: seconds since its start, and the files and bytes rewritten by then."""

    seconds: float
    files: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class RotatedKey:
    """The master key that a pass rotated.

    Attributes:
        key_id: the master key.
        version: the version that wraps.
        made: whether this pass created the version, or would.
        rekeys: whether files got new data keys.
        predecessor: the master key that it replaces; None if it got a new version.
    """

    key_id: str
    version: int
    made: bool
    rekeys: bool = False
    predecessor: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        moved = {} if self.predecessor is None else {"predecessor": self.predecessor}
        return {"key_id": self.key_id, "version": self.version, "made": self.made, "rekeys": self.rekeys, **moved}


@dataclass(frozen=True, slots=True)
class PassReport(Printable):
    """The result of one pass.

    Attributes:
        pass_id: the name of the pass.
        policy_digest: the digest of the policy.
        started: when it began (ISO 8601, UTC).
        seconds: how long it took.
        dry_run: whether nothing was changed.
        tables: the reports of the tables' runs.
        failed: the tables whose run ended with an error.
        refused: the tables that were not begun, each with the reason.
        passed_over: views and tables of other formats, each with the reason.
        unchanged: the tables that were skipped, since they have not changed since a pass last found no drift.
        throughput: the progress over time.
        warnings: warnings about the pass as a whole.
        rotation: the master key that it rotated; None for a pass that brings tables to their plans.
        coverage: what the choice of its tables by the catalog looked at; None if the operator chose them.
    """

    pass_id: str
    policy_digest: str
    started: str
    seconds: float
    dry_run: bool
    tables: Sequence[Report] = ()
    failed: Sequence[TableError] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    passed_over: Mapping[str, str] = field(default_factory=dict)
    unchanged: Sequence[str] = ()
    throughput: Sequence[Point] = ()
    warnings: Sequence[str] = ()
    rotation: RotatedKey | None = None
    coverage: Coverage | None = None

    @property
    def outcome(self) -> Outcome:
        """How the pass ended."""
        if self.dry_run:
            return "dry run"
        if self.left_out:
            return "incomplete"
        outcomes = {report.outcome for report in self.tables}
        if "stopped at budget" in outcomes:
            return "stopped at budget"
        return "done" if "done" in outcomes else "untagged" if outcomes == {"untagged"} else "nothing to do"

    @property
    def left_out(self) -> bool:
        """Whether tables or units could not be done; in a dry run, could not be surveyed or would be refused."""
        return bool(self.failed or self.refused or self._incomplete or self._not_looked_at)

    @property
    def _not_looked_at(self) -> bool:
        """Whether nobody can tell if a table belongs to the pass, so that its work may be left."""
        return self.coverage is not None and bool(self.coverage.not_looked_at)

    @property
    def _incomplete(self) -> bool:
        """Whether a run of a table left units out, or the table has an open problem or lacks a folder of a unit.

        A dry run finds the latter two too.
        """
        return any(report.outcome == "incomplete" or report.problems or report.quarantined for report in self.tables)

    @property
    def exit_code(self) -> int:
        """The exit code: an error if something was left out, the code for drift if a dry run found drift, else 0.

        A dry run whose tables need keys that are missing ends with the code of `KeyNotFoundError`.

        If the only errors are that other runs hold tables or took this one over, it is the code of `RunConflictError`,
        so that a scheduler can tell a condition that ends by itself.  If no table could be worked on, and each met a
        `ConfigError`, it is that error's code.
        """
        if not self.left_out:
            if any(report.missing_keys for report in self.tables):
                return KeyNotFoundError.exit_code
            return EXIT_DRIFT if self.dry_run and self.drifts else 0
        if self._is_only(RunConflictError):
            return RunConflictError.exit_code
        if self._is_only(ConfigError) and not self.tables:
            return ConfigError.exit_code
        if self._is_only(PredicateError) and all(report.outcome == "failed" for report in self.tables):
            return PredicateError.exit_code
        return VerificationError.exit_code

    def _is_only(self, kind: type[SparkcryptError]) -> bool:
        """Whether tables failed, and nothing was left out but for errors of this class."""
        tables = {error.table for error in self.failed if error.error == kind.__name__}
        others = [error for error in self.failed if error.table not in tables]
        return bool(tables) and not (others or self.refused or self._incomplete or self._not_looked_at)

    @property
    def drifts(self) -> bool:
        """Whether units differ from their plans."""
        return any(report.units_left for report in self.tables)

    def to_text(self) -> str:
        """Return a line for the pass, a line for each table, and all failures, warnings and notes."""
        from sparkcrypt.runs.passes.pass_text import pass_text

        return pass_text(self)

    def _repr_html_(self) -> str:
        from sparkcrypt.runs.passes.html.page import embed, report_html

        return embed(report_html(self.to_dict()))

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "kind": KIND,
            "version": VERSION,
            "pass_id": self.pass_id,
            "outcome": self.outcome,
            "policy_digest": self.policy_digest,
            "started": self.started,
            "seconds": self.seconds,
            "tables": [report.to_dict() for report in self.tables],
            "failed": [error.to_dict() for error in self.failed],
            "refused": _reasons(self.refused),
            "passed_over": _reasons(self.passed_over),
            "unchanged": list(self.unchanged),
            "totals": self.totals(),
            "throughput": [point.to_dict() for point in self.throughput],
            "warnings": list(self.warnings),
            "rotation": None if self.rotation is None else self.rotation.to_dict(),
            "coverage": None if self.coverage is None else self.coverage.to_dict(),
            "error": None,
        }

    def totals(self) -> dict[str, int]:
        """Return sums over all tables; what was rewritten is counted for this pass only."""
        names = ("files_total", "files_rewritten", "files_left", "rows", "bytes_before", "bytes_after", "bytes_left")
        return {
            "tables": len(self.tables),
            "untagged": sum(report.untagged for report in self.tables),
            "units": sum(len(report.units) for report in self.tables),
            **{
                name: sum(report.this_pass.get(name, getattr(report, name)) for report in self.tables) for name in names
            },
            "units_left": sum(report.units_left for report in self.tables),
            "quarantined": sum(len(report.quarantined) for report in self.tables),
            "plaintext_files_awaiting_expiry": sum(report.plaintext_awaiting[0] for report in self.tables),
            "plaintext_bytes_awaiting_expiry": sum(report.plaintext_awaiting[1] for report in self.tables),
        }


def _reasons(reasons: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"table": table, "reason": reason} for table, reason in reasons.items()]

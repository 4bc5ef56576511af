"""The plan of one table or folder, how its files differ from it, what a run would do, and what that needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from sparkcrypt.errors import EXIT_DRIFT, ConfigError, KeyNotFoundError, VerificationError
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.ledger.state.mac import MasterKeys
from sparkcrypt.plan import EncryptionPlan
from sparkcrypt.policy.load import PolicySource, policy_of
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.passes.choose_tables import Gate
from sparkcrypt.runs.passes.key_status import Due, KeySearch, find_overdue
from sparkcrypt.runs.passes.pass_text import actions_text, estimate_text
from sparkcrypt.runs.passes.run import find_target, open_job, report_dry_run
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.runs.rewrite.run_report import (
    KEY_NOT_KNOWN,
    WRITTEN_IN_CLEAR,
    Report,
    describe_missing_keys,
    describe_untagged,
)
from sparkcrypt.runs.rewrite.saved_plan import VERSION, SavedPlan
from sparkcrypt.runs.table.columns import InheritedColumn, sum_up_inherited
from sparkcrypt.runs.table.difference import NO_DATA_FILE, Drift, drift_of_summary
from sparkcrypt.runs.table.disposal import find_summaries_above
from sparkcrypt.runs.table.open_table import open_target
from sparkcrypt.runs.table.target import Target
from sparkcrypt.runs.table.unit_survey import UnitSurvey, count_calls
from sparkcrypt.schema import Schema
from sparkcrypt.spark.setup.session import configure
from sparkcrypt.spark.tables.table_rules import rule_lines
from sparkcrypt.text import SHOWN, Printable, count_of, cut_lines, size_of, utc_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OF_REPORT = (
    "units_left",
    "files_left",
    "bytes_left",
    "estimated_seconds",
    "coverage",
    "planned",
    "missing_keys",
    "warnings",
)
"""Members that are copied from the report of a dry run."""


_NOT_IN_PLACE = "`sparkcrypt tags apply`, or a run, puts it there, for sessions without the extension of Spark"


@dataclass(frozen=True, slots=True)
class KeyCalls(JsonObject):
    """How often each process calls the key service.

    Attributes:
        run: a process of the run: it opens what wraps the keys of the files that differ, and makes or finds, and opens,
            the KEK of each master key.
        reader: a reader of all files as they are: one call for each wrapped key.
    """

    run: int
    reader: int

    @classmethod
    def of(cls, surveys: Sequence[UnitSurvey], policy: Policy) -> KeyCalls:
        """Return the calls for some units."""
        left = [survey for survey in surveys if survey.drift]
        masters = {key_id for survey in left for key_id in survey.keys}
        if masters:
            masters |= {policy.footer_key, MasterKeys.of(policy).current}
        return cls(2 * len(masters) + count_calls(left), count_calls(surveys))


@dataclass(frozen=True, slots=True)
class TargetPlan(Printable):
    """The plan of one table or folder, compared with its files.

    Attributes:
        plan: which column gets which key, and why.
        surveys: summaries of its units, with every difference from the plan.
        report: the report of a dry run over it.
        saved: the same for `encrypt_table`, which applies it later if nothing of it has changed by then.
        refused: why a run would not begin it; None if it would.
        not_in_place: parts of the policy's rule that the table's properties lack.
        overdue: those of its master keys whose rotation is overdue.
        above: the drift of what lies above its partitions, where no run replaces it.
        stray: files in former homes of the table, which are in no table.
        key_calls: how often the key service is called.
        free_bytes: the free space where new files go; None if its file system has no limit.
    """

    plan: EncryptionPlan
    surveys: Sequence[UnitSurvey]
    report: Report
    saved: SavedPlan
    refused: str | None = None
    not_in_place: tuple[str, ...] = ()
    overdue: tuple[Due, ...] = ()
    above: tuple[Drift, ...] = ()
    stray: tuple[str, ...] = ()
    key_calls: KeyCalls = KeyCalls(0, 0)
    free_bytes: int | None = None

    @property
    def drift(self) -> list[Drift]:
        """All differences from the plan."""
        return [*(difference for survey in self.surveys for difference in survey.drift), *self.above]

    @property
    def inherited(self) -> tuple[InheritedColumn, ...]:
        """The columns that are encrypted because of tags that the table lacks."""
        return sum_up_inherited(found for survey in self.surveys for found in survey.inherited)

    @property
    def outcome(self) -> str:
        """``drift``, ``matches``, or ``untagged``: no column has a tag that encrypts, so nothing is encrypted."""
        if self.report.units_left:
            return "drift"
        return "untagged" if self.report.untagged else "matches"

    @property
    def exit_code(self) -> int:
        """The exit code: 74 if a run would refuse it or find stray files, 69 if it lacks keys, 2 on drift, else 0."""
        if self.refused is not None or self.report.quarantined or self.stray:
            return VerificationError.exit_code
        if self.report.missing_keys:
            return KeyNotFoundError.exit_code
        return EXIT_DRIFT if self.report.units_left or self.above else 0

    def to_text(self, *, files: bool = False) -> str:
        """Return the plan's table, a line of counts, a line for each unit that differs, and lines on what a run needs.

        Args:
            files: name each file that differs, instead of the units.
        """
        lines = [self.plan.table_text(), "", *_drift(self, files=files)]
        lines += describe_missing_keys(self.report.missing_keys)
        if self.report.units_left:
            report = self.report
            lines += _needs(self)
            units = f"{count_of(report.files_left, 'file')} in {count_of(report.units_left, 'unit')}"
            amount = f"{units}, {size_of(report.bytes_left)}"
            lines.append(f"to do: {amount}: {actions_text(report)}{estimate_text([report])}")
        lines += map(str, self.inherited)
        lines += [f"not in the table's properties: {text}" for text in self.not_in_place]
        if self.not_in_place:
            lines.append(f"  {_NOT_IN_PLACE}")
        lines += [f"rotation overdue: {due.to_text()}" for due in self.overdue]
        lines += [f"held: {survey.name}: {survey.held_by}" for survey in self.surveys if survey.held_by]
        lines += _empty_files([path for survey in self.surveys for path in survey.unit.empty_files])
        lines += [f"in no table: {text}" for text in self.stray]
        shown = (KEY_NOT_KNOWN, WRITTEN_IN_CLEAR) if self.surveys else ""
        lines += [f"warning: {text}" for text in self.report.warnings if text.startswith(shown)]
        if self.refused is not None:
            lines.append(f"refused: {self.refused}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        drift, report = self.drift, self.report.to_dict()
        total = self.report.files_total
        drifted = len({difference.file for difference in drift if difference.kind not in NO_DATA_FILE})
        return {
            **self.plan.to_dict(),
            "outcome": self.outcome,
            "files_total": total,
            "files_matching": total - drifted,
            "files_drifted": drifted,
            "drift": [difference.to_dict() for difference in drift],
            **{name: report[name] for name in _OF_REPORT},
            "refused": self.refused,
            "not_in_place": list(self.not_in_place),
            "inherited": [column.to_dict() for column in self.inherited],
            "held": {survey.name: survey.held_by for survey in self.surveys if survey.held_by},
            "empty_files": [path for survey in self.surveys for path in survey.unit.empty_files],
            "stray": list(self.stray),
            "rotations_overdue": [due.to_text() for due in self.overdue],
            "key_calls": self.key_calls.to_dict(),
            "free_bytes": self.free_bytes,
        }


def plan_target(
    spark: SparkSession,
    target: Target,
    policy: Policy,
    *,
    where: str | None = None,
    parallelism: int = 1,
    accept_path_readers: bool = False,
) -> TargetPlan:
    """Compare every file of a target with its plan, and change nothing; keep only a summary of each unit in memory.

    Args:
        spark: a classic session.
        target: a table or a folder.
        policy: what its tags mean.
        where: a predicate over partition columns.
        parallelism: the parallelism of the run whose duration is estimated.
        accept_path_readers: assume that a run may begin a table that shares a folder with another.

    Raises:
        PlanError: ``where`` uses columns other than partition columns, or a unit cannot be planned.
        ConfigError: the state directory cannot be opened.
        VerificationError: the journal of an earlier run is damaged.
    """
    options = RunOptions(where=where, parallelism=parallelism, dry_run=True)
    job = open_job(open_target(spark, target, policy), options)
    gate = Gate(accept_path_readers)
    if target.table is not None:
        gate.may_run(job.table, dry_run=True)
    report, surveyed = report_dry_run(job)
    report = KeySearch(policy).add_missing(report, job.table.store)
    missing = rule_lines(spark, target.table, policy) if target.table is not None else ()
    overdue = find_overdue(open_key_service(policy.key_service), policy, _list_keys(surveyed.units))
    above = tuple(drift_of_summary(path, above=True) for path in find_summaries_above(job.table.files, target))
    job.old_files.look_without_lock()
    stray = tuple(unit.message for unit in job.old_files.failed)
    return TargetPlan(
        plan=target.plan,
        surveys=surveyed.units,
        report=report,
        saved=_save(target, surveyed.units, report, where),
        refused=gate.refused.get(target.name),
        not_in_place=missing,
        overdue=overdue,
        above=above,
        stray=stray,
        key_calls=KeyCalls.of(surveyed.units, policy),
        free_bytes=job.table.files.free_bytes(target.base),
    )


def plan_files(
    spark: SparkSession,
    table: str | None,
    policy: PolicySource,
    *,
    path: str | None = None,
    where: str | None = None,
    avro: Schema | None = None,
) -> TargetPlan:
    """Compare every file of a table or folder with its plan, and change nothing.

    ``saved`` of the result is what ``encrypt_table(spark, None, policy, plan=…)`` applies, and nothing else: that ends
    with a `RunConflictError` once tags, policy, partitions or files have changed.  `SavedPlan.to_text` and
    `SavedPlan.parse` make a file of it and read one.

    Args:
        spark: a classic session; it will be configured with the policy.
        table: ``db.table``, or None with ``path``.
        policy: what the tags mean, or the path of its file.
        path: a bare folder of Parquet or ORC files.
        where: a predicate over partition columns.
        avro: an Avro schema whose tags are added; `encrypt_table` needs it again to apply the plan.

    Raises:
        PlanError: the target or the predicate is refused.
        ConfigError: both or none of table and path are given, or the state directory cannot be opened.
    """
    policy = policy_of(policy)
    if (table is None) == (path is None):
        raise ConfigError("give either a table or a path")
    configure(spark, policy)  # the schema of a bare folder is in its files, which may be encrypted
    return plan_target(spark, find_target(spark, table, path, policy, avro, "native"), policy, where=where)


def _save(target: Target, surveys: Sequence[UnitSurvey], report: Report, where: str | None) -> SavedPlan:
    return SavedPlan(
        sparkcrypt_plan=VERSION,
        table=None if target.table is None else target.name,
        path=target.name if target.table is None else None,
        where=where,
        avro_schema=None,
        made=utc_text(datetime.now(timezone.utc)),
        uuid=target.uuid,
        plan=target.plan.to_dict(),
        units=tuple(sorted(survey.digest for survey in surveys)),
        units_left=report.units_left,
        files_left=report.files_left,
        bytes_left=report.bytes_left,
    )


def _list_keys(surveys: Sequence[UnitSurvey]) -> set[str]:
    """Return the master keys that wrap keys of the files."""
    return {wrapping.key_id for survey in surveys for wrapping in survey.wrappings}


def _drift(made: TargetPlan, *, files: bool) -> list[str]:
    by_file: dict[str, list[Drift]] = {}
    for entry in made.drift:
        by_file.setdefault(entry.file, []).append(entry)
    total = made.report.files_total
    sentence = f"{len(by_file):,} differ from the plan" if by_file else "all match the plan" if total else ""
    if made.outcome == "untagged":
        sentence = describe_untagged(made.report.table, made.report.data_columns)
    head = f"{count_of(total, 'file')} in {count_of(len(made.surveys), 'unit')}: {sentence or 'nothing to encrypt'}"
    if files:
        return [head, *(f"  {file}: {_differences(found)}" for file, found in by_file.items())]
    units = [f"  {_unit_text(survey)}" for survey in made.surveys if survey.drift]
    return [head, *cut_lines(units, "  "), *(f"  {entry.file}: {entry.detail}" for entry in made.above)]


def _unit_text(survey: UnitSurvey) -> str:
    """Return how many files a unit has, what a run does with them, and why it leaves some as they are, if it does."""
    from sparkcrypt.runs.table.difference import OF_FOLDERS, UNKNOWN
    from sparkcrypt.runs.table.unit_survey import files_by_kind

    actions = ", ".join(f"{action} {amount.files:,}" for action, amount in sorted(survey.actions.items()))
    total = f"{count_of(survey.amount.files, 'file')}, {size_of(survey.total_bytes)}"
    kinds = ", ".join(f"{kind}: {count:,}" for kind, count in sorted(files_by_kind([survey]).items()))
    refused = "quarantine" in survey.actions
    stays = [entry for entry in survey.drift if refused or entry.kind in (*OF_FOLDERS, UNKNOWN, "unreadable")]
    text = f"{survey.name}: {total}: {actions or 'none to do'} ({kinds})"
    return f"{text}; {_differences(stays)}" if stays else text


def _needs(made: TargetPlan) -> list[str]:
    """Return what a run needs of the key service and of the disk."""
    calls, needed = made.key_calls, size_of(made.report.bytes_left)
    lines = [
        f"key service: about {count_of(calls.run, 'call')} by each process of a run; a reader of the files as they are "
        f"makes {calls.reader:,}"
    ]
    if made.free_bytes is None:
        return lines
    beside = f"new files take about {needed}, beside the old ones until these are expired"
    if made.free_bytes >= made.report.bytes_left:
        return [*lines, f"free space: {size_of(made.free_bytes)}; {beside}"]
    return [
        *lines,
        f"free space: only {size_of(made.free_bytes)}, and {beside}; a run would stop where the disk is full: free "
        "space, or choose partitions by --where",
    ]


def _empty_files(paths: Sequence[str]) -> list[str]:
    more = f" and {len(paths) - SHOWN:,} more" if len(paths) > SHOWN else ""
    text = f"{count_of(len(paths), 'file')} of 0 bytes, which hold no row and are left out: "
    return [f"{text}{', '.join(paths[:SHOWN])}{more}"] if paths else []


def _differences(found: Sequence[Drift]) -> str:
    texts = [*dict.fromkeys(f"{entry.column}: {entry.detail}" if entry.column else entry.detail for entry in found)]
    return "; ".join(texts[:4]) + (f"; and {len(texts) - 4} more" if len(texts) > 4 else "")

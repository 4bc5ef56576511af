"""Summaries of scanned units: the amount of data, its drift from the plan, and the actions that it needs."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from sparkcrypt.keys.material import Wrapping
from sparkcrypt.ledger.unit import Unit, partition_of
from sparkcrypt.plan import EncryptionPlan
from sparkcrypt.runs.table.amount import Amount
from sparkcrypt.runs.table.columns import FileColumns, Inherited, ScannedFile
from sparkcrypt.runs.table.difference import AWAY, OF_FOLDERS, UNKNOWN, Drift, drift_by_file, keeps_dark
from sparkcrypt.runs.table.disposal import describe_foreign
from sparkcrypt.runs.table.scan import ScannedUnit, list_summaries
from sparkcrypt.schema import Path, join_dotted

FileAction = Literal["encrypt", "decrypt", "re-key", "re-wrap", "purge", "leave out", "bring home", "quarantine"]


@dataclass(frozen=True, slots=True)
class Coverage:
    """The files of a table with one tag: all of them, and those in which the tag's columns match the plan."""

    total: Amount = field(default_factory=Amount)
    matching: Amount = field(default_factory=Amount)

    def __add__(self, other: Coverage) -> Coverage:
        return Coverage(self.total + other.total, self.matching + other.matching)


@dataclass(frozen=True, slots=True)
class UnitSurvey:
    """The summary of a scanned unit, without its list of files.

    Attributes:
        unit: the unit, not listed.
        amount: its files.
        drift: every difference from the plan; empty if there is no work.
        actions: action -> the files that need it.
        coverage: tag -> its files, and those that match the plan.
        inherited: columns that are encrypted by tags which the table lacks.
        wrappings: the wrapped keys on which the data keys of its files depend.
        dark: columns of the plan that are under a shredded key in a file, or were replaced by nulls for that reason.
        held_by: what lies beside its data, for which a run leaves it unchanged; None if nothing does.
        keys: the master keys of the columns of those files that differ, by the plan.
        clear_since: how many plaintext files to be encrypted are younger than the table's last run.
        digest: see `digest_unit`; equal while nothing that a plan says of it has changed.
    """

    unit: Unit
    amount: Amount
    drift: tuple[Drift, ...]
    actions: Mapping[FileAction, Amount] = field(default_factory=dict)
    coverage: Mapping[str, Coverage] = field(default_factory=dict)
    inherited: tuple[Inherited, ...] = ()
    wrappings: frozenset[Wrapping] = frozenset()
    dark: frozenset[Path] = frozenset()
    held_by: str | None = None
    keys: frozenset[str] = frozenset()
    clear_since: int = 0
    digest: str = ""

    @property
    def name(self) -> str:
        """The unit's name."""
        return self.unit.name

    @property
    def total_bytes(self) -> int:
        """The total length of its files, in bytes."""
        return self.amount.total_bytes

    @property
    def is_away(self) -> bool:
        """Whether it is to be brought back to its former home."""
        return any(difference.kind == AWAY for difference in self.drift)

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as JSON values."""
        return {
            "unit": self.name,
            "location": self.unit.location,
            "held_by": self.held_by,
            "keys": sorted(self.keys),
            "under": sorted({wrapping.key_id for wrapping in self.wrappings}),
            **self.amount.to_dict(),
            "drift": dict(sorted(files_by_kind([self]).items())),
            "actions": {action: amount.to_dict() for action, amount in sorted(self.actions.items())},
        }


def survey_unit(
    scanned: ScannedUnit,
    plan: EncryptionPlan,
    *,
    rewrap: bool = False,
    copies: bool = False,
    since_ms: float = math.inf,
) -> UnitSurvey:
    """Return the summary of a scanned unit.

    Args:
        scanned: the scanned unit.
        plan: the plan of its files.
        rewrap: files are rewrapped if only master keys differ.
        copies: the run writes a copy, so nothing that lies beside the files keeps it from that.
        since_ms: when the table's last run began, in milliseconds since the epoch; infinity if it has none.
    """
    by_file = drift_by_file(scanned.drift)
    tags = tuple(dict.fromkeys(column.tag for column in plan.encrypted if column.tag is not None))
    actions: Counter[FileAction] = Counter()
    lengths: Counter[FileAction] = Counter()
    coverage = dict.fromkeys(tags, Coverage())
    is_away = any(difference.kind == AWAY for difference in scanned.drift)
    for file in scanned.unit.files:
        found, amount = by_file.get(file.path, []), Amount(1, file.length)
        if found:
            action = _choose_action(scanned.files.get(file.path), found, rewrap=rewrap)
            actions[action] += 1
            lengths[action] += file.length
        elif is_away:
            actions["bring home"] += 1
            lengths["bring home"] += file.length
        whole = any(difference.column is None for difference in found)
        differing = set(tags) if whole else _tags_of(found, scanned.files[file.path].columns)
        for tag in tags:
            coverage[tag] += Coverage(amount, Amount() if tag in differing else amount)
    for entry in list_summaries(scanned.unit, plan):
        actions["leave out"] += 1
        lengths["leave out"] += entry.length
        for tag in tags:
            coverage[tag] += Coverage(Amount(1, entry.length))
    held_by = None if copies else describe_foreign(scanned.unit.location, scanned.unit.beside)
    if scanned.drift and (held_by or any(difference.kind in OF_FOLDERS for difference in scanned.drift)):
        actions = Counter({"quarantine": len(scanned.unit.files)})
        lengths = Counter({"quarantine": scanned.unit.total_bytes})
    return UnitSurvey(
        unit=replace(scanned.unit, folders=()),
        amount=Amount(len(scanned.unit.files), scanned.unit.total_bytes),
        drift=scanned.drift,
        actions={action: Amount(count, lengths[action]) for action, count in actions.items()},
        coverage=coverage,
        inherited=scanned.inherited,
        wrappings=frozenset(wrapping for file in scanned.files.values() for wrapping in file.summary.wrappings),
        dark=frozenset(
            column.leaf.logical
            for file in scanned.files.values()
            for path, column in file.columns.planned.items()
            if path in file.dark or path in file.summary.purged
        ),
        held_by=held_by,
        keys=_list_keys(scanned, by_file, plan),
        clear_since=sum(
            file.modified_ms > since_ms and any(found.kind == "plaintext" for found in by_file.get(file.path, ()))
            for file in scanned.unit.files
        ),
        digest=digest_unit(scanned.unit, scanned.drift),
    )


def digest_unit(unit: Unit, drift: Iterable[Drift] = ()) -> str:
    """Return the digest of where a listed unit is, of its files and summaries, and of their drift.

    Args:
        unit: the unit; of its files count paths, lengths and times of modification.
        drift: every difference of its files from the plan.
    """
    lines = [f"{file.path}\0{file.length}\0{file.modified_ms}" for file in unit.files]
    lines += [f"{entry.path}\0{entry.length}" for entry in unit.beside if entry.kind == "summary"]
    lines += [f"{found.file}\0{found.kind}\0{found.column}\0{found.detail}" for found in drift]
    text = "\n".join((unit.name, unit.location, *sorted(lines)))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _choose_action(file: ScannedFile | None, found: Sequence[Drift], *, rewrap: bool) -> FileAction:
    action = action_of(found, rewrap=rewrap)
    if file is None:
        return action
    if file.dark and not keeps_dark(file.summary.format, action, found):
        return "quarantine"
    # A run refuses a column that the table lacks: nothing says whether all may read it.
    return "quarantine" if file.columns.unknown else action


def _list_keys(scanned: ScannedUnit, differing: Container[str], plan: EncryptionPlan) -> frozenset[str]:
    found: set[str | None] = set()
    for folder in scanned.unit.folders:
        names = [file.path for file in folder.files if file.path in differing and file.path in scanned.files]
        for columns in {id(columns): columns for columns in (scanned.files[name].columns for name in names)}.values():
            found.update(columns.key_ids(plan, partition_of(scanned.unit, folder)).values())
    return frozenset(key_id for key_id in found if key_id is not None)


def _tags_of(found: Iterable[Drift], columns: FileColumns) -> set[str | None]:
    """Return the tags of the columns that differ, which a file may name otherwise than its table."""
    tags = {join_dotted(path): column.tag for path, column in columns.planned.items()}
    return {tags.get(difference.column or "") for difference in found}


def action_of(drift: Sequence[Drift], *, rewrap: bool) -> FileAction:
    """Return the action for a file that differs from the plan.

    Args:
        drift: the differences of the file.
        rewrap: keep data keys if only master keys differ.
    """
    kinds = {difference.kind for difference in drift}
    if rewrap and all(difference.only_keys for difference in drift):
        return "re-wrap"
    if kinds & {"unreadable", UNKNOWN}:
        return "quarantine"
    if "dark" in kinds:
        return "purge"
    if kinds & {"plaintext", "missing"}:
        return "encrypt"
    return "decrypt" if kinds == {"extra"} else "re-key"


def files_by_kind(surveys: Iterable[UnitSurvey]) -> dict[str, int]:
    """Return kind of drift -> number of files that have it."""
    found: Counter[str] = Counter()
    for survey in surveys:
        found.update(kind for kind, _ in {(drift.kind, drift.file) for drift in survey.drift})
    return dict(found)


def coverage_of(surveys: Iterable[UnitSurvey], done: Iterable[str] = ()) -> dict[str, dict[str, Any]]:
    """Return tag -> its files, and those that match before and after some units were done, as JSON values."""
    finished = set(done)
    before: dict[str, Coverage] = {}
    after: dict[str, Coverage] = {}
    for survey in surveys:
        for tag, found in survey.coverage.items():
            before[tag] = before.get(tag, Coverage()) + found
            now = Coverage(found.total, found.total) if survey.name in finished else found
            after[tag] = after.get(tag, Coverage()) + now
    return {
        tag: {
            **found.total.to_dict(),
            "before": found.matching.to_dict(),
            "after": after[tag].matching.to_dict(),
        }
        for tag, found in before.items()
    }


def count_calls(surveys: Iterable[UnitSurvey]) -> int:
    """Return the number of calls to the key service by a reader of all these units: one for each wrapped key."""
    return len({wrapping for survey in surveys for wrapping in survey.wrappings})

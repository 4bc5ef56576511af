"""The interface of engines, which stage a unit's new files and prove them, and what all of them verify."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from sparkcrypt.errors import FormatError, SparkcryptError, VerificationError
from sparkcrypt.files.footers import FooterFacts
from sparkcrypt.files.format import FORMATS
from sparkcrypt.files.parquet import FileSummary, verify_file
from sparkcrypt.ledger.audit.evidence import Proof, StagedUnit
from sparkcrypt.ledger.unit import Folder, Unit, partition_of
from sparkcrypt.runs.table.columns import ColumnMatcher, ScannedFile
from sparkcrypt.runs.table.difference import Drift, Rotation, drift_of_file
from sparkcrypt.runs.table.footers import RetrieveKey
from sparkcrypt.runs.table.open_table import OpenTable
from sparkcrypt.runs.table.scan import ScannedUnit
from sparkcrypt.schema import Path, join_dotted
from sparkcrypt.spark.files.access_rights import keep_storage
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.jvm.gateway import JVM_ERRORS
from sparkcrypt.spark.tasks.digest import RowsDigest
from sparkcrypt.spark.tasks.run import Told


@dataclass(frozen=True, slots=True)
class StagedWork:
    """A unit whose new files are written.

    Attributes:
        engine: the engine that wrote them.
        codec: their compression; None if it was left to the engine.
        notes: notes for the report.
        prove: verifies that the staged files, as listed, match the plan, and that their content equals the old files';
            keys are retrieved through a new helper process, so that no cache of this process is used.  It raises a
            VerificationError if a staged file is wrong or not authentic.
    """

    engine: str
    codec: str | None
    notes: tuple[str, ...]
    prove: Callable[[tuple[Folder, ...], RetrieveKey], Proof] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Staging:
    """A unit that is to be staged.

    Attributes:
        scanned: the unit.
        staged: the folder for its new files, which does not exist yet.
        tell: called from another thread with the number of written files, if the engine has it.
    """

    scanned: ScannedUnit
    staged: str
    tell: Told = field(default=lambda _: None, repr=False)


FAILURES = (SparkcryptError, *JVM_ERRORS, OSError)
"""Errors of one unit, beside which others go on."""


class Stager(Protocol):
    """An engine."""

    engine: str

    def stage_all(self, several: Sequence[Staging]) -> list[StagedWork | Exception]:
        """Write the new files of units, each below its folder.

        Returns:
            What was staged of each, or why it could not be written: one and the same error if they failed together.
            The caller removes the folder then.

        Raises:
            SparkcryptError: an error that ends the run.
        """


def stage_unit(stager: Stager, scanned: ScannedUnit, staged: str) -> StagedWork:
    """Write the new files of one unit below a folder that does not exist yet.

    Raises:
        SparkcryptError: they could not be written; the caller removes the folder.
    """
    (work,) = stager.stage_all([Staging(scanned, staged)])
    if isinstance(work, Exception):
        raise work
    return work


def make_fresh_folder(files: HadoopFiles, unit: Unit, staged: str) -> None:
    """Create the empty staging folder of a unit, whose files will be stored as those in the unit's folders.

    Only this user can access it until all files are in it and it gets the permissions of the unit's folder, since new
    files may be readable by more users than their sources.

    Raises:
        VerificationError: the folder exists, or is in another encryption zone, or its storage policy cannot be set;
            no file was written.
    """
    if files.exists(staged):
        raise VerificationError(
            f"{unit.name}: {staged}, where its new files were to be made, is there already, and no run deletes what it "
            "did not make; run again, which takes another folder"
        )
    files.make_folder(staged.rstrip("/").rpartition("/")[0])
    files.make_folder(staged, mode="700")
    for folder in unit.folders:
        below = f"/{folder.relative}" if folder.relative else ""
        keep_storage(files, unit.location.rstrip("/") + below, staged + below)


_NONE: Mapping[Any, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ProvenByTasks:
    """What the tasks that wrote staged files have proven of them, so that the driver does not prove it again.

    Attributes:
        rotation: the rotation of a master key for which they were made, if any.
        dark: staged file -> its columns under shredded keys, with these: they are not opened, and must be under these.
        unopened: staged file -> columns whose data keys and KEKs are unchanged: their keys are not opened here either.
    """

    rotation: Rotation | None = None
    dark: Mapping[str, Mapping[Path, str]] = field(default_factory=dict)
    unopened: Mapping[str, Collection[Path]] = field(default_factory=dict)


def verify_footers(
    table: OpenTable,
    unit: Unit,
    folders: tuple[Folder, ...],
    retrieve_key: RetrieveKey,
    proven: ProvenByTasks | None = None,
) -> StagedUnit:
    """Verify every staged file: its footer against the plan, each of its keys, and that its modules are authentic.

    Args:
        table: the table, whose plan and identity they must match.
        unit: the unit as listed before.
        folders: the staged files.
        retrieve_key: retrieves keys through a new helper process, so that no cache of this process is used.
        proven: what was proven when they were written, pages among it; None to authenticate pages too.

    Raises:
        VerificationError: a file differs from the plan or is not authentic; the message names file and column.
    """
    target, pages, proven = table.target, proven is None, proven or ProvenByTasks()
    summaries: dict[str, FileSummary] = {}
    unauthenticated: list[str] = []
    matcher, file_format = ColumnMatcher(target.plan), FORMATS[target.format]
    for folder in folders:
        values = partition_of(unit, folder)
        for file in folder.files:
            columns = proven.dark.get(file.path, _NONE)
            try:
                with table.files.open(file.path) as stream:
                    unopened = proven.unopened.get(file.path, ())
                    summary = file_format.open_keys(file.path, stream, retrieve_key, columns, unopened)
                    if pages:
                        unauthenticated.extend(verify_file(stream, retrieve_key=retrieve_key).not_authenticated)
            except FormatError as error:
                raise VerificationError(f"{file.path}: the staged file cannot be read back: {error}") from error
            _refuse_other_keys(summary, columns)
            known = ScannedFile(FooterFacts(summary, {}), matcher.match(summary), dark=columns)
            found = drift_of_file(known, target.plan, values, table_uuid=target.uuid)
            refuse_drift(found if proven.rotation is None else proven.rotation.drift_of(summary, found))
            summaries[file.path] = summary
    return describe_staged(folders, summaries, unauthenticated)


def describe_staged(
    folders: tuple[Folder, ...], summaries: Mapping[str, FileSummary], unauthenticated: Iterable[str]
) -> StagedUnit:
    """Return the verified files of a unit, with their rows, their length and what nothing authenticates in them."""
    return StagedUnit(
        folders=folders,
        summaries=summaries,
        total_bytes=sum(file.length for folder in folders for file in folder.files),
        rows=sum(summary.rows or 0 for summary in summaries.values()),
        not_authenticated=tuple(sorted(set(unauthenticated))),
    )


def _refuse_other_keys(summary: FileSummary, dark: Mapping[Path, str]) -> None:
    """Refuse a staged file with a dark column under another key than its source's.

    Raises:
        VerificationError: there is one; the message names file, column and both keys.
    """
    for path, key_id in dark.items():
        found = (summary.columns or {})[path].key_id
        if found != key_id:
            raise VerificationError(
                f"{summary.path}: column {join_dotted(path)} is under {found!r}, and its source's under the shredded "
                f"{key_id!r}; nothing was swapped"
            )


def refuse_drift(found: Iterable[Drift]) -> None:
    """Raise for the first difference between a staged file and the plan.

    Raises:
        VerificationError: there is a difference; the message names file and column.
    """
    for difference in found:
        raise VerificationError(
            f"{difference.file}: {difference.column or 'the file'}: {difference.kind}: {difference.detail}; "
            "nothing was swapped"
        )


def compare_rows(unit: Unit, before: Mapping[str, RowsDigest], after: Mapping[str, RowsDigest]) -> int:
    """Compare the row digests of source and staged files, folder by folder, and return the number of rows.

    Raises:
        VerificationError: they differ.
    """
    if before.keys() != after.keys():
        raise VerificationError(f"{unit.name}: folders {sorted(before)} became {sorted(after)}; nothing was swapped")
    for folder, digest in before.items():
        if after[folder] != digest:
            raise VerificationError(
                f"{unit.name}: the staged rows of folder {folder or '.'} differ from the source's: {digest.rows} rows "
                "became "
                f"{after[folder].rows}, or a value changed; nothing was swapped"
            )
    return sum(digest.rows for digest in before.values())

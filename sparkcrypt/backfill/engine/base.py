"""What every engine does for a unit: it stages new files, and proves that they say what the old ones said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from sparkcrypt.backfill.drift.footers import RetrieveKey
from sparkcrypt.backfill.drift.scan import ScannedUnit
from sparkcrypt.backfill.engine.staged_files import StagedUnit
from sparkcrypt.backfill.target.unit import Folder, Unit
from sparkcrypt.errors import VerificationError
from sparkcrypt.schema import Path
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.files.storage_policies import keep_storage
from sparkcrypt.spark.tasks.digest import RowsDigest
from sparkcrypt.spark.tasks.task_progress import Told


@dataclass(frozen=True, slots=True)
class Proof:
    """That staged files are right: what was found of them, and in which way their content was seen to be equal.

    Attributes:
        unit: the staged files, checked.
        rows: how many rows they hold.
        row_digests: folder -> digest of its rows, equal before and after, from an engine that wrote rows anew.
        pairs: new file -> old file of the same pages, from an engine that works file by file.
        carried: new file -> its columns under shredded keys, with these, which are the old file's byte for byte.
        purged: new file -> its columns that hold nulls now, with the shredded keys that the old file's were under.
    """

    unit: StagedUnit
    rows: int
    row_digests: Mapping[str, RowsDigest] = field(default_factory=dict)
    pairs: Mapping[str, str] = field(default_factory=dict)
    carried: Mapping[str, Mapping[Path, str]] = field(default_factory=dict)
    purged: Mapping[str, Mapping[Path, str]] = field(default_factory=dict)


class StagedWork(Protocol):
    """A unit whose new files are written.

    Attributes:
        engine: what wrote them.
        codec: their compression; None where it was left to the engine.
        notes: what a person should know of them.
    """

    engine: str
    codec: str | None
    notes: tuple[str, ...]

    def prove(self, folders: tuple[Folder, ...], retrieve_key: RetrieveKey) -> Proof:
        """See that the staged files are what the plan wants and say what the old ones said.

        Args:
            folders: the staged files, as they were listed.
            retrieve_key: asks a helper of its own, so that no cache here can answer.

        Raises:
            VerificationError: they are not.
        """


class Stager(Protocol):
    """An engine."""

    engine: str

    def stage(self, scanned: ScannedUnit, staged: str, told: Told) -> StagedWork:
        """Write a unit's new files below a folder that is not there yet.

        Args:
            scanned: the unit.
            staged: the folder.
            told: hears how many files are written, from another thread, where the engine can tell.

        Raises:
            SparkcryptError: they could not be written; the caller removes the folder.
        """


def make_fresh_folder(files: HadoopFiles, unit: Unit, staged: str) -> None:
    """See that a unit's new files come where nothing is, and will be kept as the old ones are.

    It is this user's alone until all files are in it and it is given the access of the unit's folder: when files are
    made, more people may read them than could read their sources.

    Raises:
        VerificationError: something is there, or they cannot be kept so; nothing was written.
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

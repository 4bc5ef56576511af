"""The interface of engines: staging the new files of a unit, and proving that their content equals the old files'."""

from __future__ import annotations

from typing import Protocol

from sparkcrypt.errors import VerificationError
from sparkcrypt.ledger.audit.evidence import Proof
from sparkcrypt.ledger.unit import Folder, Unit
from sparkcrypt.runs.table.footers import RetrieveKey
from sparkcrypt.runs.table.scan import ScannedUnit
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.files.storage_policies import keep_storage
from sparkcrypt.spark.tasks.task_progress import Told


class StagedWork(Protocol):
    """A unit whose new files are written.

    Attributes:
        engine: the engine that wrote them.
        codec: their compression; None if it was left to the engine.
        notes: notes for the report.
    """

    engine: str
    codec: str | None
    notes: tuple[str, ...]

    def prove(self, folders: tuple[Folder, ...], retrieve_key: RetrieveKey) -> Proof:
        """Verify that the staged files match the plan, and that their content equals the old files'.

        Args:
            folders: the staged files, as listed.
            retrieve_key: retrieves keys through a new helper process, so that no cache of this process is used.

        Raises:
            VerificationError: a staged file is wrong or not authentic.
        """


class Stager(Protocol):
    """An engine."""

    engine: str

    def stage(self, scanned: ScannedUnit, staged: str, progress: Told) -> StagedWork:
        """Write a unit's new files below a folder that does not exist yet.

        Args:
            scanned: the unit.
            staged: the folder.
            progress: called from another thread with the number of written files, if the engine has it.

        Raises:
            SparkcryptError: they could not be written; the caller removes the folder.
        """


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

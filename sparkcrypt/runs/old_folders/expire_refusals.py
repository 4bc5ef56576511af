"""Checks of `expire` before anything is deleted: reasons for which the old files of an ended run must stay."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from sparkcrypt.errors import VerificationError
from sparkcrypt.ledger.journal.journal import Journal
from sparkcrypt.ledger.journal.unit_status import status_of_units, undone_attempts
from sparkcrypt.ledger.unit import restore_unit
from sparkcrypt.paths import comparable_path
from sparkcrypt.runs.old_folders.awaiting_expiry import swap_time
from sparkcrypt.runs.old_folders.check_replacements import Standing
from sparkcrypt.runs.old_folders.ended_writers import earlier_writers_folder
from sparkcrypt.runs.old_folders.past_run import PastRuns
from sparkcrypt.runs.old_folders.reconcile import old_locations
from sparkcrypt.runs.table.in_use import Places


def refuse_missing_table(runs: PastRuns) -> None:
    """Raise an error if the folder of a table without partitions is missing: nothing says that its rows should be gone.

    Raises:
        VerificationError: it names the folder.
    """
    table = runs.table.target.table
    if table is not None and not table.partition_columns and not runs.table.files.exists(table.location):
        raise VerificationError(
            f"{runs.table.target.name}: {table.location}, its folder, is missing, so queries see no row of it; nothing "
            "was deleted. If a swap was cut off, `sparkcrypt backfill` puts it back; else restore the folder"
        )


def refuse_old_in_use(runs: PastRuns, places: Places, standing: Standing) -> None:
    """Raise an error if another table or partition points to an old folder, into it, or above it.

    The files of a partition inside an old folder look like a late commit, so this is checked before anything is
    reconciled.

    Raises:
        VerificationError: it names the folder and what points to it.
    """
    for unit in standing.settled:
        for old in old_locations(unit.status):
            user = places.user_of(old, but=unit.name)
            if user is not None:
                raise VerificationError(
                    f"{runs.table.target.name}: {unit.name}: {old} holds old files, and {user}, which is in it, "
                    "above it or the same; point that to where the new files are, or to a copy of its files, with "
                    "ALTER TABLE … SET LOCATION, then expire; nothing was deleted"
                )


def refuse_earlier_writers(runs: PastRuns, standing: Standing, journals: Iterable[Journal]) -> None:
    """Raise an error if a writer that was planned before the swap may still commit to an old folder.

    Its rows would be lost, since no command compares the folder after its expiry.  The same is checked for writers that
    were planned before a swap was undone, and for the folder that was in use until then.

    Raises:
        VerificationError: it names the writer's folder.
    """
    for unit in standing.settled:
        location = restore_unit(unit.name, unit.status.fields).location
        if comparable_path(location) != comparable_path(unit.new):  # else the writer commits to the new files
            refuse_earlier_writer(runs, unit.name, location, swap_time(unit.journal, unit.status))
    for journal in journals:
        for name, attempt in undone_attempts(journal.records, status_of_units(journal.records)):
            refuse_earlier_writer(runs, name, attempt.staged, attempt.records[-1].time)


def refuse_earlier_writer(runs: PastRuns, name: str, folder: str, since: str) -> None:
    """Raise an error if a writer that may have been planned before a moment may commit to a folder.

    Raises:
        VerificationError: it names the writer's folder.
    """
    began = int(datetime.fromisoformat(since).timestamp() * 1000)
    writing = earlier_writers_folder(runs.table.files, folder, runs.table.target.base, began)
    if writing is not None:
        raise VerificationError(f"{runs.table.target.name}: {name}: {may_commit(writing, folder)}; nothing was deleted")


def may_commit(writing: str, folder: str) -> str:
    """Return the message that a writer's folder exists, with the next step."""
    return (
        f"{writing} is there, so a writer that began before the swap may still commit to {folder}, where nobody would "
        "look for its rows any more; expire again when it has ended; delete that folder if its writer was killed"
    )


def refuse_unaudited(runs: PastRuns, journal: Journal) -> None:
    """Raise an error unless the audit confirms the journal for each unit: a journal alone permits no deletion.

    Raises:
        VerificationError: it names the unit.
    """
    for name, status in status_of_units(journal.records).items():
        if (status.swapped or status.step == "unit_rolled_back") and not journal.archived:
            runs.table.trust.refuse_unaudited(journal, name, status)

"""The move of old files out of a table's folder after the swap, so that nothing brings them back: one rename."""

from __future__ import annotations

from urllib.parse import urlsplit

from sparkcrypt.backfill.units import Unit
from sparkcrypt.bridge.context import comparable_path
from sparkcrypt.errors import PlanError, VerificationError
from sparkcrypt.spark.files import HadoopFiles

MOVED_NOTE = (
    "old files were moved out of the table's folder: readers that had listed them fail with 'file not found' and must "
    "run again; `sparkcrypt backfill expire` deletes them"
)
"""What people must know after a run that moved old files at once."""


def move_old(files: HadoopFiles, unit: str, old: str, to: str) -> None:
    """Rename a unit's old folder to where the run keeps old files; done already is done well.

    Args:
        files: the file system.
        unit: its name, for messages.
        old: where the swap left the old files.
        to: a folder that this run alone uses.

    Raises:
        VerificationError: files are at both places, so a writer made the old folder anew, or a move was cut short.
        SparkcryptError: the file system refused; the same command tries again.
    """
    if comparable_path(old) == comparable_path(to):
        return
    if files.exists(to):
        again = files.data_files(old)
        if again:
            raise VerificationError(
                f"{unit}: old files are at {to} already, and {again[0].path} is at the old place again: a stale writer "
                "left it, or the file system moved the folder in part; insert its rows into the table if they are not "
                "there, move it to a folder that no table reads, then run again"
            )
        return
    if files.exists(old):
        files.make_folder(to.rstrip("/").rpartition("/")[0])
        files.rename(old, to)


def refuse_other_file_systems(units: tuple[Unit, ...], base: str) -> None:
    """Refuse to move old files to another file system than they are on, which no rename can.

    Raises:
        PlanError: it names the unit.
    """
    for unit in units:
        if urlsplit(unit.location)[:2] != urlsplit(base)[:2]:
            raise PlanError(
                f"{unit.name}: its folder {unit.location} is on another file system than the table's ({base}), so "
                "--move-old cannot rename it; leave --move-old out, and dispose of old files by `sparkcrypt backfill "
                "expire`"
            )

"""What runs do about what lies beside data: nothing that is not known is ever moved, deleted or left behind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from sparkcrypt.errors import SourceChangedError, VerificationError
from sparkcrypt.files.beside_data import SUMMARIES, Beside
from sparkcrypt.ledger.unit import Unit, list_location
from sparkcrypt.spark.files.listing import list_contents

if TYPE_CHECKING:
    from sparkcrypt.runs.table.target import Target
    from sparkcrypt.spark.files.hadoop import HadoopFiles

_SHOWN = 3


def refuse_foreign(unit: str, location: str, beside: Iterable[Beside]) -> None:
    """Refuse a unit with anything beside its data that a run would move, and `expire` would delete.

    Args:
        unit: the unit's name.
        location: its folder.
        beside: what lies beside its data files.

    Raises:
        VerificationError: there is something; the message names it.
    """
    why = describe_foreign(location, beside)
    if why is not None:
        raise VerificationError(f"{unit}: {why}")


def describe_foreign(folder: str, beside: Iterable[Beside]) -> str | None:
    """Return why a folder must be neither moved nor deleted: what lies in it beside data; None if it may be."""
    found = find_foreign(beside)
    if not found:
        return None
    what = name_foreign(folder, found)
    if any(entry.kind != "foreign" for entry in found):
        return (
            f"{what}: lies beside data and is of other tables or another format, so it must not be moved or deleted "
            "with them; name the tables' own folders"
        )
    return (
        f"{what}: lies beside data and is no run's, so it must not be moved or deleted with them; move it to a folder "
        "of its own, and tell whatever uses it (for a stream's checkpoint: end the stream, move it, and start the "
        "stream with the new checkpointLocation), then run again"
    )


def find_foreign_in(files: HadoopFiles, folder: str, place: str) -> str | None:
    """Return why a folder must not be deleted: what lies in it beside data; None if nothing does.

    Args:
        files: the file system.
        folder: the folder, for the message.
        place: where it is now, if it was set aside.
    """
    if not files.exists(place):
        return None
    return describe_foreign(folder, list_contents(files, files.status(place).path).beside)


def find_foreign(beside: Iterable[Beside]) -> tuple[Beside, ...]:
    """Return what lies beside data and is no run's."""
    return tuple(entry for entry in beside if entry.kind in ("foreign", "staging", "format"))


def name_foreign(folder: str, found: Sequence[Beside]) -> str:
    """Return the paths of the first few entries, and how many more there are."""
    more = f" and {len(found) - _SHOWN:,} more" if len(found) > _SHOWN else ""
    return ", ".join(f"{folder.rstrip('/')}/{entry.path}" for entry in found[:_SHOWN]) + more


def refuse_moving(files: HadoopFiles, unit: Unit) -> None:
    """Refuse to rename a unit's folder if somebody writes below it, or keeps something beside its data.

    Raises:
        SourceChangedError: a job is writing; the message names its temporary folder.
        VerificationError: something lies beside the data; the message names it.
    """
    _, beside = list_location(files, unit.location)
    refuse_writers(unit, beside)
    refuse_foreign(unit.name, unit.location, beside)


def refuse_writers(unit: Unit, beside: Iterable[Beside]) -> None:
    """Refuse a unit below whose folder Spark or Hive is writing: a rename would move their temporary files too.

    Raises:
        SourceChangedError: a job is writing; the message names its temporary folder.
    """
    for entry in beside:
        if entry.kind == "writer":
            raise SourceChangedError(
                f"{unit.name}: {unit.location}/{entry.path} is there, so someone is writing; the unit stays unchanged; "
                "run again when that has ended; move that folder away if its writer was killed"
            )


def find_summaries_above(files: HadoopFiles, target: Target) -> tuple[str, ...]:
    """Return the summaries of footers in the folder of a partitioned table, above its partitions.

    Returns:
        Their paths; none if the plan encrypts no column, and none of a target whose units have all of its files.
    """
    table = target.table
    if table is None or not table.partition_columns or not target.plan.encrypted:
        return ()
    return tuple(path for name in SUMMARIES if files.exists(path := f"{target.base}/{name}"))

"""What a person does at the end of a round: clears away what killed writers left, and decides what is open."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.chaos.model import Partition
from tests.chaos.site import Site

_UNIT = re.compile(r"\bp=(\d+)")
_BACK, _CUT_OFF = "old files are in use again", "a swap was cut off"


def clear_away(site: Site) -> None:
    """Remove the folders of killed writers, as reports say."""
    for folder in site.left_by_writers():
        shutil.rmtree(folder, ignore_errors=True)
        site.note("a killed writer's folder was removed", folder=str(folder))


def make_empty_folders(site: Site) -> None:
    """Make the folders to which partitions without rows point: a writer that failed may have removed them."""
    for folder in site.world.writer.call("places", table=site.table):
        if not Path(folder).exists() and not site.model.rows(partition_of(folder)):
            Path(folder).mkdir(parents=True)
            site.note("an empty folder was made", folder=folder)


def open_problems(done: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the problems that a pass repeats."""
    said = done["said"] if isinstance(done["said"], dict) else {}
    return [problem for table in said.get("tables", ()) for problem in table["problems"]]


def decide(site: Site, problem: dict[str, Any], command: Callable[..., dict[str, Any]]) -> str | None:
    """Decide a problem while nobody writes: first as the round has it, and where that is refused the other way.

    The rows that are kept must be there afterwards, as often as they were in the folder that was kept.

    Args:
        site: of the round.
        problem: as a report has it.
        command: runs the command line.

    Returns:
        Why it could not be decided; None where it was.
    """
    partition = partition_of(problem["unit"])
    said: Sequence[Any] = ()
    for keep in (site.plan.keep, "new"):
        kept = _kept(site, problem, partition, keep)
        done = command(
            "backfill", "resolve", problem["problem"], "--table", site.table, "--keep", keep, "--reason", "chaos"
        )
        if not done["code"]:
            site.note(f"resolved in favour of the {keep} files")
            if kept is None:
                site.model.question(partition)
            else:
                site.model.decide(partition, kept)
            return None
        said = (done["code"], done["err"][-600:], done["raised"])
        if "is not open" in done["err"]:
            return None  # what was decided of another problem of the unit has settled it
    return f"{problem['problem']} of {problem['unit']}: {said}"


def partition_of(unit: str) -> Partition:
    """Return the partition of a unit by its name."""
    found = _UNIT.search(unit)
    return int(found[1]) if found else None


def _kept(site: Site, problem: dict[str, Any], partition: Partition, keep: str) -> Counter[int] | None:
    """Return the rows that a decision keeps; None where they are not those of one folder."""
    writer, is_back = site.world.writer, problem["kind"] == _BACK
    if is_back and keep == "new":
        return None
    rows = writer.call("read", table=site.table)
    now = Counter(row_id for row_id, _, p in rows if p == partition)
    if is_back or keep == "new":  # old files that are in use again stay there
        return now
    folder = Path(unquote(urlsplit(problem["old_location"]).path))
    files = [str(path) for path in folder.glob("*") if not path.name.startswith((".", "_"))]
    old = Counter(writer.call("read_files", files=files))
    return old + now if problem["kind"] == _CUT_OFF else old  # the old files come back beside what was written since

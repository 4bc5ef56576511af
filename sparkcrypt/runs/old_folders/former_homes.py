"""Former homes of a table and its partitions: a file that comes to one is in no table, so passes look there for ever.

They are known from the catalog alone: a location in a folder of runs tells where the table or partition was before.
As long as a run's old files await expiry there, the comparison with its journal judges what comes; this module judges
all other files, which nobody else would find.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sparkcrypt.errors import VerificationError
from sparkcrypt.ledger.audit.trust import TableTrust
from sparkcrypt.ledger.journal.journal import Journal, has_expired, list_run_ids
from sparkcrypt.ledger.journal.unit_status import UnitStatus
from sparkcrypt.ledger.unit import (
    base_location,
    former_home,
    is_staged,
    moved_place,
    path_below,
    run_of_folder,
    staging_folder,
)
from sparkcrypt.paths import comparable_path
from sparkcrypt.runs.old_folders.compare_with_audit import places_of_unread, record_decision
from sparkcrypt.runs.old_folders.old_folder import expired_folders
from sparkcrypt.runs.old_folders.past_run import PastRuns
from sparkcrypt.runs.old_folders.problems import STRAY, Decision, Problem
from sparkcrypt.runs.rewrite.schedule import FailedUnit
from sparkcrypt.runs.table.open_table import OpenTable
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.files.listing import data_files
from sparkcrypt.spark.tables.table import Table


@dataclass(frozen=True, slots=True)
class StrayFiles:
    """Data files in the former home of a unit, or in the folder of old files of a run that is not known.

    Attributes:
        unit: the unit's name, or the table's if the run is not known.
        home: its former home, or that folder.
        location: the unit's folder now, or that folder.
        files: path below the former home -> length in bytes.
    """

    unit: str
    home: str
    location: str
    files: Mapping[str, int] = field(default_factory=dict)

    @property
    def run_id(self) -> str:
        """The id of the run that made the unit's folder."""
        return run_of_folder(self.location) or ""

    def describe(self, places: Collection[str]) -> str:
        """Return what is wrong with some of the files, and what is to be done."""
        first, more = min(places), f" and {len(places) - 1:,} more" if len(places) > 1 else ""
        if self.home == self.location:
            return (
                f"{self.unit}: {first}{more} is in {self.home}, where run {self.run_id} put files that it had replaced "
                "(perhaps plaintext), and nothing of that run is in this state directory: it was lost, or is not the "
                "one of that run. Restore it from a backup, or correct run_state; if there is none, `sparkcrypt "
                "backfill orphans` lists such folders, and deletes them once nothing in them has changed for a week"
            )
        return (
            f"{self.unit}: {first}{more} is in {self.home}, which the table left: run {self.run_id} put it into "
            f"{self.location}, so what is in that file is in no table, and in clear unless its writer encrypts; change "
            "the job that writes there so that it writes to the table; read the files with spark.read.parquet, insert "
            "what the table lacks, and only then delete them"
        )


def find_stray_files(table: OpenTable, journals: Mapping[str, Journal], but: Collection[str] = ()) -> list[StrayFiles]:
    """Return the units of a table with data files in their former homes, except those in another table's folder.

    Args:
        table: a table; a bare folder has no former home.
        journals: run id -> its journal: it tells the home of a partition that was not in its ordinary folder.
        but: former homes to leave out, in comparable form.

    Raises:
        SparkcryptError: a folder cannot be listed.
    """
    homes = _find_homes(table, journals, but)
    held = _list_files(table.files, table.target.base, {place: stray.home for place, stray in homes.items()})
    found = [replace(stray, files=held[place]) for place, stray in homes.items() if held[place]]
    places = table.in_use.look() if found else None
    strays = []
    for stray in found:
        own = (table.target.name, stray.unit)
        kept = {
            place: length
            for place, length in stray.files.items()
            if places is not None and not places.is_read(f"{stray.home}/{place}".rpartition("/")[0], *own)
        }
        strays += [replace(stray, files=kept)] if kept else []
    return strays


def find_unknown_old(table: OpenTable) -> list[StrayFiles]:
    """Return a table's folders of old files of runs that the state directory does not know, as if it had been lost.

    Raises:
        SparkcryptError: a folder cannot be listed.
    """
    files, target, in_use = table.files, table.target, table.in_use
    if target.table is None:
        return []
    staged = (base_location(place) for place in in_use.units(seconds_old=10.0).values() if is_staged(place))
    bases = {comparable_path(base): base for base in (target.base, *staged)}
    own, found = set(Journal.runs(table.trust.shown_log())), list[tuple[str, str]]()
    for top in map(staging_folder, bases.values()):
        for child in files.children(top) if files.exists(top) else ():
            run_id = run_of_folder(child.path)
            if child.name.startswith("old-") and run_id is not None and run_id not in own:
                found.append((child.path, run_id))
    known = list_run_ids(table.store) if found else frozenset()
    unknown = [folder for folder, run_id in found if run_id not in known]
    strays, places = [], in_use.look() if unknown else None
    for folder in unknown:
        held = {path_below(folder, file.path): file.length for file in data_files(files, folder.rstrip("/"))}
        if held and places is not None and places.user_of(folder) is None:
            strays.append(StrayFiles(target.name, folder, folder, held))
    return strays


def _find_homes(table: OpenTable, journals: Mapping[str, Journal], but: Collection[str]) -> dict[str, StrayFiles]:
    """Return former homes, of which no file is known, by their comparable paths."""
    if table.target.table is None:
        return {}
    homes, base = {}, table.target.base
    statuses = {run_id: journal.statuses() for run_id, journal in journals.items()}
    for unit, location in table.in_use.units(seconds_old=10.0).items():
        home = _read_home(unit, location, base, statuses) or former_home(location, base)
        if home is not None and comparable_path(home) not in but:
            homes[comparable_path(home)] = StrayFiles(unit, home, location)
    return homes


def _read_home(unit: str, location: str, base: str, statuses: Mapping[str, Mapping[str, UnitStatus]]) -> str | None:
    """Return where a unit was before the first of the runs whose records lead there; None if one is missing."""
    place, runs = location, set[str]()
    while (run_id := run_of_folder(place)) is not None:
        status = statuses.get(run_id, {}).get(unit)
        if status is None or "location" not in status.fields or run_id in runs:
            return None
        place = moved_place(status.location, status.base, base) or status.location
        runs.add(run_id)
    return place if runs else None


def _list_files(files: HadoopFiles, base: str, homes: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """Return for each home path below it -> length of its files; those below the table's folder are listed at once."""
    root = comparable_path(base)
    inside = {place for place in homes if f"{place}/".startswith(f"{root}/")}
    held: dict[str, dict[str, int]] = {place: {} for place in homes}
    for folder in ([base] if inside else []) + [homes[place] for place in sorted(homes.keys() - inside)]:
        if not files.exists(folder):
            continue
        for file in data_files(files, files.status(folder).path.rstrip("/")):
            home = _home_above(comparable_path(file.path), homes)
            if home is not None:
                held[home][path_below(home, file.path)] = file.length
    return held


def list_homes(table: OpenTable) -> dict[str, str]:
    """Return unit -> its former home in the table's folder, of the units that runs have taken away from there."""
    units = {} if table.target.table is None else table.in_use.units(seconds_old=10.0)
    homes = {name: former_home(location, table.target.base) for name, location in units.items()}
    return {name: home for name, home in homes.items() if home is not None}


def describe_move(table: Table) -> str | None:
    """Return what jobs that name a table's folder must change before a run puts its files elsewhere.

    Returns:
        None if a run leaves them where they are, or the table has left its folder already.
    """
    base = base_location(table.location)
    if not table.partition_columns and (table.managed or is_staged(table.location)):
        return None
    what = "each partition that it rewrites" if table.partition_columns else "the table"
    return (
        f"a run puts {what} into a folder below {staging_folder(base)}; before it, change jobs that write to {base} by "
        f"path so that they write to {table.full_name} (df.write.insertInto, INSERT INTO): their files would be in no "
        "table; and change jobs that read it by path so that they read the table"
    )


def list_stray_files(table: OpenTable, unknown: Sequence[StrayFiles] | None = None) -> list[FailedUnit]:
    """Return stray files and unknown old folders as units of which something stays open; nothing is written.

    Journals are not authenticated, since this is only reported.  If one is damaged, nothing is returned: the next run
    reports it.

    Args:
        table: the table.
        unknown: what `find_unknown_old` has found; it is called if this is None.

    Raises:
        VerificationError: there are such files, and the audit, which may have a decision on them, is not authentic.
    """
    try:
        log = table.trust.shown_log()
        journals = {run_id: Journal.open(log, run_id) for run_id in Journal.runs(log)}
    except VerificationError:
        return []
    found = find_stray_files(table, journals, set(list_awaited(journals.values())))
    found += find_unknown_old(table) if unknown is None else unknown
    decided = _list_decided(table.trust) if found else {}
    strays = ((stray, _find_undecided(decided, stray)) for stray in found)
    return [FailedUnit(stray.unit, "OpenProblem", stray.describe(came)) for stray, came in strays if came]


def look_into_homes(runs: PastRuns, journals: Iterable[Journal]) -> tuple[list[FailedUnit], list[str]]:
    """Open a problem for each former home with files that nobody awaits, and close those whose files are gone.

    Args:
        runs: the table's runs, under its lock.
        journals: the trusted journals of all runs.

    Returns:
        The units of which something stays open, and notes on files that were decided to be left.

    Raises:
        VerificationError: the audit is not authentic.
        RunConflictError: the lock is lost.
    """
    trusted = {journal.run.run_id: journal for journal in journals}
    awaited = {*list_awaited(trusted.values()), *places_of_unread(runs, trusted.keys())}
    problems, failed, notes = runs.problems(), list[FailedUnit](), list[str]()
    still = set[str]()
    strays = (*find_stray_files(runs.table, trusted, awaited), *find_unknown_old(runs.table))
    decided = _list_decided(runs.table.trust) if strays else {}
    for stray in strays:
        came = _find_undecided(decided, stray)
        if came:
            still.add(comparable_path(stray.home))
            runs.lock.check()
            failed.append(problems.add(_problem(runs, stray, came)).as_failed())
        else:
            notes.append(
                f"{stray.unit}: {len(stray.files):,} files in {stray.home}, which the table left, are in no table, and "
                "stay there by decision; delete them when nobody needs them"
            )
    for problem in problems.open():
        if problem.kind == STRAY and comparable_path(problem.old_location) not in still:
            record_decision(runs, problem, Decision("new", "its files are gone from there, or in use"), {})
    return failed, notes


def resolve_stray(runs: PastRuns, found: Problem, decision: Decision) -> None:
    """Record the decision that the table is right without the files of a former home.

    Raises:
        VerificationError: the decision would put these files into use.
    """
    if decision.keep != "new":
        raise VerificationError(
            f"{found.unit}: what is in {found.old_location} is in no table, and a run cannot tell which of it the "
            "table lacks; insert that into the table by SQL, and resolve the problem with --keep new; nothing was "
            "changed"
        )
    folder = found.old_location
    files = runs.table.files
    held = data_files(files, files.status(folder).path.rstrip("/")) if files.exists(folder) else ()
    record_decision(runs, found, decision, {path_below(folder, file.path): file.length for file in held})


def _list_decided(trust: TableTrust) -> Mapping[str, Collection[tuple[str, int]]]:
    """Return former home, in comparable form -> path and length of each file in it that a decision covers.

    Raises:
        VerificationError: the audit is not authentic.
    """
    decided: dict[str, set[tuple[str, int]]] = {}
    for entries in trust.audit().later.values():
        for unit in (entry.entry["unit"] for entry in entries if entry.entry["what"] == "resolve"):
            if unit.get("kind") == STRAY:
                held = decided.setdefault(comparable_path(str(unit.get("folder"))), set())
                held.update((str(place), int(length)) for place, length in unit["listing"]["old"])
    return decided


def _find_undecided(decided: Mapping[str, Collection[tuple[str, int]]], stray: StrayFiles) -> tuple[str, ...]:
    """Return those files of a former home that no decision covers, by path and length."""
    held = decided.get(comparable_path(stray.home), ())
    return tuple(sorted(place for place, length in stray.files.items() if (place, length) not in held))


def list_awaited(journals: Iterable[Journal]) -> Iterator[str]:
    """Yield, in comparable form, the folders whose files runs with these journals still compare with their lists."""
    for journal in journals:
        if has_expired(journal):
            continue
        expired = expired_folders(journal.records)
        for status in journal.statuses().values():
            listed = [str(status.fields["location"])] if "location" in status.fields else []
            places = {
                comparable_path(place) for place in (*listed, *([status.old_location] if status.was_swapped else ()))
            }
            if not places & expired:
                yield from places


def _problem(runs: PastRuns, stray: StrayFiles, came: tuple[str, ...]) -> Problem:
    return Problem(
        problem="",
        table=runs.table.target.name,
        run_id=stray.run_id,
        unit=stray.unit,
        kind=STRAY,
        old_location=stray.home,
        came=came,
        message=stray.describe(came),
        base=runs.table.target.base,
    )


def _home_above(path: str, homes: Collection[str]) -> str | None:
    while "/" in path:
        path = path.rpartition("/")[0]
        if path in homes:
            return path
    return None

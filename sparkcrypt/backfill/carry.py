"""Files that a stale writer left where a unit's old files are: their rows are carried over to the new ones.

A job that planned its write before the swap still writes to the old folder.  Nobody reads that any more, so its rows
would be lost when the old files expire.  They are rewritten as any file is, proven, and put beside the new files; the
journal says so before and after, so that a killed run neither loses nor doubles a row.

Not carried over is what cannot be told apart from an overwrite: where listed files are gone from the old folder, the
stale writer may have meant to replace all rows; and where the new files are gone from the new one, somebody has
replaced them since, and rows that are older must not come back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

from sparkcrypt.backfill.evidence import evidence_of, files_of
from sparkcrypt.backfill.footers import DriverFooters, own_keys, sorted_out
from sparkcrypt.backfill.ledger import audited, placed
from sparkcrypt.backfill.outcome import UnitOutcome
from sparkcrypt.backfill.runner import Runner
from sparkcrypt.backfill.scan import refuse_unit, scanned_unit
from sparkcrypt.backfill.schedule import FailedUnit
from sparkcrypt.backfill.swap import LocationSwap, NewFolder
from sparkcrypt.backfill.unit_record import below, by_place, listed, restored
from sparkcrypt.backfill.unit_state import UnitState, state_of_units
from sparkcrypt.backfill.units import Folder, SourceFile, Unit, attempt_folder, list_folders, staging_folder
from sparkcrypt.bridge.context import comparable_path
from sparkcrypt.errors import RunConflictError, SparkcryptError, VerificationError
from sparkcrypt.spark.files import HadoopFiles


def carry_over_all(runner: Runner) -> list[FailedUnit]:
    """Carry over what stale writers left in the old folders of a run's units.

    Returns:
        The units whose stale files cannot be carried over, and why; their old files must stay.
    """
    failed: list[FailedUnit] = []
    if isinstance(runner.swap, NewFolder):  # its source is no old folder: people go on writing to it
        return failed
    for name, state in state_of_units(runner.run.journal.records).items():
        if state.swapped:
            try:
                if isinstance(runner.swap, LocationSwap):
                    carry_over(runner, name, state)
                else:
                    refuse_stale(runner.run.files, name, state)
            except RunConflictError:
                raise
            except SparkcryptError as error:
                failed.append(FailedUnit(name, type(error).__name__, str(error)))
    return failed


def carry_over(runner: Runner, name: str, state: UnitState, *, but: Collection[str] = ()) -> int:
    """Carry over what stale writers left of one unit; return the number of files.

    Args:
        runner: of the run.
        name: of the unit.
        state: how far it has come.
        but: old folders that are in use again, whose files are no stale writer's.

    Raises:
        VerificationError: it looks like an overwrite, or the files are not to be believed; nothing was changed.
    """
    if len(state.carrying) > len(state.carried):
        _finish(runner, name, state.carrying[-1])
        state = state_of_units(runner.run.journal.records)[name]
    unit = restored(name, state.fields)
    count = 0
    for location in (one for one in old_locations(state) if one not in but):
        stale = stale_files(unit, location, list_folders(runner.run.files, location), state)
        if stale:
            count += sum(len(folder.files) for folder in stale)
            _carry(runner, replace(unit, location=location, folders=stale), state)
    return count


def refuse_stale(files: HadoopFiles, name: str, state: UnitState) -> None:
    """Refuse a unit in whose old folder there are files that the run did not list.

    Raises:
        VerificationError: it names the first one.
    """
    unit, old = restored(name, state.fields), str(_outcome(state).old_location)
    for folder in stale_files(unit, old, list_folders(files, old), state):
        raise VerificationError(
            f"{name}: {folder.files[0].path} is in the old folder, but was not there, or not with this length, when "
            "the run listed it: a stale writer left it, and its rows would be lost; read it with spark.read.parquet, "
            "insert its rows into the table if they are not there, move the file to a folder that no table reads, then "
            "run `sparkcrypt backfill expire` again; nothing was deleted"
        )


def old_locations(state: UnitState) -> tuple[str, ...]:
    """Return where old files of a swapped unit are, or may appear again."""
    outcome = UnitOutcome.from_dict(state.fields["outcome"])
    places = {comparable_path(one): one for one in (outcome.old_location, str(state.fields["location"]))}
    places.pop(comparable_path(outcome.new_location), None)
    return tuple(places.values())


def stale_files(unit: Unit, location: str, folders: tuple[Folder, ...], state: UnitState) -> tuple[Folder, ...]:
    """Return the files in an old folder that the run neither listed nor carried over.

    Args:
        unit: as the run listed it.
        location: of the old folder.
        folders: what is there now.
        state: how far the unit has come.

    Raises:
        VerificationError: listed files are gone or changed where others came.
    """
    now, then = by_place(location, folders), by_place(unit.location, unit.folders)
    known = {(place, file.length) for place, file in then.items()} | set(_carried(state))
    new = {place for place, file in now.items() if (place, file.length) not in known}
    missing = sorted(place for place, file in then.items() if place not in now or now[place].length != file.length)
    if new and missing and comparable_path(location) == comparable_path(str(_outcome(state).old_location)):
        raise VerificationError(
            f"{unit.name}: {min(new)} came to the old folder {location}, and {missing[0]}, which the run had listed, "
            "is gone or changed: a stale writer overwrote the unit there; its rows are not those of the table; read "
            "them with spark.read.parquet, write them to the table if they should be there, move the new files to a "
            "folder that no table reads, then run `sparkcrypt backfill expire` again; nothing was changed"
        )
    return tuple(
        replace(folder, files=tuple(file for file in folder.files if below(location, file.path) in new))
        for folder in folders
        if any(below(location, file.path) in new for file in folder.files)
    )


def _carry(runner: Runner, unit: Unit, state: UnitState) -> None:
    run, outcome = runner.run, _outcome(state)
    refuse_replaced(runner, unit, state)
    run.progress.step(unit.name, "carrying over")
    footers = DriverFooters(run.files, own_keys(run.policy.key_service)).read(unit.files)
    scanned = scanned_unit(unit, sorted_out(footers, unit.files), run.target)
    refuse_unit(scanned, run.target, run.policy, adopt=False)
    attempt = f"{attempt_folder(run.run_id, run.lock.token)}-carried-{len(state.carried) + 1}"
    staged = f"{staging_folder(run.target.base)}/{attempt}/{unit.partition_path}".rstrip("/")
    sources = files_of(run.files, unit.folders, scanned.summaries, run.secret)
    work = runner.stager.stage(scanned, staged, lambda _: None)
    run.files.copy_access(unit.location, staged)
    folders = list_folders(run.files, staged)
    proof = work.prove(folders, run.fresh_keys)
    targets = files_of(run.files, folders, proof.unit.summaries, run.secret)
    evidence = evidence_of(sources, targets, proof, run.secret)
    record = {
        "from": unit.location,
        "to": outcome.new_location,
        "files": listed(unit.folders),
        "staged": staged,
        "made": listed(folders),
        "evidence": {
            **evidence,
            "changes": placed(evidence["changes"], unit, staged, unit.location, outcome.new_location),
        },
        "rows": proof.rows,
        "engine": work.engine,
    }
    run.journal.append("unit_carrying", unit=unit.name, **record)
    _finish(runner, unit.name, record)


def _finish(runner: Runner, name: str, record: Any) -> None:
    """Put what was staged of stale files beside the new ones, and write it down; what is there already stays."""
    run = runner.run
    run.lock.check()
    staged, to = str(record["staged"]), str(record["to"])
    for folder, files in record["made"]:
        for path, length, _ in files:
            place = f"{folder}/{path.rpartition('/')[2]}".lstrip("/")
            source, target = f"{staged}/{place}", f"{to}/{place}"
            if run.files.exists(source):
                run.files.make_folder(target.rpartition("/")[0])
                run.files.rename(source, target)
            elif not run.files.is_file(target) or run.files.status(target).length != length:
                raise VerificationError(
                    f"{name}: {source} was staged to be carried over, and is neither there nor at {target}; someone "
                    f"deleted it; what it was made of is still below {record['from']}"
                )
    carried = {"unit": name, "files": sum(len(files) for _, files in record["made"]), "rows": record["rows"]}
    evidence = record["evidence"]
    head = audited(run, "carry over", record["engine"], carried, evidence["digests"], evidence["changes"])
    run.journal.append(
        "unit_carried", unit=name, **{"from": record["from"], "files": record["files"], "audit": head.to_dict()}
    )
    run.disposal.delete([staged])


def refuse_replaced(runner: Runner, unit: Unit, state: UnitState) -> None:
    """Refuse a unit whose new files were replaced, or which points elsewhere, since the run.

    Raises:
        VerificationError: it says what has changed.
    """
    outcome = _outcome(state)
    if not runner.swap.in_effect(restored(unit.name, state.fields), outcome.new_location):
        raise VerificationError(
            f"{unit.name}: it does not point to {outcome.new_location} any more, where the run had put it; someone "
            "moved it since; nothing was changed"
        )
    folders = list_folders(runner.run.files, outcome.new_location)
    now = {place: file.length for place, file in by_place(outcome.new_location, folders).items()}
    missing = sorted(place for place, length in new_files(state) if now.get(place) != length)
    if missing:
        raise VerificationError(
            f"{unit.name}: {missing[0]}, which the run had written to {outcome.new_location}, is gone or changed: "
            "someone has replaced the unit's rows since, so older ones must not come back; nothing was changed"
        )


def new_files(state: UnitState) -> Iterator[tuple[str, int]]:
    """Yield the files that a run wrote for a unit: path below the unit, length in bytes."""
    staged = str(state.fields["staged"])
    for change in state.fields.get("evidence", {}).get("changes", ()):
        for file in change["targets"]:
            yield below(staged, str(file["path"])), int(file["bytes"])


def _carried(state: UnitState) -> Iterator[tuple[str, int]]:
    for record in state.carried:
        for _, files in record["files"]:
            for file in files:
                known = SourceFile(*file)
                yield below(str(record["from"]), known.path), known.length


def _outcome(state: UnitState) -> UnitOutcome:
    return UnitOutcome.from_dict(state.fields["outcome"])

"""Files that a stale writer left where a unit's old files are: their rows are carried over to the new ones.

A job that planned its write before the swap still writes to the old folder.  Nobody reads that any more, so its rows
would be lost when the old files expire.  They are rewritten as any file is, proven, and put beside the new files; the
journal says so before and after, so that a killed run neither loses nor doubles a row.

Whether that is right is decided in `sparkcrypt.backfill.compare`: where the new files are gone from the new folder,
somebody has replaced them since, and rows that are older must not come back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from sparkcrypt.backfill.evidence import evidence_of, files_of
from sparkcrypt.backfill.footers import DriverFooters, own_keys, sorted_out
from sparkcrypt.backfill.journal import Journal
from sparkcrypt.backfill.ledger import audited, placed
from sparkcrypt.backfill.old_changes import changes_at
from sparkcrypt.backfill.outcome import UnitOutcome
from sparkcrypt.backfill.runner import Runner
from sparkcrypt.backfill.scan import refuse_unit, scanned_unit
from sparkcrypt.backfill.unit_record import below, by_place, listed, restored
from sparkcrypt.backfill.unit_state import UnitState, state_of_units
from sparkcrypt.backfill.units import Folder, Unit, attempt_folder, list_folders, staging_folder
from sparkcrypt.bridge.context import comparable_path
from sparkcrypt.errors import VerificationError
from sparkcrypt.spark.files import HadoopFiles


def carry_over(runner: Runner, name: str, state: UnitState, location: str, came: tuple[Folder, ...]) -> None:
    """Carry over files that came to one of a unit's old folders.

    Raises:
        VerificationError: the unit's new files were replaced, or the files are not to be believed; nothing was changed.
    """
    unit = replace(restored(name, state.fields), location=location, folders=came)
    _carry(runner, unit, state)


def finish_carrying(runner: Runner, name: str, state: UnitState) -> UnitState:
    """Finish what a killed run had begun to carry over; return how far the unit has come then."""
    if len(state.carrying) > len(state.carried):
        _finish(runner, name, state.carrying[-1])
        return state_of_units(runner.run.journal.records)[name]
    return state


def home_of(runner: Runner, name: str, state: UnitState) -> UnitState:
    """Return the state of the run that put a unit where it is now: this one's, or a later run's that rewrote its files.

    Raises:
        VerificationError: the journal of a later run is damaged.
    """
    run = runner.run
    for run_id in Journal.runs(run.store, run.target.table_id):
        if run_id > run.run_id:
            later = state_of_units(run.trust.journal(run_id).records).get(name)
            if later is not None and later.swapped and _same(str(later.fields["location"]), _outcome(state)):
                state = later
    return state


def refuse_stale(files: HadoopFiles, name: str, state: UnitState) -> None:
    """Refuse a unit in whose old folder there are files that the run did not list.

    Raises:
        VerificationError: it names the first one.
    """
    unit, old = restored(name, state.fields), str(_outcome(state).old_location)
    for folder in changes_at(unit, old, list_folders(files, old), state).came:
        raise VerificationError(stale_message(name, folder.files[0].path))


def stale_message(name: str, path: str) -> str:
    """Return what a person must know of a file that came to an old folder out of which nothing is carried over."""
    return (
        f"{name}: {path} is in the old folder, but was not there, or not with this length, when the run listed it: a "
        "stale writer left it, and its rows would be lost; read it with spark.read.parquet, and insert its rows into "
        "the table if they are not there; nothing was deleted"
    )


def old_locations(state: UnitState) -> tuple[str, ...]:
    """Return where old files of a swapped unit are, or may appear again."""
    outcome = _outcome(state)
    places = {comparable_path(one): one for one in (outcome.old_location, str(state.fields["location"]))}
    places.pop(comparable_path(outcome.new_location), None)
    return tuple(places.values())


def _carry(runner: Runner, unit: Unit, state: UnitState) -> None:
    run = runner.run
    outcome = _outcome(refuse_replaced(runner, unit, state))
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


def refuse_replaced(runner: Runner, unit: Unit, state: UnitState) -> UnitState:
    """Refuse a unit whose new files were replaced, or which points elsewhere, since the run and those that followed it.

    Returns:
        The state of the run that put it where it is.

    Raises:
        VerificationError: it says what has changed.
    """
    home = home_of(runner, unit.name, state)
    outcome = _outcome(home)
    if not runner.swap.in_effect(restored(unit.name, home.fields), outcome.new_location):
        raise VerificationError(
            f"{unit.name}: it does not point to {outcome.new_location} any more, where the run had put it; someone "
            "moved it since; nothing was changed"
        )
    missing = replaced_files(runner.run.files, home)
    if missing:
        raise VerificationError(
            f"{unit.name}: {missing[0]}, which the run had written to {outcome.new_location}, is gone or changed: "
            "someone has replaced the unit's rows since, so older ones must not come back; nothing was changed"
        )
    return home


def replaced_files(files: HadoopFiles, state: UnitState) -> list[str]:
    """Return which of the files that a run wrote for a unit are gone or changed, as paths below the unit."""
    location = _outcome(state).new_location
    now = {place: file.length for place, file in by_place(location, list_folders(files, location)).items()}
    return sorted(place for place, length in new_files(state) if now.get(place) != length)


def new_files(state: UnitState) -> Iterator[tuple[str, int]]:
    """Yield the files that a run wrote for a unit: path below the unit, length in bytes."""
    staged = str(state.fields["staged"])
    for change in state.fields.get("evidence", {}).get("changes", ()):
        for file in change["targets"]:
            yield below(staged, str(file["path"])), int(file["bytes"])


def _same(location: str, outcome: UnitOutcome) -> bool:
    return comparable_path(location) == comparable_path(outcome.new_location)


def _outcome(state: UnitState) -> UnitOutcome:
    return UnitOutcome.from_dict(state.fields["outcome"])

"""After a crash: units that were swapped stay so and are written down, all others are as they were before."""

from __future__ import annotations

from sparkcrypt.backfill.ledger import record_swap
from sparkcrypt.backfill.outcome import UnitOutcome
from sparkcrypt.backfill.runner import Runner
from sparkcrypt.backfill.unit_record import restored
from sparkcrypt.backfill.unit_state import UnitState, state_of_units
from sparkcrypt.backfill.units import list_folders


def recover(runner: Runner) -> list[UnitOutcome]:
    """Bring the units of an interrupted run to a clean state.

    Staged files of a unit whose swap was about to happen stay until ``expire``: the driver that was about to may only
    be paused, and would point the table to them when it wakes up.

    Returns:
        What was swapped already.
    """
    outcomes = []
    for name, last in state_of_units(runner.run.journal.records).items():
        state = last.failed_at or last
        if state.swapped:
            outcomes.append(_moved(runner, state))
        elif state.step == "unit_swapping":
            outcomes.extend(_swapped(runner, name, state))
        elif "staged" in state.fields and state.step != "unit_rolled_back":
            runner.run.files.delete_tree(str(state.fields["staged"]))
    return outcomes


def _moved(runner: Runner, state: UnitState) -> UnitOutcome:
    outcome = UnitOutcome.from_dict(state.fields["outcome"])
    if state.step == "unit_moved":
        return outcome
    return runner.moved(outcome, str(state.fields["partition_path"]))


def _swapped(runner: Runner, name: str, state: UnitState) -> list[UnitOutcome]:
    fields, swap = state.fields, runner.swap
    unit, staged = restored(name, fields), str(fields["staged"])
    if not swap.in_effect(unit, staged):
        return []
    new, about = swap.final_location(unit, staged), fields.get("about", {})
    after = list_folders(runner.run.files, new)
    outcome = UnitOutcome(
        name=name,
        files=len(unit.files),
        rows=int(fields.get("rows", 0)),
        bytes_before=unit.total_bytes,
        bytes_after=sum(file.length for folder in after for file in folder.files),
        old_location=swap.old_location(unit),
        new_location=new,
        verified=True,
        codec=about.get("codec"),
        notes=tuple(about.get("notes", ())),
        engine=about.get("engine", "spark"),
    )
    record_swap(runner.run, unit, staged, outcome, fields.get("evidence", {}))
    return [runner.moved(outcome, unit.partition_path)]

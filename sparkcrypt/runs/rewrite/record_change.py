"""Records of a change: an entry in the table's audit, then the journal's record of the swap."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sparkcrypt.ledger.audit.audit import make_entry
from sparkcrypt.ledger.journal.entries import AuditHead, UnitSwapped
from sparkcrypt.ledger.unit import Unit, UnitOutcome, path_below
from sparkcrypt.names import PREDECESSOR
from sparkcrypt.runs.rewrite.context import RunContext


def record_swap(run: RunContext, unit: Unit, staged: str, outcome: UnitOutcome, evidence: Mapping[str, Any]) -> None:
    """Record in audit and journal that a unit was swapped."""
    changes = place_changes(evidence.get("changes", ()), unit, staged, outcome.old_location, outcome.new_location)
    with run.one_at_a_time:
        head = append_audit(run, "encrypt", outcome.engine, outcome.to_dict(), evidence.get("digests"), changes)
        run.journal.write(UnitSwapped(outcome, head))


def append_audit(
    run: RunContext, what: str, engine: str, unit: Mapping[str, Any], digests: Any, changes: list[dict[str, Any]]
) -> AuditHead:
    """Append an entry to the table's audit.

    Args:
        run: the run's context.
        what: ``encrypt``, ``carry over``, ``roll back``, ``relocate`` or ``resolve``.
        engine: the engine that wrote the new files; ``none`` if no file was written.
        unit: the unit, as JSON values.
        digests: how the digests of files were made; None if there are none.
        changes: which new files were made from which old files.
    """
    last = run.journal.records[-1]
    predecessor = None if run.table.target.table is None else run.table.target.table.properties.get(PREDECESSOR)
    entry = make_entry(
        what,
        run.table.policy.digest(),
        run.run_id,
        table=run.table.target.name,
        journal={"number": last.number, "digest": last.digest},
        engine=engine,
        unit=dict(unit),
        digests=digests,
        changes=changes,
        **({} if predecessor is None else {"predecessor": predecessor}),
    )
    with run.one_at_a_time:
        return run.audit.append(entry)


def place_changes(
    changes: Iterable[Mapping[str, Any]], unit: Unit, staged: str, old_location: str, new_location: str
) -> list[dict[str, Any]]:
    """Return a unit's changes with the paths of its files after the swap.

    Of a source, ``path`` is where it was listed and ``kept`` where it is now; of a target, ``staged`` is where it was
    made and ``path`` where it is now.
    """

    def move_path(location: str, file: Mapping[str, Any], folder: str) -> str:
        return f"{location.rstrip('/')}/{path_below(folder, str(file['path']))}"

    return [
        {
            **change,
            "sources": [{**file, "kept": move_path(old_location, file, unit.location)} for file in change["sources"]],
            "targets": [
                {**file, "staged": file["path"], "path": move_path(new_location, file, staged)}
                for file in change["targets"]
            ],
        }
        for change in changes
    ]

"""In which order the units of a table are done, and under a budget the tables of a pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from sparkcrypt.backfill.drift.unit_survey import UnitSurvey
from sparkcrypt.plan import EncryptionPlan
from sparkcrypt.policy.model import Policy

Priority = Literal["tag", "size", "age"]
PRIORITIES: tuple[Priority, ...] = ("tag", "size", "age")


def order_units(
    units: Iterable[UnitSurvey], priorities: Sequence[Priority], plan: EncryptionPlan, policy: Policy
) -> list[UnitSurvey]:
    """Return units in the order in which they are to be done; units of equal priority keep theirs.

    Units with a file that cannot be read come last.

    Args:
        units: all of one table.
        priorities: ``tag``, by the policy's order of the tags that drift; ``size``, the largest first; ``age``, those
            first whose newest file is the oldest.  The first counts most.
        plan: of the table.
        policy: whose order of tags counts.
    """
    order = _places(policy)
    tags = {column.leaf.dotted: order.get(column.tag or "", len(order)) for column in plan.columns}
    ranks: dict[Priority, Callable[[UnitSurvey], Any]] = {
        "tag": lambda unit: min((_rank(drift.column, tags) for drift in unit.drift), default=len(order)),
        "size": lambda unit: -unit.total_bytes,
        "age": lambda unit: unit.newest_ms,
    }
    # What cannot be read will be refused: it must not keep what can be done from the budget.
    return sorted(
        units, key=lambda unit: ("quarantine" in unit.actions, *(ranks[priority](unit) for priority in priorities))
    )


def table_rank(plan: EncryptionPlan, policy: Policy) -> int:
    """Return the place in the policy of the first of a table's tags that encrypt; small is early."""
    order = _places(policy)
    return min((order.get(column.tag or "", len(order)) for column in plan.encrypted), default=len(order))


def _places(policy: Policy) -> dict[str, int]:
    return {rule.name: place for place, rule in enumerate(policy.tags)}


def _rank(column: str | None, tags: dict[str, int]) -> int:
    """Return the place of a drifting column's tag; a whole file's drift concerns all of its columns."""
    if column is None:
        return min(tags.values(), default=0)
    return tags.get(column, len(tags))

"""The order in which a run processes a table's units, and a pass with a budget its tables."""

from __future__ import annotations

from collections.abc import Iterable

from sparkcrypt.plan import EncryptionPlan
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.table.unit_survey import UnitSurvey


def order_units(units: Iterable[UnitSurvey], plan: EncryptionPlan, policy: Policy) -> list[UnitSurvey]:
    """Return the units of one table by the policy's order of the tags that drift; equal ones keep their order.

    Units with a file that the run will refuse, such as one that cannot be read, come last.
    """
    order = _places(policy)
    tags = {column.leaf.dotted: order.get(column.tag or "", len(order)) for column in plan.columns}

    def rank(unit: UnitSurvey) -> tuple[bool, int]:
        # Units that will be refused come last, so that they take no budget from those that can be done.
        first = min((_rank(drift.column, tags) for drift in unit.drift), default=len(order))
        return "quarantine" in unit.actions, first

    return sorted(units, key=rank)


def table_rank(plan: EncryptionPlan, policy: Policy) -> int:
    """Return the lowest position in the policy of a tag by which the table has encrypted columns."""
    order = _places(policy)
    return min((order.get(column.tag or "", len(order)) for column in plan.encrypted), default=len(order))


def _places(policy: Policy) -> dict[str, int]:
    return {rule.name: place for place, rule in enumerate(policy.tags)}


def _rank(column: str | None, tags: dict[str, int]) -> int:
    """Return the position of a drifting column's tag; drift of a whole file affects all of its columns."""
    if column is None:
        return min(tags.values(), default=0)
    return tags.get(column, len(tags))

"""What a principal would get of each column of a table, and why, by the plan and the key service."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sparkcrypt.decide.denied import asks_for_nulls
from sparkcrypt.errors import KeyServiceError, PlanError
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.keys.access_decisions import decision_of
from sparkcrypt.keys.service import Decision
from sparkcrypt.keys.tombstones import reason_of_absence
from sparkcrypt.plan import ColumnPlan, EncryptionPlan
from sparkcrypt.policy.model import OnDenied, Policy
from sparkcrypt.schema import join_dotted

Right: TypeAlias = Literal["allowed", "denied", "shredded", "missing", "unavailable", "undecided", "no key needed"]
Result: TypeAlias = Literal["values", "null", "error", "not known"]
Decide: TypeAlias = Callable[[str], "Decision | None"]
_SAID: dict[Right, str] = {
    "allowed": "may be used",
    "denied": "is denied",
    "shredded": "was shredded",
    "missing": "is not there",
    "unavailable": "cannot be asked about: the key service does not answer",
    "undecided": "cannot be decided on: this key service tells by an unwrap alone, which takes a file",
    "no key needed": "is not needed",
}


@dataclass(frozen=True, slots=True)
class ColumnAccess(JsonObject):
    """What a principal would get of one column, in those partitions that share a key.

    Attributes:
        column: logical path.
        tag: the tag that chose its key; None if no tag did.
        key: the master key; None for a plaintext column.
        partitions: the partitions, as ``{column: value}``; None for all.
        right: the key service's decision on the key.
        result: what a read gives.
        named: what a query gives that names the column: under strict projection an error in place of null.
        why: the reason, as the end of a sentence.
    """

    column: str
    tag: str | None
    key: str | None
    partitions: tuple[Mapping[str, str], ...] | None
    right: Right
    result: Result
    named: Result
    why: str


def explain_access(
    plan: EncryptionPlan,
    policy: Policy,
    decide: Decide,
    *,
    partitions: Sequence[Mapping[str, str]] = (),
    on_denied: OnDenied | None = None,
    strict_projection: bool | None = None,
) -> tuple[ColumnAccess, ...]:
    """Return what a read of each column would give.

    Args:
        plan: the table's plan.
        policy: its tags decide what a read of denied columns gives.
        decide: key id -> the key service's decision for the principal's credential; None: it does not decide.
        partitions: values of partition columns, for key templates.
        on_denied: the session's setting; None: it has none.
        strict_projection: the session's setting; it cannot turn off the policy's.
    """
    strict = policy.strict_projection or bool(strict_projection)
    rights: dict[str, Right] = {}

    def right_of(key_id: str) -> Right:
        if key_id not in rights:
            right = _ask(decide, key_id)
            rights[key_id] = reason_of_absence(policy.run_state, key_id) if right == "shredded" else right
        return rights[key_id]

    footer = right_of(plan.footer_key) if plan.encrypted else "allowed"
    found: list[ColumnAccess] = []
    for column in plan.columns:
        name = join_dotted(column.leaf.logical)
        gives_nulls = column.key is not None and asks_for_nulls(policy, column, on_denied)
        for key_id, places in _keys(plan, column, partitions):
            if places == ():
                why = "no partition is there from whose values its key could be made"
                found.append(ColumnAccess(name, column.tag, key_id, places, "no key needed", "values", "values", why))
                continue
            right: Right = "no key needed" if key_id is None else right_of(key_id)
            result, why = _judge(key_id, right, gives_nulls, plan.footer_key, footer)
            named: Result = "error" if strict and result == "null" else result
            why += "; strict_projection makes naming the column an error" if named != result else ""
            found.append(ColumnAccess(name, column.tag, key_id, places, right, result, named, why))
    return tuple(found)


def _ask(decide: Decide, key_id: str) -> Right:
    try:
        return decide(key_id) or "undecided"
    except KeyServiceError as error:
        try:
            return decision_of(error)
        except KeyServiceError:
            return "unavailable"


def _keys(
    plan: EncryptionPlan, column: ColumnPlan, partitions: Iterable[Mapping[str, str]]
) -> list[tuple[str | None, tuple[Mapping[str, str], ...] | None]]:
    """Return the keys of a column, each with its partitions: several if the key is a template."""
    if column.action == "plaintext":
        return [(None, None)]
    if column.key is None:
        return [(plan.footer_key, None)]
    if not column.key.columns:
        return [(column.key.text, None)]
    found: dict[str, list[Mapping[str, str]]] = {}
    for values in partitions:
        try:
            found.setdefault(column.key.render(values), []).append(values)
        except PlanError:
            continue  # no file could be written there either
    return [(key, tuple(places)) for key, places in found.items()] or [(column.key.text, ())]


def _judge(key_id: str | None, right: Right, gives_nulls: bool, footer_key: str, footer: Right) -> tuple[Result, str]:
    if footer in ("denied", "shredded", "missing", "unavailable"):
        return "error", f"the footer's key {footer_key} {_SAID[footer]}, and without it nothing can be read"
    if footer == "undecided" or right == "undecided":
        return "not known", f"key {footer_key if footer == 'undecided' else key_id} {_SAID['undecided']}"
    if key_id is None:
        return "values", "the column is plaintext"
    if right == "allowed":
        return "values", f"key {key_id} {_SAID[right]}"
    if right != "unavailable" and gives_nulls:
        return "null", f"key {key_id} {_SAID[right]}, and nulls are asked for"
    return "error", f"key {key_id} {_SAID[right]}"

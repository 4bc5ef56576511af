"""Checks of declassified values, which do not carry the tags of the columns that they come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkcrypt.decide.context import parse_policy
from sparkcrypt.decide.request import require_text, require_texts
from sparkcrypt.errors import BridgeError, PlanError, show


def check_declassified(request: Mapping[str, Any]) -> None:
    """Refuse to declassify values if the policy does not allow it.

    Args:
        request: ``policy``, ``principal``, ``reason``, ``tags`` (that the value would have), ``columns`` (table, or
            folder, -> names of the columns that it comes from).

    Raises:
        PlanError: the policy allows it to nobody, not to this principal, or not for one of the tags.
    """
    policy, principal = parse_policy(require_text(request, "policy")), require_text(request, "principal")
    tags, rule = require_texts(request, "tags"), policy.declassify
    what = f"declassify({', '.join(list_columns(request)) or 'a column'}, {require_text(request, 'reason')!r})"
    if rule is None:
        raise PlanError(
            f"{what}: the policy allows nobody to take tags off; have its owner add declassify: {{principals: [...], "
            "tags: [...]}"
        )
    if principal not in rule.principals:
        raise PlanError(
            f"{what}: {principal} may not take tags off; allowed: {', '.join(rule.principals)}; ask the policy's owner"
        )
    for tag in tags:
        if tag not in rule.tags:
            raise PlanError(
                f"{what}: the tag {tag!r} may not be taken off; allowed: {', '.join(rule.tags)}; ask the policy's owner"
            )


def list_columns(request: Mapping[str, Any]) -> list[str]:
    """Return the columns of a request, each with its table.

    Raises:
        BridgeError: they are not lists of names by table.
    """
    columns = request.get("columns")
    if not isinstance(columns, Mapping) or not all(isinstance(names, list) for names in columns.values()):
        raise BridgeError(
            f"the request's 'columns' are {show(columns)}; allowed: lists of names by tables; the jar and this helper "
            "do not belong together"
        )
    return [f"{table}.{name}" for table, names in columns.items() for name in names]

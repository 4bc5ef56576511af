"""Judges writes that are only planned yet, on the driver: what no writer of one file could refuse in time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from sparkcrypt.bridge.context import parse_policy
from sparkcrypt.bridge.request import require_text
from sparkcrypt.errors import BridgeError, PlanError, shown
from sparkcrypt.policy.model import Policy, TagRule
from sparkcrypt.schema import schema_from_spark


def check_partitioning(request: Mapping[str, Any]) -> dict[str, Any]:
    """Refuse partition columns whose tags encrypt, since their values would be names of folders; answer ``{}``.

    Args:
        request: ``policy``, ``target`` (what is written), ``columns``: ``name`` and ``metadata`` (JSON) of each.

    Raises:
        PlanError: a column's tag encrypts, or is not known.
    """
    policy, target = parse_policy(require_text(request, "policy")), require_text(request, "target")
    for name, tags in _tagged(request):
        rule = _rule(policy, name, tags)
        if rule.key is not None and policy.table(target).enforce:
            raise PlanError(
                f"{target}: column {name} is a partition column and carries the tag {rule.name!r}, which encrypts; its "
                "values would be names of folders, in clear; partition by a column that is not sensitive"
            )
    return {}


def _rule(policy: Policy, name: str, tags: tuple[str, ...]) -> TagRule:
    unknown = [tag for tag in tags if policy.tag(tag) is None]
    if unknown:
        known = ", ".join(rule.name for rule in policy.tags) or "none"
        raise PlanError(
            f"column {name} carries the tag {unknown[0]!r}, which the policy does not define; allowed: {known}"
        )
    return next(rule for rule in policy.tags if rule.name in tags)


def _tagged(request: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, ...]]]:
    columns = request.get("columns")
    if not isinstance(columns, list) or not all(isinstance(one, Mapping) for one in columns):
        raise BridgeError(
            f"the request's 'columns' are {shown(columns)}; allowed: a list; the jar and this helper do not belong "
            "together"
        )
    for column in columns:
        name, metadata = require_text(column, "name"), json.loads(require_text(column, "metadata"))
        field = {"name": name, "type": "string", "nullable": True, "metadata": metadata}
        (node,) = schema_from_spark(json.dumps({"type": "struct", "fields": [field]})).fields
        if node.tags:
            yield name, node.tags

"""A policy's rules on data derived from tagged columns: which carry no tags, and who may remove tags."""

from __future__ import annotations

import difflib

from sparkcrypt.errors import show
from sparkcrypt.policy.model import SAFE_AGGREGATES, DeclassifyRule, Policy
from sparkcrypt.policy.section import Problems, Section


def safe_aggregates_of(root: Section) -> tuple[str, ...] | None:
    """Return the aggregates whose results carry no tags, in the order of all of them; None if the policy names none."""
    if "safe_aggregates" not in root.names():
        root.raw("safe_aggregates", None)
        return None
    values = root.texts("safe_aggregates")
    for value in values:
        if value not in SAFE_AGGREGATES:
            near = difflib.get_close_matches(value, SAFE_AGGREGATES, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            root.problem(
                "safe_aggregates",
                f"{show(value)} is none that hides single values; {hint}allowed: {', '.join(SAFE_AGGREGATES)}",
            )
    return tuple(entry for entry in SAFE_AGGREGATES if entry in values)


def declassify_of(root: Section) -> DeclassifyRule | None:
    """Return the rule on who may remove tags; None if the policy has none."""
    if "declassify" not in root.names():
        root.raw("declassify", None)
        return None
    section = root.section("declassify")
    rule = DeclassifyRule(section.texts("principals"), section.texts("tags"))
    section.close()
    for name, values in (("principals", rule.principals), ("tags", rule.tags)):
        if not values:
            section.problem(name, "names nobody and nothing; list names, or leave declassify out")
    return rule


def check_declassify(policy: Policy, problems: Problems) -> None:
    """Refuse declassifying that could not be recorded, and tags that are not defined."""
    if policy.declassify is None:
        return
    if policy.access_log is None:
        problems.add(("declassify",), "each use is written to the access log, and there is none; add access_log")
    tag_names = [rule.name for rule in policy.tags]
    for tag in policy.declassify.tags:
        if tag not in tag_names:
            problems.add(
                ("declassify", "tags"),
                f"tag {show(tag)} is not defined under 'tags'; allowed: {', '.join(tag_names) or 'none yet'}",
            )

"""A policy's options for a tag's buckets: who creates their keys, and the key of rows that arrive after it is gone."""

from __future__ import annotations

from sparkcrypt.policy.model import PLAINTEXT, Policy
from sparkcrypt.policy.section import Problems, Section
from sparkcrypt.policy.template import WRITTEN, KeyTemplate

_REFUSE = "refuse"
_A_DAY = {WRITTEN: "2026-01-31"}


def with_dates(section: Section, key: KeyTemplate) -> KeyTemplate:
    """Return the key of a tag with the formats in which its partitions' dates are written."""
    formats = section.section("dates", {})
    dates: list[tuple[str, tuple[tuple[str, str], ...]]] = []
    for name in sorted(formats.names()):
        if isinstance(formats.raw(name), str):
            dates.append((name, ((name, formats.text(name)),)))
        else:
            columns = formats.section(name)
            dates.append((name, tuple((column, columns.text(column)) for column in sorted(columns.names()))))
    try:
        return KeyTemplate(key.text, tuple(dates))
    except ValueError as error:
        section.problem(
            "dates", f"{error}; such as {{month: '%Y%m'}}, or {{day: {{year: '%Y', month: '%m', day: '%d'}}}}"
        )
        return key


def create_keys_of(section: Section, key: KeyTemplate | None, retention: int | None) -> bool:
    """Return whether the first write into a bucket of a tag creates its key."""
    create_keys = section.boolean("create_keys", False)
    if create_keys and not _has_ends(key, retention):
        section.problem(
            "create_keys",
            "a write makes the keys of a template with a date, such as contact-{day:%Y-%m}, of a tag with retention, "
            "so that no shredded key comes back; make other keys with `sparkcrypt keys create`",
        )
    return create_keys


def late_data_of(section: Section, key: KeyTemplate | None, retention: int | None) -> KeyTemplate | None:
    """Return the key of a tag's late data; None: they are refused."""
    text = section.text("late_data", _REFUSE) or _REFUSE
    if text == _REFUSE:
        return None
    if not _has_ends(key, retention):
        section.problem(
            "late_data",
            "rows are late for a bucket of a template with a date, such as contact-{day:%Y-%m}, of a tag with "
            "retention; give the tag both, or leave late_data out",
        )
    try:
        late = KeyTemplate(text)
    except ValueError as error:
        section.problem("late_data", str(error))
        return None
    if text == PLAINTEXT:
        section.problem("late_data", "late data are encrypted like others; allowed: refuse, or a key id")
    elif late.columns not in ((), (WRITTEN,)) or (late.columns and not late.is_dated):
        section.problem(
            "late_data",
            f"{text!r}: allowed: refuse, a key id, or one with the day of writing, such as late-{{{WRITTEN}:%Y-%m}}",
        )
    return late


def check_late_keys(policy: Policy, problems: Problems) -> None:
    """Refuse keys of late data that other parts of the policy have or could have: they end by their own dates."""
    fixed = dict.fromkeys((policy.footer_key, *policy.footer_key_history), "of the footer")
    fixed |= dict.fromkeys(filter(None, (policy.audit_key, *policy.audit_key_history)), "of the audit")
    fixed |= {rule.key.text: f"of tag {rule.name!r}" for rule in policy.tags if rule.key and not rule.key.columns}
    fixed |= {key_id: f"in the history of tag {rule.name!r}" for rule in policy.tags for key_id in rule.history}
    for rule in policy.tags:
        late = rule.late_data
        if late is None or late.columns not in ((), (WRITTEN,)):
            continue
        taken = [whose for key_id, whose in fixed.items() if late.matches(key_id)]
        for other in policy.tags:
            if other.key is not None and other.key.columns and other.key.matches(late.render(_A_DAY)):
                taken.append(f"of a bucket of tag {other.name!r}")
            if other.name != rule.name and other.late_data is not None and other.late_data.matches(late.render(_A_DAY)):
                taken.append(f"of late data of tag {other.name!r}")
        for whose in taken:
            problems.add(
                ("tags", rule.name, "late_data"),
                f"{late.text!r} is a key, or could give one, {whose}; name one that nothing else has, such as "
                f"{rule.name}-late-{{{WRITTEN}:%Y-%m}}",
            )


def _has_ends(key: KeyTemplate | None, retention: int | None) -> bool:
    """Return whether buckets of a tag end: its key has a date, and its data have a retention."""
    return retention is not None and key is not None and key.is_dated

"""Building of a Policy from a parsed document (YAML or canonical JSON); every problem is reported with its place."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from sparkcrypt.errors import ConfigError, PlanError, show
from sparkcrypt.paths import Place, PlaceIndex, is_within
from sparkcrypt.policy.key_service import key_service_of
from sparkcrypt.policy.model import (
    PLAINTEXT,
    AccessLogRule,
    DeclassifyRule,
    Policy,
    TableRule,
    TagRule,
    normalized_table,
)
from sparkcrypt.policy.section import KeyPath, Problems, Section, is_text, near_hint, read_settings, seconds_of
from sparkcrypt.policy.template import WRITTEN, KeyTemplate, TemplateIndex
from sparkcrypt.schema import split_dotted

T = TypeVar("T")
_REFUSE = "refuse"
_A_DAY = {WRITTEN: "2026-01-31"}
_TEMPLATE = re.compile(r"\{\w+(:[^}]*)?\}")
_NEXT = "name the place by which the catalog knows its tables"
_NO_URI = "is no alias; allowed: a URI and the one that counts for it, such as hdfs://nn1.example.org:8020: hdfs://prod"


def policy_from_canonical(text: str) -> Policy:
    """Parse the canonical JSON of a policy from a configuration.

    Raises:
        ConfigError: it is not a policy.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            "parquet.sparkcrypt.policy is not JSON; set it with sparkcrypt.configure or from `sparkcrypt conf`"
        ) from error
    return policy_from_document(document, locate=lambda _: "parquet.sparkcrypt.policy")


def policy_from_document(
    document: object, *, locate: Callable[[KeyPath], str], resolve: Callable[[str], str] = str
) -> Policy:
    """Build a policy from a parsed document, after checking it.

    Args:
        document: mappings, lists and scalars.
        locate: key path -> the text before a message about it, such as ``policy.yaml:12``.
        resolve: makes a relative path or URI of the document absolute.

    Raises:
        ConfigError: the document is not a policy; one line for each problem.
    """
    problems = Problems(locate, resolve)
    policy = _policy(Section(document, (), problems), problems)
    if problems.messages:
        raise ConfigError("\n".join(problems.messages))
    return policy


def rules_from_document(
    document: object, *, locate: Callable[[KeyPath], str], resolve: Callable[[str], str] = str
) -> tuple[TableRule, ...]:
    """Check a document in the shape of a policy's ``tables``, or a policy's document, and return its rules of tables.

    Args:
        document: mappings, lists and scalars.
        locate: as for ``policy_from_document``.
        resolve: as for ``policy_from_document``.

    Raises:
        ConfigError: the rules are not valid; one line for each problem.
    """
    whole = isinstance(document, Mapping) and "tables" in document
    tables = document["tables"] if whole and isinstance(document, Mapping) else document
    problems = Problems(locate if whole else lambda path: locate(path[1:]), resolve)
    rules = _tables(Section({"tables": tables}, (), problems))
    if problems.messages:
        raise ConfigError("\n".join(problems.messages))
    return rules


def _policy(root: Section, problems: Problems) -> Policy:
    root.choice("version", (1,))
    policy = read_settings(
        Policy,
        root,
        key_service=key_service_of(root.section("key_service"), problems),
        tags=_tags(root, problems),
        tables=_tables(root),
        access_log=_read_rule(AccessLogRule, root, "access_log"),
        declassify=_read_rule(DeclassifyRule, root, "declassify"),
        aliases=aliases_of(root),
    )
    if policy.access_log is not None and not policy.access_log.location:  # which is told already
        policy = replace(policy, access_log=None)
    _check_footer_key(policy, problems)
    _check_audit_key(policy, problems)
    _check_templates(policy, problems)
    _check_late_keys(policy, problems)
    _check_overlays(policy, problems)
    _check_places(policy, problems)
    _check_declassify(policy, problems)
    return policy


def _read_rule(kind: type[T], root: Section, name: str) -> T | None:
    section = root.optional(name)
    return None if section is None else read_settings(kind, section)


def _check_footer_key(policy: Policy, problems: Problems) -> None:
    place = ("footer", "key")
    if policy.footer_key == PLAINTEXT:
        problems.add(place, "a key may not be called plaintext, which in a history means no key; name another")
    if _TEMPLATE.search(policy.footer_key):
        problems.add(place, f"{show(policy.footer_key)}: the footer key cannot hold partition values; name one key")


def _check_places(policy: Policy, problems: Problems) -> None:
    """Refuse a location of stores or events inside a table, whose readers would read their files as rows."""
    places = {"index": policy.index_location, "access_log": policy.access_log and policy.access_log.location}
    for section, place in places.items():
        for table in policy.tables:
            if place and table.location and is_within(place, table.location):
                problems.add(
                    (section, "location"),
                    f"{show(place)} lies inside of table {table.name!r}, at {table.location}; name a folder outside "
                    "of every table",
                )


def _check_audit_key(policy: Policy, problems: Problems) -> None:
    """Refuse an audit key that readers may use: whoever may unwrap with it can write audit entries that verify."""
    key, place = policy.audit_key, ("audit", "key")
    if key is None:
        return
    if key == PLAINTEXT:
        problems.add(place, "an audit without key cannot be authenticated; name a key that no reader may use")
    if _TEMPLATE.search(key):
        problems.add(place, f"{show(key)}: the audit's key cannot hold partition values; name one key")
    if key in (policy.footer_key, *policy.footer_key_history):
        problems.add(place, f"{show(key)} is the footer's key, which every reader may use; name one of its own")
    for rule in policy.tags:
        if (rule.key is not None and not rule.key.columns and rule.key.text == key) or key in rule.history:
            problems.add(
                place,
                f"{show(key)} is the key of tag {rule.name!r}, which its readers may use; name one of its own",
            )


def _tags(root: Section, problems: Problems) -> tuple[TagRule, ...]:
    """Return the rules of tags: a mapping in a file, a list of pairs in canonical JSON, which has no order of names."""
    value = root.raw("tags", {})
    pairs = list(value.items()) if isinstance(value, Mapping) else value
    if not isinstance(pairs, list) or not all(
        isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str) for pair in pairs
    ):
        root.problem("tags", f"is {show(value)}; allowed: a mapping of tag names to keys, such as pii: {{key: pii}}")
        return ()
    rules = tuple(_tag(name, rule, problems) for name, rule in pairs)
    for name in (name for name, count in Counter(rule.name for rule in rules).items() if count > 1):
        problems.add(("tags", name), "written twice; keep one")
    return rules


def _tag(name: str, rule: object, problems: Problems) -> TagRule:
    path = ("tags", name)
    if not re.fullmatch(r"[^\s,;:=]+", name) or not is_text(name):
        problems.add(path, "a tag's name may not hold spaces, commas, semicolons, colons or '='")
    if rule == PLAINTEXT:
        return TagRule(name, None)
    if isinstance(rule, str):
        problems.add(path, f"is {show(rule)}; allowed: plaintext, or a mapping such as {{key: {rule}}}")
        return TagRule(name, None)
    section = Section(rule, path, problems)
    written = dict(section.items())
    key, retention = _key(section, has_history=bool(written.get("history"))), seconds_of(written.get("retention"))
    has_ends = retention is not None and key is not None and key.is_dated
    late = _late_data(section, has_ends=has_ends)
    made = read_settings(TagRule, section, name=name, key=key, late_data=late)
    if made.create_keys and not has_ends:
        section.problem(
            "create_keys",
            "a write makes the keys of a template with a date, such as contact-{day:%Y-%m}, of a tag with retention, "
            "so that no shredded key comes back; make other keys with `sparkcrypt keys create`",
        )
    return made


def _key(section: Section, *, has_history: bool) -> KeyTemplate | None:
    """Return the key of a tag; only an explicit null beside a history means plaintext from now on."""
    if "key" in section.names() and section.raw("key") is None:
        if not has_history:
            section.problem("key", "is None; allowed: a key id, or write plaintext in place of the mapping")
        return None
    text = section.text("key")
    if not text:
        return None
    if text == PLAINTEXT:
        section.problem("key", "a key may not be called plaintext; for a tag without key write plaintext alone")
        return None
    try:
        key = KeyTemplate(text)
    except ValueError as error:
        section.problem("key", str(error))
        return None
    return _with_dates(section, key)


def _with_dates(section: Section, key: KeyTemplate) -> KeyTemplate:
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


def _late_data(section: Section, *, has_ends: bool) -> KeyTemplate | None:
    """Return the key of a tag's late data; None: they are refused.

    Args:
        section: the tag's.
        has_ends: whether buckets of the tag end: its key has a date, and its data have a retention.
    """
    text = section.text("late_data", _REFUSE) or _REFUSE
    if text == _REFUSE:
        return None
    if not has_ends:
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


def _tables(root: Section) -> tuple[TableRule, ...]:
    section = root.section("tables", {})
    rules = tuple(_table(name, section.section(name)) for name in sorted(section.names()))
    names: dict[str, str] = {}
    for rule in rules:
        first = names.setdefault(normalized_table(rule.name), rule.name)
        if first != rule.name:
            section.problem(rule.name, f"is the same table as {first!r}, since case does not count; keep one")
        if not is_text(rule.name) or ("." not in rule.name and rule.location is None):
            section.problem(
                rule.name,
                "a table is named database.table, such as sales.customers; a dataset without table needs its location",
            )
    return rules


def _table(name: str, section: Section) -> TableRule:
    overlay = section.section("tags", {})
    tags = tuple((column, _one_or_many(overlay, column)) for column in sorted(overlay.names()))
    return read_settings(TableRule, section, name=name, tags=tags)


def _one_or_many(overlay: Section, column: str) -> tuple[str, ...]:
    value: Any = overlay.raw(column)
    if isinstance(value, str) and value.strip():
        return tuple(part.strip() for part in value.split(","))
    return overlay.texts(column)


def _check_templates(policy: Policy, problems: Problems) -> None:
    """Refuse a template that can give another rule's key: a writer could choose that key by a partition's value."""
    fixed = {policy.footer_key: "the footer's"} | ({policy.audit_key: "the audit's"} if policy.audit_key else {})
    fixed |= {rule.key.text: f"of tag {rule.name!r}" for rule in policy.tags if rule.key and not rule.key.columns}
    templates = TemplateIndex((rule.key, rule) for rule in policy.tags if rule.key and rule.key.columns)
    for key_id, whose in fixed.items():
        for rule in templates.find(key_id):
            text = "" if rule.key is None else rule.key.text
            problems.add(
                ("tags", rule.name, "key"),
                f"{text!r} could also give {key_id!r}, which is the key {whose}; begin it with a text of its own, "
                f"such as {rule.name + '-' + text!r}",
            )


def _check_late_keys(policy: Policy, problems: Problems) -> None:
    """Refuse keys of late data that other parts of the policy have or could have: they end by their own dates."""
    fixed = dict.fromkeys((policy.footer_key, *policy.footer_key_history), "of the footer")
    fixed |= dict.fromkeys(filter(None, (policy.audit_key, *policy.audit_key_history)), "of the audit")
    fixed |= {rule.key.text: f"of tag {rule.name!r}" for rule in policy.tags if rule.key and not rule.key.columns}
    fixed |= {key_id: f"in the history of tag {rule.name!r}" for rule in policy.tags for key_id in rule.history}
    lates = [(rule.late_data, rule) for rule in policy.tags if rule.late_data is not None]
    judged = [(late, rule) for late, rule in lates if late.columns in ((), (WRITTEN,))]
    taken: dict[str, list[str]] = {rule.name: [] for _, rule in judged}
    late_keys, of_late = TemplateIndex(judged), TemplateIndex(lates)
    buckets = TemplateIndex((rule.key, rule) for rule in policy.tags if rule.key is not None and rule.key.columns)
    for key_id, whose in fixed.items():
        for rule in late_keys.find(key_id):
            taken[rule.name].append(whose)
    for late, rule in judged:
        key_id = late.render(_A_DAY)
        taken[rule.name] += [f"of a bucket of tag {other.name!r}" for other in buckets.find(key_id)]
        others = (other for other in of_late.find(key_id) if other.name != rule.name)
        taken[rule.name] += [f"of late data of tag {other.name!r}" for other in others]
    for late, rule in judged:
        for whose in taken[rule.name]:
            problems.add(
                ("tags", rule.name, "late_data"),
                f"{late.text!r} is a key, or could give one, {whose}; name one that nothing else has, such as "
                f"{rule.name}-late-{{{WRITTEN}:%Y-%m}}",
            )


def _check_overlays(policy: Policy, problems: Problems) -> None:
    tag_names = {rule.name: None for rule in policy.tags}
    for table in policy.tables:
        for column, tags in table.tags:
            place = ("tables", table.name, "tags", column)
            try:
                split_dotted(column)
            except PlanError as error:
                problems.add(place, str(error))
            if not tags:
                problems.add(place, f"names no tag; allowed: {', '.join(tag_names) or 'none yet'}")
            for tag in tags:
                if tag not in tag_names:
                    hint = near_hint(tag, list(tag_names))
                    allowed = ", ".join(tag_names) or "none yet"
                    problems.add(place, f"tag {show(tag)} is not defined under 'tags'; {hint}allowed: {allowed}")


def _check_declassify(policy: Policy, problems: Problems) -> None:
    """Refuse declassifying that could not be recorded, and tags that are not defined."""
    if policy.declassify is None:
        return
    if policy.access_log is None:
        problems.add(("declassify",), "each use is written to the access log, and there is none; add access_log")
    tag_names = {rule.name: None for rule in policy.tags}
    for tag in policy.declassify.tags:
        if tag not in tag_names:
            problems.add(
                ("declassify", "tags"),
                f"tag {show(tag)} is not defined under 'tags'; allowed: {', '.join(tag_names) or 'none yet'}",
            )


def aliases_of(root: Section) -> tuple[tuple[Place, Place], ...]:
    """Return the further names of places, each with the place by the name that counts.

    Args:
        root: the document; a name that is no URI, counts itself for another, or has two meanings is a problem.
    """
    section = root.section("aliases", {})
    found, spelled = dict[Place, Place](), dict[Place, str]()
    for name in sorted(map(str, section.names())):
        named, real = Place.of(name), Place.of(section.text(name))
        spelled.setdefault(named, name)
        if named.scheme is None or real.scheme is None:
            section.problem(name, _NO_URI)
        elif found.setdefault(named, real) != real:
            section.problem(name, "is another spelling of a name above, and leads elsewhere; keep one")
        elif named.is_within(real) or real.is_within(named):
            section.problem(name, f"lies in {real.text()} or has it inside, so it is no other name of it; {_NEXT}")
    known = PlaceIndex((named, None) for named in found)
    for named, real in found.items():
        for _ in known.find_above(real):
            section.problem(spelled[named], f"leads to {real.text()}, which is itself below an alias; {_NEXT}")
    section.close()
    return tuple(sorted(found.items(), key=lambda pair: pair[0].text()))

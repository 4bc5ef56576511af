"""Building of a Policy from a parsed document (YAML or canonical JSON); every problem is reported with its place."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from sparkcrypt.errors import ConfigError, PlanError, show
from sparkcrypt.names import ALGORITHMS, FILE_FORMATS, FileFormat
from sparkcrypt.paths import Place, is_local, is_within, local_path, split_path
from sparkcrypt.policy.key_service import key_service_of
from sparkcrypt.policy.model import (
    BUCKETING_MODES,
    DATA_KEY_BITS,
    FOOTER_MODES,
    INDEX_SCHEMES,
    INHERIT_MODES,
    ON_DENIED,
    PLAINTEXT,
    SAFE_AGGREGATES,
    SINK_MODES,
    UNTAGGED,
    AccessLogRule,
    DeclassifyRule,
    Policy,
    TableRule,
    TagRule,
    normalized_table,
)
from sparkcrypt.policy.section import REQUIRED, KeyPath, Problems, Section, is_text, near_hint
from sparkcrypt.policy.template import WRITTEN, KeyTemplate
from sparkcrypt.schema import split_dotted

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
    problems = Problems(locate)
    policy = _policy(Section(document, (), problems), problems, resolve)
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
    problems = Problems(locate if whole else lambda path: locate(path[1:]))
    rules = _tables(Section({"tables": tables}, (), problems), problems, resolve)
    if problems.messages:
        raise ConfigError("\n".join(problems.messages))
    return rules


def _policy(root: Section, problems: Problems, resolve: Callable[[str], str]) -> Policy:
    root.choice("version", (1,))
    footer = root.section("footer")
    audit_key, audit_key_history = _audit(root)
    policy = Policy(
        key_service=key_service_of(root.section("key_service"), resolve, problems),
        algorithm=root.choice("algorithm", ALGORITHMS, "AES_GCM_V1"),
        data_key_bits=root.choice("data_key_bits", DATA_KEY_BITS, 256),
        footer_key=footer.text("key"),
        footer_mode=footer.choice("mode", FOOTER_MODES, "encrypted"),
        footer_key_history=footer.texts("history"),
        untagged=root.choice("untagged", UNTAGGED),
        run_state=resolve(root.text("run_state", "state/") or "state/"),
        tags=_tags(root, problems),
        tables=_tables(root, problems, resolve),
        algorithm_history=root.choices("algorithm_history", ALGORITHMS),
        audit_key=audit_key,
        audit_key_history=audit_key_history,
        old_files_grace_seconds=_old_files_grace(root),
        ask_for_access=root.text("ask_for_access", None),
        safe_aggregates=_safe_aggregates(root),
        index_location=index_location_of(root, resolve),
        sinks=root.choice("sinks", SINK_MODES, None),
        inherit=root.choice("inherit", INHERIT_MODES, None),
        bucketing=root.choice("bucketing", BUCKETING_MODES, None),
        access_log=access_log_of(root, resolve),
        declassify=declassify_of(root),
        rotate_every_seconds=root.duration("rotate_every"),
        strict_projection=root.boolean("strict_projection", False),
        formats=_formats(root),
        aliases=aliases_of(root),
    )
    footer.close()
    root.close()
    _check_footer_key(policy, footer)
    _check_audit_key(policy, problems)
    _check_templates(policy, problems)
    _check_late_keys(policy, problems)
    _check_overlays(policy, problems)
    _check_places(policy, problems)
    check_declassify(policy, problems)
    return policy


def _formats(root: Section) -> tuple[FileFormat, ...]:
    """Return the formats whose files runs encrypt; Parquet is always one, since every write of Spark encrypts it."""
    if "formats" not in root.names():
        root.raw("formats", None)
        return ("parquet",)
    values = root.texts("formats")
    found = tuple(entry for entry in FILE_FORMATS if entry in values)
    if len(found) != len(values) or "parquet" not in found:
        root.problem("formats", f"is {show(list(values))}; allowed: [parquet], or [parquet, orc]")
    return found


def _check_footer_key(policy: Policy, footer: Section) -> None:
    if policy.footer_key == PLAINTEXT:
        footer.problem("key", "a key may not be called plaintext, which in a history means no key; name another")
    if _TEMPLATE.search(policy.footer_key):
        footer.problem("key", f"{show(policy.footer_key)}: the footer key cannot hold partition values; name one key")


def _audit(root: Section) -> tuple[str | None, tuple[str, ...]]:
    audit = root.optional("audit")
    if audit is None:
        return None, ()
    key, history = audit.text("key"), audit.texts("history")
    audit.close()
    return key or None, history


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
    history = section.texts("history")
    on_denied = section.choice("on_denied", ON_DENIED, None)
    sinks = section.choice("sinks", SINK_MODES, None)
    retention, rotate_every = section.duration("retention"), section.duration("rotate_every")
    key = _key(section, history)
    create_keys, late_data = _create_keys(section, key, retention), _late_data(section, key, retention)
    section.close()
    return TagRule(name, key, retention, history, on_denied, sinks, rotate_every, create_keys, late_data)


def _key(section: Section, history: tuple[str, ...]) -> KeyTemplate | None:
    """Return the key of a tag; only an explicit null beside a history means plaintext from now on."""
    if "key" in section.names() and section.raw("key") is None:
        if not history:
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


def _create_keys(section: Section, key: KeyTemplate | None, retention: int | None) -> bool:
    """Return whether the first write into a bucket of a tag creates its key."""
    create_keys = section.boolean("create_keys", False)
    if create_keys and not _has_ends(key, retention):
        section.problem(
            "create_keys",
            "a write makes the keys of a template with a date, such as contact-{day:%Y-%m}, of a tag with retention, "
            "so that no shredded key comes back; make other keys with `sparkcrypt keys create`",
        )
    return create_keys


def _late_data(section: Section, key: KeyTemplate | None, retention: int | None) -> KeyTemplate | None:
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


def _has_ends(key: KeyTemplate | None, retention: int | None) -> bool:
    """Return whether buckets of a tag end: its key has a date, and its data have a retention."""
    return retention is not None and key is not None and key.is_dated


def _tables(root: Section, problems: Problems, resolve: Callable[[str], str]) -> tuple[TableRule, ...]:
    section = root.section("tables", {})
    rules = tuple(_table(name, section.section(name), problems, resolve) for name in sorted(section.names()))
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


def _table(name: str, section: Section, problems: Problems, resolve: Callable[[str], str]) -> TableRule:
    overlay = section.section("tags", {})
    location = section.text("location", None)
    rule = TableRule(
        name=name,
        require_encryption=section.boolean("require_encryption", False),
        enforce=section.boolean("enforce", True),
        footer_mode=section.choice("footer_mode", FOOTER_MODES, None),
        location=resolve(location) if location else None,
        tags=tuple((column, _one_or_many(overlay, column)) for column in sorted(overlay.names())),
        inherit=section.choice("inherit", INHERIT_MODES, None),
    )
    section.close()
    return rule


def _one_or_many(overlay: Section, column: str) -> tuple[str, ...]:
    value: Any = overlay.raw(column)
    if isinstance(value, str) and value.strip():
        return tuple(part.strip() for part in value.split(","))
    return overlay.texts(column)


def _check_templates(policy: Policy, problems: Problems) -> None:
    """Refuse a template that can give another rule's key: a writer could choose that key by a partition's value."""
    fixed = {policy.footer_key: "the footer's"} | ({policy.audit_key: "the audit's"} if policy.audit_key else {})
    fixed |= {rule.key.text: f"of tag {rule.name!r}" for rule in policy.tags if rule.key and not rule.key.columns}
    for rule in policy.tags:
        if rule.key is None or not rule.key.columns:
            continue
        for key_id, whose in fixed.items():
            if rule.key.matches(key_id):
                problems.add(
                    ("tags", rule.name, "key"),
                    f"{rule.key.text!r} could also give {key_id!r}, which is the key {whose}; begin it with a text of "
                    f"its own, such as {rule.name + '-' + rule.key.text!r}",
                )


def _check_late_keys(policy: Policy, problems: Problems) -> None:
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


def _check_overlays(policy: Policy, problems: Problems) -> None:
    tag_names = [rule.name for rule in policy.tags]
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
                    hint = near_hint(tag, tag_names)
                    allowed = ", ".join(tag_names) or "none yet"
                    problems.add(place, f"tag {show(tag)} is not defined under 'tags'; {hint}allowed: {allowed}")


def _safe_aggregates(root: Section) -> tuple[str, ...] | None:
    """Return the aggregates whose results carry no tags, in the order of all of them; None if the policy names none."""
    if "safe_aggregates" in root.names():
        return root.choices("safe_aggregates", SAFE_AGGREGATES, "is none that hides single values")
    root.raw("safe_aggregates", None)
    return None


def _old_files_grace(root: Section) -> int | None:
    """Return how long old files stay in place, in seconds, as a policy sets it; None if it does not."""
    section = root.optional("old_files")
    if section is None:
        return None
    grace = section.duration("grace", REQUIRED, zero="0s moves old files out of reach right after each swap")
    section.close()
    return grace


def declassify_of(root: Section) -> DeclassifyRule | None:
    """Return the rule on who may remove tags; None if the policy has none."""
    section = root.optional("declassify")
    if section is None:
        return None
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


def index_location_of(root: Section, resolve: Callable[[str], str]) -> str | None:
    """Return the location of stores for data skipping; None if the policy names none.

    Args:
        root: the document; a location on a file system that is not allowed for stores is a problem.
        resolve: makes a relative path absolute.
    """
    index = root.optional("index")
    if index is None:
        return None
    location = index.text("location")
    index.close()
    if not location:
        return None
    place = resolve(location)
    scheme = split_path(place)[0]
    if scheme not in (None, *INDEX_SCHEMES):
        index.problem(
            "location",
            f"{show(place)}: stores are not kept on {place.partition(':')[0]}:, where two writers of one store could "
            f"not be kept apart; allowed: a local path, {', '.join(f'{name}:' for name in INDEX_SCHEMES)}; files of "
            "tables may be elsewhere",
        )
    return place


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
    for named, real in found.items():
        for other in found:
            if real.is_within(other):
                section.problem(spelled[named], f"leads to {real.text()}, which is itself below an alias; {_NEXT}")
    section.close()
    return tuple(sorted(found.items(), key=lambda pair: pair[0].text()))


def access_log_of(root: Section, resolve: Callable[[str], str]) -> AccessLogRule | None:
    """Return a policy's rule on the log of access events; None if it has none.

    Args:
        root: the policy's document.
        resolve: makes a relative path absolute.
    """
    section = root.optional("access_log")
    if section is None:
        return None
    text, required = section.text("location"), section.boolean("required", False)
    section.close()
    if not text:
        return None
    located = resolve(text)
    if not is_local(located):
        section.problem(
            "location",
            f"{show(located)} is on {located.partition(':')[0]}, and each reader appends to files of its own, which "
            "takes a file system of the machine; allowed: a path or a file: URI, on a local disk or one that is "
            "mounted",
        )
        return None
    try:
        path = local_path(located)
    except ConfigError as error:
        section.problem("location", str(error))
        return None
    if not path.startswith("/"):
        section.problem(
            "location", f"{show(located)} is no absolute path here; allowed: a path such as /var/log/access"
        )
    return AccessLogRule(path, required)

"""From a document (YAML or canonical JSON, already parsed) to a frozen Policy; every problem is told with its place."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from sparkcrypt.errors import ConfigError
from sparkcrypt.policy.key_service import KEY_SERVICE_OPTIONS, KeyServiceConfig
from sparkcrypt.policy.model import (
    ALGORITHMS,
    DATA_KEY_BITS,
    FOOTER_MODES,
    PLAINTEXT,
    UNTAGGED,
    Policy,
    TableRule,
    TagRule,
)
from sparkcrypt.policy.section import KeyPath, Problems, Section, shown
from sparkcrypt.policy.template import KeyTemplate

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def policy_from_canonical(text: str) -> Policy:
    """Read the canonical JSON that travels in configurations.

    Raises:
        ConfigError: it is not a policy.
    """
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ConfigError(
            "parquet.sparkcrypt.policy is not JSON; set it with sparkcrypt.configure or from `sparkcrypt conf`"
        ) from error
    return policy_from_document(document, locate=lambda _: "parquet.sparkcrypt.policy")


def policy_from_document(
    document: object, *, locate: Callable[[KeyPath], str], resolve: Callable[[str], str] = str
) -> Policy:
    """Check a parsed document and freeze it.

    Args:
        document: mappings, lists and scalars.
        locate: key path -> what stands before a message, such as ``policy.yaml:12``.
        resolve: makes a relative path or URI of the document absolute.

    Raises:
        ConfigError: with one line for each problem.
    """
    problems = Problems(locate)
    policy = _policy(Section(document, (), problems), problems, resolve)
    if problems.messages:
        raise ConfigError("\n".join(problems.messages))
    return policy


def _policy(root: Section, problems: Problems, resolve: Callable[[str], str]) -> Policy:
    root.choice("version", (1,))
    footer = root.section("footer")
    policy = Policy(
        key_service=_key_service(root.section("key_service"), resolve),
        algorithm=root.choice("algorithm", ALGORITHMS, "AES_GCM_V1"),
        data_key_bits=root.choice("data_key_bits", DATA_KEY_BITS, 256),
        footer_key=footer.text("key"),
        footer_mode=footer.choice("mode", FOOTER_MODES, "encrypted"),
        footer_key_history=footer.texts("history"),
        untagged=root.choice("untagged", UNTAGGED),
        run_state=resolve(root.text("run_state", "state/") or "state/"),
        tags=_tags(root, problems),
        tables=_tables(root, problems, resolve),
        algorithm_history=tuple(
            one for one in ALGORITHMS if one in _checked(root, "algorithm_history", ALGORITHMS)
        ),
    )
    footer.close()
    root.close()
    _check_overlays(policy, problems)
    return policy


def _checked(root: Section, name: str, allowed: tuple[str, ...]) -> tuple[str, ...]:
    values = root.texts(name)
    for value in values:
        if value not in allowed:
            root.problem(name, f"{shown(value)} is not known; allowed: {', '.join(allowed)}")
    return values


def _key_service(section: Section, resolve: Callable[[str], str]) -> KeyServiceConfig:
    kind = section.text("type")
    known = KEY_SERVICE_OPTIONS.get(kind)
    options = {name: section.raw(name) for name in section.names() if known is None or name in known}
    if known is not None:
        for name in known:
            section.raw(name, None)
    section.close()
    if kind == "local":
        if not isinstance(options.get("path"), str):
            section.problem("path", "is missing; a local key service needs the directory of its keys, such as path: keys/")
            options["path"] = ""
        options["path"] = resolve(options["path"])
    options.pop("type", None)
    return KeyServiceConfig.from_dict({**options, "type": kind or "local"})


def _tags(root: Section, problems: Problems) -> tuple[TagRule, ...]:
    """Tags are a mapping in a file and a list of pairs in canonical JSON, where order would else be lost."""
    value = root.raw("tags", {})
    pairs = value.items() if isinstance(value, Mapping) else value if isinstance(value, list) else None
    if pairs is None:
        root.problem("tags", f"is {shown(value)}; allowed: a mapping of tag names to keys, such as pii: {{key: pii}}")
        return ()
    return tuple(_tag(str(name), rule, problems) for name, rule in pairs)


def _tag(name: str, rule: object, problems: Problems) -> TagRule:
    path = ("tags", name)
    if not re.fullmatch(r"[^\s,;:=]+", name):
        problems.add(path, "a tag's name may not hold spaces, commas, semicolons, colons or '='")
    if rule == PLAINTEXT:
        return TagRule(name, None)
    if isinstance(rule, str):
        problems.add(path, f"is {shown(rule)}; allowed: plaintext, or a mapping such as {{key: {rule}}}")
        return TagRule(name, None)
    section = Section(rule, path, problems)
    text = section.raw("key", None) if section.raw("history", None) else section.text("key")
    key = None
    try:
        key = KeyTemplate(text) if isinstance(text, str) and text else None
    except ValueError as error:
        section.problem("key", str(error))
    made = TagRule(name, key, _retention(section), section.texts("history"))
    section.close()
    return made


def _retention(section: Section) -> int | None:
    value = section.raw("retention", None)
    if value is None:
        return None
    match = re.fullmatch(r"([1-9][0-9]*)([smhdw])", str(value))
    if match is None:
        section.problem("retention", f"is {shown(value)}; allowed: a number and one of s, m, h, d, w, such as 400d")
        return None
    return int(match[1]) * _SECONDS[match[2]]


def _tables(root: Section, problems: Problems, resolve: Callable[[str], str]) -> tuple[TableRule, ...]:
    section = root.section("tables", {})
    return tuple(_table(name, section.section(name), problems, resolve) for name in section.names())


def _table(name: str, section: Section, problems: Problems, resolve: Callable[[str], str]) -> TableRule:
    overlay = section.section("tags", {})
    location = section.text("location", None)
    rule = TableRule(
        name=name,
        require_encryption=section.boolean("require_encryption", False),
        enforce=section.boolean("enforce", True),
        footer_mode=section.choice("footer_mode", FOOTER_MODES, None),
        location=resolve(location) if location else None,
        tags=tuple((column, _one_or_many(overlay, column)) for column in overlay.names()),
    )
    section.close()
    return rule


def _one_or_many(overlay: Section, column: str) -> tuple[str, ...]:
    value: Any = overlay.raw(column)
    if isinstance(value, str) and value.strip():
        return tuple(part.strip() for part in value.split(","))
    return overlay.texts(column)


def _check_overlays(policy: Policy, problems: Problems) -> None:
    known = [rule.name for rule in policy.tags]
    for table in policy.tables:
        for column, tags in table.tags:
            for tag in tags:
                if tag not in known:
                    problems.add(
                        ("tables", table.name, "tags", column),
                        f"tag {tag!r} is not defined under 'tags'; allowed: {', '.join(known) or 'none yet'}",
                    )

"""The section ``key_service`` of a policy: options that are known, limits that are valid, and no secret."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from sparkcrypt.errors import ConfigError
from sparkcrypt.policy.former_services import FORMER, KEYS, read_former
from sparkcrypt.policy.key_service import (
    ENDURANCE_OPTIONS,
    KEY_SERVICE_OPTIONS,
    KeyServiceConfig,
    endurance_of,
    replicas_of,
)
from sparkcrypt.policy.section import Problems, Section

EPHEMERAL = "ephemeral"
"""The key service of probes: its secret is generated for one row and protects nothing else."""
_SECRET_NAME = re.compile(
    r"(^|[_-])(token|password|passwd|passphrase|secret|secret[_-]id|secret[_-]?(access[_-])?key|api[_-]?key|private[_-]key"
    r"|credentials?)$",
    re.IGNORECASE,
)


def key_service_of(section: Section, resolve: Callable[[str], str], problems: Problems) -> KeyServiceConfig:
    """Return the key service of a policy, with its former ones.

    Args:
        section: ``key_service`` of the document.
        resolve: makes a path absolute.
        problems: collects what is wrong.
    """
    former = read_former(section, lambda entry: _read_service(entry, resolve, problems, (KEYS,)), problems)
    config = _read_service(section, resolve, problems, (FORMER,))
    return KeyServiceConfig.from_dict({**config.to_dict(), FORMER: former}) if former else config


def _read_service(
    section: Section, resolve: Callable[[str], str], problems: Problems, others: tuple[str, ...]
) -> KeyServiceConfig:
    """Return one key service; ``others`` are the entries that are not its options."""
    kind = section.text("type")
    allowed = KEY_SERVICE_OPTIONS.get(kind)
    for name in allowed or ():
        section.raw(name, None)
    named = [name for name in section.names() if name not in others]
    options = {name: section.raw(name) for name in named if allowed is None or name in allowed}
    if kind != EPHEMERAL:
        _refuse_secrets(section)
    elif KEYS in others:
        section.problem(
            "type", "is 'ephemeral', which keeps no keys; allowed: a key service that may have wrapped keys"
        )
    if KEYS in others and FORMER in section.names():
        section.problem(FORMER, "stands in a former key service; allowed: beside the type of the key service itself")
    section.close()
    if kind == "local":
        options["path"] = resolve(section.text("path") or "")
    options.pop("type", None)
    config = KeyServiceConfig.from_dict({**options, "type": kind or "local"})
    if ENDURANCE_OPTIONS[0] in (allowed or ()):
        _check_endurance(config, problems)
    return config


def _check_endurance(config: KeyServiceConfig, problems: Problems) -> None:
    try:
        endurance_of(config)
        replicas_of(config)
    except ConfigError as error:
        problems.add(("key_service",), str(error).removeprefix(f"key_service of type {config.type!r}: "))


def _refuse_secrets(section: Section) -> None:
    """Refuse credentials: a policy travels in clear in every configuration.  Their values are not shown."""
    for name, value in section.items():
        if _holds_secret(name, value):
            section.problem(
                name,
                "holds a secret, and a policy is no place for one; give credentials by the environment, a file that is "
                "named here, or the platform (docs/operations.md)",
            )


def _holds_secret(name: str, value: object) -> bool:
    if isinstance(value, Mapping):
        return any(_holds_secret(str(below), item) for below, item in value.items())
    if isinstance(value, list):
        return any(_holds_secret(name, entry) for entry in value)
    if isinstance(value, str) and re.search(r"://[^/\s]*:[^/\s]*@", value):
        return True
    return value is not None and _SECRET_NAME.search(name) is not None

"""Former key services, from which keys move: named by the policy under ``key_service``, for unwrapping only.

    key_service:
      type: vault
      address: https://vault:8200
      former:
        - {type: local, path: keys/, keys: [pii, "contact-*"]}

They are part of the key service's own configuration, so they come from the launch as it does, and everything that
opens keys by it also opens what is still under them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from sparkcrypt.errors import ConfigError, show
from sparkcrypt.policy.key_service import KEY_SERVICE_OPTIONS, KeyServiceConfig
from sparkcrypt.policy.section import Problems, Section, is_text

FORMER, KEYS = "former", "keys"
_ALLOWED = "a list of former key services, each with its type, its options and its keys"


@dataclass(frozen=True, slots=True)
class FormerService:
    """One former key service.

    Attributes:
        config: configured like any key service.
        keys: the key ids whose wrapped keys it may still open; ``*`` stands for any characters.
    """

    config: KeyServiceConfig
    keys: tuple[str, ...]

    def has(self, key_id: str) -> bool:
        """Return whether the policy names this service for a key."""
        return any(re.fullmatch(".*".join(map(re.escape, key.split("*"))), key_id, re.DOTALL) for key in self.keys)


def split_former(config: KeyServiceConfig) -> tuple[KeyServiceConfig, tuple[FormerService, ...]]:
    """Return a key service's configuration without its former ones, and these, in the order in which they are asked.

    Raises:
        ConfigError: ``former`` is not such a list.
    """
    options = config.options
    entries = options.pop(FORMER, None)
    if entries is None:
        return config, ()
    if not isinstance(entries, list) or not entries:
        raise ConfigError(f"key_service: former is {show(entries)}; allowed: {_ALLOWED}; leave it out if there is none")
    return KeyServiceConfig.from_dict({"type": config.type, **options}), tuple(map(_former_service, entries))


def is_form_of(kind: str, wrapped: str) -> bool:
    """Return whether a key service of a type may have wrapped a text, by its form.

    Each built-in key service writes its type before what it wraps (``vault:v1:…``).  The forms of others are not known.
    """
    return kind not in KEY_SERVICE_OPTIONS or wrapped.startswith(f"{kind}:")


def kind_of(wrapped: str) -> str:
    """Return the type of the built-in key service whose form a wrapped text has; empty if it has none."""
    return next((kind for kind in KEY_SERVICE_OPTIONS if is_form_of(kind, wrapped)), "")


def read_former(
    section: Section, read: Callable[[Section], KeyServiceConfig], problems: Problems
) -> list[dict[str, object]]:
    """Return the former key services of a policy in the form of a configuration.

    Args:
        section: ``key_service`` of the document.
        read: reads one key service that has no former ones itself.
        problems: collects what is wrong.
    """
    entries = section.raw(FORMER, [])
    if not isinstance(entries, list) or (not entries and FORMER in section.names()):
        section.problem(FORMER, f"is {show(entries)}; allowed: {_ALLOWED}; leave it out if there is none")
        return []
    places = [("key_service", FORMER, str(number)) for number in range(len(entries))]
    return [_read_entry(Section(entry, place, problems), read) for place, entry in zip(places, entries, strict=True)]


def _read_entry(section: Section, read: Callable[[Section], KeyServiceConfig]) -> dict[str, object]:
    keys = section.raw(KEYS)
    if not _is_key_list(keys):
        section.problem(KEYS, f"is {show(keys)}; allowed: a list of key ids, such as [pii, 'contact-*']; '*' is all")
        keys = []
    return {**read(section).to_dict(), KEYS: keys}


def _former_service(entry: object) -> FormerService:
    keys = entry.get(KEYS) if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not _is_key_list(keys) or FORMER in entry:
        raise ConfigError(
            f"key_service: former holds {show(entry)}; allowed: {_ALLOWED}, and no former ones of its own"
        )
    document = {name: value for name, value in entry.items() if name != KEYS}
    return FormerService(KeyServiceConfig.from_dict(document), tuple(keys or ()))


def _is_key_list(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(map(is_text, value))

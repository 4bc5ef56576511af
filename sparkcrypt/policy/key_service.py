"""What a policy says of its key service: a type and options, no secret."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparkcrypt.errors import ConfigError


def canonical_json(value: object) -> str:
    """Return the one JSON text of a value: sorted keys, no spaces, ASCII, no ``$``.

    Hadoop's and Spark's configurations substitute ``${name}`` inside values, so ``$`` is written as an escape.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("$", "\\u0024")


@dataclass(frozen=True, slots=True)
class KeyServiceConfig:
    """A key service's type (``local``, ``vault``, … or an entry point's name) and its options as canonical JSON."""

    type: str
    options_json: str = "{}"

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> KeyServiceConfig:
        """Build from ``{"type": …, option: value, …}``.

        Raises:
            ConfigError: ``type`` is missing or not a string, or an option is no JSON value.
        """
        kind = document.get("type")
        if not isinstance(kind, str) or not kind:
            raise ConfigError(
                "key_service: 'type' is missing; allowed: local, vault, or the name of an installed entry point of the "
                "group sparkcrypt.key_services"
            )
        options = {name: value for name, value in document.items() if name != "type"}
        try:
            return cls(kind, canonical_json(options))
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigError(
                f"key_service: an option of {kind!r} is not a plain value; allowed: texts, finite numbers, true, "
                "false, and lists and mappings of them"
            ) from error

    @property
    def options(self) -> dict[str, Any]:
        """A fresh dictionary of the options, without ``type``."""
        options: dict[str, Any] = json.loads(self.options_json)
        return options

    def to_dict(self) -> dict[str, Any]:
        """Return ``{"type": …, option: value, …}``."""
        return {"type": self.type, **self.options}

    def canonical(self) -> str:
        """Return the canonical JSON of this configuration: equal texts mean the same key service."""
        return canonical_json(self.to_dict())


KEY_SERVICE_OPTIONS: dict[str, tuple[str, ...]] = {
    "local": ("type", "path"),
    "vault": (
        "type",
        "address",
        "mount_point",
        "namespace",
        "auth",
        "ca_bundle",
        "timeout_seconds",
        "max_retries",
    ),
}
"""Options of the built-in key services; a service that is an installed entry point checks its own."""

"""The configuration of a policy's key service: a type and options, no secret."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparkcrypt.errors import ConfigError, show
from sparkcrypt.policy.section import seconds_of


def canonical_json(value: object) -> str:
    """Return the canonical JSON of a value: sorted keys, no spaces, ASCII, no ``$``.

    Hadoop's and Spark's configurations substitute ``${name}`` inside values, so ``$`` is written as an escape.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("$", "\\u0024")


PRINCIPAL = "{principal}"
"""Placeholder in an option of a key service for the name of the principal whose credential or keys it selects."""
_PRINCIPAL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,127}")


def _replace_texts(value: Any, principal: str) -> Any:
    if isinstance(value, str):
        return value.replace(PRINCIPAL, principal)
    if isinstance(value, dict):
        return {name: _replace_texts(entry, principal) for name, entry in value.items()}
    return [_replace_texts(entry, principal) for entry in value] if isinstance(value, list) else value


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
                f"key_service: 'type' is missing; allowed: {', '.join(KEY_SERVICE_OPTIONS)}, or the name of an "
                "installed entry point of the group sparkcrypt.key_services"
            )
        options = {name: value for name, value in document.items() if name != "type"}
        try:
            return cls(kind, canonical_json(options))
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigError(
                f"key_service: an option of {kind!r} is not a plain value; allowed: texts, finite numbers, true, "
                "false, and lists and mappings of them"
            ) from error

    def for_principal(self, principal: str) -> KeyServiceConfig:
        """Return the configuration with a principal's name in place of each ``{principal}`` in the options.

        Args:
            principal: the name, or ``{principal}`` itself, which changes nothing.

        Raises:
            ConfigError: the name could change more than its own place in an option.
        """
        if PRINCIPAL not in self.options_json or principal == PRINCIPAL:
            return self
        if not _PRINCIPAL_NAME.fullmatch(principal) or ".." in principal:
            raise ConfigError(
                f"key_service: the principal {principal!a} cannot stand in an option; allowed: letters, digits and "
                ". _ @ -, at most 128, beginning with a letter or digit, without '..'"
            )
        return KeyServiceConfig(self.type, canonical_json(_replace_texts(self.options, principal)))

    @property
    def options(self) -> dict[str, Any]:
        """A fresh dictionary of the options, without ``type``."""
        options: dict[str, Any] = json.loads(self.options_json)
        return options

    def to_dict(self) -> dict[str, Any]:
        """Return ``{"type": …, option: value, …}``."""
        return {"type": self.type, **self.options}

    def place(self) -> str:
        """Return a digest that is equal for configurations of the same master keys, as far as they show it.

        Timeouts, retries, credentials, certificates and former key services are not part of it.
        """
        fields = {name: value for name, value in self.to_dict().items() if name not in _NO_PART_OF_PLACE}
        return hashlib.sha256(canonical_json(fields).encode()).hexdigest()

    def canonical(self) -> str:
        """Return the canonical JSON of this configuration: equal texts mean the same key service."""
        return canonical_json(self.to_dict())


def credential_variables(config: KeyServiceConfig) -> tuple[str, ...]:
    """Return the environment variables in which a built-in key service would look for a secret."""
    options = config.options
    auth: dict[str, Any] = options["auth"] if isinstance(options.get("auth"), dict) else {}
    if config.type == "vault":
        of_method = {
            "token": {"token_file": "VAULT_TOKEN"},
            "approle": {"role_id_file": "VAULT_ROLE_ID", "secret_id_file": "VAULT_SECRET_ID"},
        }.get(auth.get("method", "token"), {})
        return tuple(variable for option, variable in of_method.items() if option not in auth)
    if config.type == "azure" and auth.get("method", "environment") == "environment":
        return ("AZURE_CLIENT_SECRET", "AZURE_CLIENT_CERTIFICATE_PASSWORD", "AZURE_PASSWORD")
    return ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN") if config.type == "aws" else ()


MAX_RETRIES = 10
ENDURANCE_OPTIONS = ("deadline_seconds", "serve_stale_for")
"""Options of every key service over a network for when it does not answer (`endurance_of`)."""
_OVER_NETWORK = ("ca_bundle", "timeout_seconds", "max_retries", *ENDURANCE_OPTIONS)
_NO_PART_OF_PLACE = frozenset(
    {*ENDURANCE_OPTIONS, "timeout_seconds", "max_retries", "auth", "ca_bundle", "profile", "role_arn", "former"}
)
KEY_SERVICE_OPTIONS: dict[str, tuple[str, ...]] = {
    "local": ("type", "path"),
    "vault": ("type", "address", "addresses", "mount_point", "namespace", "auth", *_OVER_NETWORK),
    "aws": (
        *("type", "region", "regions", "endpoint", "profile", "role_arn", "alias_prefix", "encryption_context"),
        *_OVER_NETWORK,
    ),
    "hadoop": ("type", "address", "addresses", "auth", "name_prefix", "key_bits", *_OVER_NETWORK),
    "gcp": ("type", "key_ring", "endpoint", "endpoints", "auth", "protection_level", *_OVER_NETWORK),
    "azure": ("type", "address", "auth", "key_type", *_OVER_NETWORK),
}
"""Options of the built-in key services; a service that is an installed entry point checks its own."""
REPLICA_OPTIONS = {
    "vault": ("address", "addresses"),
    "aws": ("region", "regions"),
    "hadoop": ("address", "addresses"),
    "gcp": ("endpoint", "endpoints"),
}
"""Options for one address of a built-in key service, or for several, of which the first that answers is used."""


@dataclass(frozen=True, slots=True)
class Endurance:
    """Limits for the calls of one key service.

    Attributes:
        deadline_seconds: how long a call may take, all its tries and addresses included.
        max_retries: tries after the first, if the provider itself tries once.
        serve_stale_seconds: how long an opened key is used beyond its lifetime while the service does not answer.
    """

    deadline_seconds: float = 60.0
    max_retries: int = 5
    serve_stale_seconds: int = 0


def endurance_of(config: KeyServiceConfig) -> Endurance:
    """Return the limits in a configuration.

    Raises:
        ConfigError: a limit has a value that is not allowed.
    """
    options, usual = config.options, Endurance()
    deadline = options.get("deadline_seconds", usual.deadline_seconds)
    retries = options.get("max_retries", usual.max_retries)
    stale = seconds_of(options.get("serve_stale_for", "0s"), "0|[1-9][0-9]{0,10}")
    where = f"key_service of type {config.type!r}:"
    if isinstance(deadline, bool) or not isinstance(deadline, int | float) or not 0.1 <= deadline <= 600:
        raise ConfigError(f"{where} deadline_seconds is {show(deadline)}; allowed: a number from 0.1 to 600")
    if isinstance(retries, bool) or not isinstance(retries, int) or not 0 <= retries <= MAX_RETRIES:
        raise ConfigError(f"{where} max_retries is {show(retries)}; allowed: a number from 0 to {MAX_RETRIES}")
    if stale is None:
        raise ConfigError(
            f"{where} serve_stale_for is {show(options['serve_stale_for'])}; allowed: a number and one of s, m, h, d, "
            "w, such as 15m; 0s serves nothing"
        )
    return Endurance(float(deadline), retries, stale)


def replicas_of(config: KeyServiceConfig) -> tuple[KeyServiceConfig, ...]:
    """Return one configuration for each address of a key service, in order of preference.

    Raises:
        ConfigError: the addresses are not a list, are empty or repeated, or are set beside a single address.
    """
    text, several = REPLICA_OPTIONS.get(config.type, ("", ""))
    options = config.options
    if several not in options:
        return (config,)
    places = options.pop(several)
    if (
        not isinstance(places, list)
        or not places
        or not all(isinstance(place, str) and place for place in places)
        or len(set(places)) < len(places)
        or text in options
    ):
        raise ConfigError(
            f"key_service of type {config.type!r}: {several} is {show(places)}; allowed: a list of different texts "
            f"in the order in which they are asked, with no {text} beside it"
        )
    return tuple(KeyServiceConfig.from_dict({"type": config.type, **options, text: place}) for place in places)

"""The key service of a policy: its type and options, no secret, with limits of calls and the former ones it replaces.

    key_service:
      type: vault
      address: https://vault:8200
      former:
        - {type: local, path: keys/, keys: [pii, "contact-*"]}

Former key services, from which keys move, only unwrap.  They are part of the key service's own configuration, so they
come from the launch as it does, and everything that opens keys by it also opens what is still under them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sparkcrypt.errors import ConfigError, show
from sparkcrypt.policy.section import Problems, Section, is_text, seconds_of

PRINCIPAL = "{principal}"
"""Placeholder in an option of a key service for the name of the principal whose credential or keys it selects."""
_PRINCIPAL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,127}")
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
FORMER, KEYS = "former", "keys"
_ALLOWED = "a list of former key services, each with its type, its options and its keys"
EPHEMERAL = "ephemeral"
"""The key service of probes: its secret is generated for one row and protects nothing else."""
_SECRET_NAME = re.compile(
    r"(^|[_-])(token|password|passwd|passphrase|secret|secret[_-]id|secret[_-]?(access[_-])?key|api[_-]?key|private[_-]key"
    r"|credentials?)$",
    re.IGNORECASE,
)


def canonical_json(value: object) -> str:
    """Return the canonical JSON of a value: sorted keys, no spaces, ASCII, no ``$``.

    Hadoop's and Spark's configurations substitute ``${name}`` inside values, so ``$`` is written as an escape.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("$", "\\u0024")


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


def key_service_of(section: Section, problems: Problems) -> KeyServiceConfig:
    """Return the key service of a policy, with its former ones.

    Args:
        section: ``key_service`` of the document.
        problems: collects what is wrong.
    """
    former = read_former(section, lambda entry: _read_service(entry, problems, (KEYS,)), problems)
    config = _read_service(section, problems, (FORMER,))
    return KeyServiceConfig.from_dict({**config.to_dict(), FORMER: former}) if former else config


def _read_service(section: Section, problems: Problems, others: tuple[str, ...]) -> KeyServiceConfig:
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
        options["path"] = section.resolve(section.text("path") or "")
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

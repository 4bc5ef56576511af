"""What providers over a network have in common: options that say how they are checked, and how keys are created.

Each provider's options are the fields of a dataclass.
"""

from __future__ import annotations

import os
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

from sparkcrypt.errors import ConfigError, KeyNotFoundError, KeyServiceError
from sparkcrypt.keys.service import KeyDescription, KeyService, check_options
from sparkcrypt.policy.key_service import ENDURANCE_OPTIONS, KEY_SERVICE_OPTIONS, REPLICA_OPTIONS, KeyServiceConfig

T = TypeVar("T")
Methods: TypeAlias = "Mapping[str, tuple[str, ...]]"
"""Login method -> the names of the options that it takes, ``method`` among them."""

_REASON_CHARACTERS = 200
HTTP_VARIABLE = "SPARKCRYPT_ALLOW_HTTP"
"""Environment variable that the jar sets for its helper from the launch conf ``spark.sparkcrypt.allow_http``."""


def check_address(value: object, source: OptionSource, name: str, example: str) -> str:
    """Return a key service's URL without a slash at its end.

    Args:
        value: the option's value.
        source: says of which key service it is, and whether the environment allows plain http.
        name: the option's name, for messages.
        example: what is allowed, for messages.

    Raises:
        ConfigError: it is not a URL, contains credentials or a query, or is plain http to another machine.
    """
    where = f"key_service of type {source.kind!r}: {name}"
    if not isinstance(value, str):
        raise ConfigError(f"{where} is a {type(value).__name__}; allowed: text such as {example}")
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError(f"{where} is not a URL; allowed: {example} (or http://)")
    if parts.scheme == "http" and not _is_loopback(parts.hostname) and source.environ.get(HTTP_VARIABLE) != "true":
        raise ConfigError(
            f"{where} {value!r} is plain http beyond this machine, over which the token and keys could be read; "
            f"allowed: {example}, and http to localhost; where the network is safe, launch with --conf "
            f"spark.sparkcrypt.allow_http=true, and without Spark set {HTTP_VARIABLE}=true"
        )
    if parts.username is not None or parts.query or parts.fragment:
        raise ConfigError(f"{where} holds more than host, port and path; allowed: {example}")
    return value.rstrip("/")


def read_options(fields_of: type[T], config: KeyServiceConfig, environ: Mapping[str, str] = os.environ) -> T:
    """Read the options of a configuration into a dataclass, whose fields were made by the functions below.

    Args:
        fields_of: the dataclass; a field that is no option of its own is read from another one.
        config: the configuration; addresses beside the first, and limits that the guard of key services takes, are
            not options of a provider.
        environ: environment variables, for options that may be left to them.

    Raises:
        ConfigError: an option is missing, is not known, or has a value that is not allowed.
    """
    found = fields(fields_of)  # type: ignore[arg-type]  # a dataclass, as each caller's is
    taken = {"type", REPLICA_OPTIONS.get(config.type, ("", ""))[1], *ENDURANCE_OPTIONS}
    if all(entry.name != "max_retries" for entry in found):
        taken.add("max_retries")
    allowed = tuple(name for name in KEY_SERVICE_OPTIONS[config.type] if name not in taken)
    source = OptionSource(config.type, check_options(config, allowed), environ)
    return fields_of(**{entry.name: entry.metadata["read"](source, entry.name) for entry in found})


@dataclass(frozen=True, slots=True)
class OptionSource:
    """What a configuration and the environment say of options."""

    kind: str
    options: Mapping[str, Any]
    environ: Mapping[str, str]

    def error(self, name: str, problem: str) -> ConfigError:
        """Return the error for an option."""
        return ConfigError(f"key_service of type {self.kind!r}: {name} {problem}")

    def text(self, name: str, default: str = "", variable: str = "") -> str:
        """Return an option that is text.

        Raises:
            ConfigError: it is something else.
        """
        value = self.options.get(name, self.environ.get(variable, default))
        if not isinstance(value, str):
            raise self.error(name, f"is a {type(value).__name__}; allowed: text")
        return value


def option(read: Callable[[OptionSource, str], Any]) -> Any:
    """Return a field that is read by a function of the source and of the field's name."""
    return field(metadata={"read": read})


def text(
    default: str = "", *, pattern: str = r"[\s\S]*", allowed: str = "", variable: str = "", stripped: str = ""
) -> Any:
    """Return a field for text; one that is empty is None.

    Args:
        default: the text if none is given.
        pattern: what it must match.
        allowed: what is allowed, for messages.
        variable: the environment variable that gives it if the configuration does not.
        stripped: characters that are taken from both of its ends.
    """

    def read(source: OptionSource, name: str) -> str | None:
        value = source.text(name, default, variable)
        value = value.strip(stripped) if stripped else value
        if not re.fullmatch(pattern, value, re.ASCII):
            raise source.error(name, f"is {value!r}; allowed: {allowed}")
        return value or None

    return option(read)


def number(default: float, least: float, most: float) -> Any:
    """Return a field for a number within bounds."""

    def read(source: OptionSource, name: str) -> float:
        value = source.options.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise source.error(name, f"is {value!r}; allowed: a number from {least:g} to {most:g}")
        return value

    return option(read)


def choice(*allowed: str | int, default: str | int) -> Any:
    """Return a field for one of some values."""

    def read(source: OptionSource, name: str) -> str | int:
        value = source.options.get(name, default)
        if value not in allowed or isinstance(value, bool):
            raise source.error(name, f"is {value!r}; allowed: {', '.join(map(str, allowed))}")
        return value  # type: ignore[no-any-return]  # it is one of these

    return option(read)


def address(
    example: str = "https://host:port",
    *,
    default: str | None = None,
    missing: str = "",
    variable: str = "",
    has_path: bool = True,
) -> Any:
    """Return a field for a URL (`check_address`).

    Args:
        example: what is allowed, for messages.
        default: the URL if none is given.
        missing: what is said if none is given; empty if that is allowed.
        variable: the environment variable that names one.
        has_path: whether it may have a path.
    """

    def read(source: OptionSource, name: str) -> str | None:
        value = source.options.get(name, default)
        if value is None and variable:
            value = source.environ.get(variable)
        if value is None and missing and (variable or name not in source.options):
            raise source.error(name, f"is missing; {missing}")
        if value is None and not missing and default is None:
            return None
        checked = check_address(value, source, name, example)
        if not has_path and urlsplit(checked).path:
            raise source.error(name, f"{checked!r} has a path; allowed: {example}")
        return checked

    return option(read)


def certificates(variable: str = "") -> Any:
    """Return a field for the path of a file that is there; None if none is named."""

    def read(source: OptionSource, name: str) -> str | None:
        path = source.text(name, variable=variable) or None
        if path is not None and not Path(path).exists():
            raise source.error(name, f"is {path!r}, which is not there on this machine")
        return path

    return option(read)


@dataclass(frozen=True, slots=True)
class NetworkOptions:
    """The checked options of every provider over a network."""

    ca_bundle: str | None = certificates()
    timeout_seconds: float = number(10.0, 0.1, 600.0)


def login(methods: Methods, name: str = "method", *, pattern: str = r"[\s\S]*", allowed: str = "") -> Any:
    """Return a field for a text of the option ``auth``; None if it is not set.

    Args:
        methods: the methods, the first of which is the usual one, with the names of the texts that each takes.
        name: the text's name.
        pattern: what the text must match.
        allowed: what is allowed, for messages.
    """

    def read(source: OptionSource, _: str) -> str | None:
        value = read_login(source, methods).get(name) or None
        if value is not None and not re.fullmatch(pattern, value, re.ASCII):
            raise source.error(f"auth.{name}", f"is {value!r}; allowed: {allowed}")
        return value

    return option(read)


def read_login(source: OptionSource, methods: Methods) -> dict[str, str]:
    """Return the option ``auth``: a login method, as ``method``, and the texts that are set.

    Raises:
        ConfigError: it is not a mapping, its method or an option is not known, or a value is not text.
    """
    document = source.options.get("auth", {})
    if not isinstance(document, dict):
        raise source.error("auth", f"is not a mapping; allowed: {{method: {' | '.join(methods)}, …}}")
    method = document.get("method", next(iter(methods)))
    if method not in methods:
        raise source.error("auth:", f"method {method!r} is not known; allowed: {', '.join(methods)}")
    unknown = sorted(set(document) - set(methods[method]))
    if unknown:
        raise source.error(
            "auth:",
            f"option {', '.join(map(repr, unknown))} is not known for method {method!r}; allowed: "
            f"{', '.join(methods[method])}",
        )
    texts = OptionSource(source.kind, document, source.environ)
    return {"method": method, **{name: texts.text(name) for name in document if name != "method"}}


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def shorten_reason(reason: object) -> str:
    """Return what a service says of a refusal as one line that fits a message."""
    return " ".join(str(reason).split())[:_REASON_CHARACTERS]


class ProviderKeyService(KeyService):
    """A key service over a network, in which keys have names that are made of key ids.

    Attributes:
        product: the service's name, for messages.
        form: the form of what it wraps, for messages.
        own_names: what a key id is for which the service or its users give the name, and who makes such a key.
    """

    retries_itself = False
    product: str
    form: str
    own_names: str = ""

    def create(self, key_id: str) -> KeyDescription:
        """Create a key; an existing one is left unchanged.

        Raises:
            KeyAccessDeniedError: these credentials may not create keys.
            ConfigError: the key id is a name that the service or its users give.
        """
        try:
            return self.describe(key_id)
        except KeyNotFoundError as absent:
            if self._is_own(key_id):
                raise ConfigError(f"key id {key_id!r} is {self.own_names}, or use another id") from absent
        self._make(key_id)
        return self.describe(key_id)

    @abstractmethod
    def _make(self, key_id: str) -> None:
        """Create a key that is not there."""

    def _is_own(self, key_id: str) -> bool:
        """Return whether the service or its users give the name that a key id is."""
        return False

    def _describe_all(self, key_ids: Iterable[str | None]) -> tuple[KeyDescription, ...]:
        """Describe keys, of whose names some may stand for no key id."""
        return tuple(self.describe(key_id) for key_id in sorted({key_id for key_id in key_ids if key_id}))

    def _make_form_error(self, key_id: str) -> KeyServiceError:
        """Return the error for a wrapped text of another form, unless the key is missing, which is reported first."""
        self.describe(key_id)
        return KeyServiceError(
            f"key {key_id!r}: the wrapped key is not one of {self.product}; allowed: {self.form}; was it wrapped by "
            "another key service?"
        )

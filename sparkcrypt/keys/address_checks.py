"""Addresses, certificates, logins and other options of key services, checked by the same rules for every provider."""

from __future__ import annotations

import os
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sparkcrypt.errors import ConfigError

HTTP_VARIABLE = "SPARKCRYPT_ALLOW_HTTP"
"""Environment variable that the jar sets for its helper from the launch conf ``spark.sparkcrypt.allow_http``."""


def check_address(
    value: object,
    kind: str,
    *,
    name: str = "address",
    example: str = "https://host:port",
    environ: Mapping[str, str] = os.environ,
) -> str:
    """Return a key service's URL without a slash at its end.

    Args:
        value: the option's value.
        kind: type of the key service, for messages.
        name: the option's name, for messages.
        example: what is allowed, for messages.
        environ: environment variables, which may allow plain http.

    Raises:
        ConfigError: it is not a URL, contains credentials or a query, or is plain http to another machine.
    """
    where = f"key_service of type {kind!r}: {name}"
    if not isinstance(value, str):
        raise ConfigError(f"{where} is a {type(value).__name__}; allowed: text such as {example}")
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError(f"{where} is not a URL; allowed: {example} (or http://)")
    if parts.scheme == "http" and not _is_loopback(parts.hostname) and environ.get(HTTP_VARIABLE) != "true":
        raise ConfigError(
            f"{where} {value!r} is plain http beyond this machine, over which the token and keys could be read; "
            f"allowed: {example}, and http to localhost; where the network is safe, launch with --conf "
            f"spark.sparkcrypt.allow_http=true, and without Spark set {HTTP_VARIABLE}=true"
        )
    if parts.username is not None or parts.query or parts.fragment:
        raise ConfigError(f"{where} holds more than host, port and path; allowed: {example}")
    return value.rstrip("/")


def text_option(options: Mapping[str, Any], name: str, default: str, kind: str) -> str:
    """Return an option that is text.

    Raises:
        ConfigError: it is something else.
    """
    value = options.get(name, default)
    if not isinstance(value, str):
        raise ConfigError(f"key_service of type {kind!r}: {name} is a {type(value).__name__}; allowed: text")
    return value


def number_option(
    options: Mapping[str, Any], name: str, default: float, kind: str, *, least: float, most: float
) -> float:
    """Return an option that is a number within bounds.

    Raises:
        ConfigError: it is something else.
    """
    value = options.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ConfigError(
            f"key_service of type {kind!r}: {name} is {value!r}; allowed: a number from {least:g} to {most:g}"
        )
    return value


def auth_option(document: object, methods: Mapping[str, tuple[str, ...]], default: str, kind: str) -> dict[str, str]:
    """Return the option ``auth``: a login method and its texts.

    Args:
        document: the option's value.
        methods: method -> the names of the options that it takes, ``method`` among them.
        default: the method if none is named.
        kind: type of the key service, for messages.

    Returns:
        The method, as ``method``, and the other texts that are set.

    Raises:
        ConfigError: it is not a mapping, its method or an option is not known, or a value is not text.
    """
    where = f"key_service of type {kind!r}: auth"
    if not isinstance(document, dict):
        raise ConfigError(f"{where} is not a mapping; allowed: {{method: {' | '.join(methods)}, …}}")
    method = document.get("method", default)
    if method not in methods:
        raise ConfigError(f"{where}: method {method!r} is not known; allowed: {', '.join(methods)}")
    unknown = sorted(set(document) - set(methods[method]))
    if unknown:
        raise ConfigError(
            f"{where}: option {', '.join(map(repr, unknown))} is not known for method {method!r}; allowed: "
            f"{', '.join(methods[method])}"
        )
    return {"method": method, **{name: text_option(document, name, "", kind) for name in document if name != "method"}}


def file_option(path: str | None, option: str, kind: str) -> str | None:
    """Return the path of an existing file, or None if none is named.

    Raises:
        ConfigError: the file does not exist.
    """
    if path is not None and not Path(path).exists():
        raise ConfigError(f"key_service of type {kind!r}: {option} is {path!r}, which is not there on this machine")
    return path


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"

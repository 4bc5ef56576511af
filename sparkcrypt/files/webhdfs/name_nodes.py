"""Finds the HTTP addresses of an HDFS's NameNodes in Hadoop's configuration, as Hadoop's own clients do."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from sparkcrypt.errors import ConfigError

HADOOP_USER = "sparkcrypt.hadoop.user"
"""Not a property of Hadoop's: the user as which the session accesses Hadoop."""

_RPC = "dfs.namenode.rpc-address"
_ADDRESSES = ("dfs.namenode.http-address", "dfs.namenode.https-address", _RPC)
_NAMESERVICES = "dfs.nameservices"
_HA = "dfs.ha.namenodes"
_POLICY = "dfs.http.policy"
_AUTHENTICATION = "hadoop.security.authentication"
_ENCRYPTED = "dfs.encrypt.data.transfer"
_FIXED = ("fs.defaultFS", _NAMESERVICES, _POLICY, _AUTHENTICATION, _ENCRYPTED, *_ADDRESSES)
_ANY_HOST = ("", "0.0.0.0", "[::]", "::")  # noqa: S104 - values of a configuration; nothing is bound to them
_RPC_PORT = "8020"


@dataclass(frozen=True, slots=True)
class NameNodes:
    """The addresses of an HDFS's NameNodes (``http://host:port``), of which one is active, and the user to ask as."""

    addresses: tuple[str, ...]
    user: str


def hdfs_settings(get: Callable[[str], str | None]) -> dict[str, str]:
    """Return the part of Hadoop's configuration that `name_nodes` uses.

    Args:
        get: returns the value of a property, or None.
    """
    nameservices = _split_list(get(_NAMESERVICES))
    names = [*_FIXED, *(f"{_HA}.{service}" for service in nameservices)]
    suffixes = [suffix for service in nameservices for suffix in _suffixes(service, get(f"{_HA}.{service}"))]
    names += [f"{address}.{suffix}" for suffix in suffixes for address in _ADDRESSES]
    found = {name: get(name) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def name_nodes(authority: str, settings: Mapping[str, str]) -> NameNodes:
    """Return the NameNodes of an ``hdfs://`` authority: a nameservice, or a NameNode's RPC address.

    The rules are those of Hadoop's ``DFSUtil.getInfoServer``, but an address that is configured for one file system is
    not used for another.

    Raises:
        ConfigError: Kerberos is on, or the configuration has no address for them.
    """
    if asks_kerberos(settings):
        raise ConfigError(
            f"WebHDFS is spoken here without authentication, and {_AUTHENTICATION} is {settings[_AUTHENTICATION]}"
        )
    secure = _is_secure(settings)
    option, port = _ADDRESSES[secure], "9871" if secure else "9870"
    scheme = "https" if secure else "http"
    found = tuple(f"{scheme}://{address}" for address in _addresses(authority, settings, option, port))
    return NameNodes(found, user_of(settings))


def default_authority(settings: Mapping[str, str]) -> str:
    """Return the authority of the default file system if it is an HDFS, else an empty string."""
    scheme, _, rest = settings.get("fs.defaultFS", "").partition("://")
    return rest.partition("/")[0] if scheme == "hdfs" else ""


def asks_kerberos(settings: Mapping[str, str]) -> bool:
    """Return whether Hadoop authenticates its users."""
    return settings.get(_AUTHENTICATION, "simple") != "simple"


def user_of(settings: Mapping[str, str]) -> str:
    """Return the user as which the session accesses Hadoop; without a session, the one that Hadoop's commands use."""
    return settings.get(HADOOP_USER) or os.environ.get("HADOOP_USER_NAME") or getpass.getuser()


def _is_secure(settings: Mapping[str, str]) -> bool:
    """Return whether to use HTTPS.

    Raises:
        ConfigError: only HTTP is served, and would expose data that HDFS's own protocol encrypts.
    """
    policy, encrypted = settings.get(_POLICY, "HTTP_ONLY"), settings.get(_ENCRYPTED) == "true"
    if encrypted and policy == "HTTP_ONLY":
        raise ConfigError(f"{_ENCRYPTED} is true, and WebHDFS is served in clear; set {_POLICY} to HTTPS_ONLY")
    return policy == "HTTPS_ONLY" or encrypted


def _addresses(authority: str, settings: Mapping[str, str], option: str, port: str) -> Iterator[str]:
    nameservices = _split_list(settings.get(_NAMESERVICES))
    if authority in nameservices:
        for suffix in _suffixes(authority, settings.get(f"{_HA}.{authority}")):
            yield _of_nameservice(suffix, settings, option, port, alone=len(nameservices) == 1)
        return
    for service in nameservices:
        for suffix in _suffixes(service, settings.get(f"{_HA}.{service}")):
            if _with_port(settings.get(f"{_RPC}.{suffix}", ""), _RPC_PORT) == _with_port(authority, _RPC_PORT):
                yield _of_nameservice(suffix, settings, option, port, alone=False)
                return
    yield _of_host(authority, settings, option, port)


def _of_nameservice(suffix: str, settings: Mapping[str, str], option: str, port: str, *, alone: bool) -> str:
    name = f"{option}.{suffix}"
    plain = settings.get(option, "") if alone and "." not in suffix else ""
    configured = settings.get(name) or plain
    host = _host(configured)
    if host in _ANY_HOST:
        host = _host(settings.get(f"{_RPC}.{suffix}", ""))
    if host in _ANY_HOST:
        raise ConfigError(f"{name} is not set, so it is not known where that NameNode serves WebHDFS")
    return f"{host}:{_port(configured) or port}"


def _of_host(authority: str, settings: Mapping[str, str], option: str, port: str) -> str:
    configured, host = settings.get(option, ""), _host(authority)
    if host in _ANY_HOST:
        raise ConfigError("neither the path nor fs.defaultFS names a NameNode")
    own = (_with_port(text, _RPC_PORT) for text in (default_authority(settings), settings.get(_RPC, "")))
    if _host(configured) in _ANY_HOST:
        return f"{host}:{_port(configured) or port}"
    if _host(configured) == host or _with_port(authority, _RPC_PORT) in own:
        return _with_port(configured, port)
    return f"{host}:{port}"


def _suffixes(service: str, name_nodes: str | None) -> list[str]:
    return [f"{service}.{text}" for text in _split_list(name_nodes)] or [service]


def _split_list(value: str | None) -> list[str]:
    return [part.strip() for part in (value or "").split(",") if part.strip()]


def _host(address: str) -> str:
    return address[: len(address) - len(_port(address)) - 1] if _port(address) else address


def _port(address: str) -> str:
    _, colon, port = address.rpartition(":")
    return port if colon and port.isdigit() else ""


def _with_port(address: str, port: str) -> str:
    return address if _port(address) else f"{address}:{port}"

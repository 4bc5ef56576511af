"""A client for WebHDFS's NameNodes and DataNodes that uses only the standard library's HTTP.

Hadoop's documentation of the protocol: ``hadoop-hdfs/WebHDFS``.
"""

from __future__ import annotations

import getpass
import json
import os
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from sparkcrypt.errors import ConfigError, UnsupportedFileError

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


CONNECT_SECONDS = 20.0
ANSWER_SECONDS = 120.0
_SAID_CHARACTERS = 500
_ERRORS: dict[str, type[OSError]] = {
    "FileNotFoundException": FileNotFoundError,
    "FileAlreadyExistsException": FileExistsError,
    "AccessControlException": PermissionError,
    "SecurityException": PermissionError,
}


class _UnreachableError(OSError):
    """The host cannot be reached, or its certificate is not trusted."""


class _StandbyError(OSError):
    """A NameNode answered that it is on standby."""


class _NoAnswerError(OSError):
    """A request got no answer: it may or may not have been carried out."""


class WebHdfs:
    """A client of one HDFS.

    Args:
        nodes: the NameNodes to ask, and the user to ask as; the first that answers and is not on standby is used.
    """

    def __init__(self, nodes: NameNodes) -> None:
        self._nodes = nodes
        self._active = 0
        self._lock = threading.Lock()

    def ask(self, method: str, operation: str, path: str, **parameters: str) -> dict[str, Any]:
        """Send an operation to a NameNode and return its JSON answer; empty if the answer has no body.

        Raises:
            FileNotFoundError, FileExistsError, PermissionError: HDFS answered with the corresponding exception.
            OSError: HDFS answered with another error, or no NameNode answered.
        """
        connection, response = self._ask_in_turn(method, operation, path, parameters)
        try:
            data = _body(response)
        finally:
            connection.close()
        return json.loads(data) if data else {}

    def find_data_node(self, method: str, operation: str, path: str, **parameters: str) -> str:
        """Return the URL of the DataNode that a NameNode redirects an operation to.

        Raises:
            OSError: as `ask`, or there is no redirect, or its scheme differs from the NameNode's (HTTPS to HTTP).
        """
        connection, response = self._ask_in_turn(method, operation, path, parameters)
        try:
            _body(response)
        finally:
            connection.close()
        location = response.getheader("Location") or ""
        scheme, wanted = urlsplit(location).scheme, urlsplit(self._nodes.addresses[0]).scheme
        if scheme != wanted:
            raise OSError(f"{path}: the NameNode sends to {location or 'no DataNode'}; expected one over {wanted}")
        return location

    def _ask_in_turn(
        self, method: str, operation: str, path: str, parameters: Mapping[str, str]
    ) -> tuple[HTTPConnection, HTTPResponse]:
        """Ask NameNodes in turn, beginning with the one that answered last, until one answers.

        A change that was sent and not answered is not sent to another NameNode: it may have been carried out.
        """
        query = urlencode({"op": operation, **parameters, "user.name": self._nodes.user})
        target = f"/webhdfs/v1{quote(path, safe='/')}?{query}"
        failed: list[str] = []
        for _ in self._nodes.addresses:
            address = self._nodes.addresses[self._active]
            try:
                connection = connect(address)
                return connection, send_request(connection, address, method, target)
            except (_UnreachableError, _StandbyError, _NoAnswerError) as error:
                if isinstance(error, _NoAnswerError) and method != "GET":
                    raise
                failed.append(str(error))
                self._turn(address)
        raise _UnreachableError("; ".join(failed))

    def _turn(self, address: str) -> None:
        with self._lock:
            if self._nodes.addresses[self._active] == address:
                self._active = (self._active + 1) % len(self._nodes.addresses)


def connect(url: str) -> HTTPConnection:
    """Connect to a URL's host; over HTTPS its certificate is verified (``SSL_CERT_FILE`` names other authorities).

    Raises:
        _UnreachableError: the host cannot be reached; names it.
    """
    parts = urlsplit(url)
    where = f"{parts.scheme}://{parts.netloc}"
    connection: HTTPConnection
    if parts.scheme == "https":
        context = ssl.create_default_context()
        connection = HTTPSConnection(parts.hostname or "", parts.port, timeout=CONNECT_SECONDS, context=context)
    else:
        connection = HTTPConnection(parts.hostname or "", parts.port, timeout=CONNECT_SECONDS)
    try:
        connection.connect()
        connection.sock.settimeout(ANSWER_SECONDS)
    except (OSError, HTTPException) as error:
        connection.close()
        raise _UnreachableError(f"{where} cannot be reached: {error}") from error
    return connection


def connect_data_node(url: str, path: str) -> HTTPConnection:
    """Connect to a DataNode.

    Raises:
        UnsupportedFileError: it cannot be reached, for example because only HDFS's own ports are open to Spark's hosts.
    """
    try:
        return connect(url)
    except _UnreachableError as error:
        raise UnsupportedFileError(
            f"{path}: its DataNode {error}; open the DataNodes' HTTP ports to the executors, or use --engine spark"
        ) from error


def send_request(connection: HTTPConnection, where: str, method: str, target: str) -> HTTPResponse:
    """Send a request without a body and return a successful answer.

    Raises:
        OSError: HDFS answered with an error, which is mapped to its class, or the connection failed; the connection is
            then closed.
    """
    try:
        try:
            connection.request(method, target)
        except (OSError, HTTPException) as error:
            raise _NoAnswerError(f"{where} did not take a request: {error}") from error
        return read_answer(connection, where)
    except BaseException:
        connection.close()
        raise


def read_answer(connection: HTTPConnection, where: str) -> HTTPResponse:
    """Return the successful answer to a request that was sent; raises as `send_request`, but closes nothing."""
    try:
        response = connection.getresponse()
        if response.status < 400:
            return response
        data = response.read(1 << 16)
    except (OSError, HTTPException) as error:
        raise _NoAnswerError(f"{where} did not answer: {str(error) or type(error).__name__}") from error
    raise _parse_error(response.status, data, where)


def _parse_error(status: int, data: bytes, where: str) -> OSError:
    kind, message = "", ""
    with suppress(ValueError, KeyError, TypeError):
        remote = json.loads(data)["RemoteException"]
        kind, message = str(remote["exception"]), str(remote["message"]).strip()
    if kind == "StandbyException" or "StandbyException" in message:
        return _StandbyError(f"{where} is on standby")
    # The message may continue with the server's stack trace.
    first_line = (message.splitlines() or [f"HTTP status {status}"])[0][:_SAID_CHARACTERS]
    return _ERRORS.get(kind, OSError)(f"{where} says: {kind + ': ' if kind else ''}{first_line}")


def _body(response: HTTPResponse) -> bytes:
    try:
        return response.read()
    except (OSError, HTTPException) as error:
        raise _NoAnswerError(f"an answer broke off: {str(error) or type(error).__name__}") from error

"""A client for WebHDFS's NameNodes and DataNodes that uses only the standard library's HTTP.

Hadoop's documentation of the protocol: ``hadoop-hdfs/WebHDFS``.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from sparkcrypt.errors import UnsupportedFileError
from sparkcrypt.files.webhdfs.name_nodes import NameNodes

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

"""The base of the fakes of cloud services: an HTTP server on 127.0.0.1 whose answers a test may replace."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.services.https_server import HttpsServer


@dataclass(frozen=True, slots=True)
class Asked:
    """A received request.

    Attributes:
        method: the HTTP method.
        path: decoded, without its query.
        query: its parameters.
        headers: by their names in lower case.
        body: the parsed JSON, or the fields of a form; empty for a request without a body.
    """

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """A status, a body that is sent as JSON (a text is sent unchanged), and headers."""

    status: int
    content: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


Serve = Callable[[], Answer]
Meddle = Callable[[Asked, Serve], Answer]


class FakeCloud:
    """A server that answers requests one after the other by ``serve``.

    Attributes:
        meddle: answers requests instead of the server, unless None.
        asked: every received request.
    """

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.meddle: Meddle | None = None
        self.asked: list[Asked] = []
        self.one_at_a_time = threading.RLock()
        self._server = _Server(self, context)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """Its URL."""
        return self._server.address

    def serve(self, asked: Asked) -> Answer:
        """Carry out a request; implemented by each fake."""
        raise NotImplementedError

    def stop(self) -> None:
        """End the server."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, asked: Asked) -> Answer:
        """Answer a request by the test's function or the service."""
        with self.one_at_a_time:
            self.asked.append(asked)

        def serve() -> Answer:
            with self.one_at_a_time:
                return self.serve(asked)

        return serve() if self.meddle is None else self.meddle(asked, serve)


class _Server(HttpsServer):
    def __init__(self, cloud: FakeCloud, context: ssl.SSLContext | None) -> None:
        super().__init__(_Handler, context)
        self.cloud = cloud


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def _serve(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        asked = Asked(
            self.command,
            unquote(parts.path),
            dict(parse_qsl(parts.query, keep_blank_values=True)),
            {name.lower(): value for name, value in self.headers.items()},
            _parsed(content, self.headers.get("Content-Type") or ""),
        )
        answer = self.server.cloud.answer(asked)
        said = answer.content if isinstance(answer.content, str) else json.dumps(answer.content or {})
        self.send_response(answer.status)
        for name, value in {"Content-Type": "application/json", **answer.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(said.encode())))
        self.end_headers()
        self.wfile.write(said.encode())

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _parsed(content: bytes, kind: str) -> Mapping[str, Any]:
    if not content:
        return {}
    if kind.startswith("application/x-www-form-urlencoded"):
        return dict(parse_qsl(content.decode()))
    told = json.loads(content)
    return told if isinstance(told, dict) else {}

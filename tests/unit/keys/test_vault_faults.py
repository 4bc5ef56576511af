"""Faults that a real Vault does not show on demand: answers of a stand-in on 127.0.0.1, one after the other."""

from __future__ import annotations

import json
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from sparkcrypt.errors import KeyAccessDeniedError, KeyServiceError, KeyServiceUnavailableError
from sparkcrypt.keys.service import KeyService
from sparkcrypt.keys.vault import session as vault_session
from tests.unit.keys.conftest import opened

TOKEN = "hvs.CANARY" + secrets.token_hex(8)
LOOKED_UP: tuple[int, Any, dict[str, str]] = (200, {"data": {"ttl": 0, "renewable": False}}, {})
GOOD = {"data": {"keys": {"1": 1700000000}, "latest_version": 1}}


class Standin(ThreadingHTTPServer):
    """Answers ``lookup-self`` well, and everything else by the next of its answers; it keeps what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.answers: list[tuple[int, Any, dict[str, str]]] = []
        self.asked: list[tuple[str, str, dict[str, str]]] = []

    @property
    def address(self) -> str:
        """Its URL."""
        return f"http://127.0.0.1:{self.server_port}"

    def will(self, status: int, body: Any = None, **headers: str) -> None:
        """Add an answer."""
        self.answers.append((status, body, headers))


class _Answer(BaseHTTPRequestHandler):
    server: Standin

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path.endswith("/lookup-self"):
            status, body, headers = LOOKED_UP
        else:
            self.server.asked.append((self.command, self.path, dict(self.headers)))
            status, body, headers = self.server.answers.pop(0)
        content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_LIST = do_PUT = _answer

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def standin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Standin]:
    """A running stand-in; pauses between tries are short."""
    monkeypatch.setattr(vault_session, "BACKOFF_SECONDS", 0.01)
    monkeypatch.setenv("VAULT_TOKEN", TOKEN)
    server = Standin()
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def service_of(standin: Standin, **options: Any) -> KeyService:
    """Open the Vault key service over the stand-in."""
    return opened(type="vault", address=standin.address, **options)


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_passing_fault_is_tried_again(standin: Standin, status: int) -> None:
    """Two answers that say 'not now' and a good one are a success, for GET and for POST."""
    standin.will(status, {"errors": ["busy"]})
    standin.will(status, {"errors": ["busy"]})
    standin.will(200, GOOD)
    assert service_of(standin).describe("pii").versions == 1
    assert len(standin.asked) == 3
    standin.will(status, {})
    standin.will(200, {"data": {"plaintext": "a2V5"}})
    assert service_of(standin).unwrap("pii", "vault:v1:x") == b"key"


@pytest.mark.parametrize("status", [429, 503])
def test_lasting_fault_is_unavailable_after_the_retries(standin: Standin, status: int) -> None:
    """When every try fails the error says how many there were."""
    for _ in range(3):
        standin.will(status, {"errors": ["busy"]})
    with pytest.raises(KeyServiceUnavailableError, match="after 2 retries"):
        service_of(standin, max_retries=2).describe("pii")
    assert len(standin.asked) == 3


@pytest.mark.parametrize("status", [400, 403, 404, 405, 412])
def test_refusal_is_not_tried_again(standin: Standin, status: int) -> None:
    """Any other refusal is asked for once."""
    standin.will(status, {"errors": ["no"]})
    with pytest.raises(KeyServiceError):
        service_of(standin).describe("pii")
    assert len(standin.asked) == 1


def test_retry_after_of_an_hour_is_not_obeyed(standin: Standin) -> None:
    """A server cannot hold a writer by a Retry-After header."""
    standin.will(503, {}, Retry_After="3600")
    standin.will(200, GOOD)
    started = time.monotonic()
    service_of(standin).describe("pii")
    assert time.monotonic() - started < 10


def test_redirect_is_not_followed(standin: Standin) -> None:
    """A redirect would carry the token to another host: it is an error, and that host is never asked."""
    other = Standin()
    threading.Thread(target=other.serve_forever, args=(0.05,), daemon=True).start()
    standin.will(307, {}, Location=f"{other.address}/v1/transit/keys/pii")
    try:
        with pytest.raises(KeyServiceUnavailableError, match="redirects are not followed"):
            service_of(standin).describe("pii")
    finally:
        other.shutdown()
        other.server_close()
    assert other.asked == []


@pytest.mark.parametrize(
    "body", ["<html>welcome</html>", "[]", "null", {"data": None}, {"data": {"keys": {}}}, {"data": []}]
)
def test_answer_that_is_not_vaults_is_refused(standin: Standin, body: Any) -> None:
    """A web page, or JSON of another kind, with status 200 is not taken for an answer."""
    for call in (lambda: service_of(standin).describe("pii"), lambda: service_of(standin).unwrap("pii", "vault:v1:x")):
        standin.will(200, body)
        with pytest.raises(KeyServiceUnavailableError, match="not Vault's transit engine"):
            call()


@pytest.mark.parametrize("status", [400, 403, 404, 418, 500])
def test_token_that_a_server_echoes_is_not_passed_on(standin: Standin, status: int) -> None:
    """An error text that quotes the request's token does not get into our message."""
    standin.will(status, {"errors": [f"bad header X-Vault-Token: {TOKEN}"]})
    with pytest.raises(KeyServiceError) as raised:
        service_of(standin, max_retries=0).describe("pii")
    assert TOKEN not in str(raised.value)


def test_namespace_and_request_header_are_sent(standin: Standin) -> None:
    """Requests carry the namespace and the header that keeps forged ones out; the token is in no path."""
    standin.will(200, GOOD)
    service_of(standin, namespace="team/a").describe("pii")
    _, path, headers = standin.asked[0]
    assert headers["X-Vault-Namespace"] == "team/a"
    assert headers["X-Vault-Request"] == "true"
    assert TOKEN not in path


def test_server_that_does_not_answer_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that takes the connection and says nothing is given up after the timeout."""
    monkeypatch.setenv("VAULT_TOKEN", TOKEN)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        service = opened(type="vault", address=address, timeout_seconds=0.2, max_retries=0)
        with pytest.raises(KeyServiceUnavailableError, match=r"within 0.2 s"):
            service.describe("pii")


def test_denial_while_the_token_lives_is_asked_once(standin: Standin) -> None:
    """A refused wrap is refused: no second try, no login."""
    standin.will(200, GOOD)
    standin.will(403, {"errors": ["permission denied"]})
    with pytest.raises(KeyAccessDeniedError):
        service_of(standin).wrap("pii", b"k" * 16)
    assert [method for method, _, _ in standin.asked] == ["GET", "POST"]

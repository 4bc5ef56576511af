"""The Vault server that the launcher uses: one on PATH before one that it builds, and how it starts it."""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.services import ServiceFailedError, ServiceUnavailableError, vault_server
from tests.services.processes import ServiceProcess, accepts, start_process
from tests.services.vault_server import LOGINS, TRANSIT_MOUNTS, LastingVault, start_vault

PROGRAM = '''#!{python}
"""Keeps how it was started and what it is asked, and answers as a server that is ready."""
import json, os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

TOKENS = {{name: os.environ.get(name) for name in ("VAULT_DEV_ROOT_TOKEN_ID", "BAO_DEV_ROOT_TOKEN_ID")}}
Path({started!r}).write_text(json.dumps({{"program": sys.argv[0], "arguments": sys.argv[1:], **TOKENS}}))


class Answer(BaseHTTPRequestHandler):
    starting = {starting!r}

    def do_GET(self):
        self.answer(200, self.starting.pop(0) if self.starting else b'{{"initialized": true}}')

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        good = self.headers["X-Vault-Token"] in TOKENS.values()
        with Path({asked!r}).open("a") as file:
            file.write(json.dumps([self.path, body["type"], good]) + "\\n")
        self.answer({status}, b"")

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


host, port = next(a for a in sys.argv if a.startswith("-dev-listen-address=")).partition("=")[2].split(":")
HTTPServer((host, int(port)), Answer).serve_forever()
'''


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH, empty; and no server is in the cache."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("SPARKCRYPT_CACHE", str(tmp_path / "cache"))
    return folder


def install(
    path: Path, name: str, text: str | None = None, *, status: int = 204, starting: Sequence[bytes] = ()
) -> None:
    """Write a program into PATH: one that records its requests, unless another text is given."""
    known = {name: str(path.parent / f"{name}.json") for name in ("started", "asked")}
    program = path / name
    told = {"status": status, "starting": list(starting), **known}
    program.write_text(text or PROGRAM.format(python=sys.executable, **told))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


def started(path: Path) -> dict[str, object]:
    """Return how the program was started."""
    return dict(json.loads((path.parent / "started.json").read_text()))


@pytest.mark.parametrize("names", [["vault"], ["bao"], ["bao", "vault"]])
def test_a_server_on_path_is_started_in_its_development_mode(path: Path, names: list[str]) -> None:
    """Either program serves on 127.0.0.1 only, Vault's is preferred to OpenBao's, and stop ends it."""
    for name in names:
        install(path, name)
    server = start_vault()
    try:
        port = int(server.address.rpartition(":")[2])
        assert server.address == f"http://127.0.0.1:{port}"
        assert accepts(port)
    finally:
        server.stop()
    assert not accepts(port)
    assert not server.work_dir.exists()
    kept = started(path)
    assert kept["program"] == str(path / names[-1])
    assert kept["arguments"] == ["server", "-dev", "-dev-no-store-token", f"-dev-listen-address=127.0.0.1:{port}"]


def test_the_root_token_is_in_the_environment_and_not_on_the_command_line(path: Path) -> None:
    """Every user can read a command line; both products get the tests' token from the environment."""
    install(path, "vault")
    server = start_vault()
    server.stop()
    kept = started(path)
    assert kept["VAULT_DEV_ROOT_TOKEN_ID"] == kept["BAO_DEV_ROOT_TOKEN_ID"] == server.root_token
    assert server.root_token not in json.dumps(kept["arguments"])
    assert server.root_token not in repr(server)


def test_a_server_on_path_gets_the_mounts_and_logins_of_the_tests(path: Path) -> None:
    """A development server mounts neither transit nor logins; the launcher does, with the root token."""
    install(path, "vault")
    start_vault().stop()
    asked = [json.loads(line) for line in (path.parent / "asked.json").read_text().splitlines()]
    mounts = [[f"/v1/sys/mounts/{mount}", "transit", True] for mount in TRANSIT_MOUNTS]
    assert asked == mounts + [[f"/v1/sys/auth/{login}", login, True] for login in LOGINS]


def test_a_program_that_does_not_start_is_reported_with_its_words(path: Path) -> None:
    """Another program called vault fails the launch, and no server is built in its place."""
    install(path, "vault", "#!/bin/sh\necho this vault keeps passwords\nexit 2\n")
    with pytest.raises(ServiceFailedError, match="this vault keeps passwords"):
        start_vault()


def test_a_server_that_refuses_its_mounts_is_stopped(path: Path) -> None:
    """A server that cannot be set up is stopped."""
    install(path, "vault", status=500)
    with pytest.raises(ServiceFailedError, match="could not be set up"):
        start_vault()
    arguments = started(path)["arguments"]
    assert isinstance(arguments, list)
    assert not accepts(int(arguments[-1].rpartition(":")[2]))


def test_a_server_whose_answer_is_no_http_is_stopped(path: Path) -> None:
    """What answers a request with something else cannot be set up either."""
    text = PROGRAM.replace('self.answer({status}, b"")', 'self.wfile.write(b"no such answer\\r\\n")')
    known = {name: str(path.parent / f"{name}.json") for name in ("started", "asked")}
    install(path, "vault", text.format(python=sys.executable, status=0, starting=[], **known))
    with pytest.raises(ServiceFailedError, match="could not be set up"):
        start_vault()
    arguments = started(path)["arguments"]
    assert isinstance(arguments, list)
    assert not accepts(int(arguments[-1].rpartition(":")[2]))


def test_a_server_that_starts_is_asked_again(path: Path) -> None:
    """Answers without the state of the server are not taken for it."""
    install(path, "vault", starting=[b"null", b"[]", b"7", b"", b"<html>", b"{}"])
    start_vault().stop()
    assert len((path.parent / "asked.json").read_text().splitlines()) == len(TRANSIT_MOUNTS) + len(LOGINS)


BUILT = """#!{python}
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer


class Answer(BaseHTTPRequestHandler):
    def do_POST(self):
        self.send_response({status})
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"null")


server = HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("-port") + 1])), Answer)
print('{{"address": "here", "root_token": "root"}}', flush=True)
server.serve_forever()
"""


@pytest.mark.parametrize("status", [200, 500])
def test_a_lasting_server_that_cannot_be_set_up_is_stopped(
    path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """No process is left of a server built here that refuses its mounts, or answers with anything else."""
    install(path, "vault", BUILT.format(python=sys.executable, status=status))
    services: list[ServiceProcess] = []
    monkeypatch.setattr(vault_server, "built_vault", lambda: path / "vault")

    def started_here(name: str, command: Sequence[str | Path], work_dir: Path) -> ServiceProcess:
        services.append(start_process(name, command, work_dir))
        return services[-1]

    monkeypatch.setattr(vault_server, "start_process", started_here)
    with pytest.raises(ServiceFailedError, match="could not be set up"):
        LastingVault()
    assert [service.alive() for service in services] == [False]


def test_a_file_that_cannot_be_executed_is_no_server(path: Path) -> None:
    """Without a program and without Go the message names both products and Go."""
    (path / "vault").write_text("notes")
    with pytest.raises(ServiceUnavailableError, match=r"neither vault nor bao is on PATH.*no go"):
        start_vault()

"""A real Vault (or OpenBao) server: the one on PATH, else one built from Go sources into a cache.

It keeps everything in memory unless a test kills and restarts it, listens on 127.0.0.1, and has two transit mounts
and AppRole and Kubernetes logins.
``python -m tests.services.vault_server`` builds it before the tests, whose time limit the first build would exceed.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import secrets
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.services import ServiceFailedError, ServiceUnavailableError
from tests.services.cache import cache_folder, locked
from tests.services.processes import DIRECT, LOCAL, ServiceProcess, free_port, start_process, wait_until

SOURCES = Path(__file__).parent / "vault"
START_SECONDS = 60.0
BUILD_SECONDS = 1800.0
REQUEST_SECONDS = 30.0
TRANSIT_MOUNTS = ("transit", "team/transit")
LOGINS = ("approle", "kubernetes")
OLDEST_GO = (1, 25)


@dataclass(frozen=True, slots=True)
class VaultServer:
    """A running server: its address and its root token."""

    address: str
    root_token: str = field(repr=False)
    process: ServiceProcess
    work_dir: Path

    def api(
        self, method: str, path: str, body: dict[str, Any] | None = None, *, token: str | None = None
    ) -> dict[str, Any]:
        """Call the HTTP API at ``/v1/<path>`` and return the answer's JSON, empty if there is none.

        Raises:
            urllib.error.HTTPError: the server refused.
            ValueError: the answer is no JSON object.
        """
        request = urllib.request.Request(
            f"{self.address}/v1/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"X-Vault-Token": token or self.root_token, "X-Vault-Request": "true"},
        )
        with DIRECT.open(request, timeout=REQUEST_SECONDS) as response:
            text = response.read()
        answer = json.loads(text) if text else {}
        if not isinstance(answer, dict):
            raise ValueError(f"the answer to {method} {path} is no JSON object")
        return answer

    def token(self, policy: str, **options: object) -> str:
        """Return a new token with the permissions of a policy.

        Args:
            policy: the policy's text (HCL or JSON).
            options: options of ``auth/token/create``, such as ``ttl="2s"``.
        """
        return str(
            self.api("POST", "auth/token/create", {"policies": [self.policy(policy)], **options})["auth"][
                "client_token"
            ]
        )

    def policy(self, text: str) -> str:
        """Store a policy and return its name, which is derived from its text."""
        name = "policy-" + hashlib.sha256(text.encode()).hexdigest()[:12]
        self.api("POST", f"sys/policies/acl/{name}", {"policy": text})
        return name

    def stop(self) -> None:
        """End the process and remove its folder."""
        self.process.stop()
        shutil.rmtree(self.work_dir, ignore_errors=True)


class LastingVault:
    """A server built here with storage on disk: it can be killed and restarted at the same address.

    Attributes:
        server: the last started process; address and root token stay the same.

    Raises:
        ServiceUnavailableError: there is no Go to build it with.
        ServiceFailedError: it did not come up.
    """

    def __init__(self) -> None:
        work_dir, self._starts = Path(tempfile.mkdtemp(prefix="vault-server-")), 0
        self.server = self._start(work_dir, free_port())
        _set_up(self.server)

    def kill(self) -> None:
        """End the process abruptly, as a loss of power does."""
        self.server.process.process.kill()
        self.server.process.process.wait()

    def start(self) -> None:
        """Restart the server over its storage; return when it is unsealed."""
        self.server = self._start(self.server.work_dir, int(self.server.address.rpartition(":")[2]))

    def stop(self) -> None:
        """End the process and remove its folder."""
        self.server.stop()

    def _start(self, work_dir: Path, port: int) -> VaultServer:
        self._starts += 1
        command: Sequence[str | Path] = [built_vault(), "-port", str(port), "-storage", work_dir]
        process = start_process(f"vault-{self._starts}", command, work_dir)
        wait_until(lambda: bool(_printed(process)), process, START_SECONDS)
        return VaultServer(f"http://{LOCAL}:{port}", _printed(process)["root_token"], process, work_dir)


def start_vault() -> VaultServer:
    """Start a server on a free port; return when it answers.

    Raises:
        ServiceUnavailableError: there is neither ``vault`` nor ``bao`` on PATH, and none can be built.
        ServiceFailedError: it did not come up.
    """
    installed = shutil.which("vault") or shutil.which("bao")
    program = Path(installed) if installed else built_vault()
    work_dir = Path(tempfile.mkdtemp(prefix="vault-server-"))
    port = free_port()
    token = "root-" + secrets.token_hex(16)
    command: Sequence[str | Path] = [program, "-port", str(port)]
    environment = dict(os.environ)
    if installed:
        command = [program, "server", "-dev", "-dev-no-store-token", f"-dev-listen-address={LOCAL}:{port}"]
        # In the environment, since every user can read a command line.
        environment |= {"VAULT_DEV_ROOT_TOKEN_ID": token, "BAO_DEV_ROOT_TOKEN_ID": token}
    process = start_process("vault", command, work_dir, environment)
    server = VaultServer(f"http://{LOCAL}:{port}", token, process, work_dir)
    wait_until(lambda: _ready(server, printed=not installed), process, START_SECONDS)
    if not installed:
        server = VaultServer(server.address, _printed(process)["root_token"], process, work_dir)
    _set_up(server)
    return server


def built_vault() -> Path:
    """Return the server built from the Go sources; concurrent callers build it once.

    The first build takes some minutes and needs the network; the program is kept under ``$SPARKCRYPT_CACHE``
    (``~/.cache/sparkcrypt``).

    Raises:
        ServiceUnavailableError: there is no Go, or it could not build.
    """
    program = cache_folder() / f"vault-{_sources_digest()}" / "vault"
    if program.exists():
        return program
    go = shutil.which("go")
    if go is None:
        raise ServiceUnavailableError(
            "no Vault server: neither vault nor bao is on PATH, and there is no go to build one; install either, or Go "
            f"{OLDEST_GO[0]}.{OLDEST_GO[1]} or later"
        )
    with locked(program.parent / ".lock"):
        if not program.exists():
            _build(go, program)
    return program


def _build(go: str, program: Path) -> None:
    unfinished = program.with_name(f".building-{os.getpid()}")
    command = [go, "build", "-mod=readonly", "-ldflags=-s -w", "-o", str(unfinished), "."]
    try:
        subprocess.run(command, cwd=SOURCES, capture_output=True, text=True, check=True, timeout=BUILD_SECONDS)
        unfinished.replace(program)
    except subprocess.CalledProcessError as error:
        raise ServiceUnavailableError(
            f"no Vault server: neither vault nor bao is on PATH, and building one with {go} failed; it needs Go "
            f"{OLDEST_GO[0]}.{OLDEST_GO[1]} or later and the Go module proxy:\n{error.stderr[-2000:]}"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise ServiceUnavailableError(f"no Vault server: building one took more than {BUILD_SECONDS:g} s") from error
    finally:
        unfinished.unlink(missing_ok=True)


def _sources_digest() -> str:
    digest = hashlib.sha256()
    for path in sorted(SOURCES.glob("*")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _ready(server: VaultServer, *, printed: bool) -> bool:
    if printed:
        return bool(_printed(server.process))
    try:
        return bool(server.api("GET", "sys/health").get("initialized"))
    except (OSError, http.client.HTTPException, ValueError):
        return False


def _printed(process: ServiceProcess) -> dict[str, str]:
    """Return the line of JSON that a server built here prints when it is ready; empty before."""
    lines = process.log.read_text(errors="replace").splitlines(keepends=True) if process.log.exists() else []
    ready = [line for line in lines if line.startswith('{"address"') and line.endswith("\n")]
    return dict(json.loads(ready[0])) if ready else {}


def _set_up(server: VaultServer) -> None:
    """Mount what tests use; a server on which that fails is stopped.

    Raises:
        ServiceFailedError: the server answered with an error, or not at all.
    """
    try:
        for mount in TRANSIT_MOUNTS:
            server.api("POST", f"sys/mounts/{mount}", {"type": "transit"})
        for method in LOGINS:
            server.api("POST", f"sys/auth/{method}", {"type": method})
    except BaseException as error:
        server.stop()
        if isinstance(error, (OSError, http.client.HTTPException, ValueError)):
            raise ServiceFailedError(f"vault answered but could not be set up: {error}") from error
        raise


if __name__ == "__main__":
    print(shutil.which("vault") or shutil.which("bao") or built_vault())

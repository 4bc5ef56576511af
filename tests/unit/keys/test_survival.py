"""Key services that fail while work goes on: each fault ends in success or in one clear error."""

from __future__ import annotations

import base64
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt.bridge.operations import Operations
from sparkcrypt.errors import KeyAccessDeniedError, KeyNotFoundError, KeyServiceError, KeyServiceUnavailableError
from sparkcrypt.keys import steady
from sparkcrypt.keys.datakeys import DataKeyMaker, DataKeyOpener
from sparkcrypt.keys.vault import session as vault_session
from tests.services.vault_server import VaultServer
from tests.unit.keys.conftest import OpenVault, opened
from tests.unit.keys.vault_proxy import VaultProxy, running_proxy, through

KEY = secrets.token_bytes(32)
MAKE_ONE = """
import json, sys
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.policy.key_service import KeyServiceConfig
service = open_key_service(KeyServiceConfig.from_dict(json.loads(sys.argv[1])))
sys.stdin.readline()
service.create("pii")
print(service.wrap("pii", b"k" * 32))
"""


@pytest.fixture
def proxy(vault: VaultServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[VaultProxy]:
    """A proxy before the real Vault; pauses between tries are short."""
    monkeypatch.setattr(vault_session, "BACKOFF_SECONDS", 0.001)
    monkeypatch.setenv("VAULT_TOKEN", vault.root_token)
    with running_proxy(vault.address) as running:
        yield running


@pytest.mark.services
def test_latency_is_waited_for_until_the_deadline(proxy: VaultProxy, mount: str) -> None:
    """An answer after 2 s is an answer; where the deadline is shorter, the error comes in time and names it."""
    service = through(proxy, mount)
    service.create("pii")
    wrapped = service.wrap("pii", KEY)
    proxy.delay_seconds = 2.0
    assert service.unwrap("pii", wrapped) == KEY
    hasty = through(proxy, mount, deadline_seconds=0.5)
    started = time.monotonic()
    with pytest.raises(KeyServiceUnavailableError, match=r"within the 0\.5 s.*raise deadline_seconds"):
        hasty.unwrap("pii", wrapped)
    assert time.monotonic() - started < 1.5


@pytest.mark.services
@pytest.mark.parametrize("every", [100, 2])
def test_one_in_so_many_calls_fails(proxy: VaultProxy, mount: str, every: int) -> None:
    """With 1 % or 50 % of all requests failing, every unwrap ends in success."""
    service = through(proxy, mount)
    service.create("pii")
    wrapped = service.wrap("pii", KEY)
    proxy.fail("decrypt", *[500 if number % every == 0 else 0 for number in range(200)])
    assert [service.unwrap("pii", wrapped) for _ in range(60)] == [KEY] * 60


@pytest.mark.services
def test_service_that_is_down_is_let_alone_and_comes_back(
    proxy: VaultProxy, mount: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After ten failed calls Vault is not asked for a while, and then serves again."""
    monkeypatch.setattr(steady, "PAUSE_SECONDS", 0.3)
    service = through(proxy, mount, max_retries=0)
    service.create("pii")
    wrapped = service.wrap("pii", KEY)
    proxy.fail("decrypt", *[503] * 10)
    for _ in range(10):
        with pytest.raises(KeyServiceUnavailableError, match="sealed"):
            service.unwrap("pii", wrapped)
    asked = proxy.count("decrypt")
    with pytest.raises(KeyServiceUnavailableError, match="10 times in a row"):
        service.unwrap("pii", wrapped)
    assert proxy.count("decrypt") == asked
    time.sleep(0.35)
    assert service.unwrap("pii", wrapped) == KEY


@pytest.mark.services
def test_next_address_serves_while_the_first_is_down(vault: VaultServer, proxy: VaultProxy, mount: str) -> None:
    """Of two addresses of one Vault the second opens keys while the first resets connections; it makes none."""
    service = opened(type="vault", addresses=["http://127.0.0.1:1", proxy.address], mount_point=mount, max_retries=0)
    direct = opened(type="vault", address=vault.address, mount_point=mount)
    direct.create("pii")
    assert service.unwrap("pii", service.wrap("pii", KEY)) == KEY
    with pytest.raises(KeyServiceUnavailableError, match=r"127\.0\.0\.1:1"):
        service.create("other")
    assert [key.key_id for key in direct.list_keys()] == ["pii"]


@pytest.mark.services
def test_right_that_is_taken_while_work_goes_on(vault: VaultServer, open_vault: OpenVault, mount: str) -> None:
    """A token whose policy loses a key gets one refusal that names the key, at once and without another try."""
    rules = f'path "{mount}/*" {{ capabilities = ["create", "update", "read"] }}'
    token = vault.token(rules)
    service = open_vault(token)
    service.create("pii")
    wrapped = service.wrap("pii", KEY)
    assert service.unwrap("pii", wrapped) == KEY
    vault.api(
        "PUT", f"sys/policies/acl/{vault.policy(rules)}", {"policy": 'path "nothing" { capabilities = ["read"] }'}
    )
    with pytest.raises(KeyAccessDeniedError, match=r"key 'pii'.*permission denied"):
        service.unwrap("pii", wrapped)


def _footer_key(service: Any) -> tuple[DataKeyMaker, bytes, bytes]:
    service.create("pii")
    maker = DataKeyMaker(service, data_key_bits=256)
    dek, metadata = maker.make("pii", is_footer_key=True)
    return maker, dek, metadata


@pytest.mark.services
def test_opened_key_serves_beyond_its_lifetime_while_the_service_is_down(
    vault: VaultServer, proxy: VaultProxy, mount: str
) -> None:
    """With serve_stale_for a key that was opened goes on serving; one that is known to be deleted never does."""
    service = through(proxy, mount, max_retries=0)
    _, dek, metadata = _footer_key(service)
    opener = DataKeyOpener(service, lifetime_seconds=0.01, stale_seconds=60)
    assert opener.open_metadata(metadata) == dek
    time.sleep(0.02)
    proxy.fail("decrypt", 503)
    assert opener.open_metadata(metadata) == dek
    vault.api("POST", f"{mount}/keys/pii/config", {"deletion_allowed": True})
    vault.api("DELETE", f"{mount}/keys/pii")
    with pytest.raises(KeyNotFoundError):
        opener.open_metadata(metadata)
    opener.forget("pii")
    proxy.fail("decrypt", 503)
    with pytest.raises(KeyServiceUnavailableError):
        opener.open_metadata(metadata)


@pytest.mark.services
@pytest.mark.parametrize("told_by", ["unwrap", "open_key"])
def test_helper_serves_no_key_that_any_answer_called_gone(
    vault: VaultServer, proxy: VaultProxy, mount: str, told_by: str
) -> None:
    """In a helper with serve_stale_for, whatever request learns of a deletion ends the grace of all others."""
    config = {"type": "vault", "address": proxy.address, "mount_point": mount, "max_retries": 0}
    text = json.dumps({**config, "serve_stale_for": "10m"})
    service = through(proxy, mount)
    _, dek, metadata = _footer_key(service)
    bare = service.wrap("pii", KEY)
    helper = Operations()

    def open_key(seconds: int) -> bytes:
        request = {"op": "open_key", "key_service": text, "lifetime_seconds": seconds}
        answer = helper.answer({**request, "key_metadata": base64.b64encode(metadata).decode()})
        return base64.b64decode(answer["key"])

    assert open_key(1) == dek
    time.sleep(1.01)
    proxy.fail("decrypt", 503)
    assert open_key(1) == dek
    vault.api("POST", f"{mount}/keys/pii/config", {"deletion_allowed": True})
    vault.api("DELETE", f"{mount}/keys/pii")
    with pytest.raises(KeyNotFoundError):
        if told_by == "open_key":
            open_key(1)
        else:
            helper.answer({"op": "unwrap", "key_service": text, "key_id": "pii", "wrapped": bare})
    proxy.fail("decrypt", *[503] * 3)
    with pytest.raises(KeyServiceError):
        open_key(1)


@pytest.mark.parametrize("kind", ["local", pytest.param("vault", marks=pytest.mark.services)])
def test_two_processes_make_one_key(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Processes that create a key at the same time use one: each opens what the others wrapped."""
    document: dict[str, Any] = {"type": "local", "path": str(tmp_path / "keys")}
    if kind == "vault":
        server: VaultServer = request.getfixturevalue("vault")
        monkeypatch.setenv("VAULT_TOKEN", server.root_token)
        document = {"type": "vault", "address": server.address, "mount_point": request.getfixturevalue("mount")}
    command = [sys.executable, "-c", MAKE_ONE, json.dumps(document)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, **pipes) for _ in range(3)]  # type: ignore[call-overload]
    wrapped = [process.communicate("go\n")[0].strip() for process in processes]
    service = opened(**document)
    assert [service.unwrap("pii", sealed) for sealed in wrapped] == [b"k" * 32] * 3
    assert len(service.list_keys()) == 1


def test_full_disk_makes_no_half_of_a_key(tmp_path: Path) -> None:
    """Where nothing more can be written, creating and rotating say so, and every key that was there still opens."""
    script = """
import os, resource, signal, sys
from sparkcrypt.errors import KeyServiceError
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.policy.key_service import KeyServiceConfig
service = open_key_service(KeyServiceConfig.from_dict({"type": "local", "path": sys.argv[1]}))
service.create("old")
wrapped = service.wrap("old", b"k" * 32)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (40, resource.RLIM_INFINITY))
for change in (lambda: service.create("new"), lambda: service.rotate("old")):
    try:
        change()
    except KeyServiceError as error:
        print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(sorted(os.listdir(sys.argv[1])), service.describe("old").versions, service.unwrap("old", wrapped))
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "keys")],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ,
    )
    first, second, rest = done.stdout.splitlines()
    assert "cannot write key 'new'" in first
    assert "cannot write key 'old'" in second
    assert rest == f"['.lock', 'old.json'] 1 {b'k' * 32!r}"

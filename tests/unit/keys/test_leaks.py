"""No secret gets out: every type of the package, and every error, is rendered with a canary inside."""

from __future__ import annotations

import base64
import logging
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt.errors import SparkcryptError
from sparkcrypt.keys.cloud.gcp import _Found
from sparkcrypt.keys.datakeys import DataKeyMaker, DataKeyOpener, WrappedKek, _Kek
from sparkcrypt.keys.expiring_cache import ExpiringCache
from sparkcrypt.keys.local.keystore import KeyDirectory, KeyVersion, MasterKey
from sparkcrypt.keys.material import KeyMaterial, parse_key_material
from sparkcrypt.keys.opened import LoggingKeyService
from sparkcrypt.keys.provider import read_options
from sparkcrypt.keys.vault.session import VaultAuth, VaultCredential, VaultOptions, VaultSession, read_credential
from sparkcrypt.policy.key_service import KeyServiceConfig
from tests.services.vault_server import VaultServer
from tests.unit.keys.conftest import OpenVault, opened

CANARY = b"CANARY-of-32-bytes-that-is-a-key"
FORMS = {
    "bytes": "CANARY-of-32",
    "hex": CANARY.hex()[:24],
    "base64": base64.b64encode(CANARY).decode()[:24],
}


def assert_clean(text: str) -> None:
    """Fail when a text holds the canary in any form."""
    found = [name for name, form in FORMS.items() if form in text]
    assert not found, f"the canary stands as {found} in: {text[:2000]}"


def rendered(value: object) -> str:
    """Return a value as repr, str, format and log record show it."""
    record = logging.LogRecord("x", logging.INFO, "f", 1, "%s %r", (value, value), None)
    return "\n".join([repr(value), str(value), f"{value}", f"{[value]}", record.getMessage()])


def values(tmp_path: Path) -> dict[str, Any]:
    """Build one value of each type that holds, or could hold, a secret."""
    local = opened(type="local", path=str(tmp_path / "keys"))
    ephemeral = opened(type="ephemeral", secret=CANARY.hex())
    local.create("pii")
    maker = DataKeyMaker(local, data_key_bits=256)
    maker.make("pii", is_footer_key=True)
    opener = DataKeyOpener(local)
    opener.open(parse_key_material(maker.wrap(CANARY, "pii", is_footer_key=True)))
    cache: ExpiringCache[str, bytes] = ExpiringCache(60)
    cache.get("key", lambda: CANARY)
    version = KeyVersion(1, "2025-01-31T12:00:00Z", CANARY)
    vault = KeyServiceConfig.from_dict({"type": "vault", "address": "http://127.0.0.1:1"})
    credential = VaultCredential("approle", (CANARY.decode(), CANARY.decode()))
    return {
        "local": local,
        "ephemeral": ephemeral,
        "call log": LoggingKeyService(ephemeral),
        "vault": opened(type="vault", address="http://127.0.0.1:1"),
        "options": read_options(VaultOptions, vault),
        "azure": opened(type="azure", address="https://acme.vault.azure.net"),
        "gcp": opened(type="gcp"),
        "gcp token": _Found(b"digest", CANARY),
        "credential": credential,
        "session": VaultSession(VaultAuth("token", "token"), None),  # type: ignore[arg-type]
        "version": version,
        "master key": MasterKey("pii", (version,)),
        "directory": KeyDirectory(tmp_path / "keys"),
        "maker": maker,
        "opener": opener,
        "cache": cache,
        "kek": _Kek(WrappedKek("pii", "aWQ=", "local:v1:AAAA"), CANARY),
        "material": KeyMaterial(True, None, None, "pii", local.wrap("pii", CANARY)),
        "server": VaultServer("http://127.0.0.1:1", CANARY.decode(), None, tmp_path),  # type: ignore[arg-type]
    }


def test_no_type_shows_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """repr, str, format and log of every type are clean, of each value alone and of what it holds."""
    monkeypatch.setenv("VAULT_TOKEN", CANARY.decode())
    for name, value in values(tmp_path).items():
        assert_clean(f"{name}: {rendered(value)}")


def _shown(call: Callable[[], object], caplog: pytest.LogCaptureFixture) -> str:
    """Return everything that an error of a call shows: message, repr, chained traceback and logs."""
    caplog.clear()
    with caplog.at_level(logging.DEBUG), pytest.raises(SparkcryptError) as raised:
        call()
    chain: list[str] = []
    error: BaseException | None = raised.value
    while error is not None:
        chain += [rendered(error), repr(error.args)]
        error = error.__cause__ or error.__context__
    logging.getLogger("leak").error("failed", exc_info=raised.value)
    return "\n".join([*chain, *traceback.format_exception(raised.value), caplog.text])


def test_no_error_of_a_local_key_service_shows_a_key(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Errors around a key file that holds the canary, and around the canary as a key, are clean."""
    service = opened(type="local", path=str(tmp_path / "keys"))
    service.create("pii")
    wrapped = service.wrap("pii", CANARY)
    for call in (
        lambda: service.wrap("absent", CANARY),
        lambda: service.unwrap("pii", wrapped[:-8]),
        lambda: service.unwrap("absent", wrapped),
    ):
        assert_clean(_shown(call, caplog))
    key = base64.b64encode(CANARY).decode()
    for damaged in (f'{{"key_id": "pii", "key": "{key}"', f'["{key}"]', f'{{"key_id": "{key}", "versions": []}}'):
        (tmp_path / "keys" / "pii.json").write_text(damaged)
        assert_clean(_shown(lambda: service.wrap("pii", b"k" * 16), caplog))


def test_no_error_of_a_data_key_shows_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A data key of the wrong length, and key metadata that is itself the key, are not quoted."""
    service = opened(type="local", path=str(tmp_path / "keys"))
    service.create("pii")
    opener = DataKeyOpener(service)
    material = KeyMaterial(False, None, None, "pii", service.wrap("pii", CANARY + b"x"))
    assert_clean(_shown(lambda: opener.open(material), caplog))
    for key_metadata in (CANARY, b'{"keyMaterialType": "PKMT1", "wrappedDEK": "' + CANARY + b'"}'):
        assert_clean(_shown(partial(parse_key_material, key_metadata), caplog))


def test_no_error_of_a_credential_shows_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A credential file that is not text is named, not quoted."""
    (tmp_path / "token").write_bytes(CANARY + b"\xff")
    auth = VaultAuth("token", "token", None, (("token_file", str(tmp_path / "token")),))
    assert_clean(_shown(lambda: read_credential(auth, {}), caplog))


@pytest.mark.services
def test_no_error_of_vault_shows_token_or_key(
    open_vault: OpenVault, vault: VaultServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Denials, absent keys, bad ciphertexts, refused logins and dead servers are clean, debug logs included."""
    root = open_vault()
    root.create("pii")
    denied = open_vault(CANARY.decode())
    monkeypatch.setenv("VAULT_ROLE_ID", CANARY.decode())
    monkeypatch.setenv("VAULT_SECRET_ID", CANARY.decode())
    login = opened(type="vault", address=vault.address, auth={"method": "approle"})
    dead = opened(type="vault", address="http://127.0.0.1:9", max_retries=0)
    for call in (
        lambda: denied.wrap("pii", CANARY),
        lambda: root.wrap("absent", CANARY),
        lambda: root.unwrap("pii", base64.b64encode(CANARY).decode()),
        lambda: login.wrap("pii", CANARY),
        lambda: dead.wrap("pii", CANARY),
    ):
        if call is not None:
            monkeypatch.setenv("VAULT_TOKEN", CANARY.decode())
        assert_clean(_shown(call, caplog))
    assert vault.root_token not in caplog.text

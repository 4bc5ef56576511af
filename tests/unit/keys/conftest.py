"""The key services that the behaviour suite runs over, and the real Vault that the others need."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt.keys.service import KeyService, open_key_service
from sparkcrypt.policy.key_service import KeyServiceConfig
from tests.services.vault_server import VaultServer

VAULT_VARIABLES = ("VAULT_ADDR", "VAULT_TOKEN", "VAULT_ROLE_ID", "VAULT_SECRET_ID", "VAULT_NAMESPACE", "VAULT_CACERT")
OpenVault = Callable[..., KeyService]


def opened(**document: Any) -> KeyService:
    """Open the key service of a policy's ``key_service`` document."""
    return open_key_service(KeyServiceConfig.from_dict(document))


@pytest.fixture(autouse=True)
def no_vault_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the credentials of whoever runs the tests out of them."""
    for name in VAULT_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def mount(vault: VaultServer) -> str:
    """A transit mount of the test's own."""
    name = f"team/{secrets.token_hex(6)}"
    vault.api("POST", f"sys/mounts/{name}", {"type": "transit"})
    return name


@pytest.fixture
def open_vault(vault: VaultServer, mount: str, monkeypatch: pytest.MonkeyPatch) -> OpenVault:
    """Opens a key service on that mount with a token, the root token unless another is given."""

    def open_with(token: str | None = None, **options: Any) -> KeyService:
        monkeypatch.setenv("VAULT_TOKEN", token or vault.root_token)
        return opened(type="vault", address=vault.address, mount_point=mount, **options)

    return open_with


STORING = [pytest.param("local", id="local"), pytest.param("vault", id="vault", marks=pytest.mark.services)]


@pytest.fixture(params=STORING)
def storing(request: pytest.FixtureRequest, tmp_path: Path) -> KeyService:
    """A key service that stores its keys: every one that is meant for data."""
    if request.param == "local":
        return opened(type="local", path=str(tmp_path / "keys"))
    return request.getfixturevalue("open_vault")()  # type: ignore[no-any-return]


@pytest.fixture(params=[*STORING, pytest.param("ephemeral", id="ephemeral")])
def service(request: pytest.FixtureRequest, tmp_path: Path) -> KeyService:
    """Every key service."""
    if request.param == "ephemeral":
        return opened(type="ephemeral", secret=secrets.token_hex(32))
    if request.param == "local":
        return opened(type="local", path=str(tmp_path / "keys"))
    return request.getfixturevalue("open_vault")()  # type: ignore[no-any-return]

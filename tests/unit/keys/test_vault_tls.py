"""A real Vault behind TLS: whose certificate is accepted, and that nothing is sent to another server."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt.errors import ConfigError, KeyServiceUnavailableError
from tests.services.vault_server import VaultServer
from tests.unit.keys.conftest import opened
from tests.unit.keys.vault_proxy import Authority, VaultProxy, running_proxy, through, whole

pytestmark = pytest.mark.services
KEY = secrets.token_bytes(16)
TRUST_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "VAULT_SKIP_VERIFY", "VAULT_CAPATH")


@pytest.fixture(scope="module")
def authority() -> Authority:
    """The authority that signed the server's certificate."""
    return Authority("right")


@pytest.fixture(autouse=True)
def token(vault: VaultServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """The root token, which is also in the environment; nothing else there says whom to trust."""
    monkeypatch.setenv("VAULT_TOKEN", vault.root_token)
    for name in TRUST_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return vault.root_token


@pytest.fixture
def tls(vault: VaultServer, authority: Authority, tmp_path: Path) -> Iterator[VaultProxy]:
    """The real server behind TLS."""
    with running_proxy(vault.address, authority.server_context(tmp_path)) as proxy:
        yield proxy


@pytest.fixture
def plain(vault: VaultServer) -> Iterator[VaultProxy]:
    """The real server behind a proxy without TLS."""
    with running_proxy(vault.address) as proxy:
        yield proxy


def test_key_wraps_and_unwraps_behind_tls(tls: VaultProxy, mount: str, authority: Authority, tmp_path: Path) -> None:
    """With the policy's CA bundle every operation reaches a Vault whose certificate that CA signed."""
    service = through(tls, mount, ca_bundle=authority.bundle(tmp_path / "ca.pem"))
    service.create("pii")
    assert service.unwrap("pii", service.wrap("pii", KEY)) == KEY
    assert [key.key_id for key in service.list_keys()] == ["pii"]
    assert tls.count(f"/{mount}/decrypt/pii") == 1


def test_ca_bundle_of_the_environment_counts_when_the_policy_is_silent(
    tls: VaultProxy, mount: str, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """VAULT_CACERT is enough, and a bundle that the policy names goes before it."""
    monkeypatch.setenv("VAULT_CACERT", authority.bundle(tmp_path / "ca.pem"))
    assert through(tls, mount).create("pii").key_id == "pii"
    wrong = Authority("wrong").bundle(tmp_path / "wrong.pem")
    with pytest.raises(KeyServiceUnavailableError, match="ca_bundle"):
        through(tls, mount, ca_bundle=wrong, max_retries=0).describe("pii")


@pytest.mark.parametrize(
    ("trusted", "host", "days", "reason"),
    [
        pytest.param(None, "127.0.0.1", 1, "issuer certificate|self-signed", id="no bundle"),
        pytest.param("right", "127.0.0.1", 1, "issuer certificate|self-signed|signature", id="another CA of that name"),
        pytest.param("other", "127.0.0.1", 1, "issuer certificate|self-signed", id="another CA"),
        pytest.param("signer", "vault.example", 1, "mismatch", id="another host"),
        pytest.param("signer", "127.0.0.1", -1, "expired", id="past its end"),
    ],
)
def test_certificate_that_is_not_trusted_is_refused(
    vault: VaultServer,
    authority: Authority,
    token: str,
    tmp_path: Path,
    trusted: str | None,
    host: str,
    days: int,
    reason: str,
) -> None:
    """The refusal says why and names the option; nothing is asked of that server, and no error shows the token."""
    options: dict[str, Any] = {"max_retries": 0}
    if trusted is not None:
        signer = authority if trusted == "signer" else Authority(trusted)
        options["ca_bundle"] = signer.bundle(tmp_path / "ca.pem")
    context = authority.server_context(tmp_path, host, timedelta(days=days))
    with running_proxy(vault.address, context) as proxy:
        service = through(proxy, "transit", **options)
        calls: tuple[Callable[[], object], ...] = (
            lambda: service.wrap("pii", KEY),
            lambda: service.unwrap("pii", "vault:v1:x"),
            service.list_keys,
        )
        for call in calls:
            with pytest.raises(KeyServiceUnavailableError, match=rf"({reason}).*ca_bundle") as raised:
                call()
            assert token not in whole(raised.value)
    assert proxy.asked == []


@pytest.mark.parametrize(
    "options",
    [
        {"ca_bundle": False},
        {"ca_bundle": None},
        {"ca_bundle": 0},
        {"ca_bundle": ""},
        {"ca_bundle": "false"},
        {"verify": False},
        {"tls_skip_verify": True},
        {"skip_verify": True},
        {"auth": {"method": "token", "verify": False}},
    ],
)
def test_policy_cannot_switch_verification_off(
    tls: VaultProxy, token: str, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """Whatever a policy writes, and the variables of other clients too, an unknown certificate is not accepted."""
    monkeypatch.setenv("VAULT_SKIP_VERIFY", "true")
    monkeypatch.setenv("PYTHONHTTPSVERIFY", "0")
    monkeypatch.setenv("CURL_CA_BUNDLE", "")
    # An empty text is what a template leaves: the machine's own authorities count then.
    refusal = KeyServiceUnavailableError if options == {"ca_bundle": ""} else ConfigError
    with pytest.raises(refusal, match=r"ca_bundle|is not known") as raised:
        through(tls, "transit", max_retries=0, **options).describe("pii")
    assert token not in whole(raised.value)
    assert tls.asked == []


def test_bundle_of_the_policy_is_the_only_one(
    tls: VaultProxy, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variables of the HTTP library that would trust the server do not widen what the policy trusts."""
    right = authority.bundle(tmp_path / "right.pem")
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "VAULT_CACERT"):
        monkeypatch.setenv(name, right)
    wrong = Authority("wrong").bundle(tmp_path / "wrong.pem")
    with pytest.raises(KeyServiceUnavailableError, match="ca_bundle"):
        through(tls, "transit", ca_bundle=wrong, max_retries=0).describe("pii")
    assert tls.asked == []


def test_login_is_not_sent_to_a_server_that_is_not_trusted(tls: VaultProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret id stays here when the certificate is refused."""
    monkeypatch.setenv("VAULT_ROLE_ID", "role-CANARY")
    monkeypatch.setenv("VAULT_SECRET_ID", "secret-CANARY")
    with pytest.raises(KeyServiceUnavailableError, match="ca_bundle") as raised:
        through(tls, "transit", max_retries=0, auth={"method": "approle"}).describe("pii")
    assert "CANARY" not in whole(raised.value)
    assert tls.asked == []


@pytest.mark.parametrize("content", [b"", b"no certificate", None])
def test_bundle_that_cannot_be_used_is_named(tls: VaultProxy, tmp_path: Path, content: bytes | None) -> None:
    """A bundle without certificates, or one that has gone since the policy was read, is an error of this package."""
    bundle = tmp_path / "ca.pem"
    bundle.write_bytes(content or b"")
    service = through(tls, "transit", ca_bundle=str(bundle), max_retries=0)
    if content is None:
        bundle.unlink()
    with pytest.raises(KeyServiceUnavailableError, match="ca_bundle"):
        service.describe("pii")
    assert tls.asked == []


def test_bundle_that_goes_between_two_calls_is_named(
    tls: VaultProxy, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrap whose second question to Vault finds no bundle any more ends in an error of this package as well."""
    bundle = tmp_path / "ca.pem"
    service = through(tls, "transit", ca_bundle=authority.bundle(bundle))

    def refuse_and_remove(path: str) -> int | None:
        if "/keys/pii" not in path:
            return None
        bundle.unlink()
        return 403

    monkeypatch.setattr(tls, "next_fault", refuse_and_remove)
    with pytest.raises(KeyServiceUnavailableError, match="ca_bundle"):
        service.wrap("pii", KEY)
    assert tls.count("/encrypt/") == 0


def test_address_without_tls_is_not_fallen_back_to(plain: VaultProxy) -> None:
    """An https address at which a server speaks no TLS is an error; nothing is sent in clear."""
    address = plain.address.replace("http:", "https:")
    with pytest.raises(KeyServiceUnavailableError, match="TLS"):
        opened(type="vault", address=address, max_retries=0).describe("pii")
    assert plain.asked == []

"""How requests reach a real Vault: the namespace on every call, and what is tried again after which fault."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from sparkcrypt.errors import ConfigError, KeyAccessDeniedError, KeyServiceUnavailableError
from sparkcrypt.keys.service import KeyService
from sparkcrypt.keys.vault import session as vault_session
from tests.services.vault_server import VaultServer
from tests.unit.keys.vault_proxy import Authority, Fault, VaultProxy, running_proxy, through, whole

pytestmark = pytest.mark.services
KEY = secrets.token_bytes(16)


@pytest.fixture(autouse=True)
def token(vault: VaultServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The root token is in the environment."""
    monkeypatch.setenv("VAULT_TOKEN", vault.root_token)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses between tries are short."""
    monkeypatch.setattr(vault_session, "BACKOFF_SECONDS", 0.01)


@pytest.fixture
def plain(vault: VaultServer) -> Iterator[VaultProxy]:
    """The real server behind a proxy without TLS."""
    with running_proxy(vault.address) as proxy:
        yield proxy


def app_role(vault: VaultServer, mount: str, monkeypatch: pytest.MonkeyPatch, **options: object) -> None:
    """Make a role that may do anything on the mount, and put its ids into the environment."""
    policy = vault.policy(
        json.dumps({"path": {f"{mount}/*": {"capabilities": ["create", "read", "update", "delete", "list"]}}})
    )
    name = f"role-{secrets.token_hex(4)}"
    vault.api("POST", f"auth/approle/role/{name}", {"token_policies": [policy], **options})
    role_id = vault.api("GET", f"auth/approle/role/{name}/role-id")["data"]["role_id"]
    monkeypatch.setenv("VAULT_ROLE_ID", role_id)
    secret_id = vault.api("POST", f"auth/approle/role/{name}/secret-id", {})["data"]["secret_id"]
    monkeypatch.setenv("VAULT_SECRET_ID", secret_id)


def use_everything(service: KeyService) -> None:
    """Do each operation once."""
    service.create("pii")
    service.unwrap("pii", service.wrap("pii", KEY))
    service.list_keys()


def namespaces(proxy: VaultProxy) -> set[str | None]:
    """Return what the requests so far had as X-Vault-Namespace."""
    return {asked.headers.get("X-Vault-Namespace") for asked in proxy.asked}


def test_namespace_is_on_every_call(
    vault: VaultServer, plain: VaultProxy, mount: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Login, renewal, and each operation carry the namespace of the policy."""
    app_role(vault, mount, monkeypatch, token_ttl="2s")
    service = through(plain, mount, namespace="team/a", auth={"method": "approle"})
    use_everything(service)
    time.sleep(1.5)
    service.describe("pii")
    for path in ("approle/login", "token/renew-self", "/encrypt/pii", "/decrypt/pii", "/keys/pii", "/keys"):
        assert plain.count(path), f"{path} was not asked"
    assert {asked.method for asked in plain.asked if asked.path.endswith("/keys")} == {"LIST"}
    assert namespaces(plain) == {"team/a"}


def test_namespace_is_on_the_questions_about_tokens(vault: VaultServer, plain: VaultProxy, mount: str) -> None:
    """What is asked of a token, its life and what it may do, is asked in the namespace too."""
    service = through(plain, mount, namespace="team/a", auth={"method": "token"})
    with pytest.MonkeyPatch.context() as patch:
        rules = {"path": {f"{mount}/encrypt/*": {"capabilities": ["create", "update"]}}}
        patch.setenv("VAULT_TOKEN", vault.token(json.dumps(rules)))
        with pytest.raises(KeyAccessDeniedError):
            service.wrap("pii", KEY)
    assert plain.count("token/lookup-self") == 1
    assert plain.count("sys/capabilities") == 1
    assert namespaces(plain) == {"team/a"}


def test_namespace_is_there_after_another_login(
    vault: VaultServer, plain: VaultProxy, mount: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token that was revoked is asked after and replaced in the same namespace."""
    app_role(vault, mount, monkeypatch, token_ttl="1h")
    service = through(plain, mount, namespace="team/a", auth={"method": "approle"})
    service.create("pii")
    vault.api("POST", "sys/leases/revoke-prefix/auth/approle", {})
    service.describe("pii")
    assert plain.count("approle/login") == 2
    assert plain.count("token/lookup-self") == 1
    assert namespaces(plain) == {"team/a"}


@pytest.mark.parametrize(("of_policy", "sent"), [(None, "team/b"), ("team/a", "team/a"), ("", None)])
def test_namespace_of_the_policy_goes_before_that_of_the_environment(
    plain: VaultProxy, mount: str, monkeypatch: pytest.MonkeyPatch, of_policy: str | None, sent: str | None
) -> None:
    """VAULT_NAMESPACE counts when the policy is silent; an empty namespace in the policy is the root's."""
    monkeypatch.setenv("VAULT_NAMESPACE", "team/b")
    options = {} if of_policy is None else {"namespace": of_policy}
    use_everything(through(plain, mount, **options))
    assert namespaces(plain) == {sent}


def test_no_password_of_netrc_is_sent(
    plain: VaultProxy, mount: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An entry for Vault's host is not for Vault; proxies of the environment still count."""
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password CANARY\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    use_everything(through(plain, mount))
    assert plain.asked
    assert {asked.headers.get("Authorization") for asked in plain.asked} == {None}
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    settings = vault_session.vault_http(None, 0).merge_environment_settings("https://vault:8200", {}, False, True, None)
    assert settings["proxies"]["https"] == "http://proxy:3128"


@pytest.mark.parametrize("namespace", ["日本", "équipe", "a\r\nX-Vault-Token: x", "a\nb", " a", "a b", "a\x7f"])
def test_namespace_that_no_header_can_carry_is_refused(
    plain: VaultProxy, monkeypatch: pytest.MonkeyPatch, namespace: str
) -> None:
    """It is a ConfigError when the policy is read, also from the environment, and nothing is sent."""
    with pytest.raises(ConfigError, match="namespace"):
        through(plain, "transit", namespace=namespace)
    monkeypatch.setenv("VAULT_NAMESPACE", namespace)
    with pytest.raises(ConfigError, match="namespace"):
        through(plain, "transit")
    assert plain.asked == []


@pytest.mark.parametrize("source", ["environment", "file"])
@pytest.mark.parametrize("broken", ["hvs.CANARY\nhvs.other", "hvs.CANARY é", "hvs.CANARY 日"])
def test_token_that_no_header_can_carry_is_not_shown(
    plain: VaultProxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str, broken: str
) -> None:
    """The HTTP library would quote such a token in its error, and so in ours: it is refused before."""
    (tmp_path / "token").write_text(broken)
    monkeypatch.setenv("VAULT_TOKEN", broken)
    auth = {"method": "token"} | ({"token_file": str(tmp_path / "token")} if source == "file" else {})
    with pytest.raises(ConfigError, match=r"VAULT_TOKEN|token_file") as raised:
        through(plain, "transit", auth=auth).describe("pii")
    assert "CANARY" not in whole(raised.value) + repr(raised.value.__cause__)
    assert plain.asked == []


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("tls", [False, True])
def test_connections_that_are_reset_twice_are_made_again(
    vault: VaultServer, mount: str, tmp_path: Path, quick: None, tls: bool, fault: Fault
) -> None:
    """Each operation works at the third try, also when Vault had done what was asked before its answer was lost."""
    authority = Authority("right")
    with running_proxy(vault.address, authority.server_context(tmp_path) if tls else None) as proxy:
        service = through(proxy, mount, ca_bundle=authority.bundle(tmp_path / "ca.pem"))
        for path in ("/lookup-self", f"/{mount}/keys/pii", f"/{mount}/encrypt/", f"/{mount}/decrypt/"):
            proxy.fail(path, fault, fault)
        service.create("pii")
        assert service.unwrap("pii", service.wrap("pii", KEY)) == KEY
        assert service.describe("pii").versions == 1
    for path in ("/lookup-self", "/encrypt/", "/decrypt/"):
        assert proxy.count(path) == 3


def test_login_that_is_reset_twice_is_made_again(
    vault: VaultServer, plain: VaultProxy, mount: str, monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    """A lost connection during a login is no refusal of the credential."""
    app_role(vault, mount, monkeypatch)
    plain.fail("approle/login", Fault.RESET, 503)
    assert through(plain, mount, auth={"method": "approle"}).create("pii").key_id == "pii"
    assert plain.count("approle/login") == 3


def test_connection_that_is_reset_always_is_unavailable(plain: VaultProxy, mount: str, quick: None) -> None:
    """After the last try the error says that the server cannot be reached; there is no further one."""
    plain.fail("/decrypt/", *[Fault.RESET] * 9)
    with pytest.raises(KeyServiceUnavailableError, match="cannot be reached"):
        through(plain, mount, max_retries=2).unwrap("pii", "vault:v1:x")
    assert plain.count("/decrypt/") == 3


@pytest.mark.parametrize("fault", [429, 503, Fault.RESET])
def test_pauses_between_tries_differ(
    plain: VaultProxy, mount: str, monkeypatch: pytest.MonkeyPatch, fault: int | Fault
) -> None:
    """Every retry, the first too, waits by chance, so that executors refused at one time do not return at one time."""
    pauses: list[float] = []
    monkeypatch.setattr("urllib3.util.retry.time", SimpleNamespace(sleep=pauses.append, time=time.time))
    service = through(plain, mount)
    service.create("pii")
    for _ in range(8):
        plain.fail("/keys/pii", fault, fault, fault)
        assert service.describe("pii").versions == 1
    assert len(pauses) == 24
    least = (0.0, 2 * vault_session.BACKOFF_SECONDS, 4 * vault_session.BACKOFF_SECONDS)
    for number, start in enumerate(least):
        of_this_try = pauses[number::3]
        assert len(set(of_this_try)) == 8
        assert all(start < pause <= start + vault_session.BACKOFF_SECONDS for pause in of_this_try)


@pytest.mark.parametrize("operation", ["create", "wrap", "unwrap", "describe", "list", "login"])
def test_denial_is_asked_once(
    vault: VaultServer, plain: VaultProxy, mount: str, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    """A 403 on any call is counted once at the server, whatever the number of retries."""
    app_role(vault, mount, monkeypatch)
    through(plain, mount).create("pii")
    plain.asked.clear()
    auth = {"method": "approle"} if operation == "login" else {"method": "token"}
    service = through(plain, mount, max_retries=10, auth=auth)
    calls: dict[str, tuple[str, Callable[[], object]]] = {
        "create": ("/keys/new", lambda: service.create("new")),
        "wrap": ("/encrypt/pii", lambda: service.wrap("pii", KEY)),
        "unwrap": ("/decrypt/pii", lambda: service.unwrap("pii", "vault:v1:x")),
        "describe": ("/keys/pii", lambda: service.describe("pii")),
        "list": ("/keys", service.list_keys),
        "login": ("approle/login", lambda: service.describe("pii")),
    }
    path, call = calls[operation]
    plain.fail(path, *[403] * 20)
    with pytest.raises(KeyAccessDeniedError):
        call()
    asked = [(asked.method, asked.path) for asked in plain.asked if path in asked.path]
    assert asked
    assert len(asked) == len(set(asked))

"""The Vault key service against a real server: policies, tokens that end, logins, and keys that must not be made."""

from __future__ import annotations

import base64
import json
import secrets
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt.errors import (
    ConfigError,
    KeyAccessDeniedError,
    KeyNotFoundError,
    KeyServiceError,
    KeyServiceUnavailableError,
)
from sparkcrypt.keys.material import version_of
from sparkcrypt.keys.service import KeyService
from tests.services.vault_server import VaultServer, start_vault
from tests.unit.keys.conftest import OpenVault, opened

pytestmark = pytest.mark.services
KEY = secrets.token_bytes(16)


def rules(mount: str, **capabilities: list[str]) -> str:
    """Return a policy's text: operation -> capabilities on any key of a mount."""
    paths = {f"{mount}/{operation}/*": {"capabilities": granted} for operation, granted in capabilities.items()}
    return json.dumps({"path": paths})


def all_rules(mount: str) -> str:
    """Return the policy of somebody who wraps and unwraps."""
    return rules(mount, keys=["read"], encrypt=["create", "update"], decrypt=["update"])


@pytest.mark.parametrize("capabilities", [["create", "update"], ["update"]])
def test_wrap_with_an_absent_key_makes_none(
    vault: VaultServer, mount: str, open_vault: OpenVault, capabilities: list[str]
) -> None:
    """Vault would make the key silently for a token that may create; the wrap fails and the mount stays empty."""
    service = open_vault(vault.token(rules(mount, keys=["read"], encrypt=capabilities)))
    with pytest.raises(KeyNotFoundError, match="'absent'"):
        service.wrap("absent", KEY)
    assert open_vault().list_keys() == ()


def test_token_that_may_create_but_not_look_is_refused(vault: VaultServer, mount: str, open_vault: OpenVault) -> None:
    """Where absence cannot be seen and a wrap could make the key, the wrap is refused with both ways out."""
    service = open_vault(vault.token(rules(mount, encrypt=["create", "update"])))
    with pytest.raises(KeyAccessDeniedError, match=r"allow 'read' on .*/keys/pii, or take 'create'"):
        service.wrap("pii", KEY)
    assert open_vault().list_keys() == ()


def test_expired_token_is_said_to_be_refused(vault: VaultServer, mount: str, open_vault: OpenVault) -> None:
    """A token that Vault does not know may make no key: the message sends nobody to look for a policy of it."""
    service = open_vault("hvs.expired", max_retries=0)
    for call in (lambda: service.wrap("pii", KEY), lambda: service.describe("pii")):
        with pytest.raises(KeyAccessDeniedError, match="has expired") as refused:
            call()
        assert "may create" not in str(refused.value)


def test_what_a_token_may(vault: VaultServer, mount: str, open_vault: OpenVault) -> None:
    """A token is allowed, denied or told of a lost key, key by key, without anything to unwrap."""
    root = open_vault()
    for key_id in ("pii", "fin"):
        root.create(key_id)
    paths = {f"{mount}/decrypt/{name}": {"capabilities": ["update"]} for name in ("pii", "gone")}
    reader = open_vault(vault.token(json.dumps({"path": paths})))
    assert reader.offers("may")
    assert reader.may(["pii", "fin", "gone"]) == {"pii": "allowed", "fin": "denied", "gone": "shredded"}
    lost = opened(type="vault", address="http://127.0.0.1:1", max_retries=0)
    assert lost.offers("may")
    with pytest.raises(KeyServiceUnavailableError):
        lost.may(["pii"])


def test_token_that_may_only_update_needs_no_read(vault: VaultServer, mount: str, open_vault: OpenVault) -> None:
    """The smallest policy wraps with a key that is there, and cannot make one that is not."""
    root = open_vault()
    root.create("pii")
    service = open_vault(vault.token(rules(mount, encrypt=["update"])))
    assert root.unwrap("pii", service.wrap("pii", KEY)) == KEY
    with pytest.raises(KeyAccessDeniedError):
        service.wrap("absent", KEY)
    assert [key.key_id for key in root.list_keys()] == ["pii"]


def test_denied_operations_say_so(vault: VaultServer, mount: str, open_vault: OpenVault) -> None:
    """Without a policy each operation is KeyAccessDeniedError and names the key."""
    root = open_vault()
    root.create("pii")
    wrapped = root.wrap("pii", KEY)
    token = vault.token(rules(mount, encrypt=["update"]))
    service = open_vault(token)
    for call in (
        lambda: service.unwrap("pii", wrapped),
        lambda: service.describe("pii"),
        lambda: service.create("fin"),
        service.list_keys,
    ):
        with pytest.raises(KeyAccessDeniedError, match="permission denied") as raised:
            call()
        assert token not in str(raised.value)


def test_token_that_is_wrong_is_refused(open_vault: OpenVault) -> None:
    """A token that Vault does not know is KeyAccessDeniedError."""
    with pytest.raises(KeyAccessDeniedError):
        open_vault("hvs.nonsense").describe("pii")


def test_expired_token_is_refused(vault: VaultServer, mount: str, open_vault: OpenVault) -> None:
    """After its life a plain token is KeyAccessDeniedError, which says that it may have expired."""
    open_vault().create("pii")
    service = open_vault(vault.token(all_rules(mount), ttl="1s", renewable=False))
    service.describe("pii")
    time.sleep(1.6)
    with pytest.raises(KeyAccessDeniedError, match="has expired"):
        service.describe("pii")


def test_token_is_renewed_before_it_ends(vault: VaultServer, mount: str, open_vault: OpenVault) -> None:
    """A service that is used lives longer than the token's first life: it renews itself in the last third."""
    open_vault().create("pii")
    service = open_vault(vault.token(all_rules(mount), ttl="3s"))
    end = time.monotonic() + 3.6
    while time.monotonic() < end:
        service.describe("pii")
        time.sleep(0.25)


def test_replaced_token_file_is_read_again(
    vault: VaultServer, mount: str, open_vault: OpenVault, tmp_path: Path
) -> None:
    """When an agent has written a new token, a refusal of the old one is not the end."""
    open_vault().create("pii")
    file = tmp_path / "token"
    file.write_text(vault.token(all_rules(mount)) + "\n")
    service = open_vault("hvs.unused", auth={"method": "token", "token_file": str(file)})
    service.describe("pii")
    vault.api("POST", "auth/token/revoke", {"token": file.read_text().strip()})
    file.write_text(vault.token(all_rules(mount)))
    assert service.describe("pii").key_id == "pii"


def test_token_of_vault_login_is_found(
    vault: VaultServer, mount: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without VAULT_TOKEN the token is that of ~/.vault-token, and the address that of VAULT_ADDR."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("VAULT_ADDR", vault.address)
    service = opened(type="vault", mount_point=mount)
    with pytest.raises(ConfigError, match="VAULT_TOKEN"):
        service.list_keys()
    (tmp_path / ".vault-token").write_text(vault.root_token)
    assert service.list_keys() == ()


def app_role(vault: VaultServer, mount: str, **options: object) -> tuple[str, str]:
    """Make a role and return its role id and a secret id."""
    name = f"role-{secrets.token_hex(4)}"
    vault.api("POST", f"auth/approle/role/{name}", {"token_policies": [vault.policy(all_rules(mount))], **options})
    role_id = vault.api("GET", f"auth/approle/role/{name}/role-id")["data"]["role_id"]
    return role_id, vault.api("POST", f"auth/approle/role/{name}/secret-id", {})["data"]["secret_id"]


def opened_by_role(
    vault: VaultServer, mount: str, role: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> KeyService:
    """Open the key service by AppRole, with the ids in the environment."""
    monkeypatch.setenv("VAULT_ROLE_ID", role[0])
    monkeypatch.setenv("VAULT_SECRET_ID", role[1])
    return opened(type="vault", address=vault.address, mount_point=mount, auth={"method": "approle"})


def test_approle_logs_in_and_again_when_its_token_is_gone(
    vault: VaultServer, mount: str, open_vault: OpenVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A role's token of one second, which cannot be renewed beyond that, is replaced by another login."""
    open_vault().create("pii")
    role = app_role(vault, mount, token_ttl="1s", token_max_ttl="1s")
    service = opened_by_role(vault, mount, role, monkeypatch)
    wrapped = service.wrap("pii", KEY)
    time.sleep(1.6)
    assert service.unwrap("pii", wrapped) == KEY


def test_revoked_approle_token_is_replaced_by_another_login(
    vault: VaultServer, mount: str, open_vault: OpenVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token that is revoked long before its time is noticed by the refusal, and the operation succeeds."""
    open_vault().create("pii")
    service = opened_by_role(vault, mount, app_role(vault, mount, token_ttl="1h"), monkeypatch)
    wrapped = service.wrap("pii", KEY)
    vault.api("POST", "sys/leases/revoke-prefix/auth/approle", {})
    assert service.unwrap("pii", wrapped) == KEY


def test_refusal_of_a_live_approle_token_is_final(
    vault: VaultServer, mount: str, open_vault: OpenVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a policy for it, an operation is denied, and the login is not repeated."""
    open_vault().create("pii")
    role = app_role(vault, mount, secret_id_num_uses=1)
    service = opened_by_role(vault, mount, role, monkeypatch)
    for _ in range(2):
        with pytest.raises(KeyAccessDeniedError, match="permission denied"):
            service.list_keys()
    assert service.describe("pii").key_id == "pii"


@pytest.mark.parametrize("wrong", [0, 1])
def test_wrong_approle_is_denied(vault: VaultServer, mount: str, monkeypatch: pytest.MonkeyPatch, wrong: int) -> None:
    """A role id or secret id that Vault does not know is KeyAccessDeniedError and is not shown."""
    role = list(app_role(vault, mount))
    role[wrong] = "no-such-id"
    with pytest.raises(KeyAccessDeniedError, match="approle login") as raised:
        opened_by_role(vault, mount, (role[0], role[1]), monkeypatch).describe("pii")
    assert not any(secret in str(raised.value) for secret in role)


def test_approle_of_files(vault: VaultServer, mount: str, open_vault: OpenVault, tmp_path: Path) -> None:
    """The ids may be in files that the options name."""
    open_vault().create("pii")
    for name, text in zip(("role", "secret"), app_role(vault, mount), strict=True):
        (tmp_path / name).write_text(text + "\n")
    auth = {"method": "approle", "role_id_file": str(tmp_path / "role"), "secret_id_file": str(tmp_path / "secret")}
    service = opened(type="vault", address=vault.address, mount_point=mount, auth=auth)
    assert service.describe("pii").key_id == "pii"


class _TokenReview(BaseHTTPRequestHandler):
    """The one call of a Kubernetes API server that Vault makes: is this service account's token good?"""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        good = asked["spec"]["token"].endswith(".good")
        user = {"username": "system:serviceaccount:etl:spark", "uid": "u-1"}
        body = json.dumps({**asked, "status": {"authenticated": good, "user": user if good else {}}}).encode()
        self.send_response(201)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def kubernetes(vault: VaultServer, mount: str) -> Iterator[str]:
    """The name of a role of Vault's Kubernetes login, whose API server is a stand-in of one call."""
    server = HTTPServer(("127.0.0.1", 0), _TokenReview)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    vault.api(
        "POST",
        "auth/kubernetes/config",
        {
            "kubernetes_host": f"http://127.0.0.1:{server.server_port}",
            "token_reviewer_jwt": service_account_jwt("good"),
            "disable_local_ca_jwt": True,
            "kubernetes_ca_cert": "",
        },
    )
    name = f"role-{secrets.token_hex(4)}"
    vault.api(
        "POST",
        f"auth/kubernetes/role/{name}",
        {
            "bound_service_account_names": "spark",
            "bound_service_account_namespaces": "etl",
            "token_policies": [vault.policy(all_rules(mount))],
            "token_ttl": "1s",
            "token_max_ttl": "1s",
        },
    )
    yield name
    server.shutdown()
    server.server_close()


def service_account_jwt(signature: str) -> str:
    """Return a JWT such as a pod has; the stand-in looks at its last part alone."""
    claims = {
        "iss": "kubernetes/serviceaccount",
        "sub": "system:serviceaccount:etl:spark",
        "iat": int(time.time()) - 10,
        "nbf": int(time.time()) - 10,
        "exp": int(time.time()) + 600,
        "kubernetes.io": {"namespace": "etl", "serviceaccount": {"name": "spark", "uid": "u-1"}},
    }
    parts = (json.dumps({"alg": "RS256", "typ": "JWT"}), json.dumps(claims))
    return ".".join([*(base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts), signature])


def test_kubernetes_logs_in_and_again_when_its_token_is_gone(
    vault: VaultServer, mount: str, open_vault: OpenVault, kubernetes: str, tmp_path: Path
) -> None:
    """A pod's service account gets a token from Vault's own Kubernetes login, and another when that one ends."""
    open_vault().create("pii")
    (tmp_path / "jwt").write_text(service_account_jwt("good"))
    auth = {"method": "kubernetes", "role": kubernetes, "jwt_path": str(tmp_path / "jwt")}
    service = opened(type="vault", address=vault.address, mount_point=mount, auth=auth)
    wrapped = service.wrap("pii", KEY)
    time.sleep(1.6)
    assert service.unwrap("pii", wrapped) == KEY


def test_service_account_that_is_refused_is_denied(
    vault: VaultServer, mount: str, kubernetes: str, tmp_path: Path
) -> None:
    """A service account token that Kubernetes does not accept is KeyAccessDeniedError."""
    (tmp_path / "jwt").write_text(service_account_jwt("evil"))
    auth = {"method": "kubernetes", "role": kubernetes, "jwt_path": str(tmp_path / "jwt")}
    with pytest.raises(KeyAccessDeniedError, match="kubernetes login"):
        opened(type="vault", address=vault.address, mount_point=mount, auth=auth).describe("pii")


def test_rotated_key_unwraps_what_its_old_version_wrapped(
    vault: VaultServer, mount: str, open_vault: OpenVault
) -> None:
    """After a rotation in Vault the description says two versions and both open."""
    service = open_vault()
    service.create("pii")
    before = service.wrap("pii", KEY)
    vault.api("POST", f"{mount}/keys/pii/rotate", {})
    assert service.describe("pii").versions == 2
    assert service.wrap("pii", KEY).startswith("vault:v2:")
    assert service.unwrap("pii", before) == KEY


def test_mount_that_is_not_there_is_an_error(vault: VaultServer, open_vault: OpenVault) -> None:
    """A mount point that is misspelt never makes or finds a key."""
    open_vault()
    service = opened(type="vault", address=vault.address, mount_point="no/such")
    with pytest.raises(KeyNotFoundError, match="mount_point"):
        service.wrap("pii", KEY)


def test_keys_of_other_users_of_the_mount_are_passed_over(
    vault: VaultServer, mount: str, open_vault: OpenVault
) -> None:
    """A transit key whose name stands for no key id is not listed."""
    vault.api("POST", f"{mount}/keys/my_key", {})
    service = open_vault()
    service.create("pii")
    assert [key.key_id for key in service.list_keys()] == ["pii"]


def test_server_that_has_stopped_is_unavailable(monkeypatch: pytest.MonkeyPatch, vault: VaultServer) -> None:
    """A server that went away is KeyServiceUnavailableError, at once when no retries are wanted."""
    own = start_vault()
    monkeypatch.setenv("VAULT_TOKEN", own.root_token)
    service = opened(type="vault", address=own.address, max_retries=0)
    service.create("pii")
    wrapped = service.wrap("pii", KEY)
    own.stop()
    with pytest.raises(KeyServiceUnavailableError, match="cannot be reached"):
        service.unwrap("pii", wrapped)


def test_sealed_server_is_unavailable(monkeypatch: pytest.MonkeyPatch, vault: VaultServer) -> None:
    """A sealed Vault answers 503: KeyServiceUnavailableError, never an empty answer."""
    own = start_vault()
    try:
        monkeypatch.setenv("VAULT_TOKEN", own.root_token)
        service = opened(type="vault", address=own.address, max_retries=1)
        service.create("pii")
        own.api("POST", "sys/seal", {})
        with pytest.raises(KeyServiceUnavailableError, match="sealed"):
            service.wrap("pii", KEY)
    finally:
        own.stop()


def test_rotation_is_told_by_what_is_wrapped(vault: VaultServer, mount: str, open_vault: OpenVault) -> None:
    """A new version wraps at once and is told by the text; the old one opens; a token may be without that right."""
    root = open_vault()
    root.create("pii")
    assert root.offers("rotate")
    old = root.wrap("pii", KEY)
    assert root.rotate("pii").versions == 2
    new = root.wrap("pii", KEY)
    assert (version_of(old), version_of(new)) == (1, 2)
    assert root.unwrap("pii", old) == root.unwrap("pii", new) == KEY
    with pytest.raises(KeyNotFoundError, match="'absent'"):
        root.rotate("absent")
    writer = open_vault(vault.token(all_rules(mount)))
    assert writer.offers("rotate")
    with pytest.raises(KeyAccessDeniedError, match="'pii'"):
        writer.rotate("pii")
    assert root.describe("pii").versions == 2
    assert root.offers("set_aside") and writer.offers("set_aside")
    with pytest.raises(KeyAccessDeniedError, match="'pii'"):
        writer.set_aside("pii", 2)
    assert root.unwrap("pii", old) == KEY


def test_token_that_may_not_delete_is_denied(vault: VaultServer, mount: str, open_vault: OpenVault) -> None:
    """A writer's token deletes nothing; a command that was killed after it had allowed the deletion is given again."""
    root = open_vault()
    root.create("pii")
    wrapped = root.wrap("pii", KEY)
    writer = open_vault(vault.token(all_rules(mount)))
    assert root.offers("delete_key") and writer.offers("delete_key")
    with pytest.raises(KeyAccessDeniedError, match="'pii'"):
        writer.delete_key("pii")
    assert root.unwrap("pii", wrapped) == KEY
    vault.api("POST", f"{mount}/keys/pii/config", {"deletion_allowed": True})
    assert root.delete_key("pii").final_at is None
    with pytest.raises(KeyNotFoundError, match="'pii'"):
        root.unwrap("pii", wrapped)


def test_rewrap_gives_the_same_key_under_the_newest_version(open_vault: OpenVault) -> None:
    """What comes back opens as before; the text of another key, and a key that is not there, are refused."""
    service = open_vault()
    assert service.offers("rewrap") and service.offers("rotate")
    for key_id in ("pii", "fin"):
        service.create(key_id)
    old = service.wrap("pii", b"k" * 16)
    service.rotate("pii")
    new = service.rewrap("pii", old)
    assert new.startswith("vault:v2:") and service.unwrap("pii", new) == b"k" * 16
    for text in (service.wrap("fin", b"k" * 16), "vault:v1:AAAA", "local:v1:AAAA"):
        with pytest.raises(KeyServiceError, match="cannot rewrap with key 'pii'"):
            service.rewrap("pii", text)
    with pytest.raises(KeyNotFoundError):
        service.rewrap("absent", old)

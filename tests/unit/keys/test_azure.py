"""The key service over a fake of Azure Key Vault: names, versions, what is bound, deletions, credentials, faults."""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
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
from sparkcrypt.keys import steady
from sparkcrypt.keys.cloud.azure import AzureOptions, name_key
from sparkcrypt.keys.provider import read_options
from sparkcrypt.policy.key_service import KeyServiceConfig
from tests.services.fake_cloud import Answer, Asked, Serve
from tests.services.fake_key_vault import CLIENT, OAEP, SECRET, TENANT, FakeKeyVault
from tests.unit.keys.conftest import OpenAzure, opened

KEY = b"CANARY-of-32-bytes-that-is-a-key"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses between tries are short."""
    monkeypatch.setattr(steady, "BACKOFF_SECONDS", 0.005)


def refuse(http: int, code: str, inner: str = "", message: str = "no") -> Answer:
    """Return an answer as Azure refuses."""
    return Answer(http, {"error": {"code": code, "message": message, "innererror": {"code": inner}}})


def answer_next(server: FakeKeyVault, *answers: Answer | None) -> list[str]:
    """Have the next calls of the vault answered by these, one each, None for its own; return what was asked."""
    asked_paths: list[str] = []
    left = list(answers)

    def meddle(asked: Asked, serve: Serve) -> Answer:
        if asked.path.startswith(f"/{TENANT}/"):
            return serve()
        asked_paths.append(asked.path)
        answer = left.pop(0) if left else None
        return serve() if answer is None else answer

    server.meddle = meddle
    return asked_paths


def test_key_id_is_bound(open_azure: OpenAzure) -> None:
    """What one key id wrapped opens under no other id of the same key."""
    service = open_azure()
    service.create("pii")
    with pytest.raises(KeyServiceError, match="not one that was wrapped under this key id"):
        service.unwrap("keys/pii", service.wrap("pii", KEY))
    assert service.unwrap("keys/pii", service.wrap("keys/pii", KEY)) == KEY


def test_what_others_wrapped_with_the_key_is_refused(open_azure: OpenAzure, key_vault: FakeKeyVault) -> None:
    """A ciphertext of the right key without a key id in it, of whatever length, is none of ours."""
    service = open_azure()
    service.create("pii")
    head = service.wrap("pii", KEY).rpartition(":")[0]
    material: Any = key_vault.keys["pii"].versions[0].material
    for content in (KEY, KEY + KEY, b"", b"x", hashlib.sha256(b"sparkcrypt azure wrap\0pii").digest()):
        foreign = base64.b64encode(material.public_key().encrypt(content, OAEP)).decode()
        with pytest.raises(KeyServiceError, match="'pii'"):
            service.unwrap("pii", f"{head}:{foreign}")


def test_wrapped_text_leads_to_no_other_key_or_host(open_azure: OpenAzure, key_vault: FakeKeyVault) -> None:
    """Version and algorithm of a wrapped text are checked before an address is made of them."""
    service = open_azure()
    service.create("pii")
    wrapped = service.wrap("pii", KEY)
    version = wrapped.split(":")[3]
    for changed in (
        wrapped.replace(version, f"../other/{version}"),
        wrapped.replace(version, f"{version}?x=1"),
        wrapped.replace(version, version.upper() + "X"),
        wrapped.replace("RSA-OAEP-256", "RSA1_5"),
    ):
        with pytest.raises(KeyServiceError, match="not one of Azure Key Vault"):
            service.unwrap("pii", changed)
    with pytest.raises(KeyNotFoundError):
        service.unwrap("pii", wrapped.replace(version, secrets.token_hex(16)))
    assert all(asked.path.startswith(("/keys/pii", f"/{TENANT}/")) for asked in key_vault.asked[-20:])


def test_keys_that_people_made_are_used_by_their_names(open_azure: OpenAzure, key_vault: FakeKeyVault) -> None:
    """``keys/<name>`` is that key, is never made, and is not listed under an id of ours."""
    service = open_azure()
    with pytest.raises(ConfigError, match="a name that people give"):
        service.create("keys/My-Key")
    service.create("x")
    made = key_vault.keys.pop("x")
    made.name = "My-Key"
    key_vault.keys["my-key"] = made
    assert service.unwrap("keys/My-Key", service.wrap("keys/My-Key", KEY)) == KEY
    assert service.list_keys() == ()


@pytest.mark.parametrize("key_id", ["../../x", "a/b?c", "//evil.example.com/x", "keys/a/b", "keys/..", "a.b"])
def test_key_id_leads_to_no_other_resource(key_id: str) -> None:
    """Ids that look like parts of an address become names of keys."""
    assert name_key(key_id).replace("-", "").isalnum()


def test_ids_are_listed_by_their_names(open_azure: OpenAzure) -> None:
    """Each id is found again, past the first page; one that has no name is refused."""
    service = open_azure()
    ids = sorted(["k" * 127, "é" * 21, "a", "b", "c", "d", "E"])
    for key_id in ids:
        service.create(key_id)
    assert [key.key_id for key in service.list_keys()] == ids
    with pytest.raises(ConfigError, match=r"a name of 128 characters in Azure Key Vault; allowed: 127"):
        service.create("k" * 128)


def test_newest_version_wraps_and_earlier_ones_unwrap(open_azure: OpenAzure, key_vault: FakeKeyVault) -> None:
    """Rotation makes a version that wraps from then on; what the first one wrapped still opens."""
    service: Any = open_azure()
    service.create("pii")
    first = service.wrap("pii", KEY)
    key_vault.keys["pii"].versions[0].created -= 100
    described = service.rotate("pii")
    assert described.versions == 2 and described.created < described.rotated
    second = service.wrap("pii", KEY)
    assert [first.split(":")[3], second.split(":")[3]] == [made.name for made in key_vault.keys["pii"].versions]
    assert service.unwrap("pii", first) == service.unwrap("pii", second) == KEY
    for _ in range(5):
        service.rotate("pii")
    assert service.describe("pii").versions == 7  # on three pages


def test_versions_that_may_not_be_seen_are_not_told(open_azure: OpenAzure, key_vault: FakeKeyVault) -> None:
    """Readers need no right to list; the newest version's age is told all the same."""
    service: Any = open_azure()
    service.create("pii")
    newest = service.rotate("pii").rotated
    key_vault.denied.add("list")
    described = service.describe("pii")
    assert (described.versions, described.created, described.rotated) == (0, None, newest)
    with pytest.raises(KeyAccessDeniedError, match="ForbiddenByRbac"):
        service.list_keys()


def test_disabled_version_denies_what_it_wrapped(open_azure: OpenAzure, key_vault: FakeKeyVault) -> None:
    """A version that is disabled opens nothing; the others go on."""
    service: Any = open_azure()
    service.create("pii")
    first = service.wrap("pii", KEY)
    service.rotate("pii")
    second = service.wrap("pii", KEY)
    key_vault.keys["pii"].versions[0].enabled = False
    with pytest.raises(KeyAccessDeniedError, match=r"KeyDisabled.*must be enabled"):
        service.unwrap("pii", first)
    assert service.unwrap("pii", second) == KEY


@pytest.mark.parametrize(("operation", "verb"), [("wrap", "wrapkey"), ("unwrap", "unwrapkey")])
def test_denied_operation_is_an_access_error(
    open_azure: OpenAzure, key_vault: FakeKeyVault, operation: str, verb: str
) -> None:
    """Who may not wrap or unwrap is told which right he lacks."""
    service = open_azure()
    service.create("pii")
    wrapped = service.wrap("pii", KEY)
    key_vault.denied.add(verb)
    with pytest.raises(KeyAccessDeniedError, match="keys/wrapKey, keys/unwrapKey and keys/get"):
        service.wrap("pii", KEY) if operation == "wrap" else service.unwrap("pii", wrapped)


def test_hsm_keys_wrap_by_aes(open_azure: OpenAzure, key_vault: FakeKeyVault) -> None:
    """A Managed HSM's AES keys wrap keys of each length; what RSA keys wrapped before still opens."""
    rsa, hsm = open_azure(), open_azure(key_type="oct-HSM")
    rsa.create("before")
    hsm.create("pii")
    assert key_vault.keys["pii"].kind == "oct-HSM"
    for length in (16, 24, 32):
        wrapped = hsm.wrap("pii", KEY[:length])
        assert wrapped.startswith("azure:v1:A256KW:")
        assert hsm.unwrap("pii", wrapped) == KEY[:length]
    assert hsm.unwrap("before", rsa.wrap("before", KEY)) == KEY
    with pytest.raises(KeyServiceError, match="algorithm"):
        hsm.wrap("before", KEY)


@pytest.mark.parametrize(
    ("level", "text"),
    [
        ("Recoverable+Purgeable", "whoever may purge keys can end that before"),
        ("Recoverable", "nobody can purge it before that"),
        ("CustomizedRecoverable+Purgeable", "whoever may purge keys can end that before"),
    ],
)
def test_deleted_key_is_final_when_azure_purges_it(
    open_azure: OpenAzure, key_vault: FakeKeyVault, level: str, text: str
) -> None:
    """A deleted key unwraps nothing, and comes back until the end of its retention; deleting it again says the same."""
    service: Any = open_azure()
    service.create("pii")
    wrapped = service.wrap("pii", KEY)
    key_vault.recovery_level = level
    told = service.delete_key("pii")
    final = datetime.strptime(told.final_at, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
    assert timedelta(days=89) < final - datetime.now(timezone.utc) < timedelta(days=91)
    assert text in told.promise and "keys/recover" in told.promise
    with pytest.raises(KeyNotFoundError):
        service.unwrap("pii", wrapped)
    assert service.delete_key("pii") == told
    with pytest.raises(KeyNotFoundError, match=r"deleted, and its name is kept while it can be recovered"):
        service.create("pii")
    key_vault.keys["pii"].deleted = None
    assert service.unwrap("pii", wrapped) == KEY


def test_vault_without_soft_delete_is_final_at_once(open_azure: OpenAzure, key_vault: FakeKeyVault) -> None:
    """Where nothing can be recovered, nothing has to be waited for."""
    service: Any = open_azure()
    service.create("pii")
    key_vault.recovery_level = ""
    assert service.delete_key("pii").final_at is None


def test_refused_token_is_renewed_once(open_azure: OpenAzure, key_vault: FakeKeyVault) -> None:
    """A token that was taken back is replaced; a credential that is refused even so is an access error."""
    service = open_azure()
    service.create("pii")
    key_vault.tokens.clear()
    assert service.wrap("pii", KEY)
    asked = answer_next(key_vault, *[refuse(401, "Unauthorized")] * 2)
    with pytest.raises(KeyAccessDeniedError, match="Unauthorized"):
        service.wrap("pii", KEY)
    assert len(asked) == 2


@pytest.mark.parametrize(
    "answer",
    [
        refuse(429, "Throttled"),
        refuse(503, "ServiceUnavailable"),
        Answer(500, "<html>"),
        Answer(200, "<html>sign in</html>"),
        Answer(404, "no such page"),
        refuse(409, "Conflict", "ObjectIsBeingRecovered"),
    ],
)
def test_what_passes_is_tried_again(open_azure: OpenAzure, key_vault: FakeKeyVault, answer: Answer) -> None:
    """Throttling, outages and pages that are none of the vault's are tried again, and named where they stay."""
    service = open_azure()
    service.create("pii")
    asked = answer_next(key_vault, answer, answer)
    assert service.wrap("pii", KEY)
    assert len(asked) == 3
    answer_next(key_vault, *[answer] * 20)
    with pytest.raises(KeyServiceUnavailableError, match="'pii'"):
        service.wrap("pii", KEY)


@pytest.mark.parametrize(
    "answer",
    [
        {"kid": "https://x/keys/other/" + "a" * 32, "value": "AAAA"},
        {"kid": "https://x/keys/pii/../" + "a" * 32, "value": "AAAA"},
        {"value": "AAAA"},
        {"kid": "https://x/keys/pii/" + "a" * 32, "value": "not base64!"},
        {"kid": "https://x/keys/pii/" + "a" * 32},
    ],
)
def test_answer_about_another_key_is_refused(
    open_azure: OpenAzure, key_vault: FakeKeyVault, answer: dict[str, str]
) -> None:
    """A wrap that names another key, or holds nothing, is never handed on."""
    service = open_azure()
    service.create("pii")
    answer_next(key_vault, Answer(200, answer))
    with pytest.raises(KeyServiceError, match="'pii'"):
        service.wrap("pii", KEY)


def test_pages_lead_to_no_other_host(open_azure: OpenAzure, key_vault: FakeKeyVault) -> None:
    """A list that goes on elsewhere would hand the token on."""
    service = open_azure()
    for link in ("https://evil.example.com/keys", f"{key_vault.address}.evil.example.com/keys"):
        answer_next(key_vault, Answer(200, {"value": [], "nextLink": link}))
        with pytest.raises(KeyServiceError, match="goes on at another address"):
            service.list_keys()


def test_wrong_secret_is_an_access_error(open_azure: OpenAzure, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Azure says of a credential is told, without the credential."""
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "CANARY-wrong")
    with pytest.raises(KeyAccessDeniedError, match="AADSTS7000215") as caught:
        open_azure().describe("pii")
    assert "CANARY" not in str(caught.value)


@pytest.mark.parametrize("method", ["environment", "workload"])
def test_absent_credential_is_named(open_azure: OpenAzure, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """Each method says what it needs."""
    for name in ("AZURE_CLIENT_SECRET", "AZURE_CLIENT_ID", "AZURE_TENANT_ID"):
        monkeypatch.delenv(name)
    with pytest.raises(ConfigError, match=f"auth.method '{method}': .*AZURE_TENANT_ID"):
        open_azure(auth={"method": method}).describe("pii")


def test_workload_identity(open_azure: OpenAzure, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A federated token in a file is a credential, as pods have it."""
    monkeypatch.delenv("AZURE_CLIENT_SECRET")
    (tmp_path / "token").write_text(SECRET)
    monkeypatch.setenv("AZURE_FEDERATED_TOKEN_FILE", str(tmp_path / "token"))
    service = open_azure(auth={"method": "workload", "client_id": CLIENT})
    assert service.create("pii").versions == 1


def test_metadata_address_is_asked_where_the_policy_says_so_alone(
    open_azure: OpenAzure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without ``managed`` no identity of the machine is tried, whatever else fails."""
    from azure.identity import ManagedIdentityCredential

    def refuse_making(*_: object, **__: object) -> None:
        raise AssertionError("an identity of the machine was tried")

    monkeypatch.setattr(ManagedIdentityCredential, "__init__", refuse_making)
    monkeypatch.delenv("AZURE_CLIENT_SECRET")
    with pytest.raises(ConfigError):
        open_azure().describe("pii")
    with pytest.raises(AssertionError, match="an identity of the machine"):
        open_azure(auth={"method": "managed"}).describe("pii")


def test_token_source_that_does_not_answer(open_azure: OpenAzure, monkeypatch: pytest.MonkeyPatch) -> None:
    """What gives tokens may be down while the vault is up."""
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", "https://127.0.0.1:1")
    with pytest.raises(KeyServiceUnavailableError, match="what gives tokens does not answer"):
        open_azure(max_retries=0).describe("pii")


@pytest.mark.parametrize("status", [429, 503])
def test_token_source_that_cannot_serve_now(open_azure: OpenAzure, key_vault: FakeKeyVault, status: int) -> None:
    """Throttling there is no refusal of the credential."""
    key_vault.meddle = lambda asked, serve: (
        Answer(status, {"error": "temporarily_unavailable"}) if asked.path.endswith("/token") else serve()
    )
    service = open_azure(max_retries=0)
    with pytest.raises(KeyServiceUnavailableError, match="what gives tokens does not answer"):
        service.describe("pii")
    key_vault.meddle = None
    assert service.create("pii").versions == 1


def test_untrusted_certificate_gets_no_token(open_azure: OpenAzure, key_vault: FakeKeyVault, tmp_path: Path) -> None:
    """A vault whose certificate the bundle does not vouch for is not asked."""
    from tests.unit.keys.vault_proxy import Authority

    asked = answer_next(key_vault)
    other = Authority("other").bundle(tmp_path / "other.pem")
    with pytest.raises(KeyServiceUnavailableError, match="ca_bundle"):
        open_azure(ca_bundle=other, max_retries=0).describe("pii")
    assert asked == []


def test_credentials_are_told_apart(open_azure: OpenAzure, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Another secret, client, method or certificate is another credential."""
    told: list[bytes] = []
    changes: list[Callable[[], object]] = [
        lambda: None,
        lambda: monkeypatch.setenv("AZURE_CLIENT_SECRET", "other"),
        lambda: monkeypatch.setenv("AZURE_CLIENT_ID", "other"),
        lambda: monkeypatch.setenv("AZURE_CLIENT_CERTIFICATE_PATH", str(tmp_path / "pem")),
        lambda: (tmp_path / "pem").write_bytes(b"new"),
    ]
    for change in changes:
        change()
        service: Any = open_azure()
        told.append(service.credential_identity())
    service = open_azure(auth={"method": "managed", "client_id": "0-1"})
    told.append(service.credential_identity())
    assert len(set(told)) == len(told)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"address": None}, "address is a NoneType"),
        ({"address": "https://acme.vault.azure.net/keys"}, "has a path"),
        ({"address": "http://acme.vault.azure.net"}, "plain http beyond this machine"),
        ({"address": "https://user:word@acme.vault.azure.net"}, "holds more than host"),
        ({"auth": {"method": "cli"}}, "allowed: environment, workload, managed"),
        ({"auth": {"method": "environment", "client_secret": "x"}}, "'client_secret' is not known"),
        ({"auth": {"method": "managed", "client_id": "a/../b"}}, r"auth\.client_id is 'a/../b'"),
        ({"key_type": "EC"}, "allowed: RSA, RSA-HSM, oct-HSM"),
        ({"vault": "acme"}, "'vault' is not known"),
        ({"ca_bundle": "/nonexistent"}, "which is not there on this machine"),
        ({"timeout_seconds": 0}, "allowed: a number from 0.1 to 600"),
    ],
)
def test_options_are_strict(options: dict[str, Any], text: str) -> None:
    """What is not known, or not allowed, is refused by its name before anything is asked."""
    with pytest.raises(ConfigError, match=text):
        opened(type="azure", **{"address": "https://acme.vault.azure.net", **options})
    with pytest.raises(ConfigError, match="address is missing"):
        opened(type="azure")


@pytest.mark.parametrize(
    ("address", "scope"),
    [
        ("https://acme.vault.azure.net", "https://vault.azure.net/.default"),
        ("https://acme.managedhsm.azure.net", "https://managedhsm.azure.net/.default"),
        ("https://acme.vault.azure.cn", "https://vault.azure.cn/.default"),
        ("https://acme.vault.usgovcloudapi.net", "https://vault.usgovcloudapi.net/.default"),
        ("https://vault.azure.net.evil.example.com", "https://vault.azure.net/.default"),
    ],
)
def test_token_is_for_the_cloud_of_the_address(address: str, scope: str) -> None:
    """Vaults and managed HSMs of each cloud take tokens of their own kind."""
    assert read_options(AzureOptions, KeyServiceConfig.from_dict({"type": "azure", "address": address})).scope == scope

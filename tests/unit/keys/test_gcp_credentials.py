"""Which credential the key service over Google Cloud KMS shows, where it comes from, and what it never asks."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from google.auth.compute_engine import _metadata

from sparkcrypt.errors import ConfigError, KeyAccessDeniedError, KeyServiceUnavailableError
from sparkcrypt.keys import steady
from sparkcrypt.keys.opened import access_token
from sparkcrypt.policy.key_service import KeyServiceConfig
from tests.services.fake_cloud import Answer, Asked, Serve
from tests.services.fake_gcp_kms import FakeGcpKms
from tests.unit.keys.conftest import OpenGcp
from tests.unit.keys.vault_proxy import whole

KEY = b"CANARY-of-32-bytes-that-is-a-key"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses between tries are short."""
    monkeypatch.setattr(steady, "BACKOFF_SECONDS", 0.005)


@pytest.fixture
def contacted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every host that this process looks up or connects to; none beyond this machine is reached."""
    hosts: list[str] = []
    connect, look_up = socket.socket.connect, socket.getaddrinfo

    def note_connection(self: socket.socket, address: Any) -> None:
        hosts.append(str(address[0]))
        if not hosts[-1].startswith("127."):
            raise OSError("beyond this machine")
        connect(self, address)

    def note_look_up(host: Any, *rest: Any, **named: Any) -> Any:
        hosts.append(str(host))
        if not hosts[-1].startswith("127."):
            raise socket.gaierror(f"{host} is beyond this machine")
        return look_up(host, *rest, **named)

    monkeypatch.setattr(socket.socket, "connect", note_connection)
    monkeypatch.setattr(socket, "getaddrinfo", note_look_up)
    return hosts


def without_credentials(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """Leave nothing that is found by itself."""
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("HOME", str(home))


def test_metadata_address_is_not_asked_by_itself(
    open_gcp: OpenGcp, contacted: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without a credential nothing is contacted, the metadata address neither, and the error says what to give."""
    without_credentials(monkeypatch, tmp_path)
    with pytest.raises(ConfigError, match=r"GOOGLE_APPLICATION_CREDENTIALS.*method: metadata"):
        open_gcp().describe("pii")
    assert contacted == []


def test_metadata_address_is_asked_where_the_policy_says_so(
    open_gcp: OpenGcp, contacted: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With ``auth: {method: metadata}`` the metadata address is asked, and nobody else before it answered."""
    without_credentials(monkeypatch, tmp_path)
    monkeypatch.setattr(_metadata, "ExponentialBackoff", lambda **_: range(2))  # no pauses of a second
    with pytest.raises(KeyServiceUnavailableError, match="that this machine has a service account"):
        open_gcp(auth={"method": "metadata"}, max_retries=0).describe("pii")
    assert set(contacted) == {"metadata.google.internal"}


def test_token_of_the_metadata_address_lets_in(
    open_gcp: OpenGcp, gcp_server: FakeGcpKms, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The token of this machine's service account wraps and unwraps, and no file is read."""
    without_credentials(monkeypatch, tmp_path)
    monkeypatch.setattr(_metadata, "_GCE_METADATA_HOST", gcp_server.address.removeprefix("http://"))
    service = open_gcp(auth={"method": "metadata"})
    service.create("pii")
    assert service.unwrap("pii", service.wrap("pii", KEY)) == KEY
    assert "metadata" in gcp_server.tokens.values()


@pytest.mark.parametrize(
    "source",
    [
        {"url": "http://169.254.169.254/metadata/identity/oauth2/token"},
        {"url": "http://metadata.google.internal/x"},
        {"environment_id": "aws1", "region_url": "http://169.254.169.254/latest"},
    ],
)
def test_federated_credential_from_a_metadata_address_is_refused(
    open_gcp: OpenGcp, contacted: list[str], tmp_path: Path, source: dict[str, str]
) -> None:
    """A file that has its token from such an address is no way around the policy's word."""
    document = {
        "type": "external_account",
        "credential_source": source,
        "audience": "//iam",
        "token_url": "https://sts",
    }
    (tmp_path / "federated.json").write_text(json.dumps(document))
    with pytest.raises(ConfigError, match="metadata address"):
        open_gcp(auth={"method": "file", "credentials_file": str(tmp_path / "federated.json")}).describe("pii")
    assert contacted == []


def test_file_of_the_policy_goes_before_the_environments(
    open_gcp: OpenGcp, gcp_server: FakeGcpKms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The policy's file counts; then the environment's; then the one that gcloud wrote."""
    named = gcp_server.make_account("named", tmp_path / "named.json")
    open_gcp(auth={"method": "file", "credentials_file": str(named)}).create("pii")
    assert list(gcp_server.tokens.values())[-1].startswith("named@")
    open_gcp().describe("pii")
    assert list(gcp_server.tokens.values())[-1].startswith("etl@")
    without_credentials(monkeypatch, tmp_path)
    (tmp_path / ".config" / "gcloud").mkdir(parents=True)
    gcp_server.make_account("gcloud", tmp_path / ".config" / "gcloud" / "application_default_credentials.json")
    open_gcp().describe("pii")
    assert list(gcp_server.tokens.values())[-1].startswith("gcloud@")


def test_replaced_file_is_taken_at_the_next_call(open_gcp: OpenGcp, gcp_server: FakeGcpKms, tmp_path: Path) -> None:
    """A key file that was replaced speaks for the next call, and for another one of Parquet's caches."""
    file = gcp_server.make_account("first", tmp_path / "key.json")
    service: Any = open_gcp(auth={"method": "file", "credentials_file": str(file)})
    service.create("pii")
    config = KeyServiceConfig.from_dict({"type": "gcp"})
    before = access_token(config, service)
    assert before == access_token(config, service)
    gcp_server.make_account("second", file)
    service.describe("pii")
    assert list(gcp_server.tokens.values())[-1].startswith("second@")
    assert access_token(config, service) != before


def test_one_token_serves_until_it_ends_or_is_taken_back(open_gcp: OpenGcp, gcp_server: FakeGcpKms) -> None:
    """Calls share a token; one that was taken back is got anew, once, and one that has ended as well."""
    service = open_gcp()
    service.create("pii")
    count = len(gcp_server.tokens)
    for _ in range(3):
        service.describe("pii")
    assert len(gcp_server.tokens) == count
    gcp_server.tokens.clear()
    service.describe("pii")
    assert len(gcp_server.tokens) == 1
    gcp_server.meddle = lambda asked, serve: serve() if asked.path == "/token" else Answer(401, {})
    with pytest.raises(KeyAccessDeniedError, match="401"):
        service.describe("pii")
    assert len(gcp_server.tokens) == 2
    gcp_server.meddle, gcp_server.lifetime_seconds = None, 1
    try:
        short = open_gcp()
        short.describe("pii")
        count = len(gcp_server.tokens)
        short.describe("pii")
        assert len(gcp_server.tokens) == count + 1
    finally:
        gcp_server.lifetime_seconds = 3600


@pytest.mark.slow
def test_refused_and_absent_givers_of_tokens(open_gcp: OpenGcp, gcp_server: FakeGcpKms) -> None:
    """A refused credential is a refusal that shows nothing of it; a giver of tokens that is down is tried again."""
    faults = [Answer(503, "<html>"), Answer(500, {"error": "internal_failure"})]

    def meddle(asked: Asked, serve: Serve) -> Answer:
        return faults.pop(0) if asked.path == "/token" and faults else serve()

    gcp_server.meddle = meddle
    open_gcp().create("pii")
    assert faults == []
    gcp_server.meddle = lambda asked, serve: Answer(400, {"error": "invalid_grant", "error_description": "revoked"})
    with pytest.raises(KeyAccessDeniedError, match=r"invalid_grant.*revoked") as denied:
        open_gcp().describe("pii")
    assert "PRIVATE KEY" not in whole(denied.value)


@pytest.mark.parametrize(
    "content",
    [
        "CANARY",
        "[]",
        '{"type": "CANARY"}',
        '{"type": "service_account", "private_key": "CANARY", "client_email": "a@b", "token_uri": "https://x"}',
        '{"type": "service_account", "private_key": "CANARY"}',
        '{"type": "authorized_user", "client_secret": "CANARY"}',
        '{"type": "external_account", "credential_source": "CANARY"}',
        '{"type": "impersonated_service_account", "source_credentials": {"refresh_token": "CANARY"}}',
    ],
)
def test_file_that_is_no_credential_is_named_and_not_quoted(open_gcp: OpenGcp, tmp_path: Path, content: str) -> None:
    """What is in a file stays there, in the errors that the error came from as well."""
    file = tmp_path / "file.json"
    file.write_text(content)
    with pytest.raises(ConfigError, match=str(file)) as refused:
        open_gcp(auth={"method": "file", "credentials_file": str(file)}).describe("pii")
    assert "CANARY" not in whole(refused.value)
    file.unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        open_gcp(auth={"method": "file", "credentials_file": str(file)}).describe("pii")


def test_redirect_and_netrc_do_not_carry_or_replace_the_token(
    open_gcp: OpenGcp, gcp_server: FakeGcpKms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other host gets the token, and no password of this machine's user is sent in its place."""
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password CANARY\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    service = open_gcp(max_retries=0)
    service.create("pii")
    other = FakeGcpKms()
    try:
        elsewhere = Answer(307, {}, {"Location": f"{other.address}/v1/x"})
        gcp_server.meddle = lambda asked, serve: serve() if asked.path == "/token" else elsewhere
        with pytest.raises(KeyServiceUnavailableError, match="307"):
            service.describe("pii")
        assert other.asked == []
    finally:
        other.stop()
    assert {asked.headers["authorization"][:7] for asked in gcp_server.asked if asked.path.startswith("/v1/")} == {
        "Bearer "
    }

"""The key service over a fake of Google Cloud KMS: names, versions, checksums, faults."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Callable
from dataclasses import replace
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
from sparkcrypt.keys.cloud.gcp import KeyNames, crc32c
from tests.services.fake_cloud import Answer, Asked, Serve
from tests.services.fake_gcp_kms import PROJECT, CryptoKey, FakeGcpKms
from tests.unit.keys.conftest import OpenGcp, opened
from tests.unit.keys.vault_proxy import Fault, running_proxy

KEY = b"CANARY-of-32-bytes-that-is-a-key"
RING = f"projects/{PROJECT}/locations/europe-west1/keyRings/r"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses between tries are short."""
    monkeypatch.setattr(steady, "BACKOFF_SECONDS", 0.005)


@pytest.fixture
def pii(open_gcp: OpenGcp, gcp_server: FakeGcpKms) -> CryptoKey:
    """The key ``pii`` of the test's key ring, as the service keeps it."""
    before = set(gcp_server.keys)
    open_gcp().create("pii")
    (name,) = set(gcp_server.keys) - before
    return gcp_server.keys[name]


def refuse(http: int, status: str, message: str = "no") -> Answer:
    """Return an answer as Google refuses."""
    return Answer(http, {"error": {"code": http, "status": status, "message": message}})


def answer_next(server: FakeGcpKms, *answers: Answer | None) -> list[str]:
    """Have the next calls of KMS answered by these, one each, None for the server's own; return what was asked."""
    asked_paths: list[str] = []
    left = list(answers)

    def meddle(asked: Asked, serve: Serve) -> Answer:
        if asked.path == "/token":
            return serve()
        asked_paths.append(asked.path.rpartition(":")[2])
        answer = left.pop(0) if left else None
        return serve() if answer is None else answer

    server.meddle = meddle
    return asked_paths


def test_key_is_found_by_its_resource_name_and_by_its_short_id(open_gcp: OpenGcp, pii: CryptoKey) -> None:
    """A key is used under its whole name too, without a key ring in the policy, and none is made by that."""
    service = open_gcp(key_ring=None)
    assert service.unwrap(pii.name, service.wrap(pii.name, KEY)) == KEY
    assert service.create(pii.name).versions == 1
    with pytest.raises(ConfigError, match="make that key in Google Cloud"):
        service.create(f"{pii.name}-absent")
    with pytest.raises(ConfigError, match=r"key id 'pii' needs key_ring.*whole resource name"):
        service.wrap("pii", KEY)
    with pytest.raises(ConfigError, match="names a version"):
        service.wrap(f"{pii.name}/cryptoKeyVersions/1", KEY)


def test_key_id_is_bound(open_gcp: OpenGcp, pii: CryptoKey) -> None:
    """What one key id wrapped opens under no other id of the same key."""
    service = open_gcp()
    with pytest.raises(KeyServiceError, match="not one that this key wrapped under this key id"):
        service.unwrap(pii.name, service.wrap("pii", KEY))


def test_key_id_leads_to_no_other_resource_or_host(open_gcp: OpenGcp, gcp_server: FakeGcpKms) -> None:
    """Ids that look like parts of an address become names of keys in the key ring."""
    service, names = open_gcp(), KeyNames(RING)
    ids = ("../../x", "pii:decrypt", "pii?alt=media", "//evil.example.com/x", RING)
    for key_id in ids:
        assert names.of(key_id).startswith(f"{RING}/cryptoKeys/")
        assert re.fullmatch("[A-Za-z0-9_-]{1,63}", names.of(key_id).removeprefix(f"{RING}/cryptoKeys/"))
        with pytest.raises(KeyNotFoundError):
            service.wrap(key_id, KEY)
    with pytest.raises(ConfigError, match="allowed: 63"):
        service.wrap(f"{RING}/cryptoKeys/a/../b", KEY)


def test_ids_are_listed_and_pages_are_read_to_their_end(open_gcp: OpenGcp, gcp_server: FakeGcpKms) -> None:
    """Each id is found again by its name; keys of others and of other kinds are left out."""
    service: Any = open_gcp()
    ids = sorted(["k" * 63, "é" * 10, "a", "b", "c", "d"])
    for key_id in ids:
        service.create(key_id)
    ring = next(name for name in gcp_server.keys if name.endswith("/a")).rpartition("/cryptoKeys/")[0]
    for name, purpose in (("made_by_hand", "ENCRYPT_DECRYPT"), ("signing", "ASYMMETRIC_SIGN")):
        key = CryptoKey(f"{ring}/cryptoKeys/{name}", {"purpose": purpose}, [], "2026-01-01T00:00:00Z")
        key.versions.extend(gcp_server.keys[f"{ring}/cryptoKeys/a"].versions)
        gcp_server.keys[key.name] = key
    assert [key.key_id for key in service.list_keys()] == ids
    with pytest.raises(KeyServiceError, match=r"ASYMMETRIC_SIGN.*allowed: ENCRYPT_DECRYPT"):
        service.describe("signing")
    with pytest.raises(ConfigError, match=r"a name of 64 characters in Google Cloud KMS; allowed: 63"):
        service.create("k" * 64)


def test_primary_version_wraps_and_earlier_ones_unwrap(open_gcp: OpenGcp, pii: CryptoKey) -> None:
    """Rotation makes a version that wraps from then on; what the first one wrapped still opens."""
    service: Any = open_gcp()
    first = service.wrap("pii", KEY)
    assert service.rotate("pii").versions == 2
    second = service.wrap("pii", KEY)
    assert [base64.b64decode(text.rpartition(":")[2])[3] for text in (first, second)] == [1, 2]
    assert service.unwrap("pii", first) == service.unwrap("pii", second) == KEY


def test_disabled_version_denies_what_it_wrapped(open_gcp: OpenGcp, gcp_server: FakeGcpKms, pii: CryptoKey) -> None:
    """A version that is disabled opens nothing until it is enabled; the others go on."""
    service: Any = open_gcp()
    first = service.wrap("pii", KEY)
    service.rotate("pii")
    second = service.wrap("pii", KEY)
    gcp_server.set_state(pii.name, 1, "DISABLED")
    with pytest.raises(KeyAccessDeniedError, match=r"DISABLED.*enable the version"):
        service.unwrap("pii", first)
    assert service.unwrap("pii", second) == KEY
    gcp_server.set_state(pii.name, 2, "DISABLED")
    with pytest.raises(KeyAccessDeniedError, match="DISABLED"):
        service.wrap("pii", KEY)
    assert service.describe("pii").versions == 2
    gcp_server.set_state(pii.name, 1, "ENABLED")
    assert service.unwrap("pii", first) == KEY


@pytest.mark.parametrize("state", ["DESTROYED", "DESTROY_SCHEDULED"])
def test_destroyed_version_is_not_found(open_gcp: OpenGcp, gcp_server: FakeGcpKms, pii: CryptoKey, state: str) -> None:
    """What a destroyed version wrapped is gone; a key without another one is not there, nor made or listed again."""
    service: Any = open_gcp()
    first = service.wrap("pii", KEY)
    service.rotate("pii")
    second = service.wrap("pii", KEY)
    gcp_server.set_state(pii.name, 1, state)
    with pytest.raises(KeyNotFoundError, match=state):
        service.unwrap("pii", first)
    assert service.unwrap("pii", second) == KEY
    gcp_server.set_state(pii.name, 2, state)
    calls: list[Callable[[], object]] = [
        lambda: service.wrap("pii", KEY),
        lambda: service.unwrap("pii", second),
        lambda: service.describe("pii"),
        lambda: service.create("pii"),
    ]
    for call in calls:
        with pytest.raises(KeyNotFoundError, match=state):
            call()
    assert service.list_keys() == ()


def test_version_that_is_being_made_is_waited_for(open_gcp: OpenGcp, gcp_server: FakeGcpKms, pii: CryptoKey) -> None:
    """A version of an HSM that is not there yet passes: it is tried again, and no refusal."""
    service = open_gcp()
    gcp_server.set_state(pii.name, 1, "PENDING_GENERATION")
    asked = answer_next(gcp_server)
    with pytest.raises(KeyServiceUnavailableError, match=r"PENDING_GENERATION.*after 5 retries"):
        service.wrap("pii", KEY)
    assert asked == ["encrypt"] * 6


@pytest.mark.parametrize(
    ("permission", "call"),
    [
        ("cloudkms.cryptoKeyVersions.useToEncrypt", lambda service, _: service.wrap("pii", KEY)),
        ("cloudkms.cryptoKeyVersions.useToDecrypt", lambda service, wrapped: service.unwrap("pii", wrapped)),
        ("cloudkms.cryptoKeys.get", lambda service, _: service.describe("pii")),
        ("cloudkms.cryptoKeys.create", lambda service, _: service.create("other")),
        ("cloudkms.cryptoKeys.list", lambda service, _: service.list_keys()),
        ("cloudkms.cryptoKeys.update", lambda service, _: service.rotate("pii")),
    ],
)
def test_missing_permission_is_named_and_asked_for_once(
    open_gcp: OpenGcp,
    gcp_server: FakeGcpKms,
    pii: CryptoKey,
    permission: str,
    call: Callable[[Any, str], object],
) -> None:
    """A refusal is final, and says which permission is missing."""
    service = open_gcp()
    wrapped = service.wrap("pii", KEY)
    gcp_server.denied.add(permission)
    asked = answer_next(gcp_server)
    with pytest.raises(KeyAccessDeniedError, match=permission):
        call(service, wrapped)
    assert len(asked) <= 2
    assert len(set(asked)) == len(asked)


def test_checksum_is_the_one_of_the_standard() -> None:
    """Castagnoli's, by the check value of its catalogue and RFC 3720's examples."""
    assert crc32c(b"123456789") == 0xE3069283
    assert (crc32c(b""), crc32c(bytes(32)), crc32c(b"\xff" * 32)) == (0, 0x8A9136AA, 0x62A8AB43)


def damage(answer: Answer, **changes: object) -> Answer:
    """Return an answer with other values of some fields, those alone that it has."""
    told = dict(answer.content)
    return replace(answer, content={**told, **{name: value for name, value in changes.items() if name in told}})


@pytest.mark.parametrize(
    "changes",
    [
        {"ciphertextCrc32c": "1"},
        {"ciphertext": base64.b64encode(b"x" * 60).decode()},
        {"ciphertext": "not base64!"},
        {"verifiedPlaintextCrc32c": False},
        {"verifiedAdditionalAuthenticatedDataCrc32c": False},
    ],
)
def test_damaged_answer_of_a_wrap_is_asked_for_again(
    open_gcp: OpenGcp, gcp_server: FakeGcpKms, pii: CryptoKey, changes: dict[str, object]
) -> None:
    """A wrap whose checksums do not hold is thrown away and made again; one that stays so is an error."""
    service, damaged = open_gcp(), [True, True, False]

    def meddle(asked: Asked, serve: Serve) -> Answer:
        wrong = asked.path.endswith(":encrypt") and (damaged.pop(0) if damaged else False)
        return damage(serve(), **changes) if wrong else serve()

    gcp_server.meddle = meddle
    wrapped = service.wrap("pii", KEY)
    assert damaged == []
    assert service.unwrap("pii", wrapped) == KEY
    damaged.extend([True] * 20)
    with pytest.raises(KeyServiceUnavailableError, match="damaged on its way"):
        service.wrap("pii", KEY)


def test_damaged_answer_of_an_unwrap_is_no_key(open_gcp: OpenGcp, gcp_server: FakeGcpKms, pii: CryptoKey) -> None:
    """A key whose checksum is another one's is never given out, and asked for again."""
    service, damaged = open_gcp(), [True, False]
    wrapped = service.wrap("pii", KEY)
    other = base64.b64encode(KEY[::-1]).decode()

    def meddle(asked: Asked, serve: Serve) -> Answer:
        wrong = asked.path.endswith(":decrypt") and (damaged.pop(0) if damaged else True)
        return damage(serve(), plaintext=other) if wrong else serve()

    gcp_server.meddle = meddle
    assert service.unwrap("pii", wrapped) == KEY
    with pytest.raises(KeyServiceUnavailableError, match="plaintextCrc32c differ"):
        service.unwrap("pii", wrapped)


@pytest.mark.parametrize("name", ["plaintext", "additionalAuthenticatedData"])
def test_damaged_request_is_sent_again(open_gcp: OpenGcp, gcp_server: FakeGcpKms, pii: CryptoKey, name: str) -> None:
    """The service finds by our checksum that what came was changed, wraps nothing of it, and is asked again."""
    service, damaged, statuses = open_gcp(), [True], []

    def meddle(asked: Asked, serve: Serve) -> Answer:
        if asked.path.endswith(":encrypt") and damaged:
            damaged.pop()
            answer = gcp_server.serve(replace(asked, body={**asked.body, name: base64.b64encode(b"other").decode()}))
        else:
            answer = serve()
        statuses.append(answer.status)
        return answer

    gcp_server.meddle = meddle
    wrapped = service.wrap("pii", KEY)
    assert statuses[-2:] == [400, 200]
    assert service.unwrap("pii", wrapped) == KEY


def test_wrap_by_another_key_is_refused(open_gcp: OpenGcp, gcp_server: FakeGcpKms, pii: CryptoKey) -> None:
    """An answer that names another key's version is no wrap of ours; a project may be told by its id."""
    service = open_gcp()
    other = f"{pii.name}-other/cryptoKeyVersions/1"
    gcp_server.meddle = lambda asked, serve: damage(serve(), name=other) if "encrypt" in asked.path else serve()
    with pytest.raises(KeyServiceError, match=r"where .* was asked for"):
        service.wrap("pii", KEY)
    by_number = f"{pii.name}/cryptoKeyVersions/1".replace(PROJECT, "123456789012")
    gcp_server.meddle = lambda asked, serve: damage(serve(), name=by_number) if "encrypt" in asked.path else serve()
    assert service.wrap("pii", KEY).startswith("gcp:v1:")


def test_passing_faults_are_tried_again_and_refusals_are_not(
    open_gcp: OpenGcp, gcp_server: FakeGcpKms, pii: CryptoKey
) -> None:
    """Quotas and faults of Google's own side end in success; a refusal is asked for once."""
    service = open_gcp()
    wrapped = service.wrap("pii", KEY)
    faults = [refuse(429, "RESOURCE_EXHAUSTED"), refuse(500, "INTERNAL"), Answer(503, "<html>"), Answer(502, "")]
    asked = answer_next(gcp_server, *faults)
    assert service.unwrap("pii", wrapped) == KEY
    assert asked == ["decrypt"] * 5
    asked = answer_next(gcp_server, refuse(403, "PERMISSION_DENIED", "not you"))
    with pytest.raises(KeyAccessDeniedError, match=r"not you.*useToDecrypt"):
        service.unwrap("pii", wrapped)
    assert asked == ["decrypt"]


@pytest.mark.slow
def test_resets_and_latency(open_gcp: OpenGcp, gcp_server: FakeGcpKms, pii: CryptoKey) -> None:
    """Lost connections are tried again, an answer of 1.5 s is waited for, and the deadline ends what is later."""
    with running_proxy(gcp_server.address) as proxy:
        service = open_gcp(endpoint=proxy.address)
        wrapped = service.wrap("pii", KEY)
        proxy.fail("decrypt", Fault.RESET, Fault.RESET_AFTER, 503, 0)
        assert service.unwrap("pii", wrapped) == KEY
        proxy.delay_seconds = 1.5
        assert service.unwrap("pii", wrapped) == KEY
        started = time.monotonic()
        with pytest.raises(KeyServiceUnavailableError, match=r"within the 0\.5 s.*deadline_seconds"):
            open_gcp(endpoint=proxy.address, deadline_seconds=0.5).unwrap("pii", wrapped)
        assert time.monotonic() - started < 1.5
        with pytest.raises(KeyServiceUnavailableError, match="ReadTimeout"):
            open_gcp(endpoint=proxy.address, timeout_seconds=0.2, max_retries=0).unwrap("pii", wrapped)
    with pytest.raises(KeyServiceUnavailableError, match="after 1 retries"):
        open_gcp(endpoint=proxy.address, max_retries=1).unwrap("pii", wrapped)


def test_the_next_endpoint_serves_what_reads(open_gcp: OpenGcp, gcp_server: FakeGcpKms, pii: CryptoKey) -> None:
    """While one way to Google does not answer, the next one wraps and unwraps."""
    service = open_gcp(endpoint=None, endpoints=["http://127.0.0.1:9", gcp_server.address], max_retries=0)
    assert service.unwrap("pii", service.wrap("pii", KEY)) == KEY
    with pytest.raises(KeyServiceUnavailableError):
        service.create("other")


@pytest.mark.parametrize("answer", [Answer(404, "<html>"), Answer(404, {}), Answer(200, "<html>"), Answer(302, "")])
def test_what_is_no_google_is_unavailable(
    open_gcp: OpenGcp, gcp_server: FakeGcpKms, pii: CryptoKey, answer: Answer
) -> None:
    """A page of somebody else's, whatever its status, is no word that a key is gone."""
    gcp_server.meddle = lambda asked, serve: serve() if asked.path == "/token" else answer
    with pytest.raises(KeyServiceUnavailableError, match="no Google Cloud KMS"):
        open_gcp(max_retries=0).describe("pii")


def test_key_ring_that_is_not_there_is_named(open_gcp: OpenGcp) -> None:
    """A key cannot be made in a key ring that nobody made."""
    with pytest.raises(KeyNotFoundError, match=r"KeyRing .* not found.*key_ring"):
        open_gcp(key_ring=RING).create("pii")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"endpoint": "http://kms.example.com"}, "plain http beyond this machine"),
        ({"endpoint": "https://user:word@kms.example.com"}, "more than host"),
        ({"endpoint": 1}, "endpoint is a int"),
        ({"key_ring": "pii"}, "key_ring is 'pii'; allowed: projects/"),
        ({"key_ring": f"{RING}/cryptoKeys/k"}, "key_ring"),
        ({"protection_level": "hsm"}, "protection_level is 'hsm'; allowed: SOFTWARE, HSM"),
        ({"auth": "metadata"}, "auth is not a mapping"),
        ({"auth": {"method": "default"}}, "'default' is not known; allowed: file, metadata"),
        ({"auth": {"method": "metadata", "credentials_file": "/x"}}, "'credentials_file' is not known"),
        ({"auth": {"method": "metadata", "service_account": "../x"}}, "service_account"),
        ({"timeout_seconds": 0}, "timeout_seconds"),
        ({"max_retries": 11}, "max_retries"),
        ({"endpoints": ["https://a"], "endpoint": "https://a"}, "endpoints"),
        ({"region": "eu"}, "'region' is not known; allowed: key_ring"),
        ({"ca_bundle": "/nonexistent"}, "ca_bundle"),
    ],
)
def test_option_that_is_not_right_is_named(options: dict[str, Any], said: str) -> None:
    """Each option is checked when the service is opened, and the error names it."""
    with pytest.raises(ConfigError, match=said):
        opened(type="gcp", **options)

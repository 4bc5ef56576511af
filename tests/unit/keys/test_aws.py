from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import boto3
import pytest

from sparkcrypt.errors import (
    ConfigError,
    KeyAccessDeniedError,
    KeyNotFoundError,
    KeyServiceError,
    KeyServiceUnavailableError,
)
from sparkcrypt.keys import steady
from sparkcrypt.keys.cloud.aws import KeyNames
from sparkcrypt.keys.opened import access_token
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.runs.passes.key_status import newest_creation
from tests.services.meddled_s3 import MeddledS3
from tests.unit.keys.conftest import OpenAws, opened

KEY = b"CANARY-of-32-bytes-that-is-a-key"
REGION = "eu-west-1"
ACCOUNT = "123456789012"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses between tries are short."""
    monkeypatch.setattr(steady, "BACKOFF_SECONDS", 0.005)


@pytest.fixture
def client(aws_server: MeddledS3, open_aws: OpenAws) -> Callable[..., Any]:
    """Clients of the server's other side: what an owner of keys does."""
    return lambda service="kms", region=REGION: boto3.client(
        service, endpoint_url=aws_server.endpoint, region_name=region
    )


def refuse(code: str, message: str = "", status: str = "400 Bad Request") -> Any:
    """Return an answer as AWS refuses."""
    return status, [("Content-Type", "application/x-amz-json-1.1")], json.dumps({"__type": code, "message": message})


def answering(server: MeddledS3, *answers: Any) -> list[str]:
    """Have the next calls of KMS answered by these, one each, None for the server's own; return what was asked."""
    asked: list[str] = []
    left = list(answers)

    def meddle(environ: dict[str, Any], serve: Callable[[], Any]) -> Any:
        asked.append(str(environ.get("HTTP_X_AMZ_TARGET", "")).rpartition(".")[2])
        answer = left.pop(0) if left else None
        if answer is None:
            return serve()
        status, headers, body = answer
        return status, headers, body.encode()

    server.meddle = meddle
    return asked


def test_key_is_found_by_alias_id_and_arn(open_aws: OpenAws, client: Callable[..., Any]) -> None:
    """A key that AWS knows by its id, ARN or alias is used under each, and none of them makes one."""
    kms = client()
    made = kms.create_key()["KeyMetadata"]
    kms.create_alias(AliasName="alias/billing", TargetKeyId=made["KeyId"])
    service = open_aws()
    for key_id in (made["KeyId"], made["Arn"], "alias/billing", f"arn:aws:kms:{REGION}:{ACCOUNT}:alias/billing"):
        assert service.unwrap(key_id, service.wrap(key_id, KEY)) == KEY
    assert service.list_keys() == ()
    with pytest.raises(ConfigError, match="make that key in AWS"):
        service.create("alias/nosuch")


def test_encryption_context_binds_the_key_id_and_the_policys_pairs(
    open_aws: OpenAws, client: Callable[..., Any]
) -> None:
    """What one key id wrapped opens under no other id of the same key, nor under another encryption_context."""
    made = client().create_key()["KeyMetadata"]
    service = open_aws(encryption_context={"department": "sales"})
    wrapped = service.wrap(made["KeyId"], KEY)
    assert service.unwrap(made["KeyId"], wrapped) == KEY
    for other, key_id in ((service, made["Arn"]), (open_aws(), made["KeyId"])):
        with pytest.raises(KeyServiceError, match="not one that this key wrapped"):
            other.unwrap(key_id, wrapped)


def test_key_that_waits_for_its_deletion_is_not_found(open_aws: OpenAws, client: Callable[..., Any]) -> None:
    """A key that is scheduled to be deleted counts as gone, and is not made again under its id."""
    before = client().list_aliases()["Aliases"]
    service = open_aws()
    service.create("pii")
    (alias,) = [listed for listed in client().list_aliases()["Aliases"] if listed not in before]
    client().schedule_key_deletion(KeyId=alias["TargetKeyId"], PendingWindowInDays=7)
    with pytest.raises(KeyNotFoundError, match="to be deleted on"):
        service.describe("pii")
    with pytest.raises(KeyNotFoundError, match="to be deleted on"):
        service.create("pii")


def test_rotated_key_has_a_version_more(open_aws: OpenAws) -> None:
    """Rotation is AWS's: what was wrapped before still opens."""
    service: Any = open_aws()
    service.create("pii")
    wrapped = service.wrap("pii", KEY)
    assert service.rotate("pii").versions == 2
    assert service.unwrap("pii", wrapped) == KEY


def answer_rotations(server: MeddledS3, answer: Any) -> None:
    """Have every listing of rotations answered by this."""

    def meddle(environ: dict[str, Any], serve: Callable[[], Any]) -> Any:
        if not str(environ.get("HTTP_X_AMZ_TARGET", "")).endswith(".ListKeyRotations"):
            return serve()
        status, headers, body = answer
        return status, headers, body.encode()

    server.meddle = meddle


@pytest.mark.parametrize("code", ["AccessDeniedException", "UnsupportedOperationException", "KMSInvalidStateException"])
def test_versions_that_aws_does_not_tell_are_not_one_version(
    open_aws: OpenAws, aws_server: MeddledS3, code: str
) -> None:
    """Without the right to list rotations, and for kinds of keys that have none, the age of the newest is unknown."""
    service: Any = open_aws()
    service.create("pii")
    answer_rotations(aws_server, refuse(code))
    described = service.describe("pii")
    assert (described.versions, described.rotated) == (0, None)
    assert described.created is not None and newest_creation(described) is None


@pytest.mark.parametrize("code", ["KMSInternalException", "ExpiredTokenException", "NewException"])
def test_an_outage_while_rotations_are_listed_is_an_outage(open_aws: OpenAws, aws_server: MeddledS3, code: str) -> None:
    """No number of versions is told when the answer says nothing about them."""
    service: Any = open_aws(max_retries=0)
    service.create("pii")
    service.rotate("pii")
    answer_rotations(aws_server, refuse(code, status="500 Internal Server Error"))
    with pytest.raises(KeyServiceError, match=r"KMSInternalException|ExpiredTokenException|cannot serve now"):
        service.describe("pii")
    aws_server.meddle = None
    assert service.describe("pii").versions == 2


def test_the_newest_version_of_a_rotated_key_has_its_rotations_time(open_aws: OpenAws) -> None:
    """AWS reports when each rotation was, so a rotated key is due by its newest version."""
    service: Any = open_aws()
    assert service.create("pii").rotated is None
    began = datetime.now(timezone.utc).replace(microsecond=0)
    service.rotate("pii")
    made = newest_creation(service.rotate("pii"))
    assert made is not None and began - timedelta(seconds=1) <= made <= datetime.now(timezone.utc)


def test_services_that_make_one_key_end_with_one(open_aws: OpenAws) -> None:
    """Of several that create a key at the same time all use one, and what each wraps the others open."""
    services = [open_aws() for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda service: service.create("pii"), services))
    wrapped = [service.wrap("pii", KEY) for service in services]
    assert [services[0].unwrap("pii", sealed) for sealed in wrapped] == [KEY] * 3
    assert len(services[0].list_keys()) == 1


def test_multi_region_key_serves_from_the_next_region(
    open_aws: OpenAws, client: Callable[..., Any], aws_server: MeddledS3
) -> None:
    """While one region cannot serve, the next one wraps with its replica of the key; it makes no keys.

    Moto cannot decrypt with keys of several regions, whichever region is asked, so that nothing is unwrapped here.
    """
    made = client().create_key(MultiRegion=True)["KeyMetadata"]
    client().replicate_key(KeyId=made["KeyId"], ReplicaRegion="eu-central-1")
    service = open_aws(region=None, regions=[REGION, "eu-central-1"])
    asked: list[str] = []

    def meddle(environ: dict[str, Any], serve: Callable[[], Any]) -> Any:
        asked.append(environ["HTTP_AUTHORIZATION"].split("/")[2])
        if asked[-1] == REGION:
            status, headers, body = refuse("KMSInternalException", status="500 Internal Server Error")
            return status, headers, body.encode()
        return serve()

    aws_server.meddle = meddle
    assert service.wrap(made["Arn"], KEY).startswith("aws:v1:")
    assert asked == [REGION, "eu-central-1"]
    with pytest.raises(KeyServiceUnavailableError, match="cannot serve now"):
        service.create("pii")
    assert set(asked[2:]) == {REGION}


def test_role_is_taken_with_the_platforms_credentials(
    open_aws: OpenAws, client: Callable[..., Any], aws_server: MeddledS3
) -> None:
    """With role_arn every call is signed by that role's temporary credentials, which are got once."""
    role = f"arn:aws:iam::{ACCOUNT}:role/sparkcrypt"
    signed: list[str] = []

    def meddle(environ: dict[str, Any], serve: Callable[[], Any]) -> Any:
        signed.append(environ["HTTP_AUTHORIZATION"].partition("Credential=")[2].split("/")[0])
        return serve()

    aws_server.meddle = meddle
    service = open_aws(role_arn=role)
    service.create("pii")
    assert service.unwrap("pii", service.wrap("pii", KEY)) == KEY
    assert signed[0].startswith("AKIA")
    assert len(set(signed[1:])) == 1
    assert signed[1].startswith("ASIA")


def test_access_tokens_differ_by_credential_and_role(open_aws: OpenAws, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parquet's static caches are kept apart for two access keys, and for a role beside its source."""
    config = KeyServiceConfig.from_dict({"type": "aws", "region": REGION})
    tokens = {access_token(config, open_aws())}
    tokens.add(access_token(config, open_aws(role_arn=f"arn:aws:iam::{ACCOUNT}:role/other")))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAANOTHER")
    tokens.add(access_token(config, open_aws()))
    assert len(tokens) == 3
    assert access_token(config, open_aws()) in tokens


def test_passing_faults_are_tried_again_and_refusals_are_not(open_aws: OpenAws, aws_server: MeddledS3) -> None:
    """Throttling and faults of AWS's own side end in success; a refusal is asked for once."""
    service = open_aws()
    service.create("pii")
    wrapped = service.wrap("pii", KEY)
    faults = [refuse("ThrottlingException"), refuse("KMSInternalException", status="500 x"), ("503 x", [], "<html>")]
    asked = answering(aws_server, *faults)
    assert service.unwrap("pii", wrapped) == KEY
    assert asked == ["Decrypt"] * 4
    asked = answering(aws_server, refuse("AccessDeniedException", "no"))
    with pytest.raises(KeyAccessDeniedError, match="kms:Decrypt"):
        service.unwrap("pii", wrapped)
    assert asked == ["Decrypt"]


@pytest.mark.slow
def test_latency_beyond_the_deadline_is_one_clear_error(open_aws: OpenAws, aws_server: MeddledS3) -> None:
    """An answer that takes 2 s is waited for; where the deadline is shorter, the error names it and comes in time."""
    service = open_aws()
    service.create("pii")
    wrapped = service.wrap("pii", KEY)

    def late(environ: dict[str, Any], serve: Callable[[], Any]) -> Any:
        time.sleep(2)
        return serve()

    aws_server.meddle = late
    assert service.unwrap("pii", wrapped) == KEY
    started = time.monotonic()
    with pytest.raises(KeyServiceUnavailableError, match=r"within the 0\.5 s.*deadline_seconds"):
        open_aws(deadline_seconds=0.5).unwrap("pii", wrapped)
    assert time.monotonic() - started < 1.5


def test_clock_that_is_wrong_is_named(open_aws: OpenAws, aws_server: MeddledS3) -> None:
    """A signature that AWS calls expired is the clock's fault, and the error says so."""
    service = open_aws()
    answering(
        aws_server, refuse("InvalidSignatureException", "Signature expired: 20260101T000000Z is now earlier than")
    )
    with pytest.raises(KeyAccessDeniedError, match="clock of this machine"):
        service.describe("pii")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"endpoint": "http://kms.example.com"}, "plain http beyond this machine"),
        ({"endpoint": "https://user:word@kms.example.com"}, "more than host"),
        ({"alias_prefix": "aws/"}, "alias_prefix"),
        ({"alias_prefix": "a b"}, "alias_prefix"),
        ({"encryption_context": {"a": 1}}, "encryption_context"),
        ({"timeout_seconds": 0}, "timeout_seconds"),
        ({"max_retries": 11}, "max_retries"),
        ({"deadline_seconds": "1s"}, "deadline_seconds"),
        ({"serve_stale_for": 5}, "serve_stale_for"),
        ({"regions": []}, "regions"),
        ({"regions": ["a"], "region": "a"}, "regions"),
        ({"nosuch": 1}, "'nosuch' is not known; allowed: region"),
        ({"ca_bundle": "/nonexistent"}, "ca_bundle"),
    ],
)
def test_option_that_is_not_right_is_named(options: dict[str, Any], said: str) -> None:
    """Each option is checked when the service is opened, and the error names it."""
    with pytest.raises(ConfigError, match=said):
        opened(type="aws", **options)


def test_missing_credentials_and_region_are_named(open_aws: OpenAws, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without credentials or a region nothing is sent, and the error says what to give."""
    with pytest.raises(ConfigError, match="AWS_REGION"):
        open_aws(region=None, endpoint=None).describe("pii")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(ConfigError, match="AWS's own chain"):
        open_aws().describe("pii")
    with pytest.raises(ConfigError, match="AWS's own chain"):
        open_aws(role_arn="arn:aws:iam::1:role/r").describe("pii")


def test_multi_region_arn_is_turned_to_the_region_that_is_asked() -> None:
    """Only a multi-Region key's ARN changes its region; every other name stays."""
    names, mrk = KeyNames("sparkcrypt/", "eu-central-1"), "mrk-" + "0" * 32
    assert names.of(f"arn:aws:kms:{REGION}:{ACCOUNT}:key/{mrk}") == f"arn:aws:kms:eu-central-1:{ACCOUNT}:key/{mrk}"
    arn = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/12345678-1234-1234-1234-123456789012"
    assert names.of(arn) == arn
    assert len(names.of("k" * 239)) == 256
    with pytest.raises(ConfigError, match=r"a name of 240 characters in AWS KMS; allowed: 239"):
        names.of("k" * 240)


def test_deleted_key_waits_thirty_days(open_aws: OpenAws, client: Callable[..., Any]) -> None:
    """AWS uses the key no more and says when it is gone for good; asked again it says the same day."""
    service = open_aws()
    assert service.offers("delete_key")
    service.create("pii")
    told = service.delete_key("pii")
    assert told.final_at is not None
    final = datetime.strptime(told.final_at, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
    assert timedelta(days=29) < final - datetime.now(timezone.utc) <= timedelta(days=30)
    assert "kms:CancelKeyDeletion" in told.promise
    assert service.delete_key("pii") == told


def signers(server: MeddledS3) -> list[str]:
    """Take down who signs each request from now on: the id of the access key, empty for requests without one."""
    signed: list[str] = []

    def meddle(environ: dict[str, Any], serve: Callable[[], Any]) -> Any:
        signed.append(environ.get("HTTP_AUTHORIZATION", "").partition("Credential=")[2].split("/")[0])
        return serve()

    server.meddle = meddle
    return signed


def profiles(folder: Path, monkeypatch: pytest.MonkeyPatch, credentials: str, config: str = "") -> None:
    """Write AWS's two files, and leave no credentials in the environment."""
    (folder / "credentials").write_text(credentials)
    (folder / "config").write_text(config)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(folder / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(folder / "config"))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")


DATA = "[data]\naws_access_key_id = AKIADATAPROFILEXXXXX\naws_secret_access_key = secret\n"
USUAL = "[default]\naws_access_key_id = AKIADEFAULTPROFILEXX\naws_secret_access_key = secret\n"


def test_environment_goes_before_files(
    open_aws: OpenAws, aws_server: MeddledS3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Access keys of the environment sign, whatever a default profile says, with a session token where one is there."""
    profiles(tmp_path, monkeypatch, USUAL)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAENVIRONMENTXXXXX")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "session")
    signed = signers(aws_server)
    open_aws().create("pii")
    assert set(signed) == {"AKIAENVIRONMENTXXXXX"}


def test_profiles_sign(
    open_aws: OpenAws, aws_server: MeddledS3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The default profile signs, AWS_PROFILE chooses another, and the policy's profile goes before both."""
    profiles(tmp_path, monkeypatch, USUAL + DATA + DATA.replace("[data]", "[other]").replace("DATA", "OTHE"))
    signed = signers(aws_server)
    open_aws().create("pii")
    assert set(signed) == {"AKIADEFAULTPROFILEXX"}
    monkeypatch.setenv("AWS_PROFILE", "data")
    signed.clear()
    open_aws().describe("pii")
    assert set(signed) == {"AKIADATAPROFILEXXXXX"}
    signed.clear()
    open_aws(profile="other").describe("pii")
    assert set(signed) == {"AKIAOTHEPROFILEXXXXX"}
    with pytest.raises(ConfigError, match="nosuch"):
        open_aws(profile="nosuch").describe("pii")


def test_profile_of_a_role(
    open_aws: OpenAws, aws_server: MeddledS3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A profile that takes a role by another one signs with the role's temporary credentials."""
    role = f"[profile etl]\nrole_arn = arn:aws:iam::{ACCOUNT}:role/etl\nsource_profile = data\nregion = {REGION}\n"
    profiles(tmp_path, monkeypatch, DATA, role)
    signed = signers(aws_server)
    service = open_aws(profile="etl")
    service.create("pii")
    assert service.unwrap("pii", service.wrap("pii", KEY)) == KEY
    assert signed[0] == "AKIADATAPROFILEXXXXX"
    assert len(set(signed[1:])) == 1 and signed[1].startswith("ASIA")


def test_web_identity(
    open_aws: OpenAws, aws_server: MeddledS3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A pod's token in a file gets a role's temporary credentials, unsigned, and these sign; nobody's keys are needed.

    Moto takes any token, so what AWS checks of it is not shown here.
    """
    profiles(tmp_path, monkeypatch, "")
    (tmp_path / "token").write_text("a.web.identity")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", f"arn:aws:iam::{ACCOUNT}:role/pod")
    monkeypatch.setenv("AWS_REGION", REGION)
    signed = signers(aws_server)
    service = open_aws()
    service.create("pii")
    assert service.unwrap("pii", service.wrap("pii", KEY)) == KEY
    assert signed[0] == ""
    assert len(set(signed[1:])) == 1 and signed[1].startswith("ASIA")
    (tmp_path / "token").unlink()
    with pytest.raises(ConfigError, match=r"cannot be read: No such file.*token.*AWS_WEB_IDENTITY_TOKEN_FILE"):
        open_aws().describe("pii")

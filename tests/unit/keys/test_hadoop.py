"""The key service over a real Hadoop KMS: who is let in, versions, and what happens when it stops or takes a right."""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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
from sparkcrypt.keys.hadoop import TOKENS_VARIABLE, read_kms_token
from tests.services.hadoop_kms import HadoopKms, start_hadoop_kms
from tests.unit.keys.conftest import OpenHadoop, opened
from tests.unit.keys.vault_proxy import Fault, running_proxy

pytestmark = pytest.mark.services
KEY = secrets.token_bytes(32)


def test_rotated_key_unwraps_what_its_old_version_wrapped(open_hadoop: OpenHadoop) -> None:
    """A new version wraps from then on; what the old one wrapped still opens."""
    service: Any = open_hadoop()
    service.create("pii")
    wrapped = service.wrap("pii", KEY)
    assert service.rotate("pii").versions == 2
    # The server makes some EEKs ahead, of the version before.
    assert service.unwrap("pii", wrapped) == KEY == service.unwrap("pii", service.wrap("pii", KEY))


def test_deleted_key_is_gone(open_hadoop: OpenHadoop) -> None:
    """After a deletion nothing that the key wrapped opens, and a new key of its name opens none of it."""
    service: Any = open_hadoop()
    service.create("pii")
    wrapped = service.wrap("pii", KEY)
    told = service.delete_key("pii")
    assert (told.key_id, told.final_at) == ("pii", None) and "hadoop.kms.cache.timeout.ms" in told.promise
    with pytest.raises(KeyNotFoundError):
        service.unwrap("pii", wrapped)
    service.create("pii")
    with pytest.raises(KeyServiceError):
        service.unwrap("pii", wrapped)


def test_wrapped_key_of_another_version_or_key_is_refused(open_hadoop: OpenHadoop) -> None:
    """The seal binds key id and EEK: a version that is not there, or another key's id, opens nothing."""
    service = open_hadoop()
    for key_id in ("pii", "other"):
        service.create(key_id)
    blob = bytearray(base64.b64decode(service.wrap("pii", KEY).rpartition(":")[2]))
    blob[3] = 9
    with pytest.raises(KeyNotFoundError, match="'pii'"):
        service.unwrap("pii", "hadoop:v1:" + base64.b64encode(blob).decode())
    with pytest.raises(KeyServiceError, match="'other'"):
        service.unwrap("other", service.wrap("pii", KEY))


def test_delegation_token_of_a_credentials_file(
    hadoop_kms: HadoopKms, open_hadoop: OpenHadoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token in the file that Hadoop writes lets in, named by the policy or by the environment as on YARN."""
    owner = open_hadoop()
    owner.create("pii")
    wrapped = owner.wrap("pii", KEY)
    token = hadoop_kms.delegation_token("etl")
    file = hadoop_kms.credentials_file(token, tmp_path / "tokens")
    assert read_kms_token(str(file), hadoop_kms.address) == token
    assert open_hadoop(auth={"method": "token", "token_file": str(file)}).unwrap("pii", wrapped) == KEY
    monkeypatch.setenv(TOKENS_VARIABLE, str(file))
    assert open_hadoop(auth={"method": "token"}).unwrap("pii", wrapped) == KEY


def test_token_that_is_none_is_refused(
    hadoop_kms: HadoopKms, open_hadoop: OpenHadoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is missing, cut or of another kind is named; a forged token is denied, and not shown."""
    monkeypatch.delenv(TOKENS_VARIABLE, raising=False)
    with pytest.raises(ConfigError, match=TOKENS_VARIABLE):
        open_hadoop(auth={"method": "token"}).describe("pii")
    file = hadoop_kms.credentials_file(hadoop_kms.delegation_token("etl"), tmp_path / "tokens")
    whole = file.read_bytes()
    for content, said in ((whole[:-4], "is cut"), (b"text", "no credentials file"), (b"HDTS\0\0\0", "holds 0")):
        file.write_bytes(content)
        with pytest.raises(ConfigError, match=said):
            open_hadoop(auth={"method": "token", "token_file": str(file)}).describe("pii")
    file.write_bytes(whole.replace(b"etl", b"bob"))
    with pytest.raises(KeyAccessDeniedError) as denied:
        open_hadoop(auth={"method": "token", "token_file": str(file)}).describe("pii")
    assert read_kms_token(str(file), hadoop_kms.address) not in str(denied.value)


def test_kerberos_without_a_ticket_says_what_is_missing(open_hadoop: OpenHadoop) -> None:
    """Without its library or a ticket the usual method is one clear error, and nothing is let in by another one."""
    with pytest.raises((ConfigError, KeyAccessDeniedError), match=r"(?i)kerberos"):
        open_hadoop(auth={"method": "kerberos"}).describe("pii")


def refusal_within(seconds: float, call: Callable[[], object]) -> KeyAccessDeniedError | None:
    """Call until it is denied; None when it is not within that time."""
    end = time.monotonic() + seconds
    while True:
        try:
            call()
        except KeyAccessDeniedError as error:
            return error
        if time.monotonic() >= end:
            return None
        time.sleep(0.2)


def test_restart_and_loss_of_a_right_while_work_goes_on(tmp_path: Path) -> None:
    """Calls during a restart end in success; a user whom the ACLs lose gets a refusal, and others go on."""
    running = start_hadoop_kms(tmp_path / "kms")
    try:
        service = opened(
            type="hadoop", address=running.address, auth={"method": "simple", "user": "etl"}, max_retries=10
        )
        service.create("pii")
        wrapped = service.wrap("pii", KEY)
        running.stop()
        with ThreadPoolExecutor(1) as reader:
            during = reader.submit(service.unwrap, "pii", wrapped)
            running = start_hadoop_kms(tmp_path / "kms", running.port)
            try:
                assert during.result(60) == KEY
            except KeyServiceUnavailableError:  # the machine was so slow that the call's deadline passed
                time.sleep(6)
                assert service.unwrap("pii", wrapped) == KEY
        running.allow(DECRYPT_EEK="alice")
        refused = refusal_within(30, lambda: service.unwrap("pii", wrapped))
        assert "unwrap with key 'pii'" in str(refused)
        alice = opened(type="hadoop", address=running.address, auth={"method": "simple", "user": "alice"})
        assert alice.unwrap("pii", wrapped) == KEY
    finally:
        running.stop()


def test_faults_of_the_way_are_tried_again(hadoop_kms: HadoopKms, open_hadoop: OpenHadoop) -> None:
    """Half of all calls failing, resets and an answer of 2 s end in success; a server that is gone in one error."""
    open_hadoop().create("pii")
    with running_proxy(hadoop_kms.address) as proxy:
        service = open_hadoop(address=f"{proxy.address}/kms")
        wrapped = service.wrap("pii", KEY)
        proxy.fail("decrypt", *[503, 0] * 5, Fault.RESET, Fault.RESET_AFTER, 0)
        assert [service.unwrap("pii", wrapped) for _ in range(6)] == [KEY] * 6
        proxy.delay_seconds = 2.0
        assert service.unwrap("pii", wrapped) == KEY
        with pytest.raises(KeyServiceUnavailableError, match="deadline_seconds"):
            open_hadoop(address=f"{proxy.address}/kms", deadline_seconds=0.5).unwrap("pii", wrapped)
    with pytest.raises(KeyServiceUnavailableError, match="after 1 retries"):
        open_hadoop(address=f"{proxy.address}/kms", max_retries=1).unwrap("pii", wrapped)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "address is missing"),
        ({"address": "http://kms.example.com:9600/kms"}, "plain http beyond this machine"),
        ({"address": "https://h/kms", "auth": "simple"}, "auth is not a mapping"),
        ({"address": "https://h/kms", "auth": {"method": "basic"}}, "'basic' is not known"),
        ({"address": "https://h/kms", "auth": {"method": "simple", "password": "x"}}, "'password' is not known"),
        ({"address": "https://h/kms", "key_bits": 200}, "allowed: 128, 192, 256"),
        ({"address": "https://h/kms", "nosuch": 1}, "'nosuch' is not known"),
    ],
)
def test_option_that_is_not_right_is_named(options: dict[str, Any], said: str) -> None:
    """Each option is checked when the service is opened, and the error names it."""
    with pytest.raises(ConfigError, match=said):
        opened(type="hadoop", **options)

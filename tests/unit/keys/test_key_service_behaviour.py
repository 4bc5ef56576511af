"""What every key service does, whatever it is made of."""

from __future__ import annotations

import base64
import secrets
from concurrent.futures import ThreadPoolExecutor

import pytest

from sparkcrypt.errors import ConfigError, KeyNotFoundError, KeyRetiredError, KeyServiceError
from sparkcrypt.keys.service import KeyDescription, KeyService

KEY = secrets.token_bytes(32)
KEY_IDS = {
    "plain": "pii",
    "upper": "PII",
    "arn": "arn:aws:kms:eu-west-1:123456789012:key/0f3c-11",
    "punctuation": "a:b/c@d e%f;g,h=i",
    "escaped": "%2F",
    "looks_escaped": "a_2eb",
    "underscores": "__",
    "dash": "-",
    "dot": ".",
    "dots": "..",
    "dots_inside": "a..b",
    "climbing": "a/../../b",
    "ends": ".a-",
    "scripts": "ключ-é-鍵-🔑",
    "control": "tab\tline\nnul\0end",
    "space": " ",
    "long": "k" * 63,
    "scripts_of_two_bytes": "é" * 10,
}


@pytest.mark.parametrize("key_id", KEY_IDS.values(), ids=KEY_IDS.keys())
def test_any_key_id_wraps_and_unwraps(service: KeyService, key_id: str) -> None:
    """A key id may be any text: its key is made, described under that id, and opens what it wrapped."""
    assert service.create(key_id).key_id == key_id
    assert service.describe(key_id).versions == 1
    assert service.unwrap(key_id, service.wrap(key_id, KEY)) == KEY


@pytest.mark.parametrize("length", [16, 24, 32])
def test_every_key_length_wraps(service: KeyService, length: int) -> None:
    """Keys of 128, 192 and 256 bits come back as they were."""
    service.create("pii")
    key = secrets.token_bytes(length)
    assert service.unwrap("pii", service.wrap("pii", key)) == key


def test_two_wraps_differ(service: KeyService) -> None:
    """Wrapping the same key twice gives two texts: the nonce is fresh each time."""
    service.create("pii")
    assert service.wrap("pii", KEY) != service.wrap("pii", KEY)


def test_wrapped_text_does_not_hold_the_key(service: KeyService) -> None:
    """What wrap gives is ciphertext."""
    service.create("pii")
    wrapped = service.wrap("pii", KEY)
    assert base64.b64encode(KEY).decode() not in wrapped
    assert KEY not in base64.b64decode(wrapped.rpartition(":")[2])


def test_another_key_does_not_unwrap(service: KeyService) -> None:
    """A text that one key wrapped is refused by another, also when their ids differ in case alone."""
    service.create("pii")
    service.create("PII")
    with pytest.raises(KeyServiceError, match="'PII'"):
        service.unwrap("PII", service.wrap("pii", KEY))


@pytest.mark.parametrize("position", [0, 11, 12, 27, 43, 44, -16, -1])
def test_flipped_byte_does_not_unwrap(service: KeyService, position: int) -> None:
    """One changed bit anywhere in nonce, ciphertext or tag is refused."""
    service.create("pii")
    prefix, _, text = service.wrap("pii", KEY).rpartition(":")
    blob = bytearray(base64.b64decode(text))
    blob[position] ^= 1
    with pytest.raises(KeyServiceError, match="'pii'"):
        service.unwrap("pii", f"{prefix}:{base64.b64encode(blob).decode()}")


@pytest.mark.parametrize("kept", [0, 1, 12, 28, 29, 59])
def test_truncated_text_does_not_unwrap(service: KeyService, kept: int) -> None:
    """A text that was cut anywhere is refused."""
    service.create("pii")
    prefix, _, text = service.wrap("pii", KEY).rpartition(":")
    shorter = base64.b64encode(base64.b64decode(text)[:kept]).decode()
    with pytest.raises(KeyServiceError, match="'pii'"):
        service.unwrap("pii", f"{prefix}:{shorter}")


@pytest.mark.parametrize(
    "wrapped",
    [
        "",
        "x",
        "::",
        "not base64!",
        "local:v1:",
        "local:v0:AAAA",
        "vault:v1:",
        "vault:v999:AAAA",
        "é",
        "ephemeral:",
        "{}",
    ],
)
def test_text_that_nobody_wrapped_is_refused(service: KeyService, wrapped: str) -> None:
    """Anything that no key service made is refused as such, never with another exception."""
    service.create("pii")
    with pytest.raises(KeyServiceError, match="'pii'"):
        service.unwrap("pii", wrapped)


@pytest.mark.parametrize("key_id", ["", "\ud800"])
def test_impossible_key_id_is_refused_by_every_call(service: KeyService, key_id: str) -> None:
    """An empty key id, or one that is not Unicode, is a ConfigError wherever it is used."""
    for call in (
        lambda: service.create(key_id),
        lambda: service.describe(key_id),
        lambda: service.wrap(key_id, KEY),
        lambda: service.unwrap(key_id, "vault:v1:AAAA"),
    ):
        with pytest.raises(ConfigError):
            call()


def test_absent_key_is_not_found_and_not_made(storing: KeyService) -> None:
    """Describing, wrapping or unwrapping with a key that is not there says so, and makes none."""
    for call in (
        lambda: storing.describe("absent"),
        lambda: storing.wrap("absent", KEY),
        lambda: storing.unwrap("absent", "local:v1:" + "A" * 80),
    ):
        with pytest.raises(KeyNotFoundError, match="'absent'") as refused:
            call()
        assert "keys create" not in str(refused.value), "what is under a lost key is not opened by a new one"
    assert storing.list_keys() == ()


def test_creating_twice_keeps_the_key(storing: KeyService) -> None:
    """Creating a key that is there changes nothing: what it wrapped still opens."""
    made = storing.create("pii")
    wrapped = storing.wrap("pii", KEY)
    assert storing.create("pii") == made
    assert storing.unwrap("pii", wrapped) == KEY


def test_list_describes_every_key_in_order(storing: KeyService) -> None:
    """The list holds each key once, sorted by raw key id, as describe says it."""
    assert storing.list_keys() == ()
    for key_id in ("b", "a/b", "B", "é"):
        storing.create(key_id)
    listed = storing.list_keys()
    assert [key.key_id for key in listed] == sorted(["b", "a/b", "B", "é"])
    assert listed == tuple(storing.describe(key.key_id) for key in listed)


def test_description_says_when_the_key_was_made(storing: KeyService) -> None:
    """A description is a plain dictionary with a UTC time."""
    assert storing.create("pii").to_dict() == {
        "key_id": "pii",
        "versions": 1,
        "created": storing.describe("pii").created,
    }
    assert str(storing.describe("pii").created).endswith("Z")


@pytest.mark.slow
def test_many_threads_use_one_service(storing: KeyService) -> None:
    """Threads that create, wrap and unwrap at the same time do not disturb each other."""

    def work(number: int) -> bool:
        key_id = f"key-{number % 3}"
        storing.create(key_id)
        key = secrets.token_bytes(16)
        return storing.unwrap(key_id, storing.wrap(key_id, key)) == key

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(48)))
    assert storing.list_keys() == tuple(
        KeyDescription(f"key-{n}", 1, storing.describe(f"key-{n}").created) for n in range(3)
    )


def test_key_ids_that_look_alike_are_different_keys(storing: KeyService) -> None:
    """Ids that a careless encoding would fold together each have a key of their own."""
    alike = ["a/b", "a_b", "a%2Fb", "a_2fb", "a.b", "a b", "A/B", "a/b ", "a//b", "é", "e\u0301"]
    wrapped = {}
    for key_id in alike:
        storing.create(key_id)
        wrapped[key_id] = storing.wrap(key_id, KEY)
    assert len(storing.list_keys()) == len(alike)
    for key_id in alike:
        for other in set(alike) - {key_id}:
            with pytest.raises(KeyServiceError):
                storing.unwrap(other, wrapped[key_id])


def test_deleted_key_unwraps_nothing(storing: KeyService) -> None:
    """Where a service deletes keys, what the key wrapped is lost, it is not listed, and other keys stay as they are."""
    if not storing.offers("delete_key"):
        with pytest.raises(ConfigError, match="has no 'delete_key', which was asked of key 'pii'"):
            storing.delete_key("pii")
        return
    for key_id in ("pii", "a/b:c", "other"):
        storing.create(key_id)
    wrapped, kept = storing.wrap("a/b:c", KEY), storing.wrap("other", KEY)
    told = storing.delete_key("a/b:c")
    assert told.key_id == "a/b:c"
    assert told.promise
    with pytest.raises(KeyNotFoundError, match="'a/b:c'"):
        storing.describe("a/b:c")
    if told.final_at is None:  # moto goes on decrypting with keys that wait for their deletion, as AWS does not
        with pytest.raises(KeyNotFoundError, match="'a/b:c'"):
            storing.unwrap("a/b:c", wrapped)
    assert storing.unwrap("other", kept) == KEY
    with pytest.raises(KeyNotFoundError, match="'absent'"):
        storing.delete_key("absent")


def test_versions_are_set_aside_before_they_are_destroyed(storing: KeyService) -> None:
    """What versions that are set aside wrapped is refused by name, and opens again once they are brought back.

    Only what is set aside is destroyed, for good; every step may be given again.  The newest version always stays.
    """
    if not storing.offers("set_aside"):
        for retire in (storing.set_aside, storing.destroy_versions):
            with pytest.raises(ConfigError, match=r"has no '\w+', which was asked of key 'pii'"):
                retire("pii", 2)
        return
    assert storing.offers("rotate")
    storing.create("pii")
    old = storing.wrap("pii", KEY)
    assert storing.rotate("pii").first_usable == 1
    new = storing.wrap("pii", KEY)
    with pytest.raises(KeyServiceError, match="'pii'"):
        storing.set_aside("pii", 3)
    with pytest.raises(KeyServiceError, match=r"'pii'.*not set aside"):
        storing.destroy_versions("pii", 2)
    for _ in range(2):
        assert storing.set_aside("pii", 2).first_usable == 2
        with pytest.raises(KeyRetiredError, match=r"version 1 of key 'pii' is retired.*keys retire pii --undo"):
            storing.unwrap("pii", old)
        assert storing.unwrap("pii", new) == KEY
    storing.create("pii")
    assert storing.set_aside("pii", 1).first_usable == 2  # what is set aside stays so
    for _ in range(2):
        assert storing.bring_back("pii").first_usable == 1
        assert storing.unwrap("pii", old) == KEY
    storing.set_aside("pii", 2)
    assert storing.rotate("pii").first_usable == 2
    for _ in range(2):
        assert storing.destroy_versions("pii", 2).first_usable == 2
    assert storing.bring_back("pii").first_usable == 2
    with pytest.raises(KeyServiceError, match="'pii'"):
        storing.unwrap("pii", old)
    assert storing.unwrap("pii", new) == KEY
    assert storing.set_aside("pii", 3).first_usable == 3  # a second time, after the first was finished
    assert storing.bring_back("pii").first_usable == 2
    assert storing.unwrap("pii", new) == KEY

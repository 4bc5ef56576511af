"""Data keys: made, wrapped, opened, counted, and their key material."""

from __future__ import annotations

import base64
import json
import os
import secrets
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt.errors import ConfigError, FormatError, KeyAccessDeniedError, KeyNotFoundError, KeyServiceError
from sparkcrypt.keys.datakeys import DataKeyMaker, DataKeyOpener, WrappedKek
from sparkcrypt.keys.material import KeyMaterial, Wrapping, parse_key_material, version_of, wrapping_of, wrapping_of_kek
from sparkcrypt.keys.service import KeyService
from sparkcrypt.keys.wrapping import seal_key
from tests.unit.keys.conftest import opened
from tests.unit.keys.counting import CountingKeyService

WAIT_SECONDS = 20.0


@pytest.fixture
def service(tmp_path: Path) -> CountingKeyService:
    """A counted local key service with two keys."""
    local = opened(type="local", path=str(tmp_path / "keys"))
    local.create("pii")
    local.create("fin")
    return CountingKeyService(local)


def made(service: KeyService, key_id: str = "pii", bits: int = 256) -> tuple[bytes, KeyMaterial]:
    """Make a data key by a maker of its own and return it with its parsed material."""
    dek, key_metadata = DataKeyMaker(service, data_key_bits=bits).make(key_id, is_footer_key=False)
    return dek, parse_key_material(key_metadata)


class Gate(CountingKeyService):
    """A key service whose unwraps with one key wait until they are let through, and may then be refused."""

    def __init__(self, service: KeyService, slow: str) -> None:
        super().__init__(service)
        self.slow = slow
        self.entered = threading.Event()
        self.open = threading.Event()
        self.denied = False

    def unwrap(self, key_id: str, wrapped: str) -> bytes:
        """Wait where that is wanted, then unwrap or refuse."""
        if key_id == self.slow:
            self.entered.set()
            assert self.open.wait(WAIT_SECONDS)
        key = super().unwrap(key_id, wrapped)
        if self.denied:
            raise KeyAccessDeniedError(f"key {key_id!r}: denied")
        return key


@pytest.mark.parametrize("bits", [128, 192, 256])
def test_made_key_opens(service: CountingKeyService, bits: int) -> None:
    """A data key of each length opens from its own metadata, and its KEK is as long."""
    dek, material = made(service, bits=bits)
    assert len(dek) == bits // 8
    assert len(service.unwrap("pii", material.wrapped_kek or "")) == bits // 8
    assert DataKeyOpener(service).open(material) == dek


@pytest.mark.parametrize("bits", [0, 8, 129, 512, -128])
def test_other_key_lengths_are_refused(service: CountingKeyService, bits: int) -> None:
    """A maker takes 128, 192 and 256 bits."""
    with pytest.raises(ConfigError, match="128, 192, 256"):
        DataKeyMaker(service, data_key_bits=bits)


def test_maker_wraps_once_per_master_key(service: CountingKeyService) -> None:
    """However many data keys are made, each master key wraps one KEK, and all data keys differ."""
    maker = DataKeyMaker(service, data_key_bits=128)
    deks = {maker.make(key_id, is_footer_key=False)[0] for key_id in ("pii", "fin") * 20}
    assert len(deks) == 40
    assert service.count_by_key("wrap") == {"pii": 1, "fin": 1}


def test_footer_material_names_the_default_instance(service: CountingKeyService) -> None:
    """Readers of parquet-mr and Arrow need an instance id and URL in the footer's material."""
    _, key_metadata = DataKeyMaker(service, data_key_bits=128).make("pii", is_footer_key=True)
    material = parse_key_material(key_metadata)
    assert (material.is_footer_key, material.kms_instance_id, material.kms_instance_url) == (True, "DEFAULT", "DEFAULT")


def test_data_key_is_bound_to_the_kek_id(service: CountingKeyService) -> None:
    """The AAD of the data key is the raw KEK id of 16 bytes, as parquet-mr has it."""
    _, material = made(service)
    assert len(base64.b64decode(material.kek_id or "")) == 16
    changed = base64.b64encode(os.urandom(16)).decode()
    with pytest.raises(FormatError, match="its KEK"):
        DataKeyOpener(service).open(replace(material, kek_id=changed))


def test_opener_unwraps_each_kek_once(service: CountingKeyService) -> None:
    """Data keys under one KEK cost one unwrap together, those under another KEK one more."""
    maker, opener = DataKeyMaker(service, data_key_bits=128), DataKeyOpener(service)
    for _ in range(5):
        opener.open(parse_key_material(maker.make("pii", is_footer_key=False)[1]))
    assert service.unwraps == 1
    opener.open(made(service)[1])
    assert service.unwraps == 2


def test_given_kek_is_used_again(service: CountingKeyService) -> None:
    """A KEK that an earlier maker made, handed on wrapped, is unwrapped once and wraps nothing anew."""
    first = DataKeyMaker(service, data_key_bits=128)
    _, old = first.make("pii", is_footer_key=False)
    second = DataKeyMaker(service, data_key_bits=128, keks=first.wrapped_keks())
    _, new = second.make("pii", is_footer_key=False)
    assert (service.wraps, service.unwraps) == (1, 1)
    assert parse_key_material(new).wrapped_kek == parse_key_material(old).wrapped_kek
    assert second.wrapped_keks() == first.wrapped_keks()


def test_given_kek_of_another_length_is_refused(service: CountingKeyService) -> None:
    """The KEK is as long as the data keys, so one of an earlier data_key_bits is not used."""
    short = DataKeyMaker(service, data_key_bits=128)
    short.make("pii", is_footer_key=False)
    with pytest.raises(KeyServiceError, match="128 bits; allowed: 256"):
        DataKeyMaker(service, data_key_bits=256, keks=short.wrapped_keks()).make("pii", is_footer_key=False)


def test_single_wrapped_key_opens(service: CountingKeyService) -> None:
    """Material without a KEK holds the data key as the key service wrapped it."""
    dek = os.urandom(16)
    material = KeyMaterial(False, None, None, "pii", service.wrap("pii", dek))
    assert DataKeyOpener(service).open(material) == dek


def test_rewrapped_key_stays_the_same(service: CountingKeyService) -> None:
    """Wrapping an existing data key gives metadata that opens to it under the new master key."""
    dek, _ = made(service)
    key_metadata = DataKeyMaker(service, data_key_bits=256).wrap(dek, "fin", is_footer_key=False)
    material = parse_key_material(key_metadata)
    assert (material.master_key_id, DataKeyOpener(service).open(material)) == ("fin", dek)


def test_forged_file_does_not_poison_the_cache(service: CountingKeyService) -> None:
    """A file with a victim's KEK id and another wrapped KEK gets an entry of its own: the victim's still opens."""
    dek, victim = made(service)
    attackers_kek = os.urandom(32)
    kek_id = base64.b64decode(victim.kek_id or "")
    forged = replace(
        victim,
        wrapped_dek=seal_key(attackers_kek, os.urandom(32), kek_id),
        wrapped_kek=service.wrap("pii", attackers_kek),
    )
    opener = DataKeyOpener(service)
    opener.open(forged)
    assert opener.open(victim) == dek


def test_cached_kek_does_not_open_under_another_master_key(service: CountingKeyService) -> None:
    """Material that names another master key is asked for there, however warm the cache is."""
    _, material = made(service)
    opener = DataKeyOpener(service)
    opener.open(material)
    with pytest.raises(KeyServiceError, match="'fin'"):
        opener.open(replace(material, master_key_id="fin"))


@pytest.mark.parametrize("wrapped", ["", "AAAA", "not base64!", "A" * 80, "\ud800"])
def test_data_key_that_the_kek_did_not_wrap_is_refused(service: CountingKeyService, wrapped: str) -> None:
    """Altered or foreign wrapped data keys are FormatErrors."""
    with pytest.raises(FormatError, match="'pii'"):
        DataKeyOpener(service).open(replace(made(service)[1], wrapped_dek=wrapped))


@pytest.mark.parametrize("length", [1, 15, 17, 33])
def test_data_key_of_no_aes_length_is_refused(service: CountingKeyService, length: int) -> None:
    """A key that is no AES key is refused, wrapped singly or doubly, as KEK or data key."""
    opener = DataKeyOpener(service)
    with pytest.raises(FormatError, match=f"{length} bytes"):
        opener.open(KeyMaterial(False, None, None, "pii", service.wrap("pii", os.urandom(length))))
    with pytest.raises(FormatError, match=f"KEK has {length} bytes"):
        opener.open(replace(made(service)[1], wrapped_kek=service.wrap("pii", os.urandom(length))))


def test_kek_is_forgotten_after_its_lifetime(service: CountingKeyService) -> None:
    """A KEK is asked for again when its time is over, and each time when the lifetime is zero."""
    dek, material = made(service)
    opener = DataKeyOpener(service, lifetime_seconds=0.2)
    assert opener.open(material) == opener.open(material) == dek
    assert service.unwraps == 1
    time.sleep(0.3)
    assert opener.open(material) == dek
    assert service.unwraps == 2
    never = DataKeyOpener(service, lifetime_seconds=0)
    never.open(material)
    never.open(material)
    assert service.unwraps == 4


def test_threads_that_want_the_same_kek_ask_once(service: CountingKeyService) -> None:
    """Eight threads that open under one KEK at the same time make one call."""
    dek, material = made(service)
    gate = Gate(service, "pii")
    opener = DataKeyOpener(gate)
    with ThreadPoolExecutor(8) as pool:
        opened_keys = [pool.submit(opener.open, material) for _ in range(8)]
        assert gate.entered.wait(WAIT_SECONDS)
        time.sleep(0.1)
        gate.open.set()
        assert {future.result(WAIT_SECONDS) for future in opened_keys} == {dek}
    assert gate.unwraps == 1


def test_slow_key_does_not_hold_up_another(service: CountingKeyService) -> None:
    """While one master key's answer is awaited, data keys under another open."""
    _, slow = made(service, "pii")
    dek, quick = made(service, "fin")
    gate = Gate(service, "pii")
    opener = DataKeyOpener(gate)
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(opener.open, slow)
        assert gate.entered.wait(WAIT_SECONDS)
        assert pool.submit(opener.open, quick).result(WAIT_SECONDS) == dek
        assert not waiting.done()
        gate.open.set()
        waiting.result(WAIT_SECONDS)


def test_denial_is_told_to_all_who_waited_and_is_not_kept(service: CountingKeyService) -> None:
    """Threads that waited for a refused call are refused too; the next one asks again and may succeed."""
    dek, material = made(service)
    gate = Gate(service, "pii")
    gate.denied = True
    opener = DataKeyOpener(gate)
    with ThreadPoolExecutor(4) as pool:
        refused = [pool.submit(opener.open, material) for _ in range(4)]
        assert gate.entered.wait(WAIT_SECONDS)
        gate.open.set()
        for future in refused:
            with pytest.raises(KeyAccessDeniedError):
                future.result(WAIT_SECONDS)
    gate.denied = False
    assert opener.open(material) == dek


def test_maker_that_was_refused_tries_again(service: CountingKeyService, tmp_path: Path) -> None:
    """A KEK that could not be wrapped is not remembered as such."""
    local = opened(type="local", path=str(tmp_path / "other"))
    maker = DataKeyMaker(local, data_key_bits=128)
    with pytest.raises(KeyNotFoundError):
        maker.make("late", is_footer_key=False)
    local.create("late")
    assert maker.make("late", is_footer_key=False)


def test_wrapped_keks_hold_no_key(service: CountingKeyService) -> None:
    """What is handed on is wrapped: the KEK's bytes are in no field of it."""
    maker = DataKeyMaker(service, data_key_bits=128)
    maker.make("pii", is_footer_key=False)
    (kek,) = maker.wrapped_keks()
    key = service.unwrap("pii", kek.wrapped_kek)
    assert isinstance(kek, WrappedKek)
    assert base64.b64encode(key).decode() not in repr(kek)
    assert secrets.compare_digest(kek.master_key_id, "pii")


def test_a_key_for_a_file_opens_as_that_files_alone(service: CountingKeyService) -> None:
    """The wrapping authenticates the identity: another, none, or one whose bytes were moved to the KEK's id."""
    bound = b"uuid/p=1/f.orc\0"
    dek, metadata = DataKeyMaker(service, data_key_bits=256).make("pii", is_footer_key=False, file_identity=bound)
    material = parse_key_material(metadata)
    assert material.file_identity == bound
    assert DataKeyOpener(service).open(material) == dek
    kek_id = base64.b64decode(material.kek_id or "")
    forged = [replace(material, file_identity=other) for other in (None, b"", bound[:-1], b"uuid/p=2/f.orc\0")]
    for place in (1, 5):
        moved = base64.b64encode(kek_id + bound[:place]).decode()
        forged.append(replace(material, kek_id=moved, file_identity=bound[place:]))
    forged.append(replace(material, kek_id=base64.b64encode(kek_id + bound).decode(), file_identity=None))
    for other in forged:
        with pytest.raises(FormatError, match="its data key is not one that its KEK wrapped"):
            DataKeyOpener(service).open(other)
    unbound = made(service)[1]
    with pytest.raises(FormatError, match="its data key is not one that its KEK wrapped"):
        DataKeyOpener(service).open(replace(unbound, file_identity=bound))


def test_an_identity_that_nothing_authenticates_is_refused(service: CountingKeyService) -> None:
    """Under single wrapping the key service wraps the key alone."""
    material = KeyMaterial(False, None, None, "pii", service.wrap("pii", bytes(16)), file_identity=b"f")
    with pytest.raises(FormatError, match=r"no KEK that could authenticate.*allowed: double wrapping"):
        DataKeyOpener(service).open(material)
    with pytest.raises(FormatError, match="fileIdentity is not base64"):
        parse_key_material(material.to_bytes().replace(b'"Zg=="', b'"!"'))


HADOOP = "hadoop:v1:" + base64.b64encode((7).to_bytes(4, "big") + bytes(40)).decode()


@pytest.mark.parametrize(
    ("wrapped", "version"),
    [
        ("vault:v3:AAAA", 3),
        ("local:v12:AAAA", 12),
        (HADOOP, 7),
        ("hadoop:v1:no base64", 0),
        ("hadoop:v1:", 0),
        ("gcp:v1:AAAA", 0),  # of the form, not of the key
        ("AQICAHh", 0),
        ("vault:v0:AAAA", 0),
        ("vault:v3", 0),
        ("", 0),
    ],
)
def test_version_is_told_by_the_services_that_tell_it(wrapped: str, version: int) -> None:
    """Vault, the local service and Hadoop KMS write the version into what they give; all else is 0, and never wrong."""
    assert version_of(wrapped) == version


def test_wrappings_differ_as_a_readers_calls_do() -> None:
    """One KEK of two data keys is one call; another id or another text is another; so is each key without a KEK."""

    def material(wrapped_dek: str, kek_id: str | None = None, wrapped_kek: str | None = None) -> KeyMaterial:
        return KeyMaterial(False, None, None, "pii", wrapped_dek, kek_id, wrapped_kek)

    first = wrapping_of(material("a", "id", "local:v2:AAAA"))
    assert first == wrapping_of(material("b", "id", "local:v2:AAAA")) == wrapping_of_kek("pii", "id", "local:v2:AAAA")
    others = {
        wrapping_of(material("a", "other", "local:v2:AAAA")),
        wrapping_of(material("a", "id", "local:v2:BBBB")),
        wrapping_of(material("local:v2:AAAA")),
        wrapping_of(material("local:v2:BBBB")),
    }
    assert len(others | {first}) == 5
    assert Wrapping(*first.to_list()) == first
    assert (first.key_id, first.version) == ("pii", 2)


FOOTER = KeyMaterial(True, "DEFAULT", "DEFAULT", "arn:aws:x/é", "d2Rlaw==", "a2VraWQ=", "local:v1:AAAA")
COLUMN = KeyMaterial(False, None, None, "pii", "d2Rlaw==", "a2VraWQ=", "vault:v1:AAAA")
SINGLE = KeyMaterial(False, None, None, "pii", "vault:v1:AAAA")


@pytest.mark.parametrize("material", [FOOTER, COLUMN, SINGLE])
def test_material_reads_back(material: KeyMaterial) -> None:
    """What is written is read as it was, double or single wrapped, of footer or column."""
    assert parse_key_material(material.to_bytes()) == material


def test_footer_material_has_the_fields_of_parquet_mr() -> None:
    """Names, types and order are those of KeyMaterial.createSerialized; the key id is percent-encoded."""
    assert FOOTER.to_bytes().decode() == (
        '{"keyMaterialType":"PKMT1","internalStorage":true,"isFooterKey":true,"kmsInstanceID":"DEFAULT",'
        '"kmsInstanceURL":"DEFAULT","masterKeyID":"arn%3Aaws%3Ax%2F%C3%A9","wrappedDEK":"d2Rlaw==",'
        '"doubleWrapping":true,"keyEncryptionKeyID":"a2VraWQ=","wrappedKEK":"local:v1:AAAA"}'
    )


def test_column_material_has_no_instance_and_single_wrapping_no_kek() -> None:
    """A column's material leaves the instance out, a single-wrapped one the KEK."""
    assert set(json.loads(COLUMN.to_bytes())) == {
        "keyMaterialType", "internalStorage", "isFooterKey", "masterKeyID", "wrappedDEK", "doubleWrapping",
        "keyEncryptionKeyID", "wrappedKEK",
    }  # fmt: skip
    assert set(json.loads(SINGLE.to_bytes())) == {
        "keyMaterialType", "internalStorage", "isFooterKey", "masterKeyID", "wrappedDEK", "doubleWrapping",
    }  # fmt: skip
    assert not SINGLE.double_wrapped


def test_unknown_fields_are_passed_over() -> None:
    """A later version of the key tools may add fields."""
    document = {**json.loads(COLUMN.to_bytes()), "later": [1]}
    assert parse_key_material(json.dumps(document).encode()) == COLUMN


def test_master_key_id_of_another_writer_is_read() -> None:
    """Other writers put key ids there as they are."""
    document = {**json.loads(COLUMN.to_bytes()), "masterKeyID": "arn:aws:x"}
    assert parse_key_material(json.dumps(document).encode()) == replace(COLUMN, master_key_id="arn:aws:x")


_FIELDS: dict[str, Any] = json.loads(FOOTER.to_bytes())
_OTHERS: tuple[Any, ...] = (None, 1, "yes", True, {}, ["x"])
_WRONG = [
    (name, value)
    for name in _FIELDS
    for value in _OTHERS
    if (name == "keyMaterialType" or not isinstance(value, type(_FIELDS[name])))
    and not (name.startswith("kmsInstance") and value is None)
]


@pytest.mark.parametrize(("missing", "value"), _WRONG)
def test_field_that_is_missing_or_of_another_type_is_refused(missing: str, value: Any) -> None:
    """A field that is absent, or is not what parquet-mr writes there, is a FormatError that names it."""
    document = json.loads(FOOTER.to_bytes())
    del document[missing]
    if value is not None:
        document[missing] = value
    with pytest.raises(FormatError, match=f"{missing}|PKMT1"):
        parse_key_material(json.dumps(document).encode())


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"\xff\xfe", b"[]", b"null", b'"PKMT1"', b"NaN", b"[" * 100_000, b"0123456789abcdef", b'{"a":1,"a":2}'],
)
def test_bytes_that_are_not_key_material_are_refused(data: bytes) -> None:
    """Key metadata of another scheme, garbage and nesting without end are FormatErrors."""
    with pytest.raises(FormatError):
        parse_key_material(data)


def test_field_that_stands_twice_is_refused() -> None:
    """Readers differ on which of two equal fields counts, so neither does."""
    text = COLUMN.to_bytes().decode().replace('"masterKeyID":"pii"', '"masterKeyID":"pii","masterKeyID":"fin"')
    with pytest.raises(FormatError):
        parse_key_material(text.encode())


def test_material_outside_the_file_is_refused_with_the_property_to_set() -> None:
    """External key material is named as such."""
    document = {"keyMaterialType": "PKMT1", "internalStorage": False, "keyReference": "footerKey"}
    with pytest.raises(FormatError, match=r"material\.store\.internally=true"):
        parse_key_material(json.dumps(document).encode())

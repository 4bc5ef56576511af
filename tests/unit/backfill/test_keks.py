"""The KEKs of a table: made once, kept wrapped and authenticated, told apart, retired by rotation and by age."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt.errors import ConfigError, KeyAccessDeniedError, KeyNotFoundError
from sparkcrypt.keys.datakeys import DataKeyMaker, WrappedKek
from sparkcrypt.keys.local.service import LocalKeyService
from sparkcrypt.keys.material import parse_key_material
from sparkcrypt.keys.service import KeyDescription, KeyService
from sparkcrypt.ledger.state.mac import TableMac
from sparkcrypt.ledger.state.store import LocalStateStore, encode_record
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.runs.rewrite.keks import TableKeks

LOCAL = KeyServiceConfig.from_dict({"type": "local", "path": "/keys"})


@pytest.fixture
def service(tmp_path: Path) -> LocalKeyService:
    """A real key service with two keys."""
    opened = LocalKeyService(KeyServiceConfig.from_dict({"type": "local", "path": str(tmp_path / "keys")}))
    for key in ("a", "b"):
        opened.create(key)
    return opened


@pytest.fixture
def store(tmp_path: Path) -> LocalStateStore:
    """A state directory."""
    return LocalStateStore(tmp_path / "state")


def made(
    store: LocalStateStore,
    service: KeyService,
    *keys: str,
    table: str = "t",
    bits: int = 128,
    mac: TableMac | None = None,
    config: KeyServiceConfig = LOCAL,
) -> tuple[WrappedKek, ...]:
    """Return the KEKs of some master keys."""
    return TableKeks(store, table, config, bits, mac).find_or_make(service, keys)


def test_later_runs_use_the_same(store: LocalStateStore, service: KeyService) -> None:
    """A second call makes nothing; a key that is new gets its own; the length is that of data keys."""
    first = made(store, service, "a")
    again = {kek.master_key_id: kek for kek in made(store, service, "b", "a", "a")}
    assert [again["a"]] == list(first)
    assert set(again) == {"a", "b"}
    for kek in again.values():
        assert len(service.unwrap(kek.master_key_id, kek.wrapped_kek)) == 16


def test_tables_and_lengths_have_their_own(store: LocalStateStore, service: KeyService) -> None:
    """Nothing is shared between tables, nor between 128 and 256 bits."""
    found = {
        kek.kek_id
        for kek in (
            *made(store, service, "a"),
            *made(store, service, "a", table="u"),
            *made(store, service, "a", bits=256),
        )
    }
    assert len(found) == 3


def test_nothing_is_kept_in_clear(store: LocalStateStore, service: KeyService, tmp_path: Path) -> None:
    """No file of the state directory holds the key."""
    (kek,) = made(store, service, "a")
    key = service.unwrap("a", kek.wrapped_kek)
    for file in (tmp_path / "state").rglob("*"):
        if file.is_file():
            assert key not in file.read_bytes()
            assert key.hex() not in file.read_text()


def mac_of(key: bytes = b"of the audit") -> TableMac:
    """Return the MAC of a table's audit."""
    return TableMac(b"older", key)


def records(tmp_path: Path) -> list[Path]:
    """Return the files of all records, oldest first."""
    return sorted((tmp_path / "state").rglob("*.json"))


def forge(record: Path, **changes: Any) -> None:
    """Change a record, as whoever may write to the state directory can."""
    record.write_bytes(encode_record({**json.loads(record.read_text()), **changes}))


DAMAGE = [b"", b"[]", b"{}", b"not json", b'{"master_key_id": "a", "kek_id": "x"}']


@pytest.mark.parametrize("content", DAMAGE)
@pytest.mark.parametrize("mac", [None, mac_of()])
def test_a_damaged_record_gets_a_successor(
    store: LocalStateStore, service: KeyService, tmp_path: Path, content: bytes, mac: TableMac | None
) -> None:
    """Files hold what they need of a KEK, so a record that cannot be read stays as it is, and a new one is made."""
    first = made(store, service, "a", mac=mac)
    (record,) = records(tmp_path)
    record.write_bytes(content)
    second = made(store, service, "a", mac=mac)
    assert second != first and made(store, service, "a", mac=mac) == second
    assert [file.name for file in records(tmp_path)] == ["000001.json", "000002.json"]
    assert record.read_bytes() == content


@pytest.mark.parametrize(
    "changes",
    [
        {"master_key_id": "b"},
        {"table_id": "u"},
        {"data_key_bits": 256},
        {"number": 2},
        {"version": 1},
        {"more": 1},
        {"made": "now"},
        {"made": 1.5},
    ],
)
@pytest.mark.parametrize("mac", [None, mac_of()])
def test_a_record_of_something_else_is_not_used(
    store: LocalStateStore, service: KeyService, tmp_path: Path, changes: dict[str, Any], mac: TableMac | None
) -> None:
    """One that is another key's, table's or length's, or in another form, is passed over."""
    first = made(store, service, "a", mac=mac)
    forge(records(tmp_path)[0], **changes)
    assert made(store, service, "a", mac=mac) != first


def test_a_planted_kek_is_not_used(store: LocalStateStore, service: KeyService, tmp_path: Path) -> None:
    """Who may wrap, and write to the state directory, but has no MAC key, gets no file encrypted with a KEK of his."""
    mac, known = mac_of(), b"k" * 16
    (first,) = made(store, service, "a", mac=mac)
    planted = service.wrap("a", known)
    forge(records(tmp_path)[0], wrapped_kek=planted)
    (second,) = made(store, service, "a", mac=mac)
    assert second.wrapped_kek not in (planted, first.wrapped_kek)
    assert service.unwrap("a", second.wrapped_kek) != known


@pytest.mark.parametrize("told", [None, "", "0" * 64, 1, ["x"]])
def test_a_record_with_no_mac_or_another(
    store: LocalStateStore, service: KeyService, tmp_path: Path, told: object
) -> None:
    """A record without the audit's MAC, such as one that was made without it, is not used."""
    mac = mac_of()
    first = made(store, service, "a", mac=mac)
    forge(records(tmp_path)[0], mac=told)
    assert made(store, service, "a", mac=mac) != first


def test_only_the_newest_mac_key_counts(store: LocalStateStore, service: KeyService) -> None:
    """Once the audit has a stronger MAC key, no KEK is used that an earlier one authenticates, which readers had."""
    first = made(store, service, "a", mac=TableMac(b"weak"))
    assert made(store, service, "a", mac=TableMac(b"weak", b"strong")) != first


def test_a_kek_of_an_audit_entry(store: LocalStateStore, service: KeyService, tmp_path: Path) -> None:
    """The MAC is over more than the record, so that no entry of an audit passes for a KEK."""
    mac = mac_of()
    first = made(store, service, "a", mac=mac)
    (record,) = records(tmp_path)
    body = {key: value for key, value in json.loads(record.read_text()).items() if key != "mac"}
    forge(record, mac=mac(encode_record(body)))
    assert made(store, service, "a", mac=mac) != first


class Rewrapping(LocalKeyService):
    """A local key service that wraps anew what it wrapped, where these credentials may."""

    may_rewrap = True

    def rewrap(self, key_id: str, wrapped: str) -> str:
        """Wrap with the newest version."""
        if not self.may_rewrap:
            raise KeyAccessDeniedError("no")
        return self.wrap(key_id, self.unwrap(key_id, wrapped))


def test_a_key_service_wraps_the_kek_anew(store: LocalStateStore, service: KeyService, tmp_path: Path) -> None:
    """For rewrapping alone: new data keys get a new KEK; without the right, or a MAC, all do."""
    again = Rewrapping(KeyServiceConfig.from_dict({"type": "local", "path": str(tmp_path / "keys")}))
    mac = mac_of()

    def current(table: str = "t", mac: TableMac | None = mac, **more: bool) -> WrappedKek:
        (kek,) = TableKeks(store, table, LOCAL, 128, mac).find_or_make(again, ["a"], **more)
        return kek

    first, other = current(), current("u", None)
    again.rotate("a")
    second = current(rewraps=True)
    assert (second.kek_id, second.wrapped_kek.partition(":v")[2][0]) == (first.kek_id, "2")
    assert again.unwrap("a", second.wrapped_kek) == again.unwrap("a", first.wrapped_kek)
    assert current(rewraps=True) == second
    told = TableKeks(store, "t", LOCAL, 128, mac).list_wrappings([second])
    assert {(kek.before.wrapped_kek, kek.wrapped_kek) for kek in told} == {
        (first.wrapped_kek, second.wrapped_kek),
        (second.wrapped_kek, second.wrapped_kek),
    }
    third = current()
    assert third.kek_id != first.kek_id
    assert current(rewraps=True) == third
    assert current("u", None, rewraps=True).kek_id != other.kek_id
    again.rotate("a")
    again.may_rewrap = False
    assert current(rewraps=True).kek_id != third.kek_id


def test_a_kek_of_another_key_service_is_not_used(store: LocalStateStore, service: KeyService) -> None:
    """Its key may have the same id and version there; how long one waits for a service makes it no other."""
    mac = mac_of()
    first = made(store, service, "a", mac=mac)
    moved = KeyServiceConfig.from_dict({"type": "local", "path": "/elsewhere"})
    second = made(store, service, "a", mac=mac, config=moved)
    assert second != first
    waiting = KeyServiceConfig.from_dict({**moved.to_dict(), "timeout_seconds": 3})
    assert made(store, service, "a", mac=mac, config=waiting) == second
    assert made(store, service, "a", mac=mac) == first


@pytest.mark.parametrize("mac", [None, mac_of()])
def test_rotation_retires_a_kek(
    store: LocalStateStore, service: LocalKeyService, tmp_path: Path, mac: TableMac | None
) -> None:
    """After a master key was rotated new files get a KEK that its new version wraps; other keys' stay."""
    before = {kek.master_key_id: kek for kek in made(store, service, "a", "b", mac=mac)}
    service.rotate("a")
    after = {kek.master_key_id: kek for kek in made(store, service, "a", "b", mac=mac)}
    assert after["b"] == before["b"]
    assert after["a"].kek_id != before["a"].kek_id and after["a"].wrapped_kek != before["a"].wrapped_kek
    assert service.unwrap("a", after["a"].wrapped_kek) != service.unwrap("a", before["a"].wrapped_kek)
    assert made(store, service, "a", mac=mac) == (after["a"],)


def test_rotation_reaches_footers(store: LocalStateStore, service: LocalKeyService) -> None:
    """The key material of a file that is written after a rotation holds the new KEK, wrapped."""

    def wrapped_in_a_footer() -> str | None:
        maker = DataKeyMaker(service, data_key_bits=128, keks=made(store, service, "a", mac=mac_of()))
        return parse_key_material(maker.make("a", is_footer_key=False)[1]).wrapped_kek

    first = wrapped_in_a_footer()
    assert wrapped_in_a_footer() == first
    service.rotate("a")
    assert wrapped_in_a_footer() != first


@pytest.mark.parametrize(("days", "retired"), [(89, False), (91, True), (-0.5, False), (-2, True)])
def test_age_retires_a_kek(
    store: LocalStateStore, service: KeyService, monkeypatch: pytest.MonkeyPatch, days: float, retired: bool
) -> None:
    """After 90 days there is a new one; so there is for one from the future, which would never be old."""
    first = made(store, service, "a", mac=mac_of())
    now = time.time()
    monkeypatch.setattr("sparkcrypt.runs.rewrite.keks.time.time", lambda: now + days * 86400)
    assert (made(store, service, "a", mac=mac_of()) != first) == retired


def test_versions_that_may_not_be_read(
    store: LocalStateStore, service: LocalKeyService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Credentials that may wrap but not describe a key use the KEK until it is old."""

    def denied(_: LocalKeyService, key_id: str) -> KeyDescription:
        raise KeyAccessDeniedError(f"{key_id}: may not be read")

    with monkeypatch.context() as patched:
        patched.setattr(LocalKeyService, "describe", denied)
        first = made(store, service, "a", mac=mac_of())
        assert made(store, service, "a", mac=mac_of()) == first
    assert made(store, service, "a", mac=mac_of()) != first


def test_records_of_earlier_versions_are_left_alone(
    store: LocalStateStore, service: KeyService, tmp_path: Path
) -> None:
    """A record as it was before records had a MAC is neither used nor touched; nor is what has another name."""
    made(store, service, "a")
    folder = records(tmp_path)[0].parent
    for name in ("x.json", "1.json", "00001x.json", "٠٠٠٠٠١.json"):
        (folder / name).write_bytes(records(tmp_path)[0].read_bytes())
    old = folder.with_suffix(".json")
    old.write_text(json.dumps({"master_key_id": "a", "kek_id": "x", "wrapped_kek": service.wrap("a", b"k" * 16)}))
    text = old.read_text()
    (kek,) = made(store, service, "a")
    assert kek.kek_id != "x" and old.read_text() == text


def test_runs_that_begin_at_once_share(store: LocalStateStore, service: KeyService) -> None:
    """Of two that make a KEK at the same time one wins, and both use its."""
    found: list[WrappedKek] = []
    other = store.create

    def slow(name: str, content: bytes) -> bool:
        if not found:
            found.extend([WrappedKek("", "", "")])
            found[:] = [*made(store, service, "a", mac=mac_of())]
        return other(name, content)

    store.create = slow  # type: ignore[method-assign]
    assert list(made(store, service, "a", mac=mac_of())) == found


def test_a_folder_that_fills_with_other_records(store: LocalStateStore, service: KeyService) -> None:
    """Somebody who takes the name of each new record is found, not waited for."""
    other = store.create
    store.create = lambda name, content: other(name, b"taken") and False  # type: ignore[method-assign]
    with pytest.raises(ConfigError, match="see who writes there"):
        made(store, service, "a", mac=mac_of())


def test_a_key_that_is_gone(store: LocalStateStore, service: KeyService) -> None:
    """A KEK of a master key that does not exist is not made, nor looked for."""
    with pytest.raises(KeyNotFoundError):
        made(store, service, "c")

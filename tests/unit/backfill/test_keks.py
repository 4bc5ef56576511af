"""The KEKs of a table: made once, kept wrapped, told apart by table, master key and length."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from sparkcrypt.backfill.keks import table_keks
from sparkcrypt.backfill.store import LocalStateStore
from sparkcrypt.errors import ConfigError
from sparkcrypt.keys.datakeys import WrappedKek
from sparkcrypt.keys.service import KeyService, open_key_service
from sparkcrypt.policy.key_service import KeyServiceConfig


@pytest.fixture
def service(tmp_path: Path) -> KeyService:
    """A real key service with two keys."""
    opened = open_key_service(KeyServiceConfig.from_dict({"type": "local", "path": str(tmp_path / "keys")}))
    for key in ("a", "b"):
        opened.create(key)
    return opened


@pytest.fixture
def store(tmp_path: Path) -> LocalStateStore:
    """A state directory."""
    return LocalStateStore(tmp_path / "state")


def made(
    store: LocalStateStore, service: KeyService, *keys: str, table: str = "t", bits: int = 128
) -> Iterable[WrappedKek]:
    """Return the KEKs of some master keys."""
    return table_keks(store, table, service, keys, data_key_bits=bits)


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


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"not json", b'{"master_key_id": "a", "kek_id": "x"}'])
def test_a_damaged_record_is_refused_by_name(
    store: LocalStateStore, service: KeyService, tmp_path: Path, content: bytes
) -> None:
    """It is not silently replaced: files may have been written with it."""
    made(store, service, "a")
    (record,) = (file for file in (tmp_path / "state").rglob("*.json"))
    record.write_bytes(content)
    with pytest.raises(ConfigError, match=record.name):
        made(store, service, "a")


def test_another_keys_record_is_refused(store: LocalStateStore, service: KeyService, tmp_path: Path) -> None:
    """Who may write to the state directory cannot put one key's KEK in another's place."""
    made(store, service, "a")
    (record,) = (file for file in (tmp_path / "state").rglob("*.json"))
    record.write_text(json.dumps({**json.loads(record.read_text()), "master_key_id": "b"}))
    with pytest.raises(ConfigError, match="another master key"):
        made(store, service, "a")

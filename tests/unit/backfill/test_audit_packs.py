"""Packs of audit entries: an audit says with them what it said without, and what was changed in them is found."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

import pytest

from sparkcrypt.errors import VerificationError
from sparkcrypt.ledger.audit.audit import (
    AuditRecords,
    AuditWriter,
    audit_entries,
    authentic_entries,
    full_packs,
    pack_audit,
    verify_audit,
    write_pack,
)
from sparkcrypt.ledger.audit.trust import AuditIndex
from sparkcrypt.ledger.state.mac import TableMac
from tests.unit.backfill.audits import FOLDER, MAC, entry
from tests.unit.backfill.conftest import TABLE
from tests.unit.backfill.memory_store import MemoryStore

LEFT = [f"{FOLDER}{name}.json" for name in ("00000005", "head-00000005", "pack-00000001-00000002")]
LEFT.append(f"{FOLDER}pack-00000003-00000004.json")


class Killed(BaseException):
    """The end of the process."""


class Mortal(MemoryStore):
    """A store whose process ends at the so-manieth deletion."""

    lives = 0

    def delete(self, name: str) -> None:
        """Delete a record, or end."""
        if not self.lives:
            raise Killed
        self.lives -= 1
        super().delete(name)


@pytest.fixture
def audit(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """An audit of five entries, where a pack holds two."""
    monkeypatch.setattr(import_module(full_packs.__module__), "MOST_ENTRIES", 2)
    store = MemoryStore({})
    for number in range(5):
        AuditWriter(store, TABLE, MAC).append(entry(number))
    return store


def told(store: Any) -> tuple[Any, ...]:
    """Return all that an audit says to anybody."""
    index = AuditIndex.of(store, TABLE, MAC.check)
    head = verify_audit(store, TABLE, check_mac=MAC.check)
    shown, authentic = list(audit_entries(store, TABLE)), list(authentic_entries(store, TABLE, MAC.check))
    return head, shown, authentic, index.digests, index.swaps


def test_packed_audit_says_what_it_said(audit: MemoryStore) -> None:
    """Entries, their digests and the head are as before, in few records, and the next entry follows; done twice too."""
    before = told(audit)
    pack_audit(audit, TABLE, MAC)
    pack_audit(audit, TABLE, MAC)
    assert sorted(audit.records) == LEFT
    assert told(audit) == before
    assert AuditWriter(audit, TABLE, MAC).append(entry(6)).number == 6
    head = verify_audit(audit, TABLE, check_mac=MAC.check)
    assert head is not None and head.number == 6


def test_short_audit_and_one_that_was_changed_stay_as_they_are(audit: MemoryStore) -> None:
    """What fills no pack is left loose; what does not verify is not packed, so that nothing hides in a pack."""
    audit.delete(f"{FOLDER}head-00000002.json")
    before = dict(audit.records)
    with pytest.raises(VerificationError, match="head-00000002"):
        pack_audit(audit, TABLE, MAC)
    assert audit.records == before
    short = MemoryStore({})
    for number in range(4):
        AuditWriter(short, TABLE, MAC).append(entry(number))
        pack_audit(short, TABLE, MAC)
        assert f"{FOLDER}{number + 1:08d}.json" in short.records  # the newest is never packed
        assert (LEFT[2] in short.records) == (number > 1)
    for number in (4, 5):
        AuditWriter(short, TABLE, MAC).append(entry(number))
    pack_audit(short, TABLE, MAC)
    assert f"{FOLDER}00000006.json" in short.records


@pytest.mark.parametrize("lives", range(8))
def test_killed_packing_loses_nothing(audit: MemoryStore, lives: int) -> None:
    """Wherever a process ends that packs, the audit verifies, and the next one ends what it had begun."""
    before, store = told(audit), Mortal(dict(audit.records))
    store.lives = lives
    with pytest.raises(Killed):
        pack_audit(store, TABLE, MAC)
    assert told(store) == before
    store.lives = 100
    pack_audit(store, TABLE, MAC)
    assert sorted(store.records) == LEFT


def test_reader_goes_on_while_entries_are_packed(audit: MemoryStore) -> None:
    """Who had listed the audit before it was packed reads every entry all the same."""
    records = AuditRecords.of(audit, TABLE, MAC.check)
    before = [audit.records[f"{FOLDER}{number:08d}.json"] for number in records.numbers]
    pack_audit(audit, TABLE, MAC)
    assert [records.entry(number) for number in records.numbers] == before


def test_what_is_changed_in_a_pack_is_found(audit: MemoryStore) -> None:
    """An edited byte, an entry of another's, a pack that is gone, and one under another's key are named."""
    pack_audit(audit, TABLE, MAC)
    name, whole = LEFT[2], dict(audit.records)
    texts = json.loads(whole[name])["entries"]
    entries = [(number, text.encode()) for number, text in enumerate(texts, 1)]
    turned = MemoryStore({})
    write_pack(turned, TABLE, [(1, entries[1][1]), (2, entries[0][1])], MAC)
    foreign = MemoryStore({})
    write_pack(foreign, TABLE, entries, TableMac(b"x" * 32))
    place = whole[name].index(b"encrypt")
    edited = whole[name][:place] + b"E" + whole[name][place + 1 :]
    for content in (edited, turned.records[name], foreign.records[name], whole[LEFT[3]], None):
        audit.records = {**whole} if content is None else {**whole, name: content}
        if content is None:
            audit.delete(name)
        with pytest.raises(VerificationError, match=r"pack-00000001-00000002|00000001\.json"):
            verify_audit(audit, TABLE, check_mac=MAC.check)


def test_entry_that_differs_from_its_pack_is_not_deleted(audit: MemoryStore) -> None:
    """Whoever holds a MAC key and plants a pack beside entries cannot have these deleted."""
    planted = audit.records[f"{FOLDER}00000003.json"], audit.records[f"{FOLDER}00000004.json"]
    write_pack(audit, TABLE, list(enumerate(planted, 1)), MAC)
    before = dict(audit.records)
    with pytest.raises(VerificationError, match="is not as its pack has it"):
        pack_audit(audit, TABLE, MAC)
    assert audit.records == before

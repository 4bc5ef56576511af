"""The audit of a table: every entry that was edited, forged, dropped, moved or cut off is found."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkcrypt.errors import RunConflictError, SparkcryptError, VerificationError
from sparkcrypt.ledger.audit.audit import AuditWriter, list_entries, list_entries_of, verify_audit
from sparkcrypt.ledger.journal.entries import AuditHead
from sparkcrypt.ledger.log import ACCEPT, TableLog
from sparkcrypt.ledger.state.lock import acting_user
from sparkcrypt.ledger.state.mac import TableMac
from sparkcrypt.ledger.state.store import LocalStateStore, encode_record
from tests.journals import start_run
from tests.unit.backfill.audits import FOLDER, MAC, entry, rewritten
from tests.unit.backfill.conftest import RUN, TABLE, run_record
from tests.unit.backfill.memory_store import MemoryStore

ENTRIES = 5


def verified(store: Any, expected: AuditHead | None = None) -> int:
    """Verify the table's audit with the right key; return how many entries it has."""
    head = verify_audit(store, TABLE, MAC, expected=() if expected is None else [expected])
    return 0 if head is None else head.number


@pytest.fixture
def audit() -> MemoryStore:
    """An audit of five entries."""
    store = MemoryStore({})
    for number in range(ENTRIES):
        AuditWriter(TableLog.open(store, TABLE, MAC), 1).append(entry(number))
    return store


def test_an_audit_that_was_only_appended_to_verifies(audit: MemoryStore) -> None:
    """Its entries are counted, and shown in order with their time."""
    assert verified(audit) == ENTRIES
    shown = list(list_entries(audit, TABLE, None))
    assert [audited.number for audited in shown] == [1, 2, 3, 4, 5]
    assert shown[2].entry == {**entry(2), "who": acting_user()}
    assert shown[0].time.endswith("+00:00")


def test_the_entry_of_a_swap_is_made_of_its_records() -> None:
    """Folder of the old files, evidence and outcome; without the evidence, which was lost, it has no changes."""
    store, places = MemoryStore({}), {"old_location": "/t/old/p=0", "new_location": "/t/new/p=0"}
    journal, outcome = start_run(store, run_record(), MAC), {"unit": "p=0", "engine": "native", **places}
    change = {"folder": "", "sources": [{"path": "/t/p=0/a", "bytes": 1}], "targets": [{"path": "/s/p=0/a"}]}
    evidence = {"digests": {"of": "whole file"}, "changes": [change]}
    journal.append("unit_listed", unit="p=0", location="/t/p=0", staged="/s/p=0", files=[])
    verified = journal.append("unit_verified", unit="p=0", staged="/s/p=0", evidence=evidence)
    journal.append("unit_swapped", unit="p=0", outcome=outcome, table="db.t", policy_digest="d", predecessor=None)
    (made,) = list_entries(store, TABLE, MAC)
    assert (made.number, made.digest) == (4, journal.records[-1].digest)
    assert made.entry == {
        "who": acting_user(),
        "what": "encrypt",
        "why": {"policy_digest": "d", "run_id": RUN},
        "table": "db.t",
        "engine": "native",
        "unit": outcome,
        "digests": {"of": "whole file"},
        "changes": [
            {
                "folder": "",
                "sources": [{"path": "/t/p=0/a", "bytes": 1, "kept": "/t/old/p=0/a"}],
                "targets": [{"path": "/t/new/p=0/a", "staged": "/s/p=0/a"}],
            }
        ],
    }
    store.delete(verified.name)
    (made,) = list_entries_of(TableLog.open(store, TABLE, MAC))
    assert (made.entry["changes"], made.entry["unit"]) == ([], outcome)
    with pytest.raises(VerificationError, match=r"00000003\.json: is missing"):
        verify_audit(store, TABLE, MAC)


def test_records_that_are_given_up_are_no_alarm_any_more() -> None:
    """Those in the gaps of that time, and no others."""
    store = MemoryStore({})
    for number in range(ENTRIES):
        AuditWriter(TableLog.open(store, TABLE, MAC), 1).append(entry(number))
    for number in (2, 4):
        store.delete(f"{FOLDER}{number:08d}.json")
        with pytest.raises(VerificationError, match=f"{number:08d}.json: is missing"):
            verify_audit(store, TABLE, MAC)
        lost = list(TableLog.open(store, TABLE, MAC).open_gaps)
        assert lost == [number]
        why = {"policy_digest": "d", "run_id": ACCEPT}
        AuditWriter(TableLog.open(store, TABLE, MAC), 1).append({"what": ACCEPT, "why": why, "lost": lost})
        assert verified(store) == TableLog.open(store, TABLE, MAC).head[0]
    assert [made.entry["what"] for made in list_entries(store, TABLE, MAC)] == ["encrypt"] * 3 + [ACCEPT] * 2


def test_an_unauthenticated_record_that_says_nothing_of_its_swap_is_refused() -> None:
    """It is named; it may be planted, where no key is at hand to tell."""
    store = MemoryStore({})
    start_run(store, run_record()).append("unit_swapped", unit="p=0", outcome="x")
    with pytest.raises(VerificationError, match=r"00000002\.json: does not say what was swapped"):
        list(list_entries(store, TABLE, None))


def test_an_empty_audit_has_no_entries(store: LocalStateStore) -> None:
    """Nothing was done, and nothing is missing."""
    assert verified(store) == 0


def test_an_audit_survives_on_disk(store: LocalStateStore) -> None:
    """The same holds in a real directory, under the names that are documented."""
    head = AuditWriter(TableLog.open(store, TABLE, MAC), 1).append(entry())
    assert store.list("") == (f"{FOLDER}00000001.json",)
    assert verified(store, expected=head) == head.number == 1
    assert head.to_dict() == {"number": 1, "digest": head.digest}


@settings(max_examples=100)
@given(st.data())
def test_every_damaged_byte_is_found(data: st.DataObject) -> None:
    """Whatever byte of whatever entry is changed: the audit does not verify, and a record is named."""
    store = MemoryStore({})
    for number in range(3):
        AuditWriter(TableLog.open(store, TABLE, MAC), 1).append(entry(number))
    name = data.draw(st.sampled_from(sorted(store.records)))
    content = bytearray(store.records[name])
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    store.records[name] = bytes(content)
    with pytest.raises(VerificationError, match=re.escape(FOLDER)):
        verified(store)


@pytest.mark.parametrize("number", [1, 3, 5])
@pytest.mark.parametrize("forger", [None, TableMac(b"x" * 32)], ids=["old MAC", "another key's MAC"])
def test_an_edited_entry_is_found(audit: MemoryStore, number: int, forger: TableMac | None) -> None:
    """First, middle and last, however well it is formed."""
    name = f"{FOLDER}{number:08d}.json"

    def blame_bob(body: dict[str, Any]) -> None:
        body["who"] = "bob@host"

    audit.records[name] = rewritten(audit.records[name], blame_bob, forger)
    with pytest.raises(VerificationError, match=rf"{name}.*does not authenticate"):
        verified(audit)


@pytest.mark.parametrize("number", [1, 3, 4])
def test_a_dropped_entry_is_found(audit: MemoryStore, number: int) -> None:
    """A gap is named."""
    audit.delete(f"{FOLDER}{number:08d}.json")
    with pytest.raises(VerificationError, match=f"{number:08d}.json: is missing"):
        verified(audit)


def test_a_dropped_entry_whose_successors_move_up_is_found(audit: MemoryStore) -> None:
    """Closing the gap by renaming does not help."""
    for number in (3, 4):
        audit.records[f"{FOLDER}{number:08d}.json"] = audit.records[f"{FOLDER}{number + 1:08d}.json"]
    audit.delete(f"{FOLDER}00000005.json")
    with pytest.raises(VerificationError, match=r"00000003\.json.*belongs elsewhere"):
        verified(audit)


def test_reordered_entries_are_found(audit: MemoryStore) -> None:
    """Two entries that change places do not say where they are."""
    first, second = f"{FOLDER}00000002.json", f"{FOLDER}00000003.json"
    audit.records[first], audit.records[second] = audit.records[second], audit.records[first]
    with pytest.raises(VerificationError, match=r"00000002\.json.*belongs elsewhere"):
        verified(audit)


def test_an_entry_of_another_branch_is_found(audit: MemoryStore) -> None:
    """An authentic entry of the same number, from a copy of the audit that went another way, breaks the chain."""
    other = MemoryStore({})
    for number in range(3):
        AuditWriter(TableLog.open(other, TABLE, MAC), 1).append(entry(number + 10))
    audit.records[f"{FOLDER}00000003.json"] = other.records[f"{FOLDER}00000003.json"]
    with pytest.raises(VerificationError, match=r"00000003\.json.*does not follow"):
        verified(audit)


def test_an_audit_of_another_table_is_found(audit: MemoryStore) -> None:
    """Entries say whose they are."""
    copied = MemoryStore({name.replace(TABLE, "other"): content for name, content in audit.records.items()})
    with pytest.raises(VerificationError, match="belongs elsewhere"):
        verify_audit(copied, "other", MAC)


def cut(store: Any, keep: int, length: int = ENTRIES) -> None:
    """Delete the end of an audit."""
    for number in range(keep + 1, length + 1):
        store.delete(f"{FOLDER}{number:08d}.json")


@pytest.mark.parametrize("keep", range(ENTRIES))
def test_an_end_that_was_cut_with_journals_is_found_by_a_head_kept_elsewhere(audit: MemoryStore, keep: int) -> None:
    """What an append returned must be in the audit, also after others were written in place of what was cut."""
    head = AuditWriter(TableLog.open(audit, TABLE, MAC), 1).append(entry(9))
    assert verified(audit, expected=head) == ENTRIES + 1
    cut(audit, keep, ENTRIES + 1)
    with pytest.raises(VerificationError, match="kept elsewhere"):
        verified(audit, expected=head)
    for number in range(keep, ENTRIES + 1):
        AuditWriter(TableLog.open(audit, TABLE, MAC), 1).append(entry(number + 20))
    with pytest.raises(VerificationError, match="kept elsewhere"):
        verified(audit, expected=head)


def test_the_head_of_a_verified_audit_is_that_of_its_last_entry(audit: MemoryStore) -> None:
    """What verification returns may be kept elsewhere as what the writer returned."""
    head = AuditWriter(TableLog.open(audit, TABLE, MAC), 1).append(entry())
    assert verify_audit(audit, TABLE, MAC) == head


def successor(audit: MemoryStore) -> TableMac:
    """Append an entry under a second MAC key; return both."""
    both = TableMac(b"k" * 32, b"n" * 32)
    AuditWriter(TableLog.open(audit, TABLE, both), 1).append(entry())
    return both


def test_entries_before_and_after_a_new_mac_key_verify(audit: MemoryStore) -> None:
    """Both keys together authenticate the audit, the old one alone does not."""
    both = successor(audit)
    head = verify_audit(audit, TABLE, both)
    assert head is not None and head.number == ENTRIES + 1
    with pytest.raises(VerificationError, match=r"00000006\.json: does not authenticate"):
        verified(audit)


def test_an_entry_under_a_mac_key_that_was_given_up_is_found(audit: MemoryStore) -> None:
    """Who holds the old MAC key cannot go on with it."""
    both = successor(audit)
    forger = TableLog.open(audit, TABLE, both)
    forger.mac = MAC
    name, content = forger._make(RUN, 1, [("encrypt", {})])
    assert audit.create(name, content)
    with pytest.raises(
        VerificationError, match=r"00000007\.json: is under a MAC key that a record before it had given up"
    ):
        verify_audit(audit, TABLE, both)


def test_what_remains_undetectable_is_as_documented(audit: MemoryStore) -> None:
    """An end cut, no journal and no head elsewhere: nothing tells; the documentation says so."""
    cut(audit, 3)
    assert verified(audit) == 3


def test_an_older_head_kept_elsewhere_is_still_in_a_longer_audit(audit: MemoryStore) -> None:
    """Growing is no damage."""
    head = AuditWriter(TableLog.open(audit, TABLE, MAC), 1).append(entry())
    AuditWriter(TableLog.open(audit, TABLE, MAC), 1).append(entry())
    assert verified(audit, expected=head) == ENTRIES + 2


def test_of_two_writers_of_one_entry_the_slower_is_fenced_off(audit: MemoryStore) -> None:
    """An entry number is taken once."""

    class Slow(MemoryStore):
        def create(self, name: str, content: bytes) -> bool:
            if name.endswith("/00000006.json"):
                AuditWriter(TableLog.open(audit, TABLE, MAC), 2).append(entry())
            return super().create(name, content)

    with pytest.raises(RunConflictError, match="00000006"):
        AuditWriter(TableLog.open(Slow(audit.records), TABLE, MAC), 1).append(entry(99))
    assert verified(audit) == 6


def test_an_audit_is_listed_once_however_many_entries_a_run_appends(audit: MemoryStore) -> None:
    """What an entry takes does not grow with the entries before it, also where one failed."""

    class Counted(MemoryStore):
        lists, stuck = 0, False

        def list(self, prefix: str) -> tuple[str, ...]:
            self.lists += 1
            return super().list(prefix)

        def create(self, name: str, content: bytes) -> bool:
            if self.stuck:
                raise SparkcryptError("the disk is full")
            return super().create(name, content)

    store = Counted(audit.records)
    writer = AuditWriter(TableLog.open(store, TABLE, MAC), 1)
    writer.append(entry(6))
    once = store.lists
    for number in (7, 8):
        writer.append(entry(number))
    assert store.lists == once
    store.stuck = True
    with pytest.raises(SparkcryptError, match="disk is full"):
        writer.append(entry(9))
    store.stuck = False
    assert writer.append(entry(10)).number == 9
    assert store.lists == once
    assert verified(audit) == 9


@pytest.mark.parametrize("name", ["00000006.json.bak", "notes.txt", "0000000005.json", "5.json"])
def test_foreign_files_in_an_audit_are_refused(audit: MemoryStore, name: str) -> None:
    """Nothing is passed over."""
    audit.records[FOLDER + name] = b"{}\n"
    with pytest.raises(VerificationError, match="not the name"):
        verified(audit)


@pytest.mark.parametrize("missing", ["what", "why"])
def test_an_entry_that_says_too_little_is_refused(store: LocalStateStore, missing: str) -> None:
    """What, policy and run are in every entry; who and when are added."""
    with pytest.raises(SparkcryptError, match=missing):
        AuditWriter(TableLog.open(store, TABLE, MAC), 1).append(
            {key: value for key, value in entry().items() if key != missing}
        )
    assert store.list("") == ()


def test_no_error_or_repr_shows_the_mac_key(audit: MemoryStore) -> None:
    """Neither the key nor a computed MAC is in what is printed."""
    canary = TableMac(b"canary-canary-canary-canary-cana")
    with pytest.raises(VerificationError) as refused:
        verify_audit(audit, TABLE, canary)
    body = json.loads(audit.records[f"{FOLDER}00000001.json"])
    body.pop("mac")
    shown = f"{canary!r} {canary} {refused.value!r}"
    assert "canary-" not in shown
    assert canary(encode_record(body)) not in shown

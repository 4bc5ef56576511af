"""The journal of a run: what it remembers, whom it fences off, and which damage it finds."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkcrypt.errors import RunConflictError, SparkcryptError, VerificationError
from sparkcrypt.ledger.journal.journal import KINDS, Journal, JournalChain, check_same_policy, new_run_id
from sparkcrypt.ledger.journal.unit_status import status_of_units
from sparkcrypt.ledger.state.mac import TableMac
from sparkcrypt.ledger.state.store import LocalStateStore, encode_record
from sparkcrypt.runs.rewrite.options import RunOptions
from tests.journals import find_unfinished
from tests.unit.backfill.conftest import RUN, TABLE, Together, run_record, swap_unit
from tests.unit.backfill.memory_store import MemoryStore

FOLDER = f"runs/{TABLE}/{RUN}/"

RACE = """
import sys
from sparkcrypt.ledger.journal.journal import Journal
from sparkcrypt.ledger.state.store import LocalStateStore
from sparkcrypt.errors import RunConflictError
journal = Journal.open(LocalStateStore(sys.argv[1] + "/state"), "TABLE", "RUN")
print("ready", flush=True)
sys.stdin.readline()
try:
    for number in range(20):
        journal.append("unit_listed", unit=f"p={number}")
    print("wrote all")
except RunConflictError:
    print("fenced")
"""


@pytest.fixture
def journal(store: LocalStateStore) -> Journal:
    """A journal of five steps of one unit."""
    journal = Journal.start(store, run_record())
    swap_unit(journal, "p=1")
    return journal


def reopened(store: Any) -> Journal:
    """Open the run's journal."""
    return Journal.open(store, TABLE, RUN)


def damaged(store: LocalStateStore, tmp_path: Path, name: str, content: bytes) -> None:
    """Replace the bytes of a record."""
    assert store.read(name) is not None
    (tmp_path / "state" / name).write_bytes(content)


def test_a_reopened_journal_is_the_one_that_was_written(store: LocalStateStore, journal: Journal) -> None:
    """Records, plan, options, policy and token come back as they were."""
    again = reopened(store)
    assert again.records == journal.records
    assert again.run == journal.run == run_record()
    assert [record.number for record in again.records] == [1, 2, 3, 4, 5, 6]
    assert again.torn is None


def test_a_record_on_disk_says_what_its_documentation_does(store: LocalStateStore, journal: Journal) -> None:
    """Each record chains to the bytes before it and carries its own checksum."""
    first, second = (store.read(f"{FOLDER}00000{number}.json") or b"" for number in (1, 2))
    body = json.loads(second)
    assert set(body) == {
        "version", "table_id", "number", "time", "kind", "run_id", "fencing_token", "fields", "previous", "supersedes",
        "mac", "checksum",
    }  # fmt: skip
    assert body["previous"] == hashlib.sha256(first).hexdigest()
    checksum = body.pop("checksum")
    assert checksum == hashlib.sha256(encode_record(body)).hexdigest()
    assert (body["version"], body["table_id"], body["mac"]) == (2, TABLE, None)
    assert (body["number"], body["kind"], body["run_id"], body["fencing_token"]) == (2, "unit_listed", RUN, 1)
    assert body["time"].endswith("+00:00")
    assert json.loads(first)["fields"]["plan"] == {"columns": ["ssn"]}


def test_what_was_appended_reads_as_it_will_after_a_crash(store: LocalStateStore, journal: Journal) -> None:
    """Tuples and number keys become what JSON makes of them at once, not only after a resume."""
    record = journal.append("unit_failed", unit="p=1", files=(1, 2), counts={10: "a", 9: "b"})
    assert record.fields == {"unit": "p=1", "files": [1, 2], "counts": {"10": "a", "9": "b"}}
    assert reopened(store).records[-1] == record


@pytest.mark.parametrize(
    ("kind", "fields"), [("unit_swaped", {"unit": "x"}), ("unit_staged", {}), ("unit_listed", {"unit": 3})]
)
def test_what_a_reader_would_not_know_is_not_written(journal: Journal, kind: str, fields: dict[str, Any]) -> None:
    """An unknown kind, or a unit's record without a unit, is refused."""
    with pytest.raises(SparkcryptError, match=r"allowed: run_started"):
        journal.append(kind, **fields)
    assert len(journal.records) == 6


def test_a_run_starts_once(store: LocalStateStore, journal: Journal) -> None:
    """The same run id cannot begin a second journal."""
    with pytest.raises(RunConflictError, match=RUN):
        Journal.start(store, run_record())


def test_a_driver_whose_run_another_continued_is_fenced_off(store: LocalStateStore, journal: Journal) -> None:
    """It cannot append any more, however often it tries, and writes nothing."""
    second = reopened(store)
    second.resume(2)
    for _ in range(3):
        with pytest.raises(RunConflictError, match=r"another driver wrote .*000007\.json"):
            journal.append("unit_swapping", unit="p=2")
    second.append("run_finished", outcome="done")
    assert [record.fencing_token for record in reopened(store).records] == [1] * 6 + [2] * 2


def test_a_journal_is_not_resumed_under_an_older_token(store: LocalStateStore, journal: Journal) -> None:
    """A driver that comes late with an old lock is refused, and what an old token wrote all the same is found."""
    reopened(store).resume(5)
    with pytest.raises(RunConflictError, match="fencing token 5, this driver has 4"):
        reopened(store).resume(4)
    late = reopened(store)
    late._token = 4
    with pytest.raises(VerificationError, match="fenced off"):
        late.append("run_finished")
    with pytest.raises(VerificationError, match="fenced off"):
        reopened(store)


def test_of_racing_drivers_one_continues_a_run(together: Together, store: LocalStateStore) -> None:
    """Four processes append to one journal: it stays whole, and at most one writes all of its records."""
    Journal.start(store, run_record())
    said = [output.strip() for output in together(RACE.replace("TABLE", TABLE).replace("RUN", RUN))]
    assert said.count("fenced") >= 3
    numbers = [record.number for record in reopened(store).records]
    assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) >= 2


@settings(max_examples=60)
@given(st.data())
def test_every_damaged_byte_of_a_journal_is_found(data: st.DataObject) -> None:
    """Whatever byte of whatever record is changed to whatever else: the journal is refused, and a record named."""
    store = MemoryStore({})
    swap_unit(Journal.start(store, run_record()), "p=1")
    name = data.draw(st.sampled_from(sorted(store.records)))
    content = bytearray(store.records[name])
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    store.records[name] = bytes(content)
    with pytest.raises(VerificationError, match=re.escape(FOLDER)):
        reopened(store)


@pytest.mark.parametrize("last", [b"\x8a", b"\x0b", b"x"])
def test_a_last_byte_that_was_changed_is_no_tear(last: bytes) -> None:
    """A whole record whose line feed became something else, ASCII or not, is damage, since a tear only cuts."""
    memory = MemoryStore({})
    swap_unit(Journal.start(memory, run_record()), "p=1")
    name = max(memory.records)
    memory.records[name] = memory.records[name][:-1] + last
    with pytest.raises(VerificationError, match=re.escape(name)):
        reopened(memory)


def test_every_place_of_a_record_is_guarded_the_last_record_too() -> None:
    """At each byte of a first, middle and last record four changes are tried, a line feed and a zero among them."""
    store = MemoryStore({})
    swap_unit(Journal.start(store, run_record()), "p=1")
    for name in (f"{FOLDER}000001.json", f"{FOLDER}000003.json", f"{FOLDER}000006.json"):
        whole = store.records[name]
        for place in range(len(whole)):
            for other in {ord("\n"), 0, whole[place] ^ 1, whole[place] ^ 0x20} - {whole[place]}:
                store.records[name] = whole[:place] + bytes([other]) + whole[place + 1 :]
                with pytest.raises(VerificationError):
                    reopened(store)
        store.records[name] = whole
    assert len(reopened(store).records) == 6


@pytest.mark.parametrize("number", [1, 2, 5])
def test_a_missing_record_is_found(store: LocalStateStore, journal: Journal, number: int) -> None:
    """A gap anywhere before the end is named."""
    store.delete(f"{FOLDER}{number:06d}.json")
    with pytest.raises(VerificationError, match=f"{number:06d}.json is missing"):
        reopened(store)


def test_records_in_another_order_are_found(store: LocalStateStore, journal: Journal, tmp_path: Path) -> None:
    """Two whole records that change places are damage."""
    third, fourth = (store.read(f"{FOLDER}00000{number}.json") or b"" for number in (3, 4))
    damaged(store, tmp_path, f"{FOLDER}000003.json", fourth)
    damaged(store, tmp_path, f"{FOLDER}000004.json", third)
    with pytest.raises(VerificationError, match=r"000003\.json.*record 4"):
        reopened(store)


def test_a_whole_record_of_another_content_breaks_the_chain(
    store: LocalStateStore, journal: Journal, tmp_path: Path
) -> None:
    """A record that was written anew, with a right checksum, is found by the one after it."""
    body = json.loads(store.read(f"{FOLDER}000003.json") or b"")
    body.pop("checksum")
    body["fields"]["staged"] = "/elsewhere"
    checksum = hashlib.sha256(encode_record(body)).hexdigest()
    damaged(store, tmp_path, f"{FOLDER}000003.json", encode_record({**body, "checksum": checksum}))
    with pytest.raises(VerificationError, match=r"000004\.json.*does not follow"):
        reopened(store)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 3}, "version 3"),
        ({"kind": "unit_melted"}, "kind 'unit_melted' is not known"),
        ({"extra": 1}, "extra"),
    ],
)
def test_what_a_later_release_wrote_is_refused(
    store: LocalStateStore, journal: Journal, changes: dict[str, Any], message: str
) -> None:
    """An unknown version, kind or member is named, and not guessed at."""
    last = store.read(f"{FOLDER}000006.json") or b""
    body = {**json.loads(last), "number": 7, "previous": hashlib.sha256(last).hexdigest(), **changes}
    body.pop("checksum")
    checksum = hashlib.sha256(encode_record(body)).hexdigest()
    store.create(f"{FOLDER}000007.json", encode_record({**body, "checksum": checksum}))
    with pytest.raises(VerificationError, match=rf"000007\.json.*{message}"):
        reopened(store)


def test_a_journal_of_another_run_or_table_is_refused(store: LocalStateStore, journal: Journal) -> None:
    """Copied journals are told by what their records say."""
    for name in store.list(FOLDER):
        content = store.read(name) or b""
        store.create(name.replace(RUN, "copied-run"), content)
        store.create(name.replace(TABLE, "copied-table"), content)
    with pytest.raises(VerificationError, match=f"belongs to run {RUN}"):
        Journal.open(store, TABLE, "copied-run")
    with pytest.raises(VerificationError, match="belongs to another table than copied-table"):
        Journal.open(store, "copied-table", RUN)


def test_a_run_that_is_not_there_and_foreign_files_are_refused(store: LocalStateStore, journal: Journal) -> None:
    """An unknown run id, and a file that is no record, are errors."""
    with pytest.raises(VerificationError, match="first record"):
        Journal.open(store, TABLE, "unknown")
    store.create(f"{FOLDER}000007.json.swp", b"")
    with pytest.raises(VerificationError, match="not the name"):
        reopened(store)


def test_every_torn_length_of_the_last_record_is_passed_over_and_its_number_taken_anew() -> None:
    """However much of the last record is there, the run goes on before it, and the journal then is whole."""
    whole = MemoryStore({})
    swap_unit(Journal.start(whole, run_record()), "p=1")
    last = whole.records.pop(f"{FOLDER}000006.json")
    for length in range(len(last)):
        for tail in {b"", b"\0" * min(7, len(last) - length - 1)}:
            store = MemoryStore({**whole.records, f"{FOLDER}000006.json": last[:length] + tail})
            journal = reopened(store)
            assert journal.torn == f"{FOLDER}000006.json"
            assert [record.number for record in journal.records] == [1, 2, 3, 4, 5]
            taken = journal.append("unit_swapped", unit="p=1")
            assert taken.name == f"{FOLDER}000006-retry1.json"
            journal.append("run_finished", outcome="done")
            assert reopened(store).records == journal.records
            assert reopened(store).torn is None


def test_a_retry_that_is_torn_itself_is_retried(store: LocalStateStore, journal: Journal, tmp_path: Path) -> None:
    """Two power cuts in a row cost two names."""
    damaged(store, tmp_path, f"{FOLDER}000006.json", b"")
    store.create(f"{FOLDER}000006-retry1.json", b'{"check')
    assert reopened(store).append("unit_swapped", unit="p=1").name == f"{FOLDER}000006-retry2.json"
    assert len(reopened(store).records) == 6


def test_two_drivers_that_find_a_torn_record_cannot_both_continue(
    store: LocalStateStore, journal: Journal, tmp_path: Path
) -> None:
    """The name that takes its number is created exclusively too, and nothing is deleted under the faster one."""
    damaged(store, tmp_path, f"{FOLDER}000006.json", b"{")
    slow, fast = reopened(store), reopened(store)
    fast.append("unit_swapped", unit="p=1")
    with pytest.raises(RunConflictError, match="000006-retry1"):
        slow.append("unit_failed", unit="p=1")
    assert reopened(store).records == fast.records


def test_a_torn_record_that_changes_after_it_was_superseded_is_damage(
    store: LocalStateStore, journal: Journal, tmp_path: Path
) -> None:
    """A driver that ends its slow write of a record, whose number was taken meanwhile, is found."""
    whole = store.read(f"{FOLDER}000006.json") or b""
    damaged(store, tmp_path, f"{FOLDER}000006.json", whole[:50])
    reopened(store).append("unit_swapped", unit="p=1")
    for content in (whole, whole[:51], b""):
        damaged(store, tmp_path, f"{FOLDER}000006.json", content)
        with pytest.raises(VerificationError, match="000006"):
            reopened(store)


@pytest.mark.parametrize("number", [1, 3, 5])
def test_a_torn_record_that_is_not_the_last_is_damage(
    store: LocalStateStore, journal: Journal, tmp_path: Path, number: int
) -> None:
    """Only the end of a journal may be torn."""
    damaged(store, tmp_path, f"{FOLDER}{number:06d}.json", b'{"checksum":"')
    with pytest.raises(VerificationError):
        reopened(store)


def test_the_latest_run_without_an_end_is_the_unfinished_one(store: LocalStateStore) -> None:
    """Finished runs, expired ones, other tables' and runs whose first record is torn are none."""
    assert find_unfinished(store, TABLE) is None
    for run_id in ("20260101T000000Z-000000", "20260102T000000Z-000000", "20260103T000000Z-000000"):
        Journal.start(store, run_record(run_id))
    store.create(f"runs/{TABLE}/20260104T000000Z-000000/000001.json", b'{"check')
    assert find_unfinished(store, "other") is None
    for run_id in ("20260103T000000Z-000000", "20260102T000000Z-000000", "20260101T000000Z-000000"):
        assert find_unfinished(store, TABLE) == run_id
        journal = Journal.open(store, TABLE, run_id)
        journal.append("run_finished", outcome="done")
        journal.append("run_expired", folders=[])
    assert find_unfinished(store, TABLE) is None
    assert len(Journal.runs(store, TABLE)) == 3


def test_a_run_whose_end_is_torn_is_unfinished(store: LocalStateStore, journal: Journal, tmp_path: Path) -> None:
    """What is not wholly written did not happen."""
    journal.append("run_finished", outcome="done")
    damaged(store, tmp_path, f"{FOLDER}000007.json", (store.read(f"{FOLDER}000007.json") or b"")[:40])
    assert find_unfinished(store, TABLE) == RUN


def test_units_stand_where_their_last_record_says(journal: Journal) -> None:
    """Fields of earlier steps stay below later ones; a new listing starts anew."""
    journal.append("unit_listed", unit="p=2", staged="/a", files=[1])
    journal.append("unit_verified", unit="p=2", rows=7)
    journal.append("unit_listed", unit="p=3", staged="/b")
    journal.append("unit_listed", unit="p=3", location="/c")
    statuses = status_of_units(journal.records)
    assert list(statuses) == ["p=1", "p=2", "p=3"]
    assert statuses["p=1"].step == "unit_swapped"
    assert (statuses["p=2"].step, statuses["p=2"].fields) == (
        "unit_verified",
        {"unit": "p=2", "staged": "/a", "files": [1], "rows": 7},
    )
    assert statuses["p=3"].fields == {"unit": "p=3", "location": "/c"}


def test_a_failed_unit_offers_no_staged_folder_to_delete(journal: Journal) -> None:
    """When a step after the swap failed, the staged folder is in use: only the state before the failure tells it."""
    journal.append("unit_failed", unit="p=1", error="no")
    failed = status_of_units(journal.records)["p=1"]
    assert failed.fields == {"unit": "p=1", "error": "no"}
    assert failed.failed_at is not None and failed.failed_at.fields["staged"] == "/staged/p=1"
    journal.append("unit_listed", unit="p=1")
    assert status_of_units(journal.records)["p=1"].failed_at is None


def test_every_kind_of_record_can_be_written_and_read(store: LocalStateStore, journal: Journal) -> None:
    """No documented kind is refused."""
    for kind in KINDS:
        journal.append(kind, unit="p=1")
    assert len(reopened(store).records) == 6 + len(KINDS)


def test_a_run_is_continued_under_its_own_policy_only(journal: Journal) -> None:
    """Another digest is a conflict that names both."""
    check_same_policy(journal, "digest-1")
    with pytest.raises(RunConflictError, match=r"digest-1.*digest-2"):
        check_same_policy(journal, "digest-2")


@given(st.lists(st.floats(0, 4e9), min_size=2, max_size=2))
def test_later_run_ids_sort_after_earlier_ones(times: list[float]) -> None:
    """Run ids of times that differ by a millisecond sort as the times do."""
    first, second = (round(seconds, 3) for seconds in sorted(times))
    ids = new_run_id(lambda: first + 0.0001), new_run_id(lambda: second + 0.0001)
    assert all(re.fullmatch(r"\d{8}T\d{6}Z-[0-9a-f]{6}", run_id) for run_id in ids)
    assert first == second or ids[0] < ids[1]


def test_run_ids_differ_within_a_millisecond() -> None:
    """Two drivers that start at the same moment do not get one id, but once in 4,096 times."""
    assert len({new_run_id(lambda: 1e9) for _ in range(50)}) > 40


def test_what_a_run_was_started_with_has_to_be_complete(store: LocalStateStore) -> None:
    """A first record without its plan does not start a run."""
    chain = JournalChain(TABLE, RUN, None)
    name, content = chain.next_record("run_started", 1, {"table_id": TABLE})
    store.create(name, content)
    with pytest.raises(VerificationError, match="does not say how"):
        reopened(store)


MAC, OTHER = TableMac(b"k" * 32), TableMac(b"o" * 32)


def authentic() -> MemoryStore:
    """A journal of five steps of one unit under a MAC."""
    store = MemoryStore({})
    swap_unit(Journal.start(store, run_record(), MAC), "p=1")
    return store


def opened(store: Any, mac: TableMac = MAC) -> Journal:
    """Open the run's journal as who acts on it."""
    return Journal.open(store, TABLE, RUN, mac)


def planted(store: MemoryStore, kind: str, *, version: int = 2, **fields: Any) -> str:
    """Add a record as anybody can who may write to the state directory and has no key; return its name."""
    names = sorted(name for name in store.records if name.startswith(FOLDER))
    last = store.records[names[-1]] if names else b""
    body = {
        "version": version, "number": len(names) + 1, "time": "2026-01-01T00:00:00+00:00", "kind": kind, "run_id": RUN,
        "fencing_token": 1, "fields": fields, "previous": hashlib.sha256(last).hexdigest(), "supersedes": None,
        "table_id": TABLE, "mac": "0" * 64,
    }  # fmt: skip
    name = f"{FOLDER}{len(names) + 1:06d}.json"
    store.create(name, encode_record({**body, "checksum": hashlib.sha256(encode_record(body)).hexdigest()}))
    return name


def test_records_under_a_mac_are_authenticated() -> None:
    """Who has the key sees that each record is authentic; who has not sees the same records and that they are not."""
    store = authentic()
    assert opened(store).authenticated and {record.generation for record in opened(store).records} == {1}
    shown = reopened(store)
    assert not shown.authenticated and not any(record.authenticated for record in shown.records)
    assert [record.fields for record in shown.records] == [record.fields for record in opened(store).records]


@pytest.mark.parametrize("version", [1, 2])
def test_a_planted_record_is_refused(version: int) -> None:
    """A record that chains and has a right checksum, of any version, is nothing to whoever checks MACs."""
    store = authentic()
    name = planted(store, "unit_listed", version=version, unit="p=2", staged="/live")
    with pytest.raises(VerificationError, match=re.escape(name)):
        opened(store)


def test_a_planted_run_is_refused() -> None:
    """A whole journal that someone without the key wrote is refused, and is no unfinished run."""
    store = MemoryStore({})
    start = {name: value for name, value in asdict(run_record()).items() if name not in ("run_id", "fencing_token")}
    planted(store, "run_started", **start)
    assert len(reopened(store).records) == 1
    with pytest.raises(VerificationError, match="000001"):
        opened(store)
    assert find_unfinished(store, TABLE, MAC) is None


def test_a_record_without_a_mac_is_refused_under_one(store: LocalStateStore, journal: Journal) -> None:
    """What was written without a key is for those who have none."""
    with pytest.raises(VerificationError, match="does not authenticate"):
        opened(store)


def test_a_mac_binds_a_record_to_its_table_run_and_number() -> None:
    """Authentic records that are copied to another table, run or place are refused there."""
    store = authentic()
    for name, content in list(store.records.items()):
        store.create(name.replace(RUN, "copied-run"), content)
        store.create(name.replace(TABLE, "copied-table"), content)
    with pytest.raises(VerificationError, match="belongs to run"):
        Journal.open(store, TABLE, "copied-run", MAC)
    with pytest.raises(VerificationError, match="belongs to another table"):
        Journal.open(store, "copied-table", RUN, MAC)
    store.records[f"{FOLDER}000004.json"] = store.records[f"{FOLDER}000003.json"]
    with pytest.raises(VerificationError, match="000004"):
        opened(store)


def test_another_keys_mac_is_refused_and_a_weaker_key_does_not_come_back() -> None:
    """A record under a foreign key does not authenticate, nor one under a key that an earlier record had given up."""
    store = authentic()
    with pytest.raises(VerificationError, match="does not authenticate"):
        opened(store, OTHER)
    both = TableMac(b"k" * 32, b"n" * 32)
    later = opened(store, both)
    later.append("unit_listed", unit="p=2")
    assert {record.generation for record in opened(store, both).records} == {1, 2}
    earlier = Journal.open(store, TABLE, RUN)
    earlier._chain.mac = MAC
    earlier._chain.take = lambda name, content: None  # type: ignore[assignment, method-assign, return-value]  # as the holder of the old key alone
    earlier.append("unit_listed", unit="p=3")
    with pytest.raises(VerificationError, match="had given up"):
        opened(store, both)


def test_a_damaged_run_hides_no_unfinished_one() -> None:
    """A newer run that cannot be read is passed over; the unfinished one before it is found."""
    store = authentic()
    later = f"runs/{TABLE}/20270101T000000Z-000000/000001.json"
    store.create(later, b"{}\n")
    assert find_unfinished(store, TABLE, MAC) == RUN
    assert Journal.runs(store, TABLE)[-1] == later.split("/")[2]


def test_consent_to_decrypt_is_recorded_and_given_anew_by_who_continues() -> None:
    """The record tells what may come late to the run; a command that continues it has only its own consent."""
    allowed = replace(run_record(), options=RunOptions(allow_decrypt=True).to_dict())
    assert allowed.allows_decryption
    assert not RunOptions().as_begun(allowed.options).allow_decrypt
    assert RunOptions(allow_decrypt=True).as_begun(RunOptions().to_dict()).allow_decrypt
    assert not replace(run_record(), options=RunOptions().to_dict()).allows_decryption

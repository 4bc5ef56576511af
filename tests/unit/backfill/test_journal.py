"""The journal of a run: what it remembers, whom it fences off, and which damage makes it doubtful."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkcrypt.errors import RunConflictError, SparkcryptError, VerificationError
from sparkcrypt.ledger.journal.journal import KINDS, Journal, check_same_policy, new_run_id
from sparkcrypt.ledger.journal.unit_status import status_of_units
from sparkcrypt.ledger.log import TableLog
from sparkcrypt.ledger.state.mac import TableMac
from sparkcrypt.ledger.state.store import LocalStateStore, StateStore
from sparkcrypt.runs.rewrite.options import RunOptions
from tests.journals import find_unfinished, start_run
from tests.unit.backfill.conftest import RUN, TABLE, Together, run_record, swap_unit
from tests.unit.backfill.memory_store import MemoryStore

MAC, OTHER = TableMac(b"k" * 32), TableMac(b"o" * 32)
NEXT = "20261122T101112Z-3f9a2c"
FOLDER = f"log/{TABLE}/"

RACE = """
import os
import sys
from sparkcrypt.ledger.journal.journal import Journal
from sparkcrypt.ledger.log import TableLog
from sparkcrypt.ledger.state.mac import TableMac
from sparkcrypt.ledger.state.store import LocalStateStore
from sparkcrypt.errors import RunConflictError
log = TableLog.open(LocalStateStore(sys.argv[1] + "/state"), "TABLE", TableMac(b"k" * 32))
journal = Journal.open(log, "RUN")
print("ready", flush=True)
sys.stdin.readline()
try:
    journal.resume(os.getpid())
    for number in range(20):
        journal.append("unit_listed", unit=f"p={number}")
    print("wrote all")
except RunConflictError:
    print("fenced")
"""


@pytest.fixture
def journal(store: LocalStateStore) -> Journal:
    """A journal of five steps of one unit."""
    journal = start_run(store, run_record(), MAC)
    swap_unit(journal, "p=1")
    return journal


def reopened(store: StateStore, mac: TableMac | None = MAC, run_id: str = RUN) -> Journal:
    """Open the run's journal."""
    return Journal.open(TableLog.open(store, TABLE, mac), run_id)


def test_journal_tells_of_each_unit_as_records_come(store: LocalStateStore, journal: Journal) -> None:
    """Its records, its status and the last record: each time as one that reads all anew."""
    for kind, unit in [("unit_failed", "p=1"), ("unit_listed", "p=2"), ("unit_listed", "p=1"), ("unit_swapped", "p=1")]:
        journal.append(kind, unit=unit)
        records = reopened(store).records
        assert (journal.records, journal.last) == (records, records[-1])
        assert journal.statuses() == status_of_units(records)
        assert journal.status_of(unit) == status_of_units(records)[unit]
        assert journal.of_unit(unit) == tuple(record for record in records if record.unit == unit)
    assert journal.of_unit("p=3") == ()
    with pytest.raises(KeyError):
        journal.status_of("p=3")


def test_journal_forgets_what_its_log_drops(store: LocalStateStore, journal: Journal) -> None:
    """Its last record may turn out to be of another past, once two records that follow from each other have come."""
    other = MemoryStore({name: store.read(name) or b"" for name in store.list("")})
    journal.append("unit_failed", unit="p=1")
    assert journal.status_of("p=1").step == "unit_failed"
    past = reopened(other)
    for unit in ("p=2", "p=3", "p=4"):
        past.append("unit_listed", unit=unit)
    for number in (8, 9):
        assert store.create(f"{FOLDER}{number:08d}.json", other.records[f"{FOLDER}{number:08d}.json"])
    journal.log.refresh()
    assert [record.unit for record in journal.records] == [None, *["p=1"] * 5, "p=3", "p=4"]
    assert journal.records == journal.log.of_run(RUN) and journal.statuses() == status_of_units(journal.records)
    assert journal.status_of("p=1").step == "unit_swapped" and journal.last.unit == "p=4"


def test_a_reopened_journal_is_the_one_that_was_written(store: LocalStateStore, journal: Journal) -> None:
    """Records, plan, options, policy and token come back as they were."""
    again = reopened(store)
    assert again.records == journal.records
    assert again.run == journal.run == run_record()
    assert [record.number for record in again.records] == [1, 2, 3, 4, 5, 6]


def test_a_record_on_disk_says_what_its_documentation_does(store: LocalStateStore, journal: Journal) -> None:
    """It has the documented members."""
    body = json.loads(store.read(f"{FOLDER}00000002.json") or b"")
    assert set(body) == {
        "version", "table_id", "number", "time", "kind", "run_id", "step", "fencing_token", "who", "fields", "previous",
        "previous_run", "supersedes", "mac",
    }  # fmt: skip
    assert (body["version"], body["table_id"], body["previous_run"]) == (1, TABLE, [RUN, 1])
    assert (body["number"], body["kind"], body["run_id"], body["fencing_token"]) == (2, "unit_listed", RUN, 1)
    assert body["time"].endswith("+00:00")


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
        start_run(store, run_record(), MAC)


def test_a_driver_whose_run_another_continued_is_fenced_off(store: LocalStateStore, journal: Journal) -> None:
    """It cannot append any more, however often it tries, and writes nothing."""
    second = reopened(store)
    second.resume(2)
    for why in (r"another driver wrote .*00000007\.json", *["fencing token 2, this driver has 1"] * 2):
        with pytest.raises(RunConflictError, match=why):
            journal.append("unit_swapping", unit="p=2")
    second.append("run_finished", outcome="done")
    assert [record.fencing_token for record in reopened(store).records] == [1] * 6 + [2] * 2


def test_a_journal_is_not_resumed_under_an_older_token(store: LocalStateStore, journal: Journal) -> None:
    """A driver that comes late with an old lock is refused, also if it does not look at the journal's token."""
    reopened(store).resume(5)
    with pytest.raises(RunConflictError, match="fencing token 5, this driver has 4"):
        reopened(store).resume(4)
    late = reopened(store)
    late._token = 4
    with pytest.raises(RunConflictError, match="fencing token 5, this driver has 4"):
        late.append("run_finished")


def test_of_racing_drivers_one_continues_a_run(together: Together, store: LocalStateStore) -> None:
    """Four processes append to one journal: it stays whole, and at most one writes all of its records."""
    start_run(store, run_record(), MAC)
    said = [output.strip() for output in together(RACE.replace("TABLE", TABLE).replace("RUN", RUN))]
    assert said.count("fenced") >= 3
    numbers = [record.number for record in reopened(store).records]
    assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) >= 2


def authentic() -> MemoryStore:
    """A journal of six records, after which another run has begun."""
    store = MemoryStore({})
    swap_unit(start_run(store, run_record(), MAC), "p=1")
    start_run(store, run_record(NEXT, 2), MAC)
    return store


@settings(max_examples=60)
@given(st.data())
def test_every_damaged_byte_of_a_journal_is_found(data: st.DataObject) -> None:
    """Whatever byte of whatever record is changed to whatever else: the journal is refused, and a record named."""
    store = authentic()
    name = data.draw(st.sampled_from(sorted(store.records)[:6]))
    content = bytearray(store.records[name])
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    store.records[name] = bytes(content)
    with pytest.raises(VerificationError, match=re.escape(FOLDER)):
        reopened(store)
    assert len(reopened(store, run_id=NEXT).records) == 1


def test_every_place_of_a_record_is_guarded() -> None:
    """At each byte of a first, middle and last record four changes are tried, a line feed and a zero among them."""
    store = authentic()
    for name in (f"{FOLDER}00000001.json", f"{FOLDER}00000003.json", f"{FOLDER}00000006.json"):
        whole = store.records[name]
        for place in range(len(whole)):
            for other in {ord("\n"), 0, whole[place] ^ 1, whole[place] ^ 0x20} - {whole[place]}:
                store.records[name] = whole[:place] + bytes([other]) + whole[place + 1 :]
                with pytest.raises(VerificationError):
                    reopened(store)
        store.records[name] = whole
    assert len(reopened(store).records) == 6


@pytest.mark.parametrize("number", range(1, 7))
def test_a_missing_record_is_found(number: int) -> None:
    """It is named, wherever it was; of the end of the log nobody knows (`pins`)."""
    store = authentic()
    store.delete(f"{FOLDER}{number:08d}.json")
    with pytest.raises(VerificationError, match=f"{number:08d}.json: is missing"):
        reopened(store)
    assert Journal.runs(TableLog.open(store, TABLE, MAC)) == (RUN, NEXT)


def test_records_in_another_order_are_found() -> None:
    """Two whole records that change places are damage."""
    store = authentic()
    third, fourth = f"{FOLDER}00000003.json", f"{FOLDER}00000004.json"
    store.records[third], store.records[fourth] = store.records[fourth], store.records[third]
    with pytest.raises(VerificationError, match=r"00000003\.json: belongs elsewhere"):
        reopened(store)


def test_a_kind_that_a_later_release_wrote_is_refused(store: LocalStateStore, journal: Journal) -> None:
    """An unknown kind is named, and not guessed at."""
    journal.log.append("unit_melted", RUN, 1, {"unit": "p=1"})
    with pytest.raises(VerificationError, match=r"00000007\.json.*kind 'unit_melted' is not known"):
        reopened(store)


def test_a_run_that_is_not_there_and_foreign_files_are_refused(store: LocalStateStore, journal: Journal) -> None:
    """An unknown run id, and a file that is no record, are errors."""
    with pytest.raises(VerificationError, match="first record"):
        reopened(store, run_id="unknown")
    store.create(f"{FOLDER}000007.json.swp", b"")
    with pytest.raises(VerificationError, match="not the name"):
        reopened(store)


def test_every_torn_length_of_the_last_record_is_passed_over_and_its_number_taken_anew() -> None:
    """However much of the last record is there, the run goes on before it, and the journal then is whole."""
    whole = MemoryStore({})
    swap_unit(start_run(whole, run_record(), MAC), "p=1")
    last = whole.records.pop(f"{FOLDER}00000006.json")
    for length in range(len(last)):
        for tail in {b"", b"\0" * min(7, len(last) - length - 1)}:
            store = MemoryStore({**whole.records, f"{FOLDER}00000006.json": last[:length] + tail})
            journal = reopened(store)
            assert [record.number for record in journal.records] == [1, 2, 3, 4, 5]
            taken = journal.append("unit_swapped", unit="p=1")
            assert taken.name == f"{FOLDER}00000006-1.json"
            journal.append("run_finished", outcome="done")
            assert reopened(store).records == journal.records


def test_two_drivers_that_find_a_torn_record_cannot_both_continue(store: LocalStateStore, journal: Journal) -> None:
    """The name that takes its number is created exclusively too, and nothing is deleted under the faster one."""
    store.create(f"{FOLDER}00000007.json", b"{")
    slow, fast = reopened(store), reopened(store)
    fast.resume(2)
    with pytest.raises(RunConflictError, match="00000007-1"):
        slow.append("unit_failed", unit="p=1")
    assert reopened(store).records == fast.records


def test_the_latest_run_without_an_end_is_the_unfinished_one(store: LocalStateStore) -> None:
    """Finished runs, expired ones, other tables' and runs whose first record is torn are none."""
    assert find_unfinished(store, TABLE, MAC) is None
    for run_id in ("20260101T000000Z-000000", "20260102T000000Z-000000", "20260103T000000Z-000000"):
        start_run(store, run_record(run_id), MAC)
    store.create(f"{FOLDER}00000004.json", b'{"check')
    assert find_unfinished(store, "other", MAC) is None
    for run_id in ("20260103T000000Z-000000", "20260102T000000Z-000000", "20260101T000000Z-000000"):
        assert find_unfinished(store, TABLE, MAC) == run_id
        journal = reopened(store, run_id=run_id)
        journal.append("run_finished", outcome="done")
        journal.append("run_expired", folders=[])
    assert find_unfinished(store, TABLE, MAC) is None
    assert len(Journal.runs(TableLog.open(store, TABLE, None))) == 3


def test_a_run_whose_end_is_torn_is_unfinished(store: LocalStateStore, journal: Journal) -> None:
    """What is not wholly written did not happen."""
    name = journal.append("run_finished", outcome="done").name
    content = store.read(name) or b""
    store.delete(name)
    store.create(name, content[:40])
    assert find_unfinished(store, TABLE, MAC) == RUN


def test_units_stand_where_their_last_record_says(journal: Journal) -> None:
    """Fields of earlier steps stay below later ones; a new listing starts anew."""
    journal.append("unit_listed", unit="p=2", staged="/a", files=[1])
    journal.append("unit_verified", unit="p=2", rows=7)
    journal.append("unit_listed", unit="p=3", staged="/b")
    journal.append("unit_listed", unit="p=3", location="/c")
    statuses = status_of_units(journal.records)
    assert list(statuses) == ["p=1", "p=2", "p=3"]
    assert statuses["p=1"].step == "unit_swapped"
    assert statuses["p=2"].step == "unit_verified"
    assert statuses["p=2"].fields == {"unit": "p=2", "staged": "/a", "files": [1], "rows": 7}
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
    TableLog.open(store, TABLE, MAC).append("run_started", RUN, 1, {"table_id": TABLE})
    with pytest.raises(VerificationError, match="does not say how"):
        reopened(store)


def planted(store: StateStore, kind: str, run_id: str = RUN, **fields: Any) -> str:
    """Add a record as anybody can who may write to the state directory and has no key; return its name."""
    log = TableLog.open(store, TABLE, None)
    return log.append(kind, run_id, 9, fields).name


def test_records_under_a_mac_are_authenticated() -> None:
    """Who has the key sees that each record is authentic; who has not sees the same records and that they are not."""
    store = authentic()
    assert reopened(store).authenticated and {record.generation for record in reopened(store).records} == {1}
    shown = reopened(store, None)
    assert not shown.authenticated and not any(record.authenticated for record in shown.records)
    assert [record.fields for record in shown.records] == [record.fields for record in reopened(store).records]


def test_a_planted_record_is_refused_until_the_log_goes_on(store: LocalStateStore, journal: Journal) -> None:
    """A record of a real run is nothing to whoever checks MACs, and told; other runs go on, and this one after them."""
    name = planted(store, "unit_listed", unit="p=2", staged="/live")
    with pytest.raises(VerificationError, match=f"{name}: does not authenticate"):
        reopened(store)
    start_run(store, run_record(NEXT, 2), MAC)
    assert reopened(store).records == journal.records


def test_a_planted_run_is_refused() -> None:
    """A whole journal that someone without the key wrote is refused, and is no unfinished run."""
    store = MemoryStore({})
    start = {name: value for name, value in asdict(run_record()).items() if name not in ("run_id", "fencing_token")}
    planted(store, "run_started", **start)
    assert len(reopened(store, None).records) == 1
    with pytest.raises(VerificationError, match="00000001"):
        reopened(store)
    assert Journal.runs(TableLog.open(store, TABLE, MAC)) == (RUN,)
    assert find_unfinished(store, TABLE, MAC) is None


def test_another_keys_mac_is_refused(store: LocalStateStore, journal: Journal) -> None:
    """A record under a foreign key does not authenticate."""
    with pytest.raises(VerificationError, match="does not authenticate"):
        reopened(store, OTHER)


def test_records_of_two_keys_are_one_journal(store: LocalStateStore, journal: Journal) -> None:
    """A run goes on under the next MAC key."""
    both = TableMac(b"k" * 32, b"n" * 32)
    later = reopened(store, both)
    later.append("unit_listed", unit="p=2")
    assert {record.generation for record in reopened(store, both).records} == {1, 2}


def test_a_damaged_run_hides_no_unfinished_one() -> None:
    """A newer run that cannot be read is passed over; the unfinished one before it is found."""
    store = authentic()
    start_run(store, run_record("20270101T000000Z-000000", 3), MAC)
    store.records[f"{FOLDER}00000007.json"] = b"{}\n"
    store.records[f"{FOLDER}00000008.json"] = store.records[f"{FOLDER}00000008.json"].replace(b"digest-1", b"digest-2")
    assert find_unfinished(store, TABLE, MAC) == RUN
    assert Journal.runs(TableLog.open(store, TABLE, MAC)) == (RUN, "20270101T000000Z-000000")


def test_consent_to_decrypt_is_recorded_and_given_anew_by_who_continues() -> None:
    """The record tells what may come late to the run; a command that continues it has only its own consent."""
    allowed = replace(run_record(), options=RunOptions(allow_decrypt=True).to_dict())
    assert allowed.allows_decryption
    assert not RunOptions().as_begun(allowed.options).allow_decrypt
    assert RunOptions(allow_decrypt=True).as_begun(RunOptions().to_dict()).allow_decrypt
    assert not replace(run_record(), options=RunOptions().to_dict()).allows_decryption


def test_appends_cost_as_much_in_a_long_journal() -> None:
    """Counted in Python calls, which no other work on the machine changes: as many again for as many records again."""

    def count(records: int) -> int:
        journal, calls = start_run(MemoryStore({}), run_record(), MAC), 0

        def note(_frame: Any, _event: str, _arg: object) -> None:
            nonlocal calls
            calls += 1

        before = sys.getprofile()
        sys.setprofile(note)
        try:
            for number in range(records):
                journal.append("unit_listed", unit=f"p={number}", location="/t", staged="/s", files=[])
        finally:
            sys.setprofile(before)
        return calls

    few, more, many = (count(records) for records in (200, 400, 800))
    assert (many - more) / (more - few) < 2.4

"""The log of a table: what is appended is read again, and what is changed, cut, planted or packed is told apart."""

from __future__ import annotations

from importlib import import_module

import pytest

from sparkcrypt.errors import RunConflictError, VerificationError
from sparkcrypt.ledger.log import ACCEPT, TableLog
from sparkcrypt.ledger.state.mac import TableMac
from sparkcrypt.ledger.state.store import LocalStateStore, StateStore, decode_record, encode_record
from tests.unit.backfill.conftest import RUN, TABLE
from tests.unit.backfill.memory_store import MemoryStore

MAC = TableMac(b"k" * 32)
NEXT = "20261122T101112Z-3f9a2c"
BEFORE = "20261120T101112Z-3f9a2c"
OF_OTHER_TYPES: tuple[object, ...] = ([], {}, 5.5, None, True, -1)
NAMES = [f"log/{TABLE}/{number:08d}.json" for number in range(10)]


def opened(store: StateStore, mac: TableMac = MAC) -> TableLog:
    """Open the log."""
    return TableLog.open(store, TABLE, mac)


def written(store: StateStore, count: int = 4, run_id: str = RUN, token: int = 1) -> TableLog:
    """Append records of a run; return the log."""
    log = opened(store)
    for number in range(count):
        log.append("step", run_id, token, {"step": number})
    return log


def steps(log: TableLog) -> list[int]:
    """Return what the records say."""
    return [record.fields["step"] for record in log.records]


def is_whole(log: TableLog, run_id: str) -> bool:
    """Return whether a run has records, and none of them is missing."""
    return bool(log.of_run(run_id)) and log.find_loss(run_id) is None


def change(store: LocalStateStore, name: str, content: bytes) -> None:
    """Put other bytes in the place of a record."""
    store.delete(name)
    store.create(name, content)


def test_what_is_appended_is_read_again(store: LocalStateStore) -> None:
    """Records, head and all, by another process too; an empty log has none."""
    assert opened(store).head[0] == 0
    log = written(store)
    assert (steps(log), log.refused, log.gaps) == ([0, 1, 2, 3], {}, [])
    again = opened(store)
    assert (again.records, again.head) == (log.records, log.head)
    assert log.records[0].who and is_whole(log, RUN) and not is_whole(log, NEXT)


def test_parts_of_one_command_append_in_turn(store: LocalStateStore) -> None:
    """Two logs under one lock find each other's records, and go on after them."""
    first, second = opened(store), opened(store)
    for number in range(4):
        (first, second)[number % 2].append("step", RUN, 1, {"step": number})
    assert steps(opened(store)) == steps(second) == [0, 1, 2, 3]


def test_another_driver_is_fenced_off(store: LocalStateStore) -> None:
    """The number is taken by a record with a higher token; so is that of who has not looked since."""
    old, new = written(store, 2), opened(store)
    new.append("step", NEXT, 2, {"step": 9})
    with pytest.raises(RunConflictError, match=r"another driver wrote log/.*00000003\.json.*stops and changes nothing"):
        old.append("step", RUN, 1, {})
    with pytest.raises(RunConflictError, match="fencing token 2, this driver has 1"):
        opened(store).append("step", RUN, 1, {})
    assert steps(opened(store)) == [0, 1, 9]


@pytest.mark.parametrize("end", [b"", b'{"fencing_tok', b"{}\n", b"\0" * 100])
def test_what_is_no_record_at_the_end_is_superseded(store: LocalStateStore, end: bytes) -> None:
    """Torn or planted, twice even: it stays, the next record takes its number, and both are read again."""
    written(store, 2)
    for name in (NAMES[3], f"log/{TABLE}/00000003-1.json"):
        store.create(name, end)
        log = opened(store)
        assert steps(log) == [0, 1] and name in log.refused
    log.append("step", RUN, 1, {"step": 2})
    log.append("step", RUN, 1, {"step": 3})
    again = opened(store)
    assert (steps(again), again.gaps, len(again.refused)) == ([0, 1, 2, 3], [], 2)
    change(store, NAMES[3], end + b" ")
    assert opened(store).gaps == [3]


@pytest.mark.parametrize("records", [1, 3])
def test_damaged_end_of_several_objects_is_found(store: LocalStateStore, records: int) -> None:
    """The last two are damaged, the first of them torn and the other edited: the run is not whole."""
    log = opened(store)
    for part in range(4):
        log.append_all(RUN, 1, [("step", {"step": part * records + step}) for step in range(records)])
    first, last = (f"log/{TABLE}/{1 + part * records:08d}.json" for part in (2, 3))
    change(store, last, (store.read(last) or b"").replace(b'"fields":{"step"', b'"fields":{"stop"'))
    change(store, first, (store.read(first) or b"")[:-9])
    again = opened(store)
    assert steps(again) == list(range(2 * records))
    assert "does not" in str(again.find_loss(RUN)) and last in str(again.find_loss(RUN))
    assert (RUN, "step") in again.claims()


def test_records_of_a_damaged_object_are_told_by_its_name(store: LocalStateStore) -> None:
    """Each of its numbers is a gap, and none is said to be an object that never was."""
    log = opened(store)
    for part in range(3):
        log.append_all(RUN, 1, [("step", {"step": part * 3 + step}) for step in range(3)])
    change(store, NAMES[4], b"damaged\n")
    again = opened(store)
    assert again.gaps == [4, 5, 6]
    assert {again.describe_gap(number).partition(":")[0] for number in again.gaps} == {NAMES[4]}


def test_planted_name_ahead_is_superseded_when_its_number_comes(store: LocalStateStore) -> None:
    """Whoever has no key stops nobody by taking names."""
    store.create(NAMES[4], b"planted")
    log = written(store, 6)
    assert (steps(log), steps(opened(store))) == ([0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5])
    assert list(opened(store).refused) == [NAMES[4]]


@pytest.mark.parametrize("change_of", ["edited", "gone", "cut short", "of another table", "of another number"])
def test_lost_record_costs_its_own_run(store: LocalStateStore, change_of: str) -> None:
    """The steps tell whose record it was; other runs are whole, before and after it, and the log goes on."""
    written(store, 1, BEFORE)
    log = written(store, 2)
    written(store, 2, NEXT, 2)
    content = store.read(NAMES[3]) or b""
    other = TableLog.open(store, "another", MAC)
    for _ in range(3):
        other.append("step", RUN, 1, {"step": 1})
    changed = {
        "edited": content.replace(b'"fields":{"step":1}', b'"fields":{"step":7}'),
        "cut short": content[:-9],
        "of another table": store.read("log/another/00000003.json") or b"",
        "of another number": store.read(NAMES[1]) or b"",
    }
    store.delete(NAMES[3])
    if change_of in changed:
        store.create(NAMES[3], changed[change_of])
    log = opened(store)
    assert (steps(log), log.gaps) == ([0, 0, 0, 1], [3])
    assert [is_whole(log, run_id) for run_id in (BEFORE, RUN, NEXT)] == [True, False, True]
    assert (NAMES[3] in log.refused) is (change_of in changed) and NAMES[3] in log.describe_gap(3)
    log.append("step", NEXT, 2, {"step": 5})
    assert steps(opened(store))[-1] == 5


def test_record_of_a_fenced_driver_or_a_weaker_key_is_none(store: LocalStateStore) -> None:
    """What a slow driver, or the holder of a key that was given up, writes at the end is superseded."""
    both, weak = TableMac(b"w" * 32, b"k" * 32), TableMac(b"w" * 32)
    log = opened(store, both)
    log.append("step", RUN, 2, {"step": 0})
    for mac, token, why in ((weak, 2, "had given up"), (both, 1, "had been fenced off")):
        forger = opened(store, both)
        forger.mac = mac
        name, content = forger._make(RUN, token, [("step", {"step": 9})])
        store.create(name, content)
        found = opened(store, both)
        assert steps(found) == [0] and why in found.refused[name]
    assert opened(store, both).append("step", RUN, 2, {"step": 1}).number == 2


def test_foreign_name_is_refused(store: LocalStateStore) -> None:
    """Nobody knows what it would mean."""
    written(store, 1)
    store.create(f"log/{TABLE}/notes.txt", b"")
    with pytest.raises(VerificationError, match=r"notes\.txt: is not the name of a record"):
        opened(store)


@pytest.fixture
def small_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packs of two records."""
    monkeypatch.setattr(import_module(TableLog.__module__), "MOST_PACKED", 2)


def test_packed_records_stay_in_the_chain(store: LocalStateStore, small_packs: None) -> None:
    """With what is kept of them; the newest is never packed, and appending goes on."""
    log = opened(store)
    for number in range(5):
        log.append("step", RUN, 1, {"step": number, "files": [1] * 100})
    log.pack()
    packs = [f"log/{TABLE}/00000001-00000002.json", f"log/{TABLE}/00000003-00000004.json"]
    assert store.list("log/") == tuple(sorted([*packs, NAMES[5]]))
    again = opened(store)
    assert (steps(again), again.gaps, "files" in again.records[0].fields) == ([0, 1, 2, 3, 4], [], False)
    assert [record.digest for record in again.records] == [record.digest for record in log.records]
    again.append("step", RUN, 1, {"step": 5})
    again.pack()
    assert steps(opened(store)) == [0, 1, 2, 3, 4, 5]


def test_killed_packing_is_finished_by_the_next(store: LocalStateStore, small_packs: None) -> None:
    """Both copies are there: the pack counts; a loose one that differs is kept, and named."""
    log = written(store, 3)
    kept = {name: store.read(name) or b"" for name in store.list("log/")}
    log.pack()
    store.create(NAMES[2], kept[NAMES[2]])
    again = opened(store)
    assert (steps(again), again.gaps) == ([0, 1, 2], [])
    again.pack()
    assert NAMES[2] not in store.list("log/")
    store.create(NAMES[2], kept[NAMES[1]])
    again = opened(store)
    again.pack()
    assert store.read(NAMES[2]) and "belongs elsewhere" in again.refused[NAMES[2]]
    assert (steps(opened(store)), opened(store).gaps) == ([0, 1, 2], [])


def test_pack_that_is_torn_or_planted_destroys_no_record(store: LocalStateStore, small_packs: None) -> None:
    """What stands under a pack's name is compared with what it should have before anything is deleted."""
    log = written(store, 5)
    whole = [store.read(name) or b"" for name in store.list("log/")]
    for planted in (b"", b"junk", whole[0], whole[0] + whole[1][:-9], whole[1] + whole[0]):
        store.create(f"log/{TABLE}/00000001-00000002.json", planted)
        again = opened(store)
        assert (steps(again), again.gaps, again.head) == ([0, 1, 2, 3, 4], [], log.head)
        again.pack()
        packed = opened(store)
        assert (steps(packed), packed.gaps, packed.head) == ([0, 1, 2, 3, 4], [], log.head)
        for name in store.list("log/"):
            store.delete(name)
        for number, content in enumerate(whole, 1):
            store.create(NAMES[number], content)


def test_lists_are_kept_where_a_pack_without_them_is_planted(store: LocalStateStore, small_packs: None) -> None:
    """Anybody may leave lists out, so a record that also stands loose is taken from there, and stays there."""
    log = opened(store)
    for number in range(5):
        log.append("step", RUN, 1, {"step": number, "files": [["", [number]]]})
    lines = dict(log._shortened(2))
    store.create(f"log/{TABLE}/00000002-00000002.json", lines[2])
    again = opened(store)
    assert [record.is_short for record in again.records] == [False] * 5
    again.pack(before=2)
    assert [record.is_short for record in opened(store).records] == [False] * 5


def test_names_beyond_a_free_one_are_no_records(store: LocalStateStore) -> None:
    """Planted ahead they neither stop the log nor cost a record of it, before and after the number is used."""
    written(store, 2)
    for name in (f"{NAMES[3][:-5]}-1.json", f"{NAMES[3][:-5]}-5.json", f"log/{TABLE}/99999999.json"):
        store.create(name, b'{"run_id":[],"kind":"run_started"}\n')
    log = opened(store)
    assert "99999999" in str(log.end) or "00000003-" in str(log.end)
    assert log.claims() == frozenset() and is_whole(log, RUN)
    log.append("step", RUN, 1, {"step": 2})
    assert store.read(NAMES[3])
    again = opened(store)
    assert (steps(again), again.gaps, again.find_loss(RUN)) == ([0, 1, 2], [], None)
    again.append("step", RUN, 1, {"step": 3})
    assert steps(opened(store)) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("member", "value"),
    [
        (member, value)
        for member in ("run_id", "kind", "step", "fencing_token", "time", "fields", "previous_run")
        for value in OF_OTHER_TYPES
        if (member, value) != ("fields", {})  # a record may say nothing
    ],
)
def test_members_of_other_types_make_no_record(store: LocalStateStore, member: str, value: object) -> None:
    """With or without keys: what is planted at the end is refused by its name, and the log goes on after it."""
    log = written(store, 2)
    _, content = log._make(RUN, 1, [("step", {"step": 2})])
    body = decode_record("x", content)
    store.create(NAMES[3], encode_record({**body, member: value}))
    for found in (opened(store), TableLog.open(store, TABLE, None)):
        assert steps(found) == [0, 1] and NAMES[3] in str(found.end)
        assert found.claims() == frozenset()
    log.append("step", RUN, 1, {"step": 2})
    assert steps(opened(store)) == [0, 1, 2]


def test_driver_stops_where_another_has_a_newer_mac_key(store: LocalStateStore) -> None:
    """What it cannot authenticate may be the other's records, whose numbers it must not take."""
    old, new = TableMac(b"k" * 32), TableMac(b"k" * 32, b"n" * 32)
    first = opened(store, old)
    first.append("step", RUN, 1, {"step": 0})
    for key in ("mac-key.json", "mac-key-2.json"):
        store.create(f"keys/macs/{TABLE}/{key}", b"{}\n")
    opened(store, new).append("step", NEXT, 2, {"step": 1})
    with pytest.raises(RunConflictError, match="has made a new MAC key"):
        first.append("step", RUN, 1, {"step": 2})
    assert steps(opened(store, new)) == [0, 1]


def test_far_number_that_nobody_authenticated_costs_no_memory(store: LocalStateStore) -> None:
    """Without a key anybody may have planted it."""
    log = written(store, 2)
    _, content = log._make(RUN, 1, [("step", {"step": 2})])
    store.create(f"log/{TABLE}/999999999.json", encode_record({**decode_record("x", content), "number": 999_999_999}))
    found = TableLog.open(store, TABLE, None)
    assert (steps(found), found.gaps) == ([0, 1], [])


def test_changed_pack_costs_what_was_changed(store: LocalStateStore, small_packs: None) -> None:
    """Edited, copied under another name, or gone: the records are lost, and no others."""
    written(store, 5).pack()
    name = f"log/{TABLE}/00000003-00000004.json"
    content = store.read(name) or b""
    change(store, name, content.replace(b'"fields":{"step":2}', b'"fields":{"step":7}'))
    log = opened(store)
    assert (steps(log), log.gaps) == ([0, 1, 3, 4], [3])
    assert name in log.describe_gap(3) and not is_whole(log, RUN)
    with pytest.raises(VerificationError, match=r"00000003-00000004\.json: does not authenticate"):
        log.pack()
    change(store, name, store.read(f"log/{TABLE}/00000001-00000002.json") or b"")
    log = opened(store)
    assert (steps(log), log.gaps) == ([0, 1, 4], [3, 4])
    store.delete(name)
    assert steps(opened(store)) == [0, 1, 4] and "is missing" in opened(store).describe_gap(4)


def test_records_whose_lists_are_needed_are_not_packed(store: LocalStateStore, small_packs: None) -> None:
    """Nor those after them."""
    written(store, 8).pack(4)
    assert [name for name in store.list("log/") if "-0" in name.rpartition("/")[2]] == [
        f"log/{TABLE}/00000001-00000002.json"
    ]
    assert steps(opened(store)) == list(range(8))


def test_log_with_a_gap_is_packed_once_that_is_given_up(store: LocalStateStore, small_packs: None) -> None:
    """No pack has the gap in its midst, and what is read of the log stays the same."""
    log = written(store, 7)
    store.delete(NAMES[2])
    with pytest.raises(VerificationError, match=r"00000002\.json: is missing; restore"):
        opened(store).pack()
    opened(store).append(ACCEPT, RUN, 1, {"step": 7, "lost": [2]})
    before = opened(store)
    before.pack()
    packs = [f"log/{TABLE}/00000001-00000001.json", *(f"log/{TABLE}/0000000{n}-0000000{n + 1}.json" for n in (3, 5))]
    assert store.list("log/") == (*sorted(packs), NAMES[7], NAMES[8])
    again = opened(store)
    assert (steps(again), again.gaps, again.open_gaps) == ([0, 2, 3, 4, 5, 6, 7], [2], ())
    assert (again.head, is_whole(again, RUN)) == (before.head, False)
    assert log.head[0] == 7 and again.append("step", RUN, 1, {"step": 8}).number == 9


def test_lists_that_were_left_out_stay_pinned(store: LocalStateStore) -> None:
    """A record without them is authentic; one with others is not."""
    log = opened(store)
    log.append("step", RUN, 1, {"step": 0, "files": [["", []]]})
    log.append("step", RUN, 1, {"step": 1})
    content = store.read(NAMES[1]) or b""
    assert opened(store).records[0].fields == {"step": 0, "files": [["", []]]}
    change(store, NAMES[1], content.replace(b'[["",[]]]', b'[["x",[]]]'))
    assert opened(store).gaps == [1]


def test_records_are_appended_at_once(store: LocalStateStore, small_packs: None) -> None:
    """One object has them, all or none; they are packed together."""
    log = written(store, 1)
    several = log.append_all(RUN, 1, [("step", {"step": number}) for number in (1, 2, 3)])
    assert [record.number for record in several] == [2, 3, 4]
    assert store.list("log/") == (NAMES[1], NAMES[2])
    again = opened(store)
    assert (again.records, again.head) == (log.records, log.head)
    again.append("step", RUN, 1, {"step": 4})
    content = store.read(NAMES[2]) or b""
    again.pack()
    assert store.list("log/") == (f"log/{TABLE}/00000001-00000004.json", NAMES[5])
    assert steps(opened(store)) == [0, 1, 2, 3, 4]
    store.create(NAMES[2], content)
    opened(store).pack()
    assert NAMES[2] not in store.list("log/")


@pytest.mark.parametrize("whole", [0, 1, 2])
def test_object_that_is_torn_between_its_records_has_none(store: LocalStateStore, whole: int) -> None:
    """Or edited there: nothing was done on the word of those that are whole, and their numbers are used again."""
    written(store, 1).append_all(RUN, 1, [("step", {"step": number}) for number in (1, 2, 3)])
    lines = (store.read(NAMES[2]) or b"").splitlines(keepends=True)
    change(store, NAMES[2], b"".join(lines[:whole]) + lines[whole][:-9])
    log = opened(store)
    assert steps(log) == [0] and NAMES[2] in str(log.end)
    edited = b"".join(lines).replace(b'"fields":{"step":%d}' % (whole + 1), b'"fields":{"step":9}')
    change(store, NAMES[2], edited)
    assert steps(opened(store)) == [0] and "does not authenticate" in str(opened(store).end)
    log = opened(store)
    log.append("step", RUN, 1, {"step": 1})
    again = opened(store)
    assert (steps(again), again.gaps, again.end) == ([0, 1], [], None)


def test_several_lost_records_cost_the_runs_that_may_have_had_them(store: LocalStateStore) -> None:
    """What is left of the runs tells of all; where the ends of two are gone, each that ended before is doubted."""
    written(store, 2, BEFORE)
    written(store, 2)
    written(store, 2, NEXT, 2)
    runs = (BEFORE, RUN, NEXT)
    store.delete(NAMES[3])
    store.delete(NAMES[4])
    log = opened(store)
    assert [is_whole(log, run_id) for run_id in runs] == [True, False, True]
    store.delete(NAMES[2])
    assert [is_whole(opened(store), run_id) for run_id in runs] == [False, False, True]


@pytest.mark.parametrize(("number", "gaps"), [(3, [3]), (4, [4]), (None, [4])])
def test_copy_of_another_past_costs_what_it_replaced(
    store: LocalStateStore, number: int | None, gaps: list[int]
) -> None:
    """An authentic record of a past that was given up stands in the place of another; those after it tell.

    Others of that past may be before it, so runs without a record after it are doubted.
    """
    written(store, 2)
    kept = {name: store.read(name) or b"" for name in store.list("log/")}
    written(store, 2, NEXT, 2)
    forked = {name: store.read(name) or b"" for name in store.list("log/")}
    for name in forked:
        store.delete(name)
    for name, content in kept.items():
        store.create(name, content)
    written(store, 4, BEFORE, 3)
    change(store, NAMES[number or 3], forked[NAMES[number or 3]])
    if number is None:
        change(store, NAMES[4], b"")
    log = opened(store)
    assert (log.gaps, log.records[-1].number) == (gaps, 6)
    whole = [is_whole(log, run_id) for run_id in (RUN, BEFORE, NEXT)]
    assert whole == [False, False, False]


def test_log_is_shown_without_a_key(store: LocalStateStore) -> None:
    """What was edited too, since nothing is checked."""
    written(store, 3)
    content = store.read(NAMES[2]) or b""
    change(store, NAMES[2], content.replace(b'"fields":{"step":1}', b'"fields":{"step":7}'))
    log = TableLog.open(store, TABLE, None)
    assert steps(log) == [0, 7, 2] and {record.generation for record in log.records} == {0}


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


@pytest.mark.parametrize("lives", range(5))
def test_packing_that_is_killed_anywhere_loses_nothing(small_packs: None, lives: int) -> None:
    """The log reads as before, also where numbers were used again, and the next packing ends what this one began."""
    store = Mortal({f"log/{TABLE}/00000002.json": b"torn"})
    before = written(store, 5).records
    store.lives = lives
    with pytest.raises(Killed):
        opened(store).pack()
    assert [record.digest for record in opened(store).records] == [record.digest for record in before]
    store.lives = 9
    opened(store).pack()
    assert store.list("log/") == (
        f"log/{TABLE}/00000001-00000002.json", f"log/{TABLE}/00000003-00000004.json", NAMES[5],
    )  # fmt: skip


def test_log_that_was_edited_from_its_beginning_goes_on(store: LocalStateStore) -> None:
    """Each number is used again in its turn."""
    written(store, 3)
    for name in store.list("log/"):
        change(store, name, (store.read(name) or b"").replace(b'"fields":{"step":', b'"fields":{"step":1'))
    log = opened(store)
    assert log.records == [] and NAMES[1] in str(log.end)
    store.delete(NAMES[1])
    assert NAMES[2] in str(opened(store).end)
    log = written(store, 4)
    assert (steps(opened(store)), log.head, opened(store).end) == ([0, 1, 2, 3], opened(store).head, None)


def test_log_is_shown_with_what_took_the_place_of_planted_records(store: LocalStateStore) -> None:
    """Whoever has no key reads the records that count, too."""
    planted = TableLog.open(store, TABLE, None)
    for step in (8, 9):
        planted.append("step", NEXT, 9, {"step": step})
    written(store, 3)
    log = TableLog.open(store, TABLE, None)
    assert steps(log) == steps(opened(store)) == [0, 1, 2]
    assert [log.find_loss(run_id) for run_id in (RUN, NEXT)] == [None, None]

"""Pins: what the metastore says of a table's records is confirmed, or stops what deletes by these records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt.errors import VerificationError
from sparkcrypt.ledger.audit.audit import AuditWriter
from sparkcrypt.ledger.audit.pins import PinPlace, describe_unpinned, digest_of_pin, find_unpinned, make_pin
from sparkcrypt.ledger.audit.trust import TableTrust
from sparkcrypt.ledger.journal.journal import Journal
from sparkcrypt.ledger.log import TableLog
from sparkcrypt.ledger.state.mac import TableMac
from sparkcrypt.ledger.state.store import LocalStateStore
from sparkcrypt.ledger.unit import Unit
from tests.journals import start_run
from tests.unit.backfill.believed import BASE, STAGED, make_service, policy_of
from tests.unit.backfill.conftest import RUN, TABLE, run_record

NEXT = "20261122T101112Z-3f9a2c"


@pytest.fixture
def pinned(store: LocalStateStore, tmp_path: Path) -> tuple[Journal, PinPlace, TableMac]:
    """A journal whose unit is about to be swapped, and the pin that the metastore got with that."""
    make_service(tmp_path)
    mac = trust_of(store, tmp_path).mac(renew=True)
    journal = start_run(store, run_record(), mac)
    record = journal.append("unit_swapping", unit="p=0", staged=STAGED, location=f"{BASE}/p=0", files=[])
    return journal, PinPlace("p=0", "p=0", STAGED, make_pin(mac, TABLE, "p=0", record)), mac


def trust_of(store: LocalStateStore, tmp_path: Path, places: Iterable[PinPlace] = ()) -> TableTrust:
    """Return what the table's records are believed by, with pins in the metastore."""
    return TableTrust(store, TABLE, policy_of(tmp_path), BASE, lambda _: (BASE,), list_pins=lambda _: tuple(places))


def refused(store: LocalStateStore, tmp_path: Path, *places: PinPlace) -> str:
    """Return the message by which deletions are refused; empty if they are not."""
    try:
        trust_of(store, tmp_path, places).refuse_lost_pins()
    except VerificationError as error:
        return str(error)
    return ""


Pinned = tuple[Journal, PinPlace, TableMac]


def test_records_that_are_ahead_of_a_pin_are_confirmed(store: LocalStateStore, tmp_path: Path, pinned: Pinned) -> None:
    """A crash right after the swap, and all that is written since."""
    journal, place, _ = pinned
    assert not refused(store, tmp_path, place)
    journal.append("run_finished", outcome="done")
    assert not refused(store, tmp_path, place)


def test_swap_of_which_nothing_came_yet_is_told(store: LocalStateStore, tmp_path: Path, pinned: Pinned) -> None:
    """The run may be under way, or the end was cut off; a record of the unit, or the end of the run, settles it."""
    journal, place, _ = pinned

    def check() -> None:
        trust_of(store, tmp_path, [place, PinPlace("p=1", "p=1", BASE, "")]).refuse_older_records()

    with pytest.raises(VerificationError, match=r"p=0: its pin names record 2 .* does not say what came of that"):
        check()
    journal.append("unit_listed", unit="p=1", staged=STAGED, location=f"{BASE}/p=1", files=[])
    with pytest.raises(VerificationError, match="does not say what came of that"):
        check()
    last = journal.append("unit_failed", unit="p=0", error="x")
    check()
    store.delete(last.name)
    Journal.open(trust_of(store, tmp_path).log(), RUN).append("run_finished", outcome="done")
    check()


def test_a_table_without_pins_asks_for_no_key(store: LocalStateStore, tmp_path: Path) -> None:
    """Nor does it get an audit's key by being looked at."""
    assert not refused(store, tmp_path, PinPlace("p=0", "p=0", BASE, ""))
    assert store.list("") == ()


def test_an_older_copy_is_refused(store: LocalStateStore, tmp_path: Path, pinned: Pinned) -> None:
    """By name of the unit, of the record, and with the next step; as is a state directory without an audit."""
    journal, place, _ = pinned
    store.delete(journal.records[-1].name)
    message = refused(store, tmp_path, place, replace(place, name="p=1", unit="p=1"))
    assert f"p=0: its pin names record 2 of run {RUN}" in message
    assert "Restore the newest copy" in message and "sparkcrypt audit accept" in message
    for name in store.list(""):
        store.delete(name)
    assert "p=0: it has a pin, and the state directory has no audit" in refused(store, tmp_path, place)
    assert store.list("") == ()


def test_another_record_of_that_number_is_refused(store: LocalStateStore, tmp_path: Path, pinned: Pinned) -> None:
    """A run that was continued from an older copy has a record of the number, and not of the digest."""
    journal, place, mac = pinned
    store.delete(journal.records[-1].name)
    Journal.open(TableLog.open(store, TABLE, mac), RUN).append("run_finished", outcome="done")
    assert "which the state directory has not" in refused(store, tmp_path, place)


def test_the_record_after_it_confirms_a_pin_whose_record_is_damaged(
    store: LocalStateStore, tmp_path: Path, pinned: Pinned
) -> None:
    """Records are then not older than the pin, so runs of which none is lost are not stopped by it."""
    journal, place, _ = pinned
    name = journal.records[-1].name
    content = store.read(name) or b""
    store.delete(name)
    store.create(name, content.replace(b"unit_swapping", b"unit_swapped."))
    assert "which the state directory has not" in refused(store, tmp_path, place)
    store.delete(name)
    store.create(name, content)
    journal.append("unit_swapped", unit="p=0", outcome={"unit": "p=0"})
    store.delete(name)
    assert not refused(store, tmp_path, place)


@pytest.mark.parametrize(
    "forged",
    [
        lambda text: text[:-1] + ("0" if text[-1] != "0" else "1"),
        lambda text: text.replace(":2:", ":1:", 1),
        lambda text: text.replace(RUN, NEXT),
        lambda text: "2" + text[1:],
        lambda text: "nonsense",
        lambda text: text + "\n" + text,
        lambda text: "1:" + "x" * 100_000,
    ],
)
def test_a_forged_pin_stops_deletes_and_no_more(
    store: LocalStateStore, tmp_path: Path, pinned: Pinned, forged: Any
) -> None:
    """Whoever may alter the table causes a refusal, whose message shows at most the pin's beginning."""
    _, place, _ = pinned
    message = refused(store, tmp_path, replace(place, text=forged(place.text)))
    assert "p=0: its pin" in message and "is not authentic" in message
    assert len(message) < 800
    assert trust_of(store, tmp_path, [replace(place, text=forged(place.text))]).find_unfinished() == RUN


def test_a_pin_of_another_table_is_none(store: LocalStateStore, tmp_path: Path, pinned: Pinned) -> None:
    """A table made LIKE another has its pin: it stops nothing of its own, and confirms nothing, though it names it."""
    journal, place, mac = pinned
    other = replace(place, text=make_pin(mac, "another", "p=0", journal.records[-1]))
    assert not refused(store, tmp_path, other)
    assert find_unpinned([other], TABLE) == ["p=0"]
    forged = f"{place.text.rpartition(':')[0]}:{other.text.rpartition(':')[2]}"
    assert "is not authentic" in refused(store, tmp_path, replace(place, text=forged))


def test_a_missing_pin_is_noted(store: LocalStateStore, tmp_path: Path, pinned: Pinned) -> None:
    """So is the pin of another unit, as a renamed partition has it; who removes it silences no refusal of others."""
    _, place, _ = pinned
    none, moved = replace(place, name="p=0 again", text=""), replace(place, name="p=9", unit="p=9")
    untouched = PinPlace("p=5", "p=5", f"{BASE}/p=5", "")
    assert not refused(store, tmp_path, none, moved, untouched)
    assert find_unpinned([place, none, moved, untouched], TABLE) == ["p=0 again", "p=9"]
    (note,) = describe_unpinned(["p=0", "p=9"])
    assert note.startswith("p=0 and 1 more units have no pin") and describe_unpinned([]) == ()
    assert trust_of(store, tmp_path).unpinned_units([none])[0].startswith("p=0 again has no pin")


def test_given_up_records_stop_nothing_any_more(store: LocalStateStore, tmp_path: Path, pinned: Pinned) -> None:
    """An entry of the audit names the pin; another pin is not covered by it."""
    journal, place, mac = pinned
    store.delete(journal.records[-1].name)
    later = replace(place, name="p=1", unit="p=1", text=make_pin(mac, TABLE, "p=1", journal.records[-1]))
    why = {"run_id": "accept", "policy_digest": "d"}
    entry = {"who": "a", "what": "accept", "why": why, "given_up": [digest_of_pin(place.text)]}
    AuditWriter(TableLog.open(store, TABLE, mac), 1).append(entry)
    assert not refused(store, tmp_path, place)
    assert "p=1: its pin names record 2" in refused(store, tmp_path, place, later)


def test_rows_are_added_to_a_unit_by_its_own_pin(store: LocalStateStore, tmp_path: Path, pinned: Pinned) -> None:
    """The metastore is asked for that unit alone; the pin of another stops nothing, and giving it up does not help."""
    journal, place, _ = pinned
    asked, unit = list[Unit | None](), Unit("p=0", f"{BASE}/p=0", None, "p=0", {})
    forged = replace(place, text=place.text + "0")

    def list_pins(of: Unit | None) -> Iterable[PinPlace]:
        asked.append(of)
        return [forged if of == unit else place]

    trust = TableTrust(store, TABLE, policy_of(tmp_path), BASE, lambda _: (BASE,), list_pins=list_pins)
    other = replace(unit, name="p=1")
    trust.refuse_older_than(other, journal.log)
    with pytest.raises(VerificationError, match=r"p=0: its pin .* so the rows that came late may be in the table"):
        trust.refuse_older_than(unit, journal.log)
    assert asked == [other, unit]

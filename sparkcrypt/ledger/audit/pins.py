"""Pins: what the metastore says of a table's records, so that an older copy of all of them is not acted upon.

Whoever may write to the state directory can put an older copy of everything in its place: each record of it is
authentic, and none is missing in the chains.  So a pin stands where another party keeps it, as a parameter of each
partition that a run has swapped, set in the same call of the metastore as the swap; of a table without partitions as a
property, set right before.  Before rows of a late commit are added to a unit, its pin is set anew:

    sparkcrypt.pin = 1:<run id>:<number>:<digest>:<unit>:<mac>

It names the log's record before that, by number and digest, has a digest of the table's id and the unit's
name, and the MAC of the table's audit.  The records may be ahead of it.  A pin whose record the state directory lacks,
or that is not authentic, stops what deletes or puts back old files: whoever may ALTER the table can cause no more than
that.  One that is missing is noted, and so is the pin of another unit or table, as a renamed partition has it, or a
table that was made LIKE another.  Bare folders have no such place.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from sparkcrypt.ledger.log import TableLog
from sparkcrypt.ledger.record import LogRecord
from sparkcrypt.ledger.state.mac import TableMac
from sparkcrypt.ledger.state.store import encode_record
from sparkcrypt.ledger.unit import Unit, is_staged
from sparkcrypt.names import PIN

_VERSION = 1
_PURPOSE = b"sparkcrypt pin\n"
_TEXT = re.compile(r"1:(?P<run>[^:]+):(?P<number>[1-9]\d*):(?P<digest>[0-9a-f]{64}):(?P<unit>[0-9a-f]{16}):(?P<mac>.+)")


@dataclass(frozen=True, slots=True)
class PinPlace:
    """A place in the metastore that may have a pin.

    Attributes:
        name: the unit's name, for messages.
        unit: the unit's partition path; empty for a table without partitions.
        location: the folder to which it points.
        text: its pin; empty if it has none.
    """

    name: str
    unit: str
    location: str
    text: str

    @classmethod
    def of(cls, unit: Unit, of_table: str) -> PinPlace:
        """Return the place of a unit, which the metastore has at its partition, or at the table.

        Args:
            unit: the unit as the metastore has it.
            of_table: the table's own pin, for one without partitions.
        """
        text = of_table if unit.partition is None else unit.partition.pin
        return cls(unit.name, unit.partition_path, unit.location, text)


@dataclass(frozen=True, slots=True)
class LostPin:
    """A pin that is not confirmed by the state directory.

    Attributes:
        name: the unit's name.
        text: the pin.
        why: what is wrong, with the record that it names.
    """

    name: str
    text: str
    why: str


def make_pin(mac: TableMac, table_id: str, unit: str, record: LogRecord) -> str:
    """Return the pin of a unit that is about to be swapped.

    Args:
        mac: the MAC of the table's audit.
        table_id: the table's id.
        unit: the unit's partition path; empty for a table without partitions.
        record: the record before the swap.
    """
    owner = _digest(table_id, unit)
    members = _members(table_id, record.run_id, record.number, record.digest, owner)
    return f"1:{record.run_id}:{record.number}:{record.digest}:{owner}:{mac(_PURPOSE + encode_record(members))}"


def find_lost(log: TableLog, mac: TableMac, places: Iterable[PinPlace], given_up: Collection[str]) -> list[LostPin]:
    """Return the pins whose record the state directory lacks, or that are not authentic.

    Args:
        log: the log of the table.
        mac: the table's MAC keys.
        places: the places of the table that have a pin of their own, as `list_own` returns them.
        given_up: digests of pins that a person has given up.
    """
    lost = []
    for place in places:
        found = _TEXT.fullmatch(place.text)
        if digest_of_pin(place.text) in given_up:
            continue
        if found is None or not _is_authentic(log.table_id, mac, found):
            why = f"its pin {place.text[:80]!r} is not authentic: it was edited, or made under another MAC key"
            lost.append(LostPin(place.name, place.text, why))
            continue
        run_id, number, digest = found["run"], int(found["number"]), found["digest"]
        if _digest_of(log, number) != digest:
            why = f"its pin names record {number} of run {run_id} ({digest[:12]}…), which the state directory has not"
            lost.append(LostPin(place.name, place.text, why))
    return lost


def _digest_of(log: TableLog, number: int) -> str | None:
    """Return the digest of a record, also of one that is lost, by the record after it; None if neither is there."""
    record = log.find(number)
    if record is None or record.number > number + 1:
        return None
    return record.digest if record.number == number else record.previous


def find_unsettled(log: TableLog, places: Iterable[PinPlace], given_up: Collection[str]) -> list[str]:
    """Return messages on units of which the log ends with what their authentic pin names: what came of it is unknown.

    Args:
        log: the log of the table.
        places: the places of the table.
        given_up: digests of pins that a person has given up.
    """

    @cache
    def last_of(run_id: str) -> tuple[Mapping[str | None, int], int]:
        """Return unit -> the number of its last record in a run, and the number of the record that ended the run."""
        records = log.of_run(run_id)
        ends = (record.number for record in records if record.kind == "run_finished")
        return {record.unit: record.number for record in records}, max(ends, default=0)

    def is_settled(run_id: str, number: int) -> bool:
        """Return whether a run went on with a unit after a record of it, or has ended."""
        record = log.find(number)
        if record is None or (record.number, record.run_id) != (number, run_id):
            return True
        last, end = last_of(run_id)
        return last[record.unit] > number or end > number

    texts = ((place.name, place.text) for place in list_own(places, log.table_id))
    pins = ((name, _TEXT.fullmatch(text)) for name, text in texts if digest_of_pin(text) not in given_up)
    return [
        f"{name}: its pin names record {found['number']} of run {found['run']}, that it is about to change, and the "
        "state directory does not say what came of that: the run is under way, or was killed there, or the end of its "
        "log was cut off; run the job, or the rollback, again, which proves what is in use and records it"
        for name, found in pins
        if found is not None and not is_settled(found["run"], int(found["number"]))
    ]


def list_own(places: Iterable[PinPlace], table_id: str) -> list[PinPlace]:
    """Return the places with a pin, except those whose pin is of another unit or table."""
    return [
        place
        for place in places
        if place.text
        and ((found := _TEXT.fullmatch(place.text)) is None or found["unit"] == _digest(table_id, place.unit))
    ]


def find_unpinned(places: Iterable[PinPlace], table_id: str) -> list[str]:
    """Return the units that a run has swapped, by their folders, and that have no pin of their own."""
    swapped = [place for place in places if is_staged(place.location)]
    own = {place.name for place in list_own(swapped, table_id)}
    return [place.name for place in swapped if place.name not in own]


def describe_lost(lost: Sequence[LostPin]) -> str:
    """Return the message that nothing is deleted, with the first pin, its record, and the next step."""
    more = f"; {len(lost) - 1:,} more units have such a pin" if len(lost) > 1 else ""
    return (
        f"{lost[0].name}: {lost[0].why}{more}: the state directory is older than the table, as one that was restored "
        "from a copy, or someone altered the table; no old files are deleted or put back on its word. Restore the "
        "newest copy of the state directory; where there is none, look at the table, and let `sparkcrypt audit accept` "
        "record that the newer records are given up"
    )


def describe_unpinned(units: Sequence[str]) -> tuple[str, ...]:
    """Return a note for reports that units have no pin; empty if there are none."""
    if not units:
        return ()
    more = f" and {len(units) - 1:,} more units have" if len(units) > 1 else " has"
    return (
        f"{units[0]}{more} no pin in the metastore ({PIN}), though a run has swapped it: an older copy of the state "
        "directory would not be noticed there; the next swap sets it again",
    )


def digest_of_pin(text: str) -> str:
    """Return the SHA-256 of a pin, by which an entry of the audit names one that was given up."""
    return hashlib.sha256(text.encode()).hexdigest()


def _is_authentic(table_id: str, mac: TableMac, found: re.Match[str]) -> bool:
    members = _members(table_id, found["run"], int(found["number"]), found["digest"], found["unit"])
    return mac.check(_PURPOSE + encode_record(members), found["mac"]) > 0


def _members(table_id: str, run_id: str, number: int, digest: str, unit: str) -> dict[str, object]:
    known = {"run_id": run_id, "number": number, "digest": digest, "unit": unit}
    return {"version": _VERSION, "table_id": table_id, **known}


def _digest(table_id: str, unit: str) -> str:
    return hashlib.sha256(f"{table_id}\n{unit}".encode()).hexdigest()[:16]


ListPlaces = Callable[[Unit | None], Iterable[PinPlace]]
"""Lists the places in the metastore that may have a pin: that of a unit, or all of a table; none of a bare folder."""

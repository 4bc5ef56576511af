"""The log of a table: one chain of numbered, authenticated records of what commands do to it.

    log/<table id>/00000012.json              record 12, or the records from 12 on that were appended at once
    log/<table id>/00000012-1.json            the same, where what stands under ``00000012.json`` is no record
    log/<table id>/00000001-00000064.json     older records in a pack

An object has one record a line.  A record is canonical JSON: ``version``, ``table_id``, ``number``, ``time`` (UTC),
``kind``, ``run_id``, ``step`` (which of its run's records it is), ``fencing_token``, ``who``, ``fields``, ``previous``
(the digest of the record before), ``previous_run`` (its run and step), ``supersedes`` (SHA-256 of what stands under its
number and is no record, else null) and ``mac``, by the table's newest MAC key over a purpose and the canonical JSON of
all these.  For MAC and digest (SHA-256 of the whole record) each list that a pack may leave out counts as its SHA-256,
so that a packed record is authentic by itself.  Each object is created exclusively by who holds the table's lock.

What stands at the end and is no authentic record (torn by a power cut, or planted) is never deleted, since a slow
driver could then delete the good record that replaced it: its number is used again under the next name, and
``supersedes`` pins its bytes.  What is missing or damaged before an authentic record is a *gap*.  The steps of each
run, and the run of the record before each, tell whose records were lost: only these runs are not whole.  Where they do
not tell of all (the ends of several runs are gone at once), no run is whole that has no record after the gap.

A cut at the end is as a crash to the log itself; pins in the metastore find it (``pins``).
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import groupby
from operator import attrgetter
from typing import Any

from sparkcrypt.errors import ConfigError, RunConflictError, VerificationError
from sparkcrypt.ledger.record import Fields, LogRecord, RecordText, decode_line, is_shortened
from sparkcrypt.ledger.state.lock import acting_user
from sparkcrypt.ledger.state.mac import TableMac, is_mac_key
from sparkcrypt.ledger.state.store import StateStore

MOST_PACKED, MOST_BYTES = 64, 4 * 1024 * 1024
"""The number of records, or of bytes, at which a pack is full."""
ACCEPT = "accept"
"""The kind of the record that records are given up: ``lost`` has the numbers of those in gaps."""
_VERSION = 1
_PURPOSE = b"sparkcrypt log record\n"
_NAME = re.compile(
    r"(?P<number>\d{8}|[1-9]\d{8,11})(?:-(?P<attempt>[1-9]\d{0,6})|-(?P<last>\d{8}|[1-9]\d{8,11}))?\.json", re.ASCII
)
_WIDEST_GAP = 1_000_000
"""The most records that may be lost in one place of a log that nobody authenticated."""
_START = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, slots=True)
class _Damage:
    """What stands in a log and is no record, as of its last record.

    Attributes:
        reasons: number -> why what stands there is none: for gaps, and for the first number of each object.
        end: the numbers from the next one on under each of which something stands.
        claims: run id -> the first name in ``end`` that has the form of a record of it.
    """

    reasons: Mapping[int, str]
    end: range
    claims: Mapping[str, str]


class TableLog:
    """The log of one table, as it was when it was opened or last appended to; threads may append concurrently.

    Attributes:
        records: every record, oldest first.
        refused: name -> why what stands there is no record.
        gaps: the numbers of records that are missing or damaged, before authentic ones.
        mac: the table's MAC keys.

    Args:
        store: the state directory.
        table_id: the table's id.
        mac: the table's MAC keys; without them records are read for display alone: neither MAC nor chain is checked.
    """

    def __init__(self, store: StateStore, table_id: str, mac: TableMac | None) -> None:
        self._store, self.table_id, self.mac = store, table_id, mac
        self.name = self._folder = f"log/{table_id}/"
        self._mutex = threading.RLock()
        self.records: list[LogRecord] = []
        self.refused: dict[str, str] = {}
        self.gaps: list[int] = []
        self._next = 1
        self._taken: list[bytes] = []
        self._fork: LogRecord | None = None
        self._is_forked = False
        self._of_run: dict[str, list[LogRecord]] = defaultdict(list)
        self._known: dict[str, int] = {}
        self._steps = 0
        self._short: set[str] = set()
        self._objects: dict[int, str] = {}
        self._claims: dict[str, tuple[str, str]] = {}
        self._damage: _Damage | None = None
        self._unreadable: str | None = None

    @classmethod
    def open(cls, store: StateStore, table_id: str, mac: TableMac | None) -> TableLog:
        """Read a table's log.

        Raises:
            VerificationError: a name is not that of a record.
        """
        log = cls(store, table_id, mac)
        log.refresh()
        if log.gaps:  # records may have been packed while they were listed
            log = cls(store, table_id, mac)
            log.refresh()
        return log

    @property
    def head(self) -> tuple[int, str]:
        """The number and the digest of the last record."""
        return (self.records[-1].number, self.records[-1].digest) if self.records else (0, _START)

    @property
    def end(self) -> str | None:
        """Why what stands after the last record is none; None if nothing stands there."""
        later = (why for name, why in self.refused.items() if self._place(name)[0] >= self._next)
        return next(later, None)

    @property
    def open_gaps(self) -> tuple[int, ...]:
        """The numbers in ``gaps`` that nobody has given up."""
        accepted = (record.fields.get("lost", ()) for record in self.records if record.kind == ACCEPT)
        given_up = frozenset(number for numbers in accepted for number in numbers)
        return tuple(number for number in self.gaps if number not in given_up)

    @property
    def authenticates(self) -> bool:
        """Whether MACs are checked."""
        return self.mac is not None

    def of_run(self, run_id: str, after: int = 0) -> Sequence[LogRecord]:
        """Return the records of a run, or of a command, oldest first, without the first ``after`` of them."""
        return tuple(self._of_run.get(run_id, [])[after:])

    def find(self, number: int) -> LogRecord | None:
        """Return the first record from a number on; None if there is none."""
        place = bisect_left(self.records, number, key=attrgetter("number"))
        return self.records[place] if place < len(self.records) else None

    def is_short(self, run_id: str) -> bool:
        """Return whether lists of files of a run were left out when it was packed."""
        return run_id in self._short

    def claims(self) -> frozenset[tuple[str, str]]:
        """Return run and kind of what stands right after the last record, has the form of a record, and is none."""
        end = self._find_damage().end if self._claims else ()
        return frozenset(claim for name, claim in self._claims.items() if self._place(name)[0] in end)

    def _find_damage(self) -> _Damage:
        """Return what stands there and is no record; it is looked for once, until that changes."""
        damage = self._damage
        if damage is None:
            reasons = dict[int, str]()
            refused = sorted({self._place(name)[0] for name in self.refused})
            for name, why in self.refused.items():
                first, _, last = self._place(name)
                reasons.setdefault(first, why)
                last = last or self._find_end(first, refused)
                for place in range(bisect_left(self.gaps, first), bisect_right(self.gaps, max(first, last))):
                    reasons.setdefault(self.gaps[place], why)
            # An object may have had several records, so the next one's number tells nothing of what is between.
            after, claims = range(self._next, max(refused, default=0) + 1), dict[str, str]()
            for name, (run_id, _) in self._claims.items():
                if self._place(name)[0] in after:
                    claims.setdefault(run_id, name)
            damage = self._damage = _Damage(reasons, after, claims)
        return damage

    def _find_end(self, first: int, refused: Sequence[int]) -> int:
        """Return the last number that a loose object may have had: that before the next object or record."""
        place = bisect_right(refused, first)
        end = refused[place] if place < len(refused) else self._next
        place = bisect_left(self.records, first + 1, key=lambda record: record.number)
        return min(end, self.records[place].number if place < len(self.records) else end) - 1

    def _refuse(self, name: str, why: str) -> None:
        self.refused[name], self._damage = why, None

    def find_loss(self, run_id: str) -> str | None:
        """Return what is wrong with a record of a run that is missing, damaged or not authentic; None if all is well.

        That is also asked where nobody can tell whose records are lost, and this run has none after them.
        """
        claim = self._find_damage().claims.get(run_id) if self._claims else None
        if claim is not None:
            return self.refused[claim]
        number, step = 0, 0
        for record in self._of_run.get(run_id, ()):
            if record.step != step + 1:
                return self._describe_loss(number)
            number, step = record.number, record.step
        if step < self._known.get(run_id, 0):
            return self._describe_loss(number)
        # A fork shows that records of another past may be before a gap.
        is_told = self._steps - len(self.records) == len(self.gaps) and not self._is_forked
        if not self.gaps or is_told or number > self.gaps[-1]:
            return None
        return self.describe_gap(self.gaps[-1])

    def _describe_loss(self, number: int) -> str:
        """Return what is wrong with the first record that is lost after a number."""
        after = bisect_right(self.gaps, number)
        return self.describe_gap(self.gaps[after] if after < len(self.gaps) else number + 1)

    def describe_gap(self, number: int) -> str:
        """Return what is wrong with the record of a number in ``gaps``: the name of its object, and why it is none."""
        return self._find_damage().reasons.get(number, f"{self._folder}{number:08d}.json: is missing")

    def refresh(self) -> None:
        """Read what was appended since.

        Raises:
            VerificationError: as `open`.
        """
        with self._mutex:
            names = [(self._place(name), name) for name in self._store.list(self._folder)]
            found = sorted((first, not last, attempt, last, name) for (first, attempt, last), name in names)
            loose: dict[int, list[str]] = defaultdict(list)
            for first, is_loose, attempt, _, name in found:
                if is_loose and attempt == len(loose[first]):
                    loose[first].append(name)
                elif is_loose:
                    self._refuse(name, f"{name}: stands beyond a name that is free, so it is no record")
            self._taken, self._unreadable = [], None
            for (first, is_loose), group in groupby(found, key=lambda item: item[:2]):
                if is_loose and first >= self._next:
                    self._take_number(first, loose[first])
                for _, _, _, last, name in () if is_loose else group:
                    if last >= self._next:
                        self._take_pack(name, first, loose)

    def has_its_objects(self) -> bool:
        """Return whether each object of which it has records is there yet: none was packed, or deleted."""
        return set(self._objects.values()) <= set(self._store.list(self._folder))

    def append(self, kind: str, run_id: str, token: int, fields: Mapping[str, Any]) -> LogRecord:
        """Append a record under the table's lock; see `append_all`."""
        return self.append_all(run_id, token, [(kind, fields)])[0]

    def append_all(
        self, run_id: str, token: int, entries: Sequence[tuple[str, Mapping[str, Any]]]
    ) -> Sequence[LogRecord]:
        """Append records under the table's lock, all or none of them, as one object of the state directory.

        Args:
            run_id: the run, or command, that appends them.
            token: the fencing token of the lock.
            entries: what each is about, and JSON values.

        Raises:
            RunConflictError: another driver appended, so this one is fenced off.
            VerificationError: the MAC key is one that a record before it had given up, or what stands under the next
                number cannot be read.
        """
        with self._mutex:
            while True:
                self._refuse_fenced(run_id, token)
                name, content = self._make(run_id, token, entries)
                before = self._next
                if self._store.create(name, content):
                    why = self._take_object(name, content, before, self._taken)
                    if why is not None:
                        raise VerificationError(why)
                    return [record for record in self.records[-len(entries) :] if record.number >= before]
                self.refresh()
                if any(record.number >= before and record.fencing_token != token for record in self.records):
                    raise RunConflictError(
                        f"run {run_id}: another driver wrote {name}, so it works on this table; this one stops and "
                        "changes nothing more"
                    )

    def pack(self, before: int | None = None) -> None:
        """Pack older records without their lists, and delete those that are packed, under the table's lock.

        Args:
            before: the number of the first record that is not packed, since its lists are needed; the last object of
                the log is never packed.

        Raises:
            VerificationError: the log has a gap that nobody has given up; all stays.
        """
        for gap in self.open_gaps:
            raise VerificationError(f"{self.describe_gap(gap)}; restore the state directory's copy of it")
        last_object = max(self._objects, default=1)
        stop = last_object if before is None else min(before, last_object)
        self._clear_packed(stop)
        loose = [first for first, name in sorted(self._objects.items()) if not self._place(name)[2]]
        ends = dict(zip(loose, [*loose[1:], self._next], strict=True))
        for lines in _full_packs(self._shortened(first) for first in loose if ends[first] <= stop):
            name = f"{self._folder}{lines[0][0]:08d}-{lines[-1][0]:08d}.json"
            content = b"".join(line for _, line in lines)
            if not self._store.create(name, content) and self._read(name) != content:
                self._store.delete(name)  # torn, or planted: the records that it should have are still loose
                self._store.create(name, content)
            for number, _ in lines:
                self._objects.pop(number, None)
            self._objects[lines[0][0]] = name
        self._clear_packed(stop)

    def _shortened(self, first: int) -> list[tuple[int, bytes]]:
        """Return the records of a loose object, each with its number, without their lists."""
        lines = (self._store.read(self._objects[first]) or b"").splitlines(keepends=True)
        return [(first + place, _shorten(self._objects[first], line)) for place, line in enumerate(lines)]

    def _clear_packed(self, stop: int) -> None:
        """Delete the loose objects before a number whose every record a pack has as it is; what differs stays."""
        loose: dict[int, list[str]] = defaultdict(list)
        for (first, _, last), name in sorted((self._place(name), name) for name in self._store.list(self._folder)):
            if not last:
                loose[first].append(name)
        packed = self._digests_in_packs(sorted(loose))
        digests = {record.number: record.digest for record in self.records}
        for first in sorted(packed.keys() & loose.keys()):
            names = loose[first]
            for place, name in enumerate(names):
                own = self._digests_of(name)
                if (
                    own
                    and max(own) < stop
                    and all(digests.get(number) == packed.get(number) == own[number] for number in own)
                ):
                    for earlier in names[: place + 1]:  # what stood under the number before it, and was no record
                        self._store.delete(earlier)
                    if not self._place(self._objects.get(first, name))[2]:
                        self._objects.pop(first, None)
                    break

    def _digests_in_packs(self, numbers: Sequence[int]) -> dict[int, str]:
        """Return number -> digest of the records in the packs that span one of some sorted numbers."""
        packed = {}
        for name in self._objects.values():
            first, _, last = self._place(name)
            if last and bisect_left(numbers, first) < bisect_right(numbers, last):
                packed.update(self._digests_of(name))
        return packed

    def _digests_of(self, name: str) -> dict[int, str]:
        """Return number -> digest of the records that an object has; empty if it is damaged."""
        number = self._place(name)[0]
        lines = (self._read(name) or b"").splitlines(keepends=True)
        try:
            texts = [decode_line(name, line) for line in lines]
            return {number + place: text.digest(body["mac"]) for place, (body, text) in enumerate(texts)}
        except (AttributeError, KeyError, TypeError, ValueError, VerificationError):
            return {}

    def _take_pack(self, name: str, first: int, loose: Mapping[int, Sequence[str]]) -> None:
        """Take the records of a pack that are authentic, but those that also stand loose: these have their lists."""
        for number, line in enumerate((self._read(name) or b"").splitlines(keepends=True), first):
            if number == self._next and number in loose:
                self._take_number(number, loose[number])
            if number >= self._next:
                found = self._parse(name, line, number, None, self.records[-1:])
                if isinstance(found, str):
                    self._refuse(name, found)
                else:
                    self._add(found)
                    self._objects[first] = name

    def _take_number(self, number: int, names: Sequence[str]) -> None:
        """Take the records that begin with a number from what stands under its names; note why the others are none."""
        taken = self._taken if number == self._next else []
        for name in names if self.mac is not None else reversed(names):  # the last one supersedes those before
            content = self._read(name)
            if content is not None and self._take_object(name, content, number, taken) is None:
                return
            if content is not None:
                taken.append(content)
            elif number == self._next:
                self._unreadable = name

    def _read(self, name: str) -> bytes | None:
        """Return the bytes of an object; None if they cannot be read, which is noted."""
        try:
            return self._store.read(name) or b""
        except (ConfigError, VerificationError) as error:
            self._refuse(name, str(error))
            return None

    def _take_object(self, name: str, content: bytes, number: int, taken: Sequence[bytes]) -> str | None:
        """Take the records of an object; return why it has none, and nothing is taken of it."""
        found: list[LogRecord] = []
        why = None if content.endswith(b"\n") else f"{name}: is not whole, as after a power cut, or was damaged"
        for line in content.splitlines(keepends=True) if why is None else ():
            superseded = () if found else taken
            record = self._parse(name, line, number + len(found), superseded, found[-1:] or self.records[-1:])
            if isinstance(record, str):
                why = record
                break
            found.append(record)
        if why is not None:
            self._refuse(name, why)
            return why
        for record in found:
            self._add(record)
        self._objects[number] = name
        return None

    def _add(self, record: LogRecord) -> None:
        if record.number > self._next:
            self._note_gap(record)
        self.records.append(record)
        self._next, self._taken, self._fork, self._unreadable = record.number + 1, [], None, None
        self._damage = None
        self._of_run[record.run_id].append(record)
        if record.is_short:
            self._short.add(record.run_id)
        self._know(record.run_id, max(record.step, self._known.get(record.run_id, 0)))

    def _know(self, run_id: str, steps: int) -> None:
        """Note how many records a run is known to have had."""
        self._steps += steps - self._known.get(run_id, 0)
        self._known[run_id] = steps

    def _note_gap(self, record: LogRecord) -> None:
        """Note which records are lost before an authentic one.

        Of two authentic ones of which the second does not follow from the first, one was replaced by that of another
        past: the first, if the record after them follows from the second; either, if that is lost too.
        """
        fork, first = self._fork, self._next
        self._is_forked |= fork is not None
        if fork is not None and (fork.digest == record.previous or record.number > fork.number + 1):
            replaced = self.records.pop()
            self._objects.pop(replaced.number, None)
            self._of_run[replaced.run_id].remove(replaced)
            self._refuse(replaced.name, f"{replaced.name}: the record after it does not follow from it")
            self.gaps.append(replaced.number)
            if fork.digest == record.previous:
                self._know(replaced.run_id, max((record.step for record in self._of_run[replaced.run_id]), default=0))
                del self.refused[fork.name]
                self._objects[fork.number] = fork.name
                self._next = first = fork.number
                self._add(fork)
                first += 1
        self.gaps.extend(range(first, record.number))

    def _parse(
        self, name: str, line: bytes, number: int, taken: Sequence[bytes] | None, last: Sequence[LogRecord]
    ) -> LogRecord | str:
        """Return the record that bytes are, or why they are not the record of a number.

        Args:
            name: the name of its object.
            line: its bytes.
            number: the number.
            taken: what stands under the number before it; None if that is not known any more.
            last: the record before; empty if there is none.
        """
        try:
            body, text = decode_line(name, line)
            digest, mac = text.digest(body["mac"]), body.pop("mac")
            version, table_id = body.pop("version"), body.pop("table_id")
            supersedes, (run, step) = body.pop("supersedes"), body.pop("previous_run")
            kept = {key: value for key, value in body["fields"].items() if not is_shortened(key, value)}
            is_short, body["fields"] = len(kept) < len(body["fields"]), Fields.pack(kept, text.long)
            generation = 0 if self.mac is None else self.mac.check(_PURPOSE + text.authenticated(), str(mac))
            record = LogRecord(name=name, digest=digest, generation=generation, is_short=is_short, **body)
            if not (record.has_types() and isinstance(run, str) and type(step) is int):
                raise TypeError(name)
        except VerificationError as error:
            return str(error)
        except (AttributeError, KeyError, TypeError, ValueError):
            return f"{name}: has not the members of a record"
        if self.mac is None and record.number > self._next + _WIDEST_GAP:
            return f"{name}: stands too far after the record before it"
        if self.mac is not None and not generation:
            why: str | None = "does not authenticate: it was edited, or written by someone else"
        elif (version, table_id, record.number) != (_VERSION, self.table_id, number):
            why = "belongs elsewhere: it was moved or copied"
        else:
            why = None if self.mac is None else self._misplaced(record, supersedes, taken, last)
        if why is not None:
            self._claims[name] = (record.run_id, record.kind)
            return f"{name}: {why}"
        if run:
            self._know(run, max(step, self._known.get(run, 0)))
        return record

    def _misplaced(
        self,
        record: LogRecord,
        supersedes: str | None,
        taken: Sequence[bytes] | None,
        last: Sequence[LogRecord],
    ) -> str | None:
        """Return why an authentic record does not follow from what is before it; None if it does."""
        before = last[0] if last else record
        number, digest = (before.number + 1, before.digest) if last else (1, _START)
        if record.number == number and record.previous != digest:
            self._fork = record if last else None
            return "does not follow from the record before it, which was changed or replaced"
        if taken is not None and supersedes != _digest_all(taken):
            return "does not follow from what stands under its number"
        if record.fencing_token < before.fencing_token:
            return "was written by a driver that had been fenced off"
        if record.generation < before.generation:
            return "is under a MAC key that a record before it had given up"
        return None

    def _make(self, run_id: str, token: int, entries: Sequence[tuple[str, Mapping[str, Any]]]) -> tuple[str, bytes]:
        """Return the name and the bytes of an object that can be appended."""
        (number, previous), step = self.head, self._known.get(run_id, 0)
        before = [self.records[-1].run_id, self.records[-1].step] if self.records else ["", 0]
        attempt = f"-{len(self._taken)}" if self._taken else ""
        name, supersedes = f"{self._folder}{self._next:08d}{attempt}.json", self._taken
        lines = []
        for kind, fields in entries:
            number, step = number + 1, step + 1
            body = {
                "version": _VERSION,
                "table_id": self.table_id,
                "number": number,
                "time": datetime.now(timezone.utc).isoformat(),
                "kind": kind,
                "run_id": run_id,
                "step": step,
                "fencing_token": token,
                "who": acting_user(),
                "fields": fields,
                "previous": previous,
                "previous_run": before,
                "supersedes": _digest_all(supersedes),
            }
            text = RecordText(json.loads(json.dumps(body, allow_nan=False)))  # keys become strings
            mac = None if self.mac is None else self.mac(_PURPOSE + text.authenticated())
            lines.append(text.whole(mac))
            previous = text.digest(mac)
            before, supersedes = [run_id, step], []
        return name, b"".join(lines)

    def _refuse_fenced(self, run_id: str, token: int) -> None:
        if self._unreadable is not None:  # it may be a record, which nothing may take the place of
            raise VerificationError(self.refused[self._unreadable])
        if self._taken and self._has_newer_mac_key():  # what stands there may be authentic under it
            raise RunConflictError(
                f"run {run_id}: another driver has made a new MAC key of the table, so it works on this table; this "
                "one stops and changes nothing more"
            )
        last = self.records[-1].fencing_token if self.records else 0
        if token < last:
            raise RunConflictError(
                f"run {run_id}: the log was continued under fencing token {last}, this driver has {token}; it stops "
                "and changes nothing more"
            )

    def _has_newer_mac_key(self) -> bool:
        names = self._store.list(f"keys/macs/{self.table_id}/mac-key")
        keys = [name for name in names if is_mac_key(name.rpartition("/")[2])]
        return self.mac is not None and len(keys) > self.mac.newest

    def _place(self, name: str) -> tuple[int, int, int]:
        """Return the number, the attempt and, of a pack, the last number in a name.

        Raises:
            VerificationError: this is not the name of a record or a pack.
        """
        match = _NAME.fullmatch(name.removeprefix(self._folder))
        if match is None:
            raise VerificationError(
                f"{name}: is not the name of a record of a log; move it away when you know what it is"
            )
        return int(match["number"]), int(match["attempt"] or 0), int(match["last"] or 0)


def _shorten(name: str, line: bytes) -> bytes:
    """Return a record without its lists."""
    body, text = decode_line(name, line)
    return text.short(body["mac"])


def _digest_all(taken: Sequence[bytes]) -> str | None:
    return (
        hashlib.sha256(b"".join(hashlib.sha256(content).digest() for content in taken)).hexdigest() if taken else None
    )


def _full_packs(objects: Iterable[Sequence[tuple[int, bytes]]]) -> Iterator[list[tuple[int, bytes]]]:
    """Yield the numbered records of objects pack by pack, without the last ones if they do not fill a pack.

    A pack has no gap, so one that ends at a gap is not full.
    """
    pack: list[tuple[int, bytes]] = []
    for lines in objects:
        if pack and lines[0][0] > pack[-1][0] + 1:
            yield pack
            pack = []
        pack.extend(lines)
        if len(pack) >= MOST_PACKED or sum(len(line) for _, line in pack) >= MOST_BYTES:
            yield pack
            pack = []

"""Checks of a table's records before anything acts on them: by its audit's MAC, its audit, and its folders.

The state directory is not trusted.  A journal is acted on only if

- each record is authentic, and none is lost (`sparkcrypt.ledger.log`),
- each path in it is inside the folders in which the table's runs work.

A marker that all runs of a table have ended means that a pass need not read the log:

    cache/settled/<table id>/<digest of the names>.json     version, table_id, names (their SHA-256), mac

A run that has ended stays ended, and every new record changes the list of names in the log.  A marker is therefore
valid as long as these names are the same, and is stored under their digest.  It has the MAC of the table's audit.  If
there is no marker for the current names, or it is not authentic, the log is read: a forged marker hides no unfinished
run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import Any

from sparkcrypt.errors import VerificationError
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.ledger.audit.audit import ENCRYPT, AuditEntry, list_entries_of
from sparkcrypt.ledger.audit.key_audit import ShreddedKeys
from sparkcrypt.ledger.audit.pins import (
    ListPlaces,
    LostPin,
    PinPlace,
    describe_lost,
    describe_unpinned,
    find_lost,
    find_unpinned,
    find_unsettled,
    list_own,
)
from sparkcrypt.ledger.journal.journal import Journal, Record, has_ended
from sparkcrypt.ledger.journal.unit_status import UnitStatus
from sparkcrypt.ledger.log import TableLog
from sparkcrypt.ledger.state.mac import (
    CheckMac,
    Mac,
    MasterKeys,
    TableMac,
    has_mac_key,
    open_mac,
    open_sealed,
    seal_record,
)
from sparkcrypt.ledger.state.store import StateStore
from sparkcrypt.ledger.unit import Unit, base_location, is_staged, staging_folder
from sparkcrypt.paths import Place, comparable_path, walk_up
from sparkcrypt.policy.model import Policy

_PLACES = ("location", "staged", "from", "to", "base")
_OF_OUTCOME = ("old_location", "new_location")
_OF_CHANGE = {"sources": ("path", "kept"), "targets": ("path", "staged")}
_LISTED = ("files", "made")


@dataclass(frozen=True, slots=True)
class RunFolders:
    """The folders in which a table's runs work.

    Attributes:
        base: the table's original folder; the staging folder of its runs is beside it.
        named: returns further folders, in comparable form, from sources other than the records: those of
            custom-located partitions in the metastore, and those of authentic audit entries.  Called only if a path is
            outside the others.
        earlier: returns the table's original folders before it was renamed, in comparable form; called only if a path
            is outside ``base``.
    """

    base: str
    named: Callable[[], Collection[str]]
    earlier: Callable[[], Collection[str]] = tuple

    def hold(self, path: str) -> bool:
        """Return whether a path is one of the folders, or inside one."""
        places = tuple(walk_up(path))
        for bases in (lambda: (comparable_path(self.base),), self.earlier):
            known = bases()
            if any(place in known or _base_of_staging(place) in known for place in places):
                return True
        return self._is_named(places)

    def hold_staged(self, path: str) -> bool:
        """Return whether a path is inside the staging folder, or in or below one of the ``named`` folders."""
        places = tuple(walk_up(path))
        for bases in (lambda: (comparable_path(self.base),), self.earlier):
            known = bases()
            if any(_base_of_staging(place) in known for place in places[1:]):
                return True
        return self._is_named(places)

    def _is_named(self, places: Iterable[str]) -> bool:
        named = self.named()
        return any(place in named for place in places)


def _base_of_staging(folder: str) -> str | None:
    """Return the original folder of the table whose runs stage in a folder; None if that is no staging folder."""
    parent, _, name = folder.rpartition("/")
    base = f"{parent.rpartition('/')[0]}/{name}"
    return base if staging_folder(base) == folder else None


def refuse_outside(records: Iterable[Record], places: RunFolders) -> None:
    """Refuse a journal with a path outside the folders in which the table's runs work.

    Args:
        records: the records of one run.
        places: the folders in which their paths may be.

    Raises:
        VerificationError: there is such a path; the message names it and the record.
    """
    holding = set[tuple[str, bool]]()
    for record in records:
        fields = {name: record.fields[name] for name in record.fields}
        for path in _relative_paths(fields):
            if path and not _is_plain(path):
                raise _refuse_path(record, path, "is no path of folders below a unit")
        for path, staged in _paths(fields):
            if not _is_normal(path):
                raise _refuse_path(record, path, "is no absolute path without '.' and '..'")
            folder = path.rpartition("/")[0]
            if (folder, staged) in holding:  # what a folder holds, holds what is in it
                continue
            hold = places.hold_staged if staged else places.hold
            if not hold(path):
                raise _refuse_path(
                    record, path, f"is outside {places.base}, {staging_folder(places.base)} and the table's partitions"
                )
            if hold(folder):
                holding.add((folder, staged))


def _paths(fields: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield the absolute paths in a record, each with whether it is a staging folder."""
    for key in _PLACES:
        if key in fields:
            yield str(fields[key]), key == "staged"
    outcome = fields.get("outcome")
    if isinstance(outcome, Mapping):
        yield from ((str(outcome[key]), False) for key in _OF_OUTCOME if key in outcome)
    for key in _LISTED:
        for _, files in fields.get(key) or ():
            yield from ((str(file[0]), False) for file in files)
    for change in (fields.get("evidence") or {}).get("changes", ()):
        for side, names in _OF_CHANGE.items():
            for file in change.get(side, ()):
                yield from ((str(file[name]), False) for name in names if name in file)


def _relative_paths(fields: Mapping[str, Any]) -> Iterator[str]:
    if "partition_path" in fields:
        yield str(fields["partition_path"])
    for key in _LISTED:
        yield from (str(folder) for folder, _ in fields.get(key) or ())
    for change in (fields.get("evidence") or {}).get("changes", ()):
        yield str(change.get("folder", ""))


def _is_plain(path: str) -> bool:
    return all(part not in ("", ".", "..") and "\0" not in part for part in path.split("/"))


def _is_normal(path: str) -> bool:
    folder, _, name = path.rpartition("/")
    if name in ("", ".", "..") or not folder:
        return _is_normal_folder(path)
    return "\0" not in name and _is_normal_folder(f"{folder}/x")


@lru_cache(maxsize=4096)
def _is_normal_folder(path: str) -> bool:
    """Return the same for a folder, or for any file in one: many files of one are asked for one after the other."""
    return Place.of(path).path.startswith("/") and "\0" not in path and not {".", ".."} & set(path.split("/"))


def _refuse_path(record: Record, path: str, why: str) -> VerificationError:
    return VerificationError(
        f"{record.name}: names {path!r}, which {why}; nothing is done on its word: someone changed the state "
        "directory, or the table was moved since; look at both"
    )


RELOCATE = "relocate"
"""``what`` of the entry that has a unit's folders after its table was renamed."""
_SWAPS = (ENCRYPT, "roll back")
_LATER = ("carry over", "resolve")


@dataclass(frozen=True, slots=True)
class AuditIndex:
    """The entries of an audit, indexed for lookups.

    Attributes:
        swaps: run id and unit -> the last entry of the unit's swap or rollback, without its changes.
        folders: the folders of units and files in the entries.
        relocated: run id and unit -> the entries that have its folders after its table was renamed.
        later: run id and unit -> the entries about files of late commits: reconciled, or decided by the operator.
        given_up: digests of pins whose records were given up.
    """

    swaps: dict[tuple[str, str], AuditEntry] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    relocated: dict[tuple[str, str], list[AuditEntry]] = field(default_factory=dict)
    later: dict[tuple[str, str], list[AuditEntry]] = field(default_factory=dict)
    given_up: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, log: TableLog) -> AuditIndex:
        """Return the index of the entries in a table's log that are not lost."""
        index = cls()
        for entry in list_entries_of(log):
            index._take(entry)
        return index

    def bases(self) -> set[str]:
        """Return the original folders that the table has had, according to the entries."""
        own = {base_location(folder) for folder in self.folders if is_staged(folder)}
        return own | {str(entry.entry["unit"]["base"]) for entries in self.relocated.values() for entry in entries}

    def _take(self, entry: AuditEntry) -> None:
        fields = entry.entry
        run_id, unit = str(fields["why"]["run_id"]), fields.get("unit") or {}
        if fields["what"] in _SWAPS:
            short = {name: value for name, value in fields.items() if name != "changes"}
            self.swaps[run_id, str(unit.get("unit"))] = replace(entry, entry=short)
        if fields["what"] in _LATER:
            self.later.setdefault((run_id, str(unit.get("unit"))), []).append(entry)
        if fields["what"] == RELOCATE:
            self.relocated.setdefault((run_id, str(unit.get("unit"))), []).append(entry)
        self.given_up.update(map(str, fields.get("given_up", ())))
        self.folders.update(_folders(unit, fields.get("changes") or ()))


def _folders(unit: Mapping[str, Any], changes: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the folders in an entry: those of the unit, and those of the files in its changes."""
    yield from (str(unit[name]) for name in ("old_location", "new_location") if name in unit)
    for change in changes:
        for file in (*change.get("sources", ()), *change.get("targets", ())):
            for name in ("path", "kept", "staged"):
                if name in file:
                    yield str(file[name]).rpartition("/")[0]


_SETTLED_VERSION = 1
_SETTLED_PURPOSE = b"sparkcrypt settled runs\n"


def is_settled(store: StateStore, table_id: str, names: tuple[str, ...], check_mac: CheckMac) -> bool:
    """Return whether an authentic marker shows that all runs of a table had ended with exactly these records.

    Args:
        store: the state directory.
        table_id: the table's id.
        names: the names of all objects of its log now.
        check_mac: returns the number of the MAC key of its audit that made a MAC.
    """
    digest = _digest_names(names)
    name = _settled_name(table_id, digest)
    content = store.read(name)
    if content is None:
        return False
    try:
        open_sealed(
            _SETTLED_PURPOSE,
            name,
            content,
            check_mac,
            {"version": _SETTLED_VERSION, "table_id": table_id, "names": digest},
        )
    except VerificationError:
        return False
    return True


def settle(store: StateStore, table_id: str, names: tuple[str, ...], mac: Mac) -> None:
    """Write the marker that all runs of a table have ended, unless a record was added since the names were listed.

    Args:
        store: the state directory.
        table_id: the table's id.
        names: the names of all objects of its log, listed before it was read.
        mac: the MAC of the table's audit.
    """
    if store.list(f"log/{table_id}/") != names:
        return
    name = _settled_name(table_id, digest := _digest_names(names))
    earlier = [other for other in store.list(f"cache/settled/{table_id}/") if other != name]
    members = {"version": _SETTLED_VERSION, "table_id": table_id, "names": digest}
    store.create(name, seal_record(_SETTLED_PURPOSE, members, mac))
    for earlier_name in earlier:
        store.delete(earlier_name)


def _digest_names(names: tuple[str, ...]) -> str:
    return hashlib.sha256("\n".join(names).encode()).hexdigest()


def _settled_name(table_id: str, digest: str) -> str:
    return f"cache/settled/{table_id}/{digest[:32]}.json"


@dataclass(slots=True)
class TableTrust:
    """Opens the journals of one table for code that acts on them; keys and the audit are opened when first needed.

    Attributes:
        store: the state directory.
        table_id: the table's id.
        policy: names the master keys of the audit.
        base: the table's original folder.
        locations: called with the folder of a run's copy, or None; returns the folders of the table and its partitions
            in the metastore, and that of the copy.
        is_free: returns whether no other table uses a folder, one inside it or one above it.
        list_pins: lists the places in the metastore that may have a pin of the table's records.
        unread: run id -> why its records are not acted on, for the runs that were read.
    """

    store: StateStore
    table_id: str
    policy: Policy
    base: str
    locations: Callable[[str | None], Iterable[str]]
    is_free: Callable[[str], bool] = field(default=lambda _: False)
    list_pins: ListPlaces = field(default=lambda _: ())
    _mac: TableMac | None = None
    _renewed: bool = False
    _log: TableLog | None = None
    _shown: TableLog | None = None
    _audit: AuditIndex | None = None
    _named: dict[str | None, frozenset[str]] = field(default_factory=dict)
    _bases: dict[str | None, frozenset[str]] = field(default_factory=dict)
    _shredded: ShreddedKeys | None = None
    _units: tuple[Mapping[str, list[tuple[str, UnitStatus]]], Mapping[str, VerificationError]] | None = None
    _confined: dict[str, tuple[int, Record]] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)

    def mac(self, *, renew: bool = False) -> TableMac:
        """Return the MAC of the table's audit.

        Args:
            renew: make a new MAC key if the policy's master key or key service has changed; for writers, who hold the
                table's lock.

        Raises:
            KeyServiceError: the key service failed to wrap or unwrap.
            VerificationError: a MAC key is missing or damaged, or its master key is not allowed.
        """
        if self._mac is None or (renew and not self._renewed):
            service, masters = open_key_service(self.policy.key_service), MasterKeys.of(self.policy)
            mac, self._renewed = open_mac(self.store, self.table_id, service, masters, renew=renew), renew
            if self._mac is None or not mac.has_keys_of(self._mac):
                self._mac = mac  # else the log, which was read with it, goes on
        return self._mac

    @property
    def shredded(self) -> ShreddedKeys:
        """The shredded master keys; the audit of keys is read when it is first needed."""
        if self._shredded is None:
            self._shredded = ShreddedKeys(self.store, self.policy)
        return self._shredded

    def log(self) -> TableLog:
        """Return the table's log, as it is now.

        Raises:
            VerificationError: a name in it is not that of a record.
        """
        mac = self.mac()
        if self._log is None or self._log.mac is not mac:
            self._log = TableLog.open(self.store, self.table_id, mac)
        else:
            self._log.refresh()
        return self._log

    def shown_log(self) -> TableLog:
        """Return the table's log, as it is now, for what is only reported: as it was read before, or not authenticated.

        Raises:
            VerificationError: as `log`.
        """
        if self._log is not None:
            return self.log()
        if self._shown is None:
            self._shown = TableLog.open(self.store, self.table_id, None)
        else:
            self._shown.refresh()
        return self._shown

    def audit(self) -> AuditIndex:
        """Return the index of the table's audit, all entries of which were authenticated.

        Raises:
            VerificationError: a name in the log is not that of a record.
        """
        if self._audit is None:
            self._audit = AuditIndex.of(self.log())
        return self._audit

    def forget_audit(self) -> None:
        """Discard what was made of records, since one was added; it is made again when next needed."""
        self._audit = self._units = None
        self._named.clear()
        self._bases.clear()

    def look_again(self) -> None:
        """Discard what was read before the table's lock was held, when another driver may have changed the table.

        The log, which is only appended to, goes on, unless another driver has packed it.
        """
        self._shown = None
        if self._log is not None and not self._log.has_its_objects():
            self._log = None
        self.forget_audit()
        self.unread.clear()
        self._confined.clear()

    def journal(self, run_id: str, log: TableLog | None = None) -> Journal:
        """Open the journal of a run, to act on it.

        Args:
            run_id: the run's id.
            log: the table's log, as `log` has just returned it; by default it is asked.

        Raises:
            VerificationError: it is damaged, not authentic, or names folders outside the table's; it must not be acted
                on.
        """
        journal = Journal.open(self.log() if log is None else log, run_id)
        records = journal.records
        count, last = self._confined.get(run_id, (0, None))
        known = count if count and len(records) >= count and records[count - 1] is last else 0
        if len(records) > known:
            refuse_outside(records[known:], self.places(journal))
            self._confined[run_id] = len(records), records[-1]
        return journal

    def later_of(self, run_id: str, unit: str) -> Iterator[UnitStatus]:
        """Yield the status of a unit in each later run of the table that concerned it, oldest run first.

        The journals of all runs are read once.

        Raises:
            VerificationError: the journal of a later run is damaged.
        """
        found = self._units  # another thread may forget it meanwhile
        if found is None:
            log = self.log()
            by_unit, damaged = dict[str, list[tuple[str, UnitStatus]]](), dict[str, VerificationError]()
            for known in Journal.runs(log):
                try:
                    for name, status in self.journal(known, log).statuses().items():
                        by_unit.setdefault(name, []).append((known, status))
                except VerificationError as error:
                    damaged[known] = error
            found = self._units = by_unit, damaged
        of_units, unread = found
        for later, why in unread.items():
            if later > run_id:
                raise why
        yield from (status for later, status in of_units.get(unit, ()) if later > run_id)

    def places(self, journal: Journal) -> RunFolders:
        """Return the folders in which a run works, including those from before the table was renamed."""
        output = journal.run.output
        return RunFolders(self.base, lambda: self._folders(output), cache(lambda: self._find_earlier_bases(journal)))

    def find_unfinished(self) -> str | None:
        """Return the id of the latest run that has not ended and can be continued; None if there is none.

        A run whose records are damaged or not trusted is noted in ``unread`` and skipped.
        """
        names = self.store.list(f"log/{self.table_id}/")
        if not names or is_settled(self.store, self.table_id, names, self.mac().check):
            return None
        log = self.log()
        for run_id in reversed(Journal.runs(log, archived=False)):
            try:
                journal = Journal.open(log, run_id)
                if not has_ended(journal):
                    journal = self.journal(run_id, log)
                    self._refuse_earlier_keys(journal)
                    return run_id
            except VerificationError as error:
                self.unread[run_id] = str(error)
        if not self.unread and log.end is None and not log.open_gaps:  # else a run may be among what is lost
            settle(self.store, self.table_id, names, self.mac())
        return None

    def unread_runs(self) -> tuple[str, ...]:
        """Return notes for the report on the runs that were skipped since their records are not trusted."""
        return tuple(
            f"run {run_id} was skipped: {why.removeprefix(f'run {run_id}: ')}"
            for run_id, why in sorted(self.unread.items())
        )

    def find_lost_pins(self, listed: Iterable[PinPlace] | None = None) -> list[LostPin]:
        """Return the pins that the records do not confirm.

        Args:
            listed: what `list_pins` has just returned; by default the metastore is queried.

        Raises:
            VerificationError: the audit is not authentic.
        """
        places = list_own(self.list_pins(None) if listed is None else listed, self.table_id)
        if not places:
            return []
        if not has_mac_key(self.store, self.table_id):  # else opening it would make one
            why = "it has a pin, and the state directory has no audit of its table"
            return [LostPin(place.name, place.text, why) for place in places]
        return find_lost(self.log(), self.mac(), places, self.audit().given_up)

    def refuse_lost_pins(self, listed: Iterable[PinPlace] | None = None) -> None:
        """Refuse to delete old files, or to put them back, by records that a pin shows to be older than the table.

        Args:
            listed: as for `find_lost_pins`.

        Raises:
            VerificationError: a pin is not confirmed; the message names it, its record and the next step.
        """
        lost = self.find_lost_pins(listed)
        if lost:
            raise VerificationError(describe_lost(lost))

    def refuse_older_than(self, unit: Unit, log: TableLog) -> None:
        """Refuse to add rows to a unit by records that its pin shows to be older than it, also if they are given up.

        Args:
            unit: the unit.
            log: the table's log, to which only this driver appends.

        Raises:
            VerificationError: the pin is not confirmed.
        """
        lost = find_lost(log, self.mac(), list_own(self.list_pins(unit), self.table_id), given_up=())
        if lost:
            raise VerificationError(
                f"{lost[0].name}: {lost[0].why}; so the rows that came late may be in the table already, or have been "
                "erased from it since: look at both, and insert those that should be there and are not; nothing was "
                "changed"
            )

    def refuse_older_records(self) -> None:
        """Refuse to call a table whole by records that a pin shows to be older than it.

        Raises:
            VerificationError: as `refuse_lost_pins`; or of a swap that a pin tells of it is not known what became.
        """
        places = tuple(self.list_pins(None))
        self.refuse_lost_pins(places)
        unsettled = find_unsettled(self.log(), places, self.audit().given_up) if any(own.text for own in places) else []
        if unsettled:
            raise VerificationError(unsettled[0])

    def unpinned_units(self, listed: Iterable[PinPlace]) -> tuple[str, ...]:
        """Return a note for the report if units that a run has swapped have no pin, by what `list_pins` returned."""
        return describe_unpinned(find_unpinned(listed, self.table_id))

    def _refuse_earlier_keys(self, journal: Journal) -> None:
        """Refuse to continue a run that has a record under an earlier MAC key of the audit.

        Such a record may have no audit entry yet, and anyone with the weaker, earlier key could have written it.

        Raises:
            VerificationError: a record is under an earlier MAC key.
        """
        for record in journal.records:
            if record.generation < self.mac().newest:
                raise VerificationError(
                    f"{record.name}: is under a MAC key that the audit has given up since, so the run is not continued"
                )

    def _find_earlier_bases(self, journal: Journal) -> frozenset[str]:
        """Return the original folders that the table had before it was renamed, in comparable form.

        They come from the audit, or from the metastore, where partitions are below ``.sparkcrypt`` beside them.  If a
        run was killed before either had them, they come from its own authentic records, provided that the folder is
        beside the table's and no other table uses it now.
        """
        output = journal.run.output
        if output not in self._bases:
            staged = (base_location(folder) for folder in self._folders(output) if is_staged(folder))
            self._bases[output] = frozenset(map(comparable_path, (*self.audit().bases(), *staged)))
        bases = self._bases[output]
        own = {base_location(record.staged): None for record in journal.records if record.staged is not None}
        beside = [base for base in own if comparable_path(base) not in bases and _is_beside(base, self.base)]
        free = [base for base in beside if base != self.base and journal.authenticated and self.is_free(base)]
        return bases.union(map(comparable_path, free)) if free else bases

    def _folders(self, output: str | None) -> frozenset[str]:
        """Return the folders of the table in the metastore and in its audit, in comparable form."""
        if output not in self._named:
            self._named[output] = frozenset(map(comparable_path, (*self.locations(output), *self.audit().folders)))
        return self._named[output]


def _is_beside(folder: str, base: str) -> bool:
    parent, other = (comparable_path(place).rstrip("/").rpartition("/")[0] for place in (folder, base))
    return parent == other

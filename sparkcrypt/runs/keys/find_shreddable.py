"""Search for keys that may be shredded: surveys the data under them in all tables, and other uses of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING

from sparkcrypt.decide.access_log import DeclassifiedUses
from sparkcrypt.errors import ConfigError, KeyAccessDeniedError, KeyNotFoundError, PlanError
from sparkcrypt.keys.service import KeyService
from sparkcrypt.ledger.audit.key_audit import KeyFacts, read_key_facts
from sparkcrypt.ledger.audit.pins import describe_lost
from sparkcrypt.ledger.audit.trust import TableTrust
from sparkcrypt.ledger.journal.entries import AuditHead
from sparkcrypt.ledger.journal.journal import Journal
from sparkcrypt.ledger.log import TableLog
from sparkcrypt.ledger.state.mac import MasterKeys, open_mac
from sparkcrypt.ledger.state.store import StateStore
from sparkcrypt.ledger.unit import run_of_folder
from sparkcrypt.policy.key_retention import KeyRetention, retention_of_key
from sparkcrypt.policy.model import Policy, normalized_table
from sparkcrypt.runs.keys.scan_tables import (
    DerivedLeaves,
    KeyPlace,
    TableScan,
    find_declassified,
    find_derived,
    look_at_all,
    read_log,
)
from sparkcrypt.runs.keys.shredding_plan import DarkTable, Export, LateData, ShreddableKey, ShredPlan
from sparkcrypt.runs.old_folders.old_folder import count_awaiting_expiry
from sparkcrypt.runs.old_folders.problems import problems_of_target
from sparkcrypt.runs.passes.choose_tables import Choice, Gate, choose_tables
from sparkcrypt.runs.passes.keys_by_catalog import RECORDS, list_logged, walk_record
from sparkcrypt.runs.passes.keys_in_use import TableUse, list_key_uses
from sparkcrypt.runs.table.footers import DriverFooters, TaskFooters, own_keys
from sparkcrypt.runs.table.target import CatalogTarget, catalog_target, id_of, pin_places_of, refuse_kinds
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.table import Table
from sparkcrypt.text import count_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Selection:
    """The keys and tables that the operator selected.

    Attributes:
        tables: names or patterns; without tables and databases, all tables of the catalog.
        databases: databases of which every table in a format of the policy is selected.
        key_id: the only key to consider; None for all.
        leave_out: tables to ignore, by their names in messages or their ids, such as tables that were dropped.
    """

    tables: tuple[str, ...] = ()
    databases: tuple[str, ...] = ()
    key_id: str | None = None
    leave_out: tuple[str, ...] = ()

    @property
    def is_of_all(self) -> bool:
        """Whether no table or database was named."""
        return not self.tables and not self.databases


class Survey:
    """A repeatable survey of tables, records and holds, which determines the keys that may be shredded.

    Args:
        spark: a classic session.
        policy: the policy that names the keys.
        store: the state directory.
        service: the key service.
        selection: the keys and tables to select.

    Raises:
        PlanError: a table or database does not exist, or a named table is not a plain table in a format of the policy.
    """

    def __init__(
        self, spark: SparkSession, policy: Policy, store: StateStore, service: KeyService, selection: Selection
    ) -> None:
        self._policy, self._store, self._service = policy, store, service
        self._selection, self._files, self._catalog = selection, HadoopFiles(spark), Catalog(spark)
        driver = DriverFooters(self._files, own_keys(policy.key_service))
        self._reader = TaskFooters(spark, policy.key_service, driver)
        self._pins = partial(pin_places_of, spark)
        self._target: Callable[[Table], CatalogTarget] = partial(catalog_target, spark, policy=policy, avro=None)
        self._scans: dict[str, TableScan] = {}
        self._names: dict[str, str] = {}
        self._unknown: list[str] = []
        self._by_key: dict[str, list[tuple[TableScan, KeyPlace]]] = {}
        self._unread: list[str] = []
        self._waiting: dict[str, tuple[str, ...]] = {}
        self._derived = DerivedLeaves(())
        self._declassified: DeclassifiedUses | None = None
        self._gate = Gate()
        for chosen in choose_tables(spark, Choice(selection.tables, selection.databases), policy):
            if self._gate.of_kind(spark, policy, chosen):
                self._add(chosen.table.full_name, selected=True)
        for table, reason in self._gate.refused.items():
            raise PlanError(f"{table}: {reason}")

    def plan(
        self,
        *,
        as_of: datetime | None = None,
        expected: AuditHead | None = None,
        facts: KeyFacts | None = None,
        key_ids: Collection[str] | None = None,
    ) -> ShredPlan:
        """Survey everything as it is now, and change nothing.

        Args:
            as_of: the time by which retention must be over; now by default.
            expected: a head of the audit of keys that was kept elsewhere.
            facts: the content of the audit of keys, from a caller that holds its lock; read by default.
            key_ids: the keys to judge; by default all that are due, or were begun.

        Raises:
            ConfigError: no table was named, and none is known.
            VerificationError: the audit of keys was changed or cut.
            KeyServiceError: the audit cannot be opened, or the key service does not answer.
        """
        moment = as_of or datetime.now(timezone.utc)
        if facts is None:
            facts = read_key_facts(self._store, self._service, MasterKeys.of(self._policy), expected=expected)
        self._unknown.clear()
        unknown = self._look_at_known()
        if not self._scans and not unknown:
            raise ConfigError(
                "the catalog has no table in a format of the policy, and the state directory knows none, so nobody can "
                "tell what would go dark; see that the session uses the metastore of the tables"
            )
        failed = dict(look_at_all(self._scans))
        self._index_scans()
        retentions = self._choose(facts, key_ids)
        left_out = {key_id: kept.reason or "" for key_id, kept in retentions.items() if kept.reason and kept.tags}
        due = [kept for kept in retentions.values() if self._is_asked(kept, facts) or kept.is_over(moment)]
        due = [kept for kept in due if self._is_open(kept.key_id, facts)]
        recorded = self._find_records({kept.key_id for kept in due})
        keys = [self._judge(kept, moment, facts, recorded, unknown, failed) for kept in due]
        unscanned = {use.name: reason for use, reason in unknown} | failed
        held = {key_id for scan in self._scans.values() for key_id in scan.places}
        self._unknown += self._list_logged({kept.key_id for kept in due})
        doubts = () if expected is not None else tuple(self._find_newer_records())
        return ShredPlan(
            moment,
            tuple(sorted(keys, key=lambda key: key.key_id)),
            {key_id: reason for key_id, reason in left_out.items() if self._has_retention(retentions[key_id])},
            tuple(tombstone for key_id, tombstone in sorted(facts.tombstones.items()) if key_id in held),
            unscanned,
            self._gate.passed_over,
            facts.head_text,
            doubts,
            (*((facts.weakness,) if facts.weakness else ()), *dict.fromkeys(self._unknown), *self._list_undated()),
            tuple(self._find_late_data()),
            len(self._scans),
            sum(scan.files for scan in self._scans.values()),
        )

    def _index_scans(self) -> None:
        """Find the data under each key, and what nobody can tell the keys of, once for all keys."""
        self._by_key, self._unread, self._waiting = {}, [], {}
        self._derived, self._declassified = DerivedLeaves(self._scans.values()), None
        for scan in self._scans.values():
            for key_id, place in scan.places.items():
                self._by_key.setdefault(key_id, []).append((scan, place))
            count, first = scan.unread
            if count:
                files = count_of(count, "file")
                self._unread.append(
                    f"{scan.name}: of {files} nobody can tell the keys; see `sparkcrypt keys check`: {first}"
                )

    def _find_newer_records(self) -> Iterator[str]:
        """Yield a message for each table of which runs or pins show that the state directory is older than it is."""
        for scan in self._scans.values():
            unknown = tuple(find_newer_runs(self._store, (scan,)))
            yield from unknown
            if unknown:
                continue  # its pins would tell the same
            target = scan.target
            pins = partial(self._pins, target)
            trust = TableTrust(self._store, target.table_id, self._policy, target.base, lambda _: (), list_pins=pins)
            lost = trust.find_lost_pins()
            if lost:
                yield f"{scan.name}: {describe_lost(lost)}, or give a kept head of the audit of keys as --head"

    def _choose(self, facts: KeyFacts, key_ids: Collection[str] | None) -> dict[str, KeyRetention]:
        """Return the candidate keys, each with the policy's retention of the data under it."""
        requested = self._selection.key_id
        if requested is not None or key_ids is not None:
            wanted = [requested] if requested is not None else sorted(key_ids or ())
            return {key_id: retention_of_key(self._policy, key_id) for key_id in wanted}
        chosen = {key_id for scan in self._scans.values() if scan.selected for key_id in scan.places}
        if self._selection.is_of_all:
            with contextlib.suppress(KeyAccessDeniedError):  # without the right to list keys, files still name theirs
                chosen |= {described.key_id for described in self._service.list_keys()}
        return {key_id: retention_of_key(self._policy, key_id) for key_id in sorted(chosen | set(facts.begun))}

    def _is_asked(self, kept: KeyRetention, facts: KeyFacts) -> bool:
        return kept.key_id == self._selection.key_id or kept.key_id in facts.begun

    def _is_open(self, key_id: str, facts: KeyFacts) -> bool:
        """Tell whether a key is left to shred: it has no tombstone, or was begun again, or exists again."""
        return key_id not in facts.tombstones or key_id in facts.begun or self._is_there(key_id)

    def _has_retention(self, kept: KeyRetention) -> bool:
        rules = [self._policy.tag(name) for name in kept.tags]
        return any(rule is not None and rule.retention_seconds is not None for rule in rules)

    def _judge(
        self,
        kept: KeyRetention,
        moment: datetime,
        facts: KeyFacts,
        recorded: Mapping[str, list[str]],
        unknown: Iterable[tuple[TableUse, str]],
        failed: Mapping[str, str],
    ) -> ShreddableKey:
        key_id = kept.key_id
        places = self._by_key.get(key_id, [])
        refused = [f"{name}: holds a MAC key or a digest secret under it" for name in recorded.get(key_id, ())]
        if not kept.is_over(moment) and not kept.by_name:
            refused.append(kept.reason or f"its retention is over on {kept.over_at}")
        for use, reason in unknown:
            if not use.keys or key_id in use.keys:
                refused.append(f"{use.name}: {reason}")
        refused += [f"{name}: cannot be looked at: {reason}" for name, reason in failed.items()]
        refused += [reason for scan, place in places for reason in self._find_other_uses(scan, place)]
        refused += self._unread
        is_there, begun = self._is_there(key_id), key_id in facts.begun
        if begun and not is_there:
            refused = []  # it no longer exists: only the proof and the tombstone are left
        return ShreddableKey(
            kept,
            is_there,
            begun,
            tuple(DarkTable.of(place) for _, place in places if place.amount.files),
            facts.holds.get(key_id, ()) if is_there else (),
            tuple(refused),
            tuple(reason for scan, place in places for reason in self._find_readable(scan, place)),
            self._find_exports(kept, places),
        )

    def _find_late_data(self) -> Iterator[LateData]:
        """Yield each key of late data that files of these tables use."""
        found: dict[str, list[DarkTable]] = {}
        for scan in self._scans.values():
            for key_id, place in scan.places.items():
                given = self._policy.rules_giving(key_id) if place.amount.files else ()
                rules = (rule for rule in given if rule.late_data and rule.late_data.matches(key_id))
                if next(rules, None) is not None:
                    found.setdefault(key_id, []).append(DarkTable.of(place))
        for key_id, tables in sorted(found.items()):
            yield LateData(retention_of_key(self._policy, key_id), tuple(tables))

    def _list_undated(self) -> Iterator[str]:
        """Yield a warning about each column with data that no date puts under a key, such as those of a null date."""
        for scan in self._scans.values():
            for column, partitions in scan.without_key.items():
                first, why = next(iter(partitions.items()))
                more = f" and {count_of(len(partitions) - 1, 'other partition')}" if len(partitions) > 1 else ""
                yield f"{scan.name}: column {column} in {first}{more} is never due, since it has no key there: {why}"

    def _find_exports(self, kept: KeyRetention, places: list[tuple[TableScan, KeyPlace]]) -> tuple[Export, ...]:
        rules = [rule for rule in map(self._policy.tag, kept.tags) if rule is not None]
        derived = find_derived(self._derived, rules, places)
        if self._declassified is None:
            self._declassified = read_log(self._policy, self._unknown)
        return (*derived, *find_declassified(self._declassified, kept.tags, places))

    def _list_logged(self, key_ids: Collection[str]) -> Iterator[str]:
        """Yield warnings about tables that were read under keys by the access log, and are not in the catalog."""
        names = {normalized_table(name) for name in self._names.values()}
        for place in list_logged(self._policy, lambda table: normalized_table(table) in names):
            if not place.key_ids or not place.key_ids.isdisjoint(key_ids):
                yield place.to_text()

    def _find_other_uses(self, scan: TableScan, place: KeyPlace) -> Iterator[str]:
        for reason in place.out_of_bucket:
            yield f"{place.table}: it is needed for {reason}"
        if place.amount.files and not scan.selected and not self._selection.is_of_all:
            yield (
                f"{place.table}: {count_of(place.amount.files, 'file')} would go dark too; choose that table as well, "
                "or leave out --table and --database"
            )

    def _find_readable(self, scan: TableScan, place: KeyPlace) -> Iterator[str]:
        """Yield the places where values stay readable that the deletion of the key should make unreadable."""
        step = "`sparkcrypt backfill` puts it under the key first"
        for reason, files in place.readable.items():
            yield f"{place.table}: {reason} in {count_of(files, 'file')}; {step}"
        for key_id, files in place.late.items():
            late = f"late data in {count_of(files, 'file')} are under key {key_id!r}"
            yield f"{place.table}: {late}, whose own retention counts"
        if scan.name not in self._waiting:
            self._waiting[scan.name] = tuple(self._find_waiting(scan))
        yield from self._waiting[scan.name]

    def _find_waiting(self, scan: TableScan) -> Iterator[str]:
        """Yield what of a table stays readable whatever key is deleted: old files, and open problems."""
        table_id = scan.target.table_id
        log = TableLog.open(self._store, table_id, None)
        waiting = count_awaiting_expiry(log, self._files.exists, self._policy.grace_seconds)
        if waiting.files:
            plain = f", {waiting.plaintext_files:,} of them with columns in clear," if waiting.plaintext_files else ""
            yield (
                f"{scan.name}: {count_of(waiting.files, 'old file')}{plain} stay until `sparkcrypt backfill expire` "
                "deletes them"
            )
        service, masters = self._service, MasterKeys.of(self._policy)
        mac = partial(open_mac, self._store, table_id, service, masters)
        for problem in problems_of_target(scan.target, self._store, mac, self._files).open():
            yield f"{scan.name}: open problem {problem.problem} of {problem.unit}: {problem.kind}"

    def _look_at_known(self) -> list[tuple[TableUse, str]]:
        """Add the tables of the catalog, and what else the state directory knows.

        Returns:
            those that cannot be surveyed, each with the reason.
        """
        unknown = list(self._look_at_catalog())
        leave_out = frozenset(self._selection.leave_out)
        ids = {scan.target.table_id for scan in self._scans.values()}
        for use in list_key_uses(self._store):
            if use.table_id in ids or {use.name, use.table_id} & leave_out:
                continue
            name = self._find_name(use)
            if name is None:
                unknown.append(
                    (use, "is no table of this catalog now; give --leave-out with its name if its files are gone")
                )
                continue
            try:
                ids.add(self._add(name, selected=self._selection.is_of_all))
            except PlanError as error:
                unknown.append((use, str(error)))
        return unknown

    def _look_at_catalog(self) -> Iterator[tuple[TableUse, str]]:
        """Add every table of the catalog in a format of the policy; yield those that cannot be surveyed."""
        catalog, known = self._catalog, {scan.name for scan in self._scans.values()}
        leave_out = frozenset(self._selection.leave_out)
        self._names = {}
        for name in (name for database in catalog.databases() for name in catalog.tables(database)):
            plain = name.replace("`", "")
            try:
                table = catalog.table(name)
                table_id = id_of(table)
                self._names[table_id] = plain
                if plain in known or {plain, table_id} & leave_out:
                    continue
                if self._is_of_format(table):
                    self._add(name, selected=self._selection.is_of_all)
            except PlanError as error:
                if catalog.exists(name):
                    yield TableUse(plain, plain, {}, frozenset()), str(error)

    def _is_of_format(self, table: Table) -> bool:
        try:
            refuse_kinds(table, self._policy)
        except PlanError as error:
            self._gate.passed_over[table.full_name] = str(error)
            return False
        return True

    def _find_name(self, use: TableUse) -> str | None:
        """Return the present name of a table: its name in journals if that exists, else by its UUID, after a rename."""
        if use.table is not None and "/" not in use.table and self._catalog.exists(use.table):
            return use.table
        return self._names.get(use.table_id)

    def _add(self, name: str, *, selected: bool) -> str:
        """Add a table that is to be surveyed; return its id."""
        target = self._target(self._catalog.table(name))
        if target.name not in self._scans:
            self._scans[target.name] = TableScan(target, self._policy, self._files, self._reader, selected=selected)
        return target.table_id

    def _is_there(self, key_id: str) -> bool:
        try:
            self._service.describe(key_id)
        except KeyNotFoundError:
            return False
        return True

    def _find_records(self, key_ids: Collection[str]) -> dict[str, list[str]]:
        """Return key id -> the records of the state directory with a MAC key or digest secret that it wrapped."""
        found: dict[str, list[str]] = {}
        for name in (name for kind in RECORDS for name in self._store.list(kind)) if key_ids else ():
            with contextlib.suppress(ValueError):  # a torn record is not used for anything
                for record in walk_record(self._store.read(name) or b""):
                    key_id = record.get("key_id")
                    if key_id in key_ids and isinstance(record.get("wrapped"), str):
                        found.setdefault(str(key_id), []).append(name)
        return {key_id: sorted(set(names)) for key_id, names in found.items()}


def find_newer_runs(store: StateStore, scans: Iterable[TableScan]) -> Iterator[str]:
    """Yield a message for each run that made a folder in use, and of which the state directory has no journal.

    A state directory that lacks a run may lack a hold as well.

    Args:
        store: the state directory.
        scans: the tables to check.
    """
    for scan in scans:
        known = set(Journal.runs(TableLog.open(store, scan.target.table_id, None)))
        for run_id in sorted({run for place in scan.target.locations() if (run := run_of_folder(place))} - known):
            yield (
                f"{scan.name}: run {run_id} made a folder that is in use, and the state directory has no record of it: "
                "it is an earlier copy of itself, or another one, and may lack holds; restore the newest copy, or give "
                "a head of the audit of keys that was kept elsewhere as --head"
            )

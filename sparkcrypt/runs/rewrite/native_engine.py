"""Staging without decoding: each file is rewritten page by page in a Spark task."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import sparkcrypt.errors
from sparkcrypt import names
from sparkcrypt.decide.identity import FileIdentity
from sparkcrypt.errors import SparkcryptError, UnsupportedFileError, VerificationError
from sparkcrypt.files.orders import EncryptionOrder, FileOrder, FileOutcome, KeySettings, OrcOrder, Order
from sparkcrypt.files.parquet import FileSummary
from sparkcrypt.files.parquet.summary import describe_purged
from sparkcrypt.keys.bucket_keys import make_bucket_keys
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.ledger.audit.evidence import Proof
from sparkcrypt.ledger.state.mac import Mac
from sparkcrypt.ledger.unit import Folder, partition_of
from sparkcrypt.paths import trailing_partition
from sparkcrypt.runs.rewrite.engine import ProvenByTasks, StagedWork, make_fresh_folder, verify_footers
from sparkcrypt.runs.rewrite.file_orders import ColumnKeys, find_move, order_orc_file
from sparkcrypt.runs.rewrite.keks import TableKeks
from sparkcrypt.runs.rewrite.spark_engine import SparkStager
from sparkcrypt.runs.table.columns import FileColumns
from sparkcrypt.runs.table.difference import KINDS, Drift, Rotation, drift_by_file, refuse_dark
from sparkcrypt.runs.table.footers import RetrieveKey
from sparkcrypt.runs.table.open_table import OpenTable
from sparkcrypt.runs.table.scan import ScannedUnit
from sparkcrypt.runs.table.unit_survey import action_of
from sparkcrypt.schema import Path
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.tasks.run import Told, rewrite_in_tasks

_LEAVE = "--purge, which puts nulls in their place, or leave such partitions out by --where"
_EARLIER_RUN = re.compile(r"^run-[0-9a-f]{6}-")


@dataclass(frozen=True, slots=True)
class _File:
    """A file of a unit: its footer and columns, its drift, the path of its new file, and its dark columns."""

    source: str
    summary: FileSummary
    columns: FileColumns
    drift: Sequence[Drift]
    target: str
    dark: Mapping[Path, str]


class NativeStager:
    """Stages the units of one target, page by page.

    A Parquet unit with a file that cannot be rewritten by pages is staged by Spark's engine, as its notes mention.

    Args:
        table: the table or folder of the units; its state directory has the KEKs.
        mac: returns the MAC of the table's audit, which records of KEKs have.
        discard: deletes folders that this object has made, if they are not in use; returns those that are.
        renamed_by: the run that gives files new names, since they will be in the folder of the old ones; None keeps
            names.
        rewrap: keep data keys and rewrap them if only master keys differ.
        purge: replace columns whose keys were shredded by nulls.
    """

    engine = "native"

    def __init__(
        self,
        table: OpenTable,
        *,
        mac: Callable[[], Mac],
        discard: Callable[[Sequence[str]], Mapping[str, str]],
        renamed_by: str | None,
        rewrap: bool = False,
        purge: bool = False,
    ) -> None:
        self._table = table
        self._mac, self._discard, self._renamed_by, self._rewrap = mac, discard, renamed_by, rewrap
        self._purge, self._column_keys = purge, ColumnKeys(table.target, table.policy)

    def stage(self, scanned: ScannedUnit, staged: str, progress: Told) -> StagedWork:
        """Rewrite a unit's files into a folder; see `Stager`."""
        make_fresh_folder(self._table.files, scanned.unit, staged)
        orders = self._orders(scanned, staged)
        keys = self._keys(orders)
        lengths = {file.path: file.length for folder in scanned.unit.folders for file in folder.files}
        outcomes = rewrite_in_tasks(self._table.spark, orders, lengths, keys, progress)
        refused = [outcome for outcome in outcomes if outcome.refused]
        _raise_first([outcome for outcome in outcomes if outcome.error])
        if refused and self._table.target.format == "orc":
            raise UnsupportedFileError(
                f"{refused[0].refused}; this unit stays as it is, since Spark's engine rewrites no ORC"
            )
        if refused and scanned.rotation is not None:
            raise UnsupportedFileError(
                f"{refused[0].refused}; a rotation rewraps keys and nothing else: `sparkcrypt backfill --engine spark` "
                "writes such a unit anew"
            )
        dark = {order.target for order in orders if order.carried or order.purged}
        for outcome in refused:
            if outcome.target in dark:  # Spark's engine could not do it either
                raise UnsupportedFileError(str(outcome.refused))
        if refused:
            return self._by_spark(scanned, staged, refused, progress)
        notes = dict.fromkeys(note for outcome in outcomes for note in outcome.notes)
        codecs = {codec for file_codecs in scanned.codecs.values() for codec in file_codecs}
        return _NativeWork(
            self._table,
            scanned,
            tuple(outcomes),
            codecs.pop() if len(codecs) == 1 else None,
            tuple(notes),
            {order.target: order.carried for order in orders if order.carried},
            {order.target: order.purged for order in orders if order.purged},
            rotation=None if scanned.rotation is None else scanned.rotation.with_keks(keys.keks),
        )

    def _orders(self, scanned: ScannedUnit, staged: str) -> list[Order]:
        unit = scanned.unit
        drift = drift_by_file(scanned.drift)
        orders: list[Order] = []
        for folder in unit.folders:
            values = partition_of(unit, folder)
            partition_path = unit.partition_path or trailing_partition(folder.relative.split("/"))
            place = f"{staged}/{folder.relative}" if folder.relative else staged
            for file in sorted(folder.files, key=lambda source: -source.length):
                name = new_name(file.path.rpartition("/")[2], self._renamed_by)
                found = _File(
                    source=file.path,
                    summary=scanned.summaries[file.path],
                    columns=scanned.columns[file.path],
                    drift=drift.get(file.path, []),
                    target=f"{place}/{name}",
                    dark=scanned.dark.get(file.path, {}),
                )
                orders.append(self._order(found, values, FileIdentity(self._table.target.uuid, partition_path, name)))
        return orders

    def _order(self, file: _File, values: Mapping[str, str], identity: FileIdentity) -> Order:
        plan, summary = self._table.target.plan, file.summary
        if summary.format == "orc":
            return self._order_orc(file, values, identity)
        order = FileOrder(
            file.source, file.target, "copy", None, summary.aad_prefix, summary.algorithm, replace=True, dark=file.dark
        )
        bound_to_name = self._renamed_by is not None and summary.footer != "plaintext"
        if not bound_to_name and not file.drift:
            return order
        rewraps = not bound_to_name and action_of(file.drift, rewrap=self._rewrap) == "re-wrap"
        if not rewraps and not self._purge:
            refuse_dark(file.source, file.dark, *self._advise(file, bound_to_name=bound_to_name))
        columns = self._choose_keys(file, values, purges=not rewraps)
        if not columns and (not file.dark or self._purge):
            return replace(order, action="decrypt")
        key_values = {names.POLICY_DIGEST: plan.policy_digest}
        if file.dark and not rewraps:
            key_values[names.PURGED] = describe_purged({**summary.purged, **file.dark})
        encryption = EncryptionOrder(
            footer_key=plan.footer_key,
            footer_mode=plan.footer_mode,
            algorithm=plan.algorithm,
            columns=columns,
            aad_prefix=identity.to_aad_prefix(),
            key_values=key_values,
        )
        if rewraps:
            return replace(order, action="rewrap", encryption=replace(encryption, aad_prefix=summary.aad_prefix or b""))
        return replace(order, action="encrypt", encryption=encryption)

    def _order_orc(self, file: _File, values: Mapping[str, str], identity: FileIdentity) -> OrcOrder:
        renames, rewraps = self._renamed_by is not None, action_of(file.drift, rewrap=self._rewrap) == "re-wrap"
        purges = self._purge and not rewraps
        moving = find_move(file.drift, renames=renames)
        if moving is not None and not purges:
            refuse_dark(file.source, file.dark, moving, self._advise(file, bound_to_name=True)[1])
        return order_orc_file(
            file.summary,
            file.target,
            self._choose_keys(file, values, purges=purges) if file.drift else {},
            self._table.target.plan.footer_key,
            identity=identity,
            drifts=bool(file.drift),
            rewraps=rewraps,
            renames=renames,
            carried={} if purges else file.dark,
            purged=file.dark if purges else {},
        )

    def _choose_keys(self, file: _File, values: Mapping[str, str], *, purges: bool) -> dict[Path, str | None]:
        return self._column_keys.choose(file.summary, file.columns, values, file.dark, purges=purges)

    @staticmethod
    def _advise(file: _File, *, bound_to_name: bool) -> tuple[str, str]:
        """Return why a file with dark columns is refused, and what the operator can do."""
        doing = "a new name, which is part of what its columns are bound to," if bound_to_name else "new data keys"
        if any(difference.kind in KINDS for difference in file.drift):
            return doing, "run `sparkcrypt backfill --purge` first, which puts nulls in their place"
        if not bound_to_name and all(difference.only_keys for difference in file.drift):
            return doing, f"give --rewrap, which leaves data keys as they are, or {_LEAVE}"
        return doing, f"give {_LEAVE}"

    def _keys(self, orders: Sequence[Order]) -> KeySettings:
        masters = {key for order in orders for key in order.master_keys()}
        config, bits = self._table.policy.key_service, self._table.policy.data_key_bits
        service = open_key_service(config)
        make_bucket_keys(self._table.policy, service, masters)
        if not masters:
            return KeySettings(config.canonical(), bits)
        mac, rewraps = self._mac(), all(order.action in ("rewrap", "copy") for order in orders)
        known = TableKeks(self._table.store, self._table.target.table_id, config, bits, mac)
        keks = known.find_or_make(service, masters, rewraps=rewraps)
        if not rewraps or not service.offers("rewrap"):
            return KeySettings(config.canonical(), bits, keks)
        return KeySettings(config.canonical(), bits, keks, known.list_wrappings(keks))

    def _by_spark(
        self, scanned: ScannedUnit, staged: str, refused: Sequence[FileOutcome], progress: Told
    ) -> StagedWork:
        if self._table.target.table is not None and self._table.target.table.bucket_columns:
            raise UnsupportedFileError(
                f"{refused[0].refused}; and {self._table.target.name} is bucketed, so Spark's engine cannot rewrite it "
                "either"
            )
        self._discard([staged])  # the files that were rewritten before one was refused
        work = SparkStager(self._table).stage(scanned, staged, progress)
        note = f"staged by Spark's engine, since {len(refused)} of its files cannot be rewritten page by page: "
        work.notes = (*work.notes, note + str(refused[0].refused))
        return work


@dataclass(slots=True)
class _NativeWork:
    """Files that were rewritten one by one, each proven equal to its source by the task that wrote it."""

    _table: OpenTable = field(repr=False)
    _scanned: ScannedUnit = field(repr=False)
    _outcomes: tuple[FileOutcome, ...] = field(repr=False)
    codec: str | None
    notes: tuple[str, ...]
    _carried: Mapping[str, Mapping[Path, str]] = field(repr=False)
    _purged: Mapping[str, Mapping[Path, str]] = field(repr=False)
    engine: str = "native"
    rotation: Rotation | None = None

    def prove(self, folders: tuple[Folder, ...], retrieve_key: RetrieveKey) -> Proof:
        """Check that exactly the rewritten files exist, with their footers and keys; see `StagedWork`."""
        found = {file.path: file.length for folder in folders for file in folder.files}
        named = _qualify(self._table.files, (path for done in self._outcomes for path in (done.source, done.target)))
        pairs = {named[outcome.target]: named[outcome.source] for outcome in self._outcomes}
        lengths = {named[outcome.target]: outcome.bytes_after for outcome in self._outcomes}
        for path in sorted(found.keys() | lengths.keys()):
            if found.get(path) != lengths.get(path):
                raise VerificationError(
                    f"{path}: has {found.get(path, 'no')} bytes, and {lengths.get(path, 'no')} were written and "
                    "proven; someone else writes to the staging folder; nothing was swapped"
                )
        carried, purged = (
            {named[target]: columns for target, columns in columns_by_target.items()}
            for columns_by_target in (self._carried, self._purged)
        )
        unopened = {named[done.target]: done.unopened for done in self._outcomes if done.unopened}
        proven = ProvenByTasks(self.rotation, carried, unopened)
        unit = verify_footers(self._table, self._scanned.unit, folders, retrieve_key, proven)
        weak = sorted({what for outcome in self._outcomes for what in outcome.unauthenticated})
        rows = sum(outcome.rows for outcome in self._outcomes)
        if rows != unit.rows:
            raise VerificationError(f"{self._scanned.unit.name}: {rows} rows became {unit.rows}; nothing was swapped")
        return Proof(replace(unit, not_authenticated=tuple(weak)), rows, pairs=pairs, carried=carried, purged=purged)


def _qualify(files: HadoopFiles, paths: Iterable[str]) -> dict[str, str]:
    """Return path -> its full URI; each folder is resolved once."""
    folders: dict[str, str] = {}
    named = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        if folder not in folders:
            folders[folder] = files.qualify(folder)
        named[path] = f"{folders[folder]}/{name}"
    return named


def new_name(name: str, run_id: str | None) -> str:
    """Return a new name for a file: a prefix unique to the run, then the old name, including a bucket's number.

    The prefix of an earlier run is replaced.
    """
    if run_id is None:
        return name
    return f"run-{run_id.rpartition('-')[2]}-{_EARLIER_RUN.sub('', name)}"


def _raise_first(failed: Sequence[FileOutcome]) -> None:
    """Raise the first failure with its own class.

    Raises:
        SparkcryptError: the error of the task, in its class.
    """
    for outcome in failed:
        kind, message = outcome.error or ("", "")
        raised = getattr(sparkcrypt.errors, kind, SparkcryptError)
        more = f"; so did {len(failed) - 1} other files of its unit" if len(failed) > 1 else ""
        raise raised(f"{message}{more}")

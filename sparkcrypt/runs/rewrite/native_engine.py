"""Staging without decoding: each file is rewritten page by page in a Spark task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TypeAlias

import sparkcrypt.errors
from sparkcrypt.errors import SparkcryptError, UnsupportedFileError, VerificationError
from sparkcrypt.files.format import FORMATS
from sparkcrypt.files.orders import FileOrder, FileOutcome, KeySettings
from sparkcrypt.keys.bucket_keys import make_bucket_keys
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.ledger.audit.evidence import Proof
from sparkcrypt.ledger.state.mac import Mac
from sparkcrypt.ledger.unit import Folder, Unit
from sparkcrypt.runs.rewrite.engine import (
    FAILURES,
    ProvenByTasks,
    StagedWork,
    Staging,
    make_fresh_folder,
    verify_footers,
)
from sparkcrypt.runs.rewrite.file_orders import FileOrders
from sparkcrypt.runs.rewrite.keks import TableKeks
from sparkcrypt.runs.rewrite.schedule import ENDS_THE_RUN
from sparkcrypt.runs.rewrite.spark_engine import SparkStager
from sparkcrypt.runs.table.difference import Rotation
from sparkcrypt.runs.table.footers import RetrieveKey
from sparkcrypt.runs.table.open_table import OpenTable
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.tasks.run import rewrite_in_tasks

_Job: TypeAlias = list[tuple[Staging, list[FileOrder]]]


class NativeStager:
    """Stages the units of one target page by page, several in one job of Spark.

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
        self._mac, self._discard = mac, discard
        self._orders = FileOrders(table.target, table.policy, renamed_by, rewrap=rewrap, purge=purge)

    def stage_all(self, several: Sequence[Staging]) -> list[StagedWork | Exception]:
        """Rewrite the files of units, those of all of them in one job of Spark; see `Stager`."""
        found: dict[str, StagedWork | Exception] = {}
        jobs: dict[bool, _Job] = {}
        for staging in several:
            try:
                make_fresh_folder(self._table.files, staging.scanned.unit, staging.staged)
                orders = self._orders.list_orders(staging.scanned, staging.staged)
                jobs.setdefault(_only_rewraps(orders), []).append((staging, orders))
            except ENDS_THE_RUN:
                raise
            except FAILURES as error:
                found[staging.staged] = error
        for work in jobs.values():
            every = [order for _, orders in work for order in orders]
            lengths = {file.path: file.length for staging, _ in work for file in staging.scanned.unit.files}
            try:
                keys = self._keys(every)
                outcomes = rewrite_in_tasks(self._table.spark, every, lengths, keys, partial(_tell_written, work))
            except ENDS_THE_RUN:
                raise
            except FAILURES as error:
                found |= {staging.staged: error for staging, _ in work}
            else:
                found |= self._finish_all(work, outcomes, keys)
        return [found[staging.staged] for staging in several]

    def _finish_all(
        self, work: _Job, outcomes: Iterable[FileOutcome], keys: KeySettings
    ) -> dict[str, StagedWork | Exception]:
        """Return what was staged of each unit of a job, or why it could not be."""
        found: dict[str, StagedWork | Exception] = {}
        by_spark: list[tuple[Staging, list[FileOutcome]]] = []
        left = iter(outcomes)
        for staging, orders in work:
            own = list(islice(left, len(orders)))
            try:
                refused = self._find_refused(staging, orders, own)
                if refused:
                    by_spark.append((staging, refused))
                else:
                    found[staging.staged] = self._describe(staging, orders, own, keys)
            except ENDS_THE_RUN:
                raise
            except FAILURES as error:
                found[staging.staged] = error
        return found | (self._stage_by_spark(by_spark) if by_spark else {})

    def _find_refused(
        self, staging: Staging, orders: Sequence[FileOrder], outcomes: Sequence[FileOutcome]
    ) -> list[FileOutcome]:
        """Return the files for which Spark's engine has to stage a unit; none if the native one has staged it.

        Raises:
            SparkcryptError: a file of it could not be rewritten, by Spark's engine neither.
        """
        scanned, table = staging.scanned, self._table.target.table
        refused = [outcome for outcome in outcomes if outcome.refused]
        _raise_first([outcome for outcome in outcomes if outcome.error])
        if refused and not FORMATS[self._table.target.format].rewritten_by_rows:
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
        if refused and table is not None and table.bucket_columns:
            raise UnsupportedFileError(
                f"{refused[0].refused}; and {self._table.target.name} is bucketed, so Spark's engine cannot rewrite it "
                "either"
            )
        return refused

    def _describe(
        self, staging: Staging, orders: Sequence[FileOrder], outcomes: Sequence[FileOutcome], keys: KeySettings
    ) -> StagedWork:
        """Return what was staged of a unit, page by page."""
        scanned = staging.scanned
        notes = dict.fromkeys(note for outcome in outcomes for note in outcome.notes)
        codecs = {codec for file in scanned.files.values() for codec in file.facts.codecs}
        rotation = None if scanned.rotation is None else scanned.rotation.with_keks(keys.keks)
        prove = partial(self._prove, scanned.unit, rotation, orders, outcomes)
        return StagedWork(self.engine, codecs.pop() if len(codecs) == 1 else None, tuple(notes), prove)

    def _keys(self, orders: Sequence[FileOrder]) -> KeySettings:
        masters = {key for order in orders for key in order.master_keys()}
        config, bits = self._table.policy.key_service, self._table.policy.data_key_bits
        service = open_key_service(config)
        make_bucket_keys(self._table.policy, service, masters)
        if not masters:
            return KeySettings(config.canonical(), bits)
        mac, rewraps = self._mac(), _only_rewraps(orders)
        known = TableKeks(self._table.store, self._table.target.table_id, config, bits, mac)
        keks = known.find_or_make(service, masters, rewraps=rewraps)
        if not rewraps or not service.offers("rewrap"):
            return KeySettings(config.canonical(), bits, keks)
        return KeySettings(config.canonical(), bits, keks, known.list_wrappings(keks))

    def _stage_by_spark(
        self, several: Sequence[tuple[Staging, Sequence[FileOutcome]]]
    ) -> dict[str, StagedWork | Exception]:
        """Stage units by Spark's engine, in the place of the files that were rewritten before one was refused."""
        try:
            self._discard([staging.staged for staging, _ in several])
        except ENDS_THE_RUN:
            raise
        except FAILURES as error:
            return {staging.staged: error for staging, _ in several}
        works = SparkStager(self._table).stage_all([staging for staging, _ in several])
        return {
            staging.staged: work if isinstance(work, Exception) else _note_refused(work, refused)
            for (staging, refused), work in zip(several, works, strict=True)
        }

    def _prove(
        self,
        unit: Unit,
        rotation: Rotation | None,
        orders: Sequence[FileOrder],
        outcomes: Sequence[FileOutcome],
        folders: tuple[Folder, ...],
        retrieve_key: RetrieveKey,
    ) -> Proof:
        """Check that exactly the rewritten files exist, each proven equal by the task that wrote it; see `StagedWork`.

        Their footers and keys are verified here.
        """
        found = {file.path: file.length for folder in folders for file in folder.files}
        named = _qualify(self._table.files, (path for done in outcomes for path in (done.source, done.target)))
        pairs = {named[outcome.target]: named[outcome.source] for outcome in outcomes}
        lengths = {named[outcome.target]: outcome.bytes_after for outcome in outcomes}
        for path in sorted(found.keys() | lengths.keys()):
            if found.get(path) != lengths.get(path):
                raise VerificationError(
                    f"{path}: has {found.get(path, 'no')} bytes, and {lengths.get(path, 'no')} were written and "
                    "proven; someone else writes to the staging folder; nothing was swapped"
                )
        carried = {named[order.target]: order.carried for order in orders if order.carried}
        purged = {named[order.target]: order.purged for order in orders if order.purged}
        unopened = {named[done.target]: done.unopened for done in outcomes if done.unopened}
        proven = ProvenByTasks(rotation, carried, unopened)
        verified = verify_footers(self._table, unit, folders, retrieve_key, proven)
        weak = sorted({what for outcome in outcomes for what in outcome.unauthenticated})
        rows = sum(outcome.rows for outcome in outcomes)
        if rows != verified.rows:
            raise VerificationError(f"{unit.name}: {rows} rows became {verified.rows}; nothing was swapped")
        verified = replace(verified, not_authenticated=tuple(weak))
        return Proof(verified, rows, pairs=pairs, carried=carried, purged=purged)


def _tell_written(work: _Job, written: int) -> None:
    """Tell each unit of a job how many of its files are written, if so many of all are, in their order."""
    for staging, orders in work:
        staging.tell(min(written, len(orders)))
        written = max(0, written - len(orders))


def _note_refused(work: StagedWork, refused: Sequence[FileOutcome]) -> StagedWork:
    why = f"{len(refused)} of its files cannot be rewritten page by page: {refused[0].refused}"
    return replace(work, notes=(*work.notes, f"staged by Spark's engine, since {why}"))


def _only_rewraps(orders: Iterable[FileOrder]) -> bool:
    return all(order.action in ("rewrap", "copy") for order in orders)


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

"""Disposal of old files after a run, when no reader needs them any more, after a relisting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkcrypt.backfill.journal import SWAPPED, Journal, state_of_units
from sparkcrypt.backfill.states import open_states
from sparkcrypt.backfill.store import StateStore
from sparkcrypt.backfill.units import base_location, list_folders, old_folder
from sparkcrypt.bridge.context import comparable_path
from sparkcrypt.errors import ConfigError, VerificationError
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.catalog import Catalog, Table
from sparkcrypt.spark.files import HadoopFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Expired:
    """What was disposed of."""

    table: str
    run_ids: tuple[str, ...]
    folders: tuple[str, ...]
    files: int
    total_bytes: int
    dry_run: bool

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "table": self.table,
            "run_ids": list(self.run_ids),
            "folders": list(self.folders),
            "files": self.files,
            "bytes": self.total_bytes,
            "dry_run": self.dry_run,
        }


def expire_run(
    spark: SparkSession, table: str, policy: Policy, *, run_id: str | None = None, dry_run: bool = False
) -> Expired:
    """Delete the old files of finished runs.

    Args:
        spark: a classic session.
        table: ``db.table``.
        policy: under which the run was made.
        run_id: which run; every run of the table by default.
        dry_run: tell, and delete nothing.

    Raises:
        ConfigError: there is no such run.
        VerificationError: an old folder holds files that no run listed (a stale writer's), or is in use;
            nothing was deleted.
    """
    catalog, files = Catalog(spark), HadoopFiles(spark)
    found = catalog.table(table)
    table_id = found.uuid
    if table_id is None:
        raise ConfigError(f"{found.full_name} has no identity, so no run of it is known; nothing is to expire")
    store = open_states(spark, policy.run_state, outside=base_location(found.location))
    in_use = {comparable_path(found.location), *_partition_folders(catalog, found)}
    journals = _journals(store, table_id, run_id, found.full_name)
    folders: list[str] = []
    sizes: list[int] = []
    for journal in journals:
        for name, old in _old_folders(journal):
            if files.exists(old):
                if comparable_path(old) in in_use:
                    raise VerificationError(f"{name}: {old} is in use by the table again; nothing was deleted")
                sizes.extend(_sizes(files, name, old, _listed(journal, name)))
                folders.append(old)
    if not dry_run:
        for old in folders:
            files.delete_tree(old)
        _tidy(files, base_location(found.location), journals)
    return Expired(
        found.full_name, tuple(one.run.run_id for one in journals), tuple(folders), len(sizes), sum(sizes), dry_run
    )


def _old_folders(journal: Journal) -> list[tuple[str, str]]:
    """Return the units that a run swapped, each with the folder of its old files."""
    states = state_of_units(journal.records).items()
    return [(name, str(state.fields["outcome"]["old_location"])) for name, state in states if state.step in SWAPPED]


def _sizes(files: HadoopFiles, unit: str, old: str, known: set[tuple[str, int]]) -> list[int]:
    found = [(folder.relative, file) for folder in list_folders(files, old) for file in folder.files]
    for folder, file in found:
        if (_placed(folder, file.path), file.length) not in known:
            raise VerificationError(
                f"{unit}: {file.path} is in the old folder, but was not there, or not with this length, when the run "
                "listed it: a stale writer left it, and its rows would be lost; read it with spark.read.parquet, "
                "insert its rows into the table if they are not there, delete the file, then run `sparkcrypt backfill "
                "expire` again; nothing was deleted"
            )
    return [file.length for _, file in found]


def _tidy(files: HadoopFiles, base: str, journals: list[Journal]) -> None:
    """Delete the folders in which runs kept old files, once nothing is in them."""
    for journal in journals:
        folder = old_folder(base, journal.run.run_id)
        if files.exists(folder) and next(files.walk(folder), None) is None:
            files.delete_tree(folder)


def _journals(store: StateStore, table_id: str, run_id: str | None, name: str) -> list[Journal]:
    runs = sorted({one.split("/")[2] for one in store.list(f"runs/{table_id}/")})
    if not runs:
        raise ConfigError(f"{name}: no run is known in this state directory; nothing is to expire")
    if run_id is not None and run_id not in runs:
        raise ConfigError(f"{name}: run {run_id} is not known; allowed: {', '.join(runs)}")
    opened = [Journal.open(store, table_id, one) for one in runs if run_id in (None, one)]
    unfinished = [one.run.run_id for one in opened if one.records[-1].kind != "run_finished"]
    if unfinished:
        raise ConfigError(f"{name}: run {unfinished[0]} is unfinished; run the job again to finish it, then expire")
    return opened


def _partition_folders(catalog: Catalog, table: Table) -> set[str]:
    return {comparable_path(one.location) for one in catalog.partitions(table)} if table.partition_columns else set()


def _listed(journal: Journal, unit: str) -> set[tuple[str, int]]:
    """Return the files that a unit had when it was listed: path below the unit, length in bytes."""
    return {
        (_placed(str(folder[0]), str(file[0])), int(file[1]))
        for record in journal.records
        if record.kind == "unit_listed" and record.fields["unit"] == unit
        for folder in record.fields["files"]
        for file in folder[1]
    }


def _placed(folder: str, path: str) -> str:
    return f"{folder}/{path.rpartition('/')[2]}"

"""Disposal of old files after a run, when no reader needs them any more, after a relisting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from sparkcrypt.backfill.journal import Journal, state_of_units
from sparkcrypt.backfill.states import open_states
from sparkcrypt.backfill.units import base_location, list_folders
from sparkcrypt.bridge.context import comparable_path
from sparkcrypt.errors import ConfigError, VerificationError
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.catalog import Catalog, Table
from sparkcrypt.spark.files import HadoopFiles


@dataclass(frozen=True, slots=True)
class Expired:
    """What was disposed of."""

    table: str
    run_id: str
    folders: tuple[str, ...]
    files: int
    total_bytes: int
    dry_run: bool

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "table": self.table,
            "run_id": self.run_id,
            "folders": list(self.folders),
            "files": self.files,
            "bytes": self.total_bytes,
            "dry_run": self.dry_run,
        }


def expire_run(spark: SparkSession, table: str, policy: Policy, *, run_id: str | None = None, dry_run: bool = False) -> Expired:
    """Delete the old files of a finished run.

    Args:
        spark: a classic session.
        table: ``db.table``.
        policy: under which the run was made.
        run_id: which run; the latest finished one by default.
        dry_run: tell, and delete nothing.

    Raises:
        ConfigError: there is no such run.
        VerificationError: an old folder holds files that the run did not list (a stale writer's), or is in use; nothing was
            deleted.
    """
    catalog, files = Catalog(spark), HadoopFiles(spark)
    found = catalog.table(table)
    table_id = found.uuid
    if table_id is None:
        raise ConfigError(f"{found.full_name} has no identity, so no run of it is known; nothing is to expire")
    store = open_states(spark, policy.run_state, outside=base_location(found.location))
    journal = _journal(store, table_id, run_id, found.full_name)
    in_use = {comparable_path(found.location), *_partition_folders(catalog, found)}
    folders, count, size = [], 0, 0
    for name, state in state_of_units(journal.records).items():
        if state.step != "unit_swapped":
            continue
        old = str(state.fields["outcome"]["old_location"])
        if not files.exists(old):
            continue
        if comparable_path(old) in in_use:
            raise VerificationError(f"{name}: {old} is in use by the table again; nothing was deleted")
        known = _listed(journal, name)
        for folder in list_folders(files, old):
            for file in folder.files:
                if file.path.rpartition("/")[2] not in known:
                    raise VerificationError(
                        f"{name}: {file.path} is in the old folder, but was not there when the run listed it: a stale writer left "
                        "it, and it would be lost; insert its rows into the table, delete it, then expire again"
                    )
                count, size = count + 1, size + file.length
        folders.append(old)
    if not dry_run:
        for old in folders:
            files.delete_tree(old)
        if folders:
            journal.append("run_expired", folders=folders)
    return Expired(found.full_name, journal.run.run_id, tuple(folders), count, size, dry_run)


def _partition_folders(catalog: Catalog, table: Table) -> set[str]:
    return {comparable_path(one.location) for one in catalog.partitions(table)} if table.partition_columns else set()


def _journal(store: Any, table_id: str, run_id: str | None, name: str) -> Journal:
    runs = sorted({one.split("/")[2] for one in store.list(f"runs/{table_id}/")})
    if run_id is None and not runs:
        raise ConfigError(f"{name}: no run is known in this state directory; nothing is to expire")
    chosen = run_id or runs[-1]
    if chosen not in runs:
        raise ConfigError(f"{name}: run {chosen} is not known; allowed: {', '.join(runs)}")
    return Journal.open(store, table_id, chosen)


def _listed(journal: Journal, unit: str) -> set[str]:
    """Return the names of the files that a unit had when it was listed."""
    return {
        file[0].rpartition("/")[2]
        for record in journal.records
        if record.kind == "unit_listed" and record.fields["unit"] == unit
        for folder in record.fields["files"]
        for file in folder[1]
    }


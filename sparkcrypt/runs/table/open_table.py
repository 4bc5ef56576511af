"""A table or folder that is opened for a command, with all that work on it needs, progress included, as one value."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from sparkcrypt.ledger.audit.trust import TableTrust
from sparkcrypt.ledger.state.directory import open_state_directory
from sparkcrypt.ledger.state.store import StateStore
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.table.in_use import InUse, OtherTables
from sparkcrypt.runs.table.target import Target, locations_of, pin_places_of
from sparkcrypt.spark.files.hadoop import HadoopFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STAGING = 0.9
"""The share of the rewrite in a unit's work, so that progress is not complete before files are verified and swapped."""


class Progress(Protocol):
    """A receiver of a run's progress; in a pass, of one run after the other."""

    def start(self, target: str, units: int, files: int, total_bytes: int) -> None:
        """Receive the amount of work of a run; progress is counted from here."""

    def step(self, unit: str, step: str) -> None:
        """Receive a unit's step (staging, verifying, swapping), possibly before `start` or after `finish`."""

    def advance(self, files: int, total_bytes: int, units: int = 0) -> None:
        """Receive the numbers of further finished files, bytes and units; negative numbers take them back."""

    def finish(self) -> None:
        """Receive the end of the run, whether or not it succeeded."""


class Silent:
    """A receiver that ignores all progress."""

    def start(self, target: str, units: int, files: int, total_bytes: int) -> None:
        """Do nothing."""

    def step(self, unit: str, step: str) -> None:
        """Do nothing."""

    def advance(self, files: int, total_bytes: int, units: int = 0) -> None:
        """Do nothing."""

    def finish(self) -> None:
        """Do nothing."""


class UnitProgress:
    """Reports the progress of one unit, which in the end is all of its files and bytes, or none.

    Args:
        progress: receives the progress.
        files: the number of the unit's files.
        total_bytes: their total length.
    """

    def __init__(self, progress: Progress, files: int, total_bytes: int) -> None:
        self._progress, self._files, self._bytes = progress, files, total_bytes
        self._told = (0, 0, 0)
        self._mutex = threading.Lock()

    def tell_rewritten(self, files: int) -> None:
        """Report the number of files that are rewritten so far."""
        part = STAGING * min(1.0, files / max(1, self._files))
        self._tell(int(self._files * part), int(self._bytes * part))

    def tell_done(self) -> None:
        """Report that the unit is done."""
        self._tell(self._files, self._bytes, 1)

    def tell_unchanged(self) -> None:
        """Report that the unit is unchanged, so its progress is taken back."""
        self._tell(0, 0)

    def _tell(self, files: int, total_bytes: int, units: int = 0) -> None:
        with self._mutex:
            before, self._told = self._told, (files, total_bytes, units)
            if self._told != before:
                self._progress.advance(files - before[0], total_bytes - before[1], units - before[2])


@dataclass(frozen=True, slots=True)
class OpenTable:
    """A table or bare folder, opened once; `open_target` creates it.

    Attributes:
        spark: a classic session that is configured with the policy.
        target: the table or folder.
        policy: what its tags mean.
        files: the file system.
        store: the state directory.
        trust: opens its journals, and authenticates its records.
        in_use: looks up which folders are in use, by the metastore.
        progress: receives progress updates.
    """

    spark: SparkSession
    target: Target
    policy: Policy
    files: HadoopFiles
    store: StateStore
    trust: TableTrust
    in_use: InUse
    progress: Progress


def open_target(
    spark: SparkSession,
    target: Target,
    policy: Policy,
    progress: Progress | None = None,
    others: OtherTables | None = None,
) -> OpenTable:
    """Open a target; no file of it is read, and nothing is written.

    Args:
        spark: as in `OpenTable`.
        target: as in `OpenTable`.
        policy: as in `OpenTable`.
        progress: by default, nothing receives updates.
        others: the folders of other tables, which the tables of a pass share; by default, listed when first needed.

    Raises:
        ConfigError: the state directory cannot be opened.
    """
    store = open_state_directory(spark, policy.run_state, outside=target.base)
    in_use = InUse(spark, target, others or OtherTables(spark, policy.aliases))
    locations = partial(locations_of, spark, target)
    pins = partial(pin_places_of, spark, target)
    trust = TableTrust(store, target.table_id, policy, target.base, locations, in_use.is_free, pins)
    return OpenTable(spark, target, policy, HadoopFiles(spark), store, trust, in_use, progress or Silent())

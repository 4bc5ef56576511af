"""Reading the footers of a target's files: on the driver, or in Spark tasks if there are many."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sparkcrypt.bridge.client import HelperClient, helper_command
from sparkcrypt.errors import ConfigError, SparkcryptError, StorageError
from sparkcrypt.files.footers import FooterFacts, Found, read_facts
from sparkcrypt.files.parquet import FileSummary, KeyRequest
from sparkcrypt.keys.opened import open_data_keys
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.files.listing import SourceFile
from sparkcrypt.spark.tasks.run import read_footers_in_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RetrieveKey = Callable[[KeyRequest], bytes]
_READERS = 4
PAUSE_SECONDS = 1.0
"""The pause before the only retry after the storage failed."""
FEW = 64
"""The number of footers that the driver reads faster than tasks start."""


class FooterReader(Protocol):
    """A reader of footers, which returns errors of single files instead of raising them."""

    def read(self, sources: Sequence[SourceFile]) -> Mapping[str, Found]:
        """Return path -> facts or error."""


@dataclass(frozen=True, slots=True)
class DriverFooters:
    """Reads footers in this process, through Hadoop's file systems.

    With ``every_key`` each key of a file is opened, except those that a master key in ``shredded`` wrapped.
    """

    files: HadoopFiles
    retrieve_key: RetrieveKey
    every_key: bool = False
    shredded: frozenset[str] = frozenset()

    def read(self, sources: Sequence[SourceFile]) -> Mapping[str, Found]:
        """Return path -> facts or error."""
        with ThreadPoolExecutor(_READERS) as pool:
            return dict(pool.map(self._read_footer, sources))

    def _read_footer(self, source: SourceFile) -> tuple[str, Found]:
        found = self._facts(source.path)
        if _is_transient(found):  # one broken connection must not fail a unit
            time.sleep(PAUSE_SECONDS)
            found = self._facts(source.path)
        return source.path, found

    def _facts(self, path: str) -> Found:
        try:
            with self.files.open(path) as stream:
                return read_facts(path, stream, self.retrieve_key, every_key=self.every_key, shredded=self.shredded)
        except SparkcryptError as error:
            return error
        except OSError as error:
            return StorageError(f"{path}: {error}")


@dataclass(frozen=True, slots=True)
class TaskFooters:
    """Reads many footers in Spark tasks; few, and those that tasks cannot reach, on the driver."""

    spark: SparkSession
    key_service: KeyServiceConfig
    driver: DriverFooters

    def read(self, sources: Sequence[SourceFile]) -> Mapping[str, Found]:
        """Return path -> facts or error."""
        if len(sources) <= FEW:
            return self.driver.read(sources)
        try:
            found = dict(
                read_footers_in_tasks(
                    self.spark,
                    [source.path for source in sources],
                    self.key_service,
                    every_key=self.driver.every_key,
                    shredded=self.driver.shredded,
                )
            )
        except ConfigError:  # executors lack what tasks need; only the native engine requires it
            return self.driver.read(sources)
        unreached = [source for source in sources if _should_ask_driver(found.get(source.path))]
        return found | dict(self.driver.read(unreached)) if unreached else found


def _is_transient(found: Found | None) -> bool:
    """Return whether a retry may help: the storage failed, or the cause is unknown."""
    return isinstance(found, StorageError) or type(found) is SparkcryptError


def _should_ask_driver(found: Found | None) -> bool:
    """Return whether the driver may be able to read a footer that a task could not."""
    return found is None or isinstance(found, ConfigError) or _is_transient(found)


def summaries_of(found: Mapping[str, Found]) -> dict[str, FileSummary]:
    """Return path -> the contents of its footer, for the files whose footer could be read."""
    return {path: facts.summary for path, facts in found.items() if isinstance(facts, FooterFacts)}


def own_keys(config: KeyServiceConfig) -> RetrieveKey:
    """Return a key retriever that uses a key service opened in this process."""
    return open_data_keys(config)


@contextmanager
def fresh_keys(config: KeyServiceConfig) -> Iterator[RetrieveKey]:
    """Yield a key retriever that uses a new helper process, so that no cache of this process is used."""
    key_service = config.canonical()
    with HelperClient(helper_command()) as helper:

        def retrieve(request: KeyRequest) -> bytes:
            answer = helper.call(
                "open_key",
                key_service=key_service,
                key_metadata=base64.b64encode(request.key_metadata or b"").decode(),
            )
            return base64.b64decode(answer["key"])

        yield retrieve

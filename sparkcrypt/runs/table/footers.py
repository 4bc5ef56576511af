"""Reading the footers of a target's files, or all of each file: on the driver, or in Spark tasks if there is much."""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from sparkcrypt.bridge.client import HelperClient, helper_command
from sparkcrypt.errors import (
    ConfigError,
    KeyAccessDeniedError,
    KeyServiceUnavailableError,
    SparkcryptError,
    StorageError,
)
from sparkcrypt.files.footers import Depth, FooterFacts, Found, read_facts
from sparkcrypt.files.parquet import FileSummary, KeyRequest
from sparkcrypt.keys.opened import open_data_keys
from sparkcrypt.log_lines import log_as_here
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
FEW_BYTES = 64 << 20
"""The size of files that the driver authenticates faster than tasks start."""


class FooterReader(Protocol):
    """A reader of footers, which returns errors of single files instead of raising them."""

    def read(self, sources: Sequence[SourceFile]) -> Mapping[str, Found]:
        """Return path -> facts or error."""


@dataclass(frozen=True, slots=True)
class DriverFooters:
    """Reads footers in this process, through Hadoop's file systems.

    ``depth`` and ``shredded`` are as in `read_facts`.
    """

    files: HadoopFiles
    retrieve_key: RetrieveKey
    depth: Depth = "footer"
    shredded: frozenset[str] = frozenset()

    def read(self, sources: Sequence[SourceFile]) -> Mapping[str, Found]:
        """Return path -> facts or error."""
        with ThreadPoolExecutor(_READERS, "footers", log_as_here()) as pool:
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
                return read_facts(path, stream, self.retrieve_key, depth=self.depth, shredded=self.shredded)
        except SparkcryptError as error:
            return error
        except OSError as error:
            return StorageError(f"{path}: {error}")


@dataclass(frozen=True, slots=True)
class TaskFooters:
    """Reads many files in Spark tasks, as the driver would; few, and those that tasks cannot reach, on the driver.

    The tasks open keys with the key service themselves, and use no key that was opened for another reader.
    """

    spark: SparkSession
    key_service: KeyServiceConfig
    driver: DriverFooters
    name: str = field(default_factory=lambda: os.urandom(8).hex())

    def read(self, sources: Sequence[SourceFile]) -> Mapping[str, Found]:
        """Return path -> facts or error."""
        if self._is_little(sources):
            return self.driver.read(sources)
        try:
            found = dict(
                read_footers_in_tasks(
                    self.spark,
                    sources,
                    (self.key_service, self.name),
                    depth=self.driver.depth,
                    shredded=self.driver.shredded,
                )
            )
        except ConfigError:  # executors lack what tasks need; only the native engine requires it
            return self.driver.read(sources)
        unreached = [source for source in sources if self._should_ask_driver(found.get(source.path))]
        return found | dict(self.driver.read(unreached)) if unreached else found

    def _is_little(self, sources: Sequence[SourceFile]) -> bool:
        if len(sources) > FEW:
            return False
        return self.driver.depth != "modules" or sum(source.length for source in sources) <= FEW_BYTES

    def _should_ask_driver(self, found: Found | None) -> bool:
        """Return whether the driver may be able to read what a task could not: it has credentials of its own."""
        error = error_of(found)
        if found is None or isinstance(error, ConfigError) or _is_transient(error):
            return True
        refused = isinstance(error, KeyAccessDeniedError | KeyServiceUnavailableError)
        return refused and self.driver.depth != "footer"


def error_of(found: Found | None) -> SparkcryptError | None:
    """Return why a file could not be read, or not be authenticated; None if it could."""
    if isinstance(found, FooterFacts):
        return None if found.proof is None else found.proof.error
    return found


def _is_transient(found: Found | None) -> bool:
    """Return whether a retry may help: the storage failed, or the cause is unknown."""
    return isinstance(found, StorageError) or type(found) is SparkcryptError


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

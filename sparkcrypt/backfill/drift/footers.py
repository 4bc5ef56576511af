"""The footers of a target's files: from a cache of what was read before, on the driver, or by tasks where many are."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sparkcrypt.backfill.target.unit import SourceFile
from sparkcrypt.bridge.client import HelperClient, helper_command
from sparkcrypt.errors import ConfigError, SparkcryptError, StorageError
from sparkcrypt.keys.datakeys import DataKeyOpener
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.native.footers import FooterFacts, Found, read_facts
from sparkcrypt.parquet import FileSummary, KeyRequest
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.tasks.footers import read_footers_in_tasks
from sparkcrypt.tags.lineage_note import ColumnLineage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RetrieveKey = Callable[[KeyRequest], bytes]
_READERS = 4
PAUSE_SECONDS = 1.0
"""How long after the storage failed it is asked again, once."""
FEW = 64
"""So many footers the driver reads faster than tasks start."""


@dataclass(frozen=True, slots=True)
class Footers:
    """What the footers of some files say, codecs of their column chunks, their lineage, and what could not be read."""

    summaries: dict[str, FileSummary]
    codecs: dict[str, Mapping[str, int]]
    lineage: dict[str, tuple[ColumnLineage, ...]]
    errors: dict[str, SparkcryptError]


class FooterReader(Protocol):
    """Reads footers; what cannot be read is reported, not raised."""

    def read(self, sources: Sequence[SourceFile]) -> Mapping[str, Found]:
        """Return path -> facts or error."""


@dataclass(frozen=True, slots=True)
class DriverFooters:
    """Reads footers in this process, through Hadoop's file systems.

    With ``every_key`` each key of a file is opened, but those that a master key of ``shredded`` wrapped.
    """

    files: HadoopFiles
    retrieve_key: RetrieveKey
    every_key: bool = False
    shredded: frozenset[str] = frozenset()

    def read(self, sources: Sequence[SourceFile]) -> Mapping[str, Found]:
        """Return path -> facts or error."""
        with ThreadPoolExecutor(_READERS) as pool:
            return dict(pool.map(self._one, sources))

    def _one(self, source: SourceFile) -> tuple[str, Found]:
        found = self._facts(source.path)
        if _passing(found):  # one broken connection must not keep a unit from being done
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
    """Reads many footers by tasks of Spark; few, and those that tasks cannot reach, on the driver."""

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
        except ConfigError:  # executors without what tasks need can still do without the native engine
            return self.driver.read(sources)
        unreached = [source for source in sources if _elsewhere(found.get(source.path))]
        return found | dict(self.driver.read(unreached)) if unreached else found


def _passing(found: Found | None) -> bool:
    """Tell whether another try may have another answer: the storage failed, or nobody knows what did."""
    return isinstance(found, StorageError) or type(found) is SparkcryptError


def _elsewhere(found: Found | None) -> bool:
    """Tell whether the driver may know what a task could not tell."""
    return found is None or isinstance(found, ConfigError) or _passing(found)


def own_keys(config: KeyServiceConfig) -> RetrieveKey:
    """Return a key retriever over a key service opened in this process."""
    opener = DataKeyOpener(open_key_service(config))
    return lambda request: opener.open_metadata(request.key_metadata)


@contextmanager
def fresh_keys(config: KeyServiceConfig) -> Iterator[RetrieveKey]:
    """Yield a key retriever over a helper process of its own, which no cache of this process can answer for."""
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


def sort_footers(found: Mapping[str, Found], sources: Iterable[SourceFile]) -> Footers:
    """Return what was found of some files, by kind."""
    chosen = {source.path: found[source.path] for source in sources}
    known = {path: facts for path, facts in chosen.items() if isinstance(facts, FooterFacts)}
    return Footers(
        {path: facts.summary for path, facts in known.items()},
        {path: facts.codecs for path, facts in known.items()},
        {path: facts.lineage for path, facts in known.items()},
        {path: error for path, error in chosen.items() if isinstance(error, SparkcryptError)},
    )

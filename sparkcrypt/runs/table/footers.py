"""Footers of a target's files: read on the driver, in Spark tasks if there are many, or known from an earlier pass.

The cache of footers in the state directory, so that a later pass reads only those of new and changed files.
footers/<table id>/<digest of the unit's name>/00000003.json

A record contains the facts of one unit's files with their length and modification time; a newer one replaces it.  It is
trusted only for planning: before a unit is rewritten its footers are read again, since anyone who can replace a file
can also give it the old length and time.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sparkcrypt.bridge.client import HelperClient, helper_command
from sparkcrypt.errors import ConfigError, SparkcryptError, StorageError
from sparkcrypt.files.footers import FooterFacts, Found, pack, read_facts, unpack
from sparkcrypt.files.parquet import FileSummary, KeyRequest
from sparkcrypt.keys.opened import open_data_keys
from sparkcrypt.ledger.state.store import LatestRecord, StateStore
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.spark.files.hadoop import HadoopFiles, SourceFile
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


VERSION = 7


class FooterCache:
    """The cached facts of one table.

    Args:
        store: the state directory.
        table_id: the table's id.
        name: the table's name, or the folder, which is kept with the facts for messages.
        keeps: whether new facts are stored; False for commands that change nothing.
    """

    def __init__(self, store: StateStore, table_id: str, *, name: str | None = None, keeps: bool = True) -> None:
        self._store, self._folder, self._name, self._keeps = store, f"footers/{table_id}", name, keeps

    def find_known(self, unit: str, sources: Sequence[SourceFile]) -> dict[str, Found]:
        """Return the facts of those files of a unit that have not changed since they were read.

        A file with external key material is read again, since that may have changed without the file.
        """
        kept = self._read_newest(unit)
        if kept is None:
            return {}
        stamps, facts = kept
        return {
            source.path: facts[source.path]
            for source in sources
            if source.path in facts
            and stamps.get(source.path) == [source.length, source.modified_ms]
            and not _is_external(facts[source.path])
        }

    def read_all(self) -> Iterator[tuple[str, Mapping[str, int], Mapping[str, FooterFacts]]]:
        """Yield each cached unit: its name, and the lengths and the facts of its files.

        The unit and the files may no longer exist.
        """
        folders = {name.rpartition("/")[0] for name in self._store.list(f"{self._folder}/")}
        for folder in sorted(folders):
            for content in LatestRecord(self._store, f"{folder}/").read():
                kept = _parse_record(content)
                if kept is not None:
                    unit, stamps, facts = kept
                    footers = {
                        path: found
                        for path, found in facts.items()
                        if isinstance(found, FooterFacts) and path in stamps
                    }
                    yield unit, {path: int(stamps[path][0]) for path in footers}, footers
                    break

    def keep(self, unit: str, sources: Sequence[SourceFile], found: Mapping[str, Found]) -> None:
        """Store the facts of a unit's files; files that could not be read are read again the next time."""
        if not self._keeps:
            return
        facts = {
            source.path: found[source.path] for source in sources if isinstance(found.get(source.path), FooterFacts)
        }
        stamps = {source.path: [source.length, source.modified_ms] for source in sources if source.path in facts}
        record = {"version": VERSION, "table": self._name, "unit": unit, "stamps": stamps, "packed": pack(facts)}
        self._record(unit).replace(json.dumps(record).encode())

    def find_name(self) -> str | None:
        """Return the name that was kept with the facts of some unit; None if there is none."""
        for record in self._store.list(f"{self._folder}/"):
            with contextlib.suppress(ValueError, AttributeError):
                name = json.loads(self._store.read(record) or b"{}").get("table")
                if isinstance(name, str):
                    return name
        return None

    def _read_newest(self, unit: str) -> tuple[dict[str, list[int]], dict[str, Found]] | None:
        for content in self._record(unit).read():
            kept = _parse_record(content)
            if kept is not None and kept[0] == unit:
                return kept[1], kept[2]
        return None

    def _record(self, unit: str) -> LatestRecord:
        return LatestRecord(self._store, f"{self._folder}/{hashlib.sha256(unit.encode()).hexdigest()[:32]}/")


def _is_external(found: Found) -> bool:
    return isinstance(found, FooterFacts) and found.summary.external_material


def _parse_record(content: bytes) -> tuple[str, dict[str, list[int]], dict[str, Found]] | None:
    """Return the contents of a record; None if it is damaged or of another version: its files are then read again."""
    with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError):
        record = json.loads(content)
        if record["version"] == VERSION:
            return str(record["unit"]), record["stamps"], unpack(record["packed"])
    return None

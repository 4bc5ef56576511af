"""A table of which neither metastore nor files exist: what they would answer is made when they are asked.

Catalog, file system, footers and the tasks of executors are replaced where the code of runs asks them, so that planner,
survey, scheduler and ledger work through a table of any size by themselves.  No page is written; the footers that the
driver opens itself are not parsed, and their cost is to be added (``bench.footer_scan``).
"""

from __future__ import annotations

import base64
import io
import json
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from sparkcrypt.decide.identity import FileIdentity
from sparkcrypt.files.footers import FooterFacts, Found, pack, unpack
from sparkcrypt.files.format import FORMATS, ParquetFormat
from sparkcrypt.files.orders import FileOrder, FileOutcome, KeySettings
from sparkcrypt.files.parquet import ColumnSummary, FileSummary, RetrieveKey
from sparkcrypt.files.source import Source
from sparkcrypt.keys.material import wrapping_of_kek
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.names import TABLE_MARK, TABLE_UUID
from sparkcrypt.policy.load import policy_from_text
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.passes.run import open_job, run_table
from sparkcrypt.runs.rewrite import engine, native_engine
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.runs.rewrite.run_report import Report
from sparkcrypt.runs.table.open_table import open_target
from sparkcrypt.runs.table.progress import Progress
from sparkcrypt.runs.table.target import catalog_target
from sparkcrypt.schema import Path
from sparkcrypt.spark.files.hadoop import Access, FileStatus, HadoopFiles
from sparkcrypt.spark.files.listing import SourceFile
from sparkcrypt.spark.tables.catalog import Catalog, PartitionMove
from sparkcrypt.spark.tables.table import Partition, Table

NAME, UUID = "db.t", "6f1d9a52-7c57-4f3e-9d0e-3c1f0a6b8e21"
BASE = "hdfs://nn/warehouse/db.db/t"
COLUMNS, TAGGED = [f"c{number}" for number in range(10)], ("c0", "c1", "c2")
FILE_BYTES, MORE_BYTES, ROWS, MODIFIED_MS = 125_000_000, 4_096, 1_000_000, 1_763_780_000_000
"""Of each file: its length in clear, what encryption adds to it, its rows, and when it was written."""
_FOOTER = b"\x00" * 2_000
_CONTENT = _FOOTER + len(_FOOTER).to_bytes(4, "little") + b"PARE"
_ACCESS = Access("etl", "etl", "0750", "")
_UNIQUE = b"01234567"
_POLICY = f"""
version: 1
key_service: {{type: local, path: keys/}}
data_key_bits: 128
footer: {{key: footer}}
untagged: plaintext
run_state: state/
tags: {{pii: {{key: pii}}}}
tables: {{{NAME}: {{tags: {{{", ".join(f"{name}: [pii]" for name in TAGGED)}}}}}}}
"""


@dataclass
class Store:
    """The state of the table: its partitions, each of so many files, and where runs have put them.

    Attributes:
        partitions: their number.
        files: the number of files of each.
        places: partition -> its folder and its pin, once a run has swapped it.
        made: the folders in which runs have made files.
        file_bytes: the length of a file in clear.
    """

    partitions: int
    files: int
    file_bytes: int = FILE_BYTES
    places: dict[str, tuple[str, str]] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Make the names of files, the same in each partition, as one job of Spark gives them."""
        self.names = [
            f"part-{number:05d}-1f7b8f0a-3f3c-4f0e-9b43-0f6a7f9a7a11.c000.snappy.parquet"
            for number in range(self.files)
        ]
        marks = {TABLE_UUID: UUID, TABLE_MARK: f"{UUID} 1"}
        fields = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in (*COLUMNS, "p")]
        schema = json.dumps({"type": "struct", "fields": fields})
        self.table = Table("db", "t", "EXTERNAL", "parquet", "", BASE, schema, ("p",), marks, marks, "etl", created=1)

    def partition(self, name: str) -> Partition:
        """Return a partition where it is now."""
        location, pin = self.places.get(name, (f"{BASE}/p={name}", ""))
        return Partition((("p", name),), location, "", pin)

    def has_folder(self, folder: str) -> bool:
        """Return whether there is a folder of data, or that of the table."""
        return folder in self.made or folder == BASE or folder.startswith(f"{BASE}/p=")

    def list_folder(self, folder: str) -> Iterable[str]:
        """Yield path, length and time of each file of a partition's folder."""
        length = str(self.file_bytes + (MORE_BYTES if folder in self.made else 0))
        for name in self.names if folder != BASE else ():
            yield from (f"{folder}/{name}", length, str(MODIFIED_MS))


class _Everything:
    """Any object of Java, which is asked for nothing that counts."""

    def exists(self, _where: object) -> bool:
        return True

    def resolvePath(self, where: object) -> object:  # as Hadoop names it
        return where

    def toString(self) -> str:
        return BASE


class Files:
    """The file system, with the members of `HadoopFiles` that a run asks."""

    store: ClassVar[Store] = Store(0, 0)

    def __init__(self, _spark: object) -> None:
        """Take the place of the real one."""

    def qualify(self, path: str) -> str:
        """Return a path, which is a full URI."""
        return path

    def exists(self, path: str) -> bool:
        """Return whether it is a folder of the table."""
        return self.store.has_folder(path.rstrip("/"))

    def status(self, path: str) -> FileStatus:
        """Return the status of a folder."""
        return FileStatus(path, 0, MODIFIED_MS, True, _ACCESS.owner, _ACCESS.group, _ACCESS.mode)

    def names(self, _path: str) -> tuple[str, ...]:
        """Return that nothing lies beside the data."""
        return ()

    def listed_in_jvm(self, path: str, _lister: str) -> str:
        """Return the listing of a folder, as the jar gives it."""
        return "".join(f"{text}\0" for text in self.store.list_folder(path))

    def open(self, path: str) -> io.BytesIO:
        """Return a file of which the end alone is read."""
        return io.BytesIO(_CONTENT)

    def access(self, _path: str) -> Access:
        """Return the access rights that all files have."""
        return _ACCESS

    def access_of_data(self, folder: str) -> dict[str, Access]:
        """Return the access rights of the files in a folder."""
        return dict.fromkeys(list(self.store.list_folder(folder))[::3], _ACCESS)

    def set_access(self, _path: str, _wanted: Access) -> None:
        """Change nothing: all have the same."""

    def make_folder(self, path: str, mode: str | None = None) -> None:
        """Make a folder; one with a mode is a unit's."""
        if mode:
            self.store.made.add(path)

    def free_bytes(self, _path: str) -> None:
        """Return that the disk has no limit."""

    def renames_at_once(self, _path: str) -> bool:
        """Return that it does, as HDFS."""
        return True

    def locate(self, _path: str) -> tuple[Any, Any]:
        """Return what stands for Hadoop's file system and path."""
        return _Everything(), _Everything()

    def call(self, _verb: str, _path: str, action: Callable[[], object]) -> object:
        """Call."""
        return action()

    def is_a(self, _thing: object, _kind: str) -> bool:
        """Return that storage policies are not asked for."""
        return False


class Metastore:
    """The session catalog, with the members of `Catalog` that a run asks."""

    store: ClassVar[Store] = Store(0, 0)

    def __init__(self, _spark: object) -> None:
        """Take the place of the real one."""

    def databases(self) -> tuple[str, ...]:
        """Return the database."""
        return (self.store.table.database,)

    def exists(self, _name: str) -> bool:
        """Return that the table is there."""
        return True

    def table(self, _name: str) -> Table:
        """Return the table."""
        return self.store.table

    def all_of(self, _database: str) -> Iterable[Table]:
        """Yield the table."""
        yield self.store.table

    def partitions(self, _table: Table) -> tuple[Partition, ...]:
        """Return all partitions."""
        return tuple(self.store.partition(f"{number:06d}") for number in range(self.store.partitions))

    def find_partitions(self, _table: Table, wanted: Sequence[Partition]) -> dict[str, Partition]:
        """Return some partitions."""
        return {partition.folder: self.store.partition(partition.values[0][1]) for partition in wanted}

    def move_partitions(self, _table: Table, moves: Sequence[PartitionMove]) -> dict[str, str | None]:
        """Point partitions to other folders."""
        for move in moves:
            self.store.places[move.partition.values[0][1]] = move.location, move.pin
        return {}

    def statistics(self, _table: Table) -> None:
        """Return that the table has none."""

    def unset_options(self, _table: Table, _names: tuple[str, ...]) -> None:
        """Change nothing: no column has a history."""


@dataclass(frozen=True)
class Footers:
    """The footers of files, as tasks send them to the driver."""

    store: Store

    def read(self, sources: Sequence[SourceFile]) -> Mapping[str, Found]:
        """Return the facts of files, out of the text in which they are sent."""
        found: dict[str, Found] = {}
        for are_made in (False, True):
            paths = [source.path for source in sources if (_folder_of(source.path) in self.store.made) is are_made]
            files = [_pack_file(path, is_made=are_made) for path in paths]
            found |= unpack(json.dumps({**_PACKED[are_made], "files": files}))
        return found


def _folder_of(path: str) -> str:
    return path.rpartition("/")[0]


def _prefix_of(path: str) -> bytes:
    folder, _, name = path.rpartition("/")
    return FileIdentity(UUID, folder.rpartition("/")[2], name).to_aad_prefix()


def _pack_file(path: str, *, is_made: bool) -> list[Any]:
    if not is_made:
        return [path, 0, None, None, ROWS, 1, []]
    return [path, 0, *(base64.b64encode(text).decode() for text in (_prefix_of(path), _UNIQUE)), ROWS, 1, [0, 1]]


def _summarise(path: str, *, is_made: bool) -> FileSummary:
    keys = {name: "pii" for name in TAGGED if is_made}
    leaf: dict[str, Any] = {"kind": "leaf", "annotation": None, "repetition": "optional", "children": []}
    wrappings = tuple(wrapping_of_kek(key, f"kek of {key}", "local:v1:") for key in ("footer", "pii"))
    return FileSummary(
        path=path,
        footer="encrypted" if is_made else "plaintext",
        algorithm="AES_GCM_V1" if is_made else None,
        footer_key="footer" if is_made else None,
        aad_prefix=_prefix_of(path) if is_made else None,
        supply_aad_prefix=False,
        aad_file_unique=_UNIQUE if is_made else None,
        rows=ROWS,
        row_groups=1,
        columns={(name,): ColumnSummary(name in keys, keys.get(name)) for name in COLUMNS},
        wrappings=wrappings if is_made else (),
        fields=json.dumps([{"name": name, **leaf} for name in COLUMNS]),
    )


_MADE = _summarise("", is_made=True)
_PACKED: Mapping[bool, Mapping[str, Any]] = {
    is_made: json.loads(pack({"": FooterFacts(_summarise("", is_made=is_made), {"SNAPPY": 10})}))
    for is_made in (False, True)
}
"""Whether a run has made files -> what their footers have in common, as tasks send it."""


class _Opened(ParquetFormat):
    """Parquet, of which no file is opened."""

    def open_keys(
        self,
        path: str,
        source: Source,
        retrieve_key: RetrieveKey,
        dark: Mapping[Path, str],
        unopened: Collection[Path] = (),
    ) -> FileSummary:
        """Return the summary of a file that a run has made."""
        return replace(_MADE, path=path, aad_prefix=_prefix_of(path))


def _rewrite(
    _spark: object, orders: Sequence[FileOrder], lengths: Mapping[str, int], _keys: KeySettings, _tell: object
) -> list[FileOutcome]:
    """Return the outcomes of orders, as tasks send them."""
    sizes = ((order, lengths[order.source]) for order in orders)
    done = (FileOutcome(order.source, order.target, ROWS, size, size + MORE_BYTES) for order, size in sizes)
    return [FileOutcome.from_json(outcome.to_json()) for outcome in done]


def take_their_place(store: Store, put: Callable[[object, str, object], None] = setattr) -> None:
    """Let the code of runs ask a synthesised table.

    Args:
        store: the table.
        put: replaces an attribute of a module; by default for the rest of this process.
    """
    put(Files, "store", store)
    put(Metastore, "store", store)
    for module in [found for name, found in sys.modules.items() if name.startswith("sparkcrypt.")]:
        for name, real, made in (("HadoopFiles", HadoopFiles, Files), ("Catalog", Catalog, Metastore)):
            if getattr(module, name, None) is real:
                put(module, name, made)
    put(engine, "FORMATS", {**FORMATS, "parquet": _Opened()})
    put(native_engine, "rewrite_in_tasks", _rewrite)


def policy_in(folder: str) -> Policy:
    """Return a policy for the table, with its keys, in a folder."""
    policy = policy_from_text(_POLICY, where="policy.yaml", base=folder)
    for key in ("footer", "pii"):
        open_key_service(policy.key_service).create(key)
    return policy


def run_over(store: Store, policy: Policy, progress: Progress | None = None) -> Report:
    """Run over the table that has taken the place of all others; return the report."""
    spark: Any = None
    target = catalog_target(spark, store.table, policy, None)
    job = open_job(open_target(spark, target, policy, progress), RunOptions(keep_going=True))
    return run_table(replace(job, reader=Footers(store)))

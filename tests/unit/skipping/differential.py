"""Random predicates over files with and without an index: rows that pyarrow finds must be the same.

    python -m tests.unit.skipping.differential --predicates 10000 --seed 1

Files are written by pyarrow into partitions: all types, nulls, NaN, -0.0, columns that are absent or of an older type,
statistics cut or left out, pages of several codecs and encodings.  Each column has bounds, a list of values, a Bloom
filter, or several of these.  Between rounds files come, go, are written again, under one name and time too, and change
places; the store is asked while it is stale, and after a refresh.
"""

from __future__ import annotations

import argparse
import datetime
import os
import random
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sparkcrypt.skipping.format.description import BLOOM, MINMAX, VALUES
from sparkcrypt.skipping.format.values import Value
from sparkcrypt.skipping.indexes.build import Wanted, create_store, keys_of_store, plan_store, refresh_store
from sparkcrypt.skipping.indexes.entries import FILTER_TYPES
from sparkcrypt.skipping.indexes.files import DataFolder
from sparkcrypt.skipping.query.skipper import Listed, Skipper
from sparkcrypt.skipping.trusted.folder import LocalFolder
from sparkcrypt.skipping.trusted.sidecar import StoreKeys
from sparkcrypt.skipping.trusted.trust import Expected, TrustedStore
from tests.unit.skipping.keys import Keys
from tests.unit.skipping.random_rows import COLUMNS, Chooser, drawn, evaluated, plain
from tests.unit.skipping.stores import must_open
from tests.unit.skipping.whole_stores import open_store

FILES, ROWS, EACH = 24, 6, 200
LENGTHS = 1 << 14
"""Half of the files have a multiple of this many bytes."""
PARTITIONS: dict[str, tuple[str, list[str]]] = {
    "day": ("date", ["2024-02-29", "1970-01-01", "1850-07-04", "__HIVE_DEFAULT_PARTITION__"]),
    "p": ("string", ["a", "b%2Fc", "", "é", "__HIVE_DEFAULT_PARTITION__"]),
    "m": ("integer", ["1", "-7", "02", "soon"]),
}
"""Partition column -> its type, and the texts of its folders; ``soon`` is no integer, which Spark reads as null."""
OLDER = {"l": pa.int32(), "x": pa.float32(), "i": pa.int16(), "h": pa.int8(), "w": pa.decimal128(20, 9)}
"""Columns that were of another type before the table's was widened."""
ABSENT: dict[str, Any] = {"i": 3, "s": None, "b": -1, "u": None, "x": 0.1}
"""Columns that were added later, and what they read as in files from before: a default, or null."""


@dataclass
class Told:
    """What a run has shown."""

    predicates: int = 0
    files: int = 0
    skipped: int = 0
    skippable: int = 0
    rows: int = 0
    types: set[str] = field(default_factory=set)


class Lake:
    """A table whose files come and go, and its store."""

    def __init__(self, root: Path, seed: int) -> None:
        self.chance, self.root = random.Random(seed), root
        self.keys = Keys(root / "keys")
        self.tables: dict[Path, pa.Table] = {}
        self.indexed: dict[Path, tuple[int, int]] = {}
        self.columns = self.chance.sample(sorted(COLUMNS), k=self.chance.randint(2, 5))
        self.partitions = self.chance.sample(sorted(PARTITIONS), k=self.chance.randint(0, 2))
        self.clock, self.number = 1_700_000_000, 0
        self.data = DataFolder(str(root / "data"), self.keys, lambda *_: None)
        self.folder = LocalFolder(root / "store")
        for _ in range(FILES):
            self.add()
        kinds = {name: PARTITIONS[name][0] for name in self.partitions}
        indexes = {name: self._kinds(name) for name in self.columns}
        wanted = Wanted(indexes, kinds, most_values=self.chance.choice([2, 3, 1000]))
        plan = plan_store(self.data, wanted)
        create_store(self.folder, plan, StoreKeys(self.keys.keys.maker, "footer", {}))
        self._note_indexed()
        self.types = {name: COLUMNS[name][0] for name in self.columns} | kinds

    def _kinds(self, name: str) -> tuple[str, ...]:
        """Return the kinds of indexes of a column: one or more of those that its type has."""
        kinds = [MINMAX, VALUES, BLOOM] if COLUMNS[name][0] in FILTER_TYPES else [MINMAX, VALUES]
        return tuple(self.chance.sample(kinds, k=self.chance.randint(1, len(kinds))))

    def add(self, path: Path | None = None, at: float | None = None) -> None:
        """Write a file, new or in place of another."""
        chance, self.number = self.chance, self.number + 1
        if path is None:
            folders = [f"{name}={chance.choice(PARTITIONS[name][1])}" for name in self.partitions]
            path = self.root / "data" / "/".join([*folders, f"{self.number}.parquet"])
        path.parent.mkdir(parents=True, exist_ok=True)
        columns = {name: drawn(chance, name, ROWS) for name in COLUMNS}
        written = dict(columns)
        if self.number > 1:
            for name in chance.sample(sorted(OLDER), k=chance.choice([0, 0, 1, 2])):
                written[name] = narrowed(columns[name], OLDER[name])
                columns[name] = written[name].cast(columns[name].type)
            for name in chance.sample(sorted(ABSENT), k=chance.choice([0, 0, 0, 1, 2])):
                del written[name]
                columns[name] = pa.array([ABSENT[name]] * ROWS, columns[name].type)
        table = pa.table(written)
        if chance.random() < 0.9:
            table = table.replace_schema_metadata({"org.apache.spark.version": "4.1.0"})
        statistics: Any = chance.choice([True, True, True, False, ["l", "s"]])
        path.unlink(missing_ok=True)
        pq.write_table(
            table,
            path,
            row_group_size=chance.choice([1, 2, ROWS]),
            write_statistics=statistics,
            use_dictionary=chance.random() < 0.5,
            compression=chance.choice(["none", "snappy", "gzip", "zstd"]),
            data_page_version=chance.choice(["1.0", "2.0"]),
            store_decimal_as_integer=chance.random() < 0.5,
        )
        if chance.random() < 0.5:
            pad(path)
        self.clock += 1
        os.utime(path, (at or self.clock, at or self.clock))
        self._hold(path, columns)

    def _hold(self, path: Path, columns: dict[str, pa.Array]) -> None:
        """Note a file's rows, and give it a time of its own where name, time and length are all as they were indexed.

        Such a file is the one change that no query detects.
        """
        if stamp_of(path) == self.indexed.get(path):
            self.clock += 1
            os.utime(path, (self.clock, self.clock))
        self.tables[path] = pa.table(columns | {name: self._partition(path, name) for name in self.partitions})

    def _note_indexed(self) -> None:
        self.indexed = {path: stamp_of(path) for path in self.tables}

    def _partition(self, path: Path, name: str) -> pa.Array:
        kind, (text,) = (
            PARTITIONS[name][0],
            [folder[len(name) + 1 :] for folder in path.parts if folder.startswith(f"{name}=")],
        )
        value: Any = None if text in ("__HIVE_DEFAULT_PARTITION__", "soon") else text.replace("%2F", "/")
        if kind == "date":
            return pa.array([value and datetime.date.fromisoformat(value)] * ROWS, pa.date32())
        if kind == "integer":
            return pa.array([value and int(value)] * ROWS, pa.int32())
        return pa.array([value] * ROWS, pa.string())

    def change(self) -> None:
        """Add, overwrite, exchange and delete files; those that are overwritten or exchanged may keep the time."""
        chance = self.chance
        for path in chance.sample(sorted(self.tables), k=4):
            self.add(path, at=path.stat().st_mtime if chance.random() < 0.5 else None)
        self._exchange(*chance.sample(sorted(self.tables), k=2))
        for path in chance.sample(sorted(self.tables), k=2):
            path.unlink()
            del self.tables[path]
        for _ in range(3):
            self.add()

    def _exchange(self, first: Path, second: Path) -> None:
        """Exchange two files: with their times, or so that each name keeps its own."""
        times, aside = [path.stat().st_mtime for path in (first, second)], self.root / "aside"
        first.rename(aside)
        second.rename(first)
        aside.rename(second)
        if self.chance.random() < 0.5:
            for path, at in zip((first, second), times, strict=True):
                os.utime(path, (at, at))
        rows = [{name: self.tables[path][name].combine_chunks() for name in COLUMNS} for path in (second, first)]
        for path, columns in zip((first, second), rows, strict=True):
            self._hold(path, columns)

    def opened(self) -> TrustedStore:
        """Open the store."""
        return open_store(self.folder, self.keys, Expected(None, ("footer",), None))

    def refresh(self) -> None:
        """Bring the store up to date."""
        opened = self.opened()
        keys = StoreKeys(self.keys.keys.maker, "footer", keys_of_store(opened.store, "footer"))
        refresh_store(self.folder, self.data, opened, keys)
        self._note_indexed()

    def ask(self, told: Told, count: int) -> None:
        """Ask random predicates, and see that every row for which one is true is in a file that it opens."""
        opened = self.opened()
        skipper = Skipper(opened.store, opened.sidecar.objects, self.types)
        paths = sorted(self.tables)
        files = [Listed(str(path), *stamp_of(path)) for path in paths]
        rows = [self.tables[path].append_column("file", pa.array([at] * ROWS)) for at, path in enumerate(paths)]
        whole = pa.concat_tables(rows).combine_chunks()
        chooser = Chooser(self.chance, [*self.columns, *self.partitions], self.literal)
        for _ in range(count):
            predicate = chooser.predicate(3)
            kept = must_open(skipper, files, predicate)
            found = whole["file"].filter(evaluated(whole, predicate)).to_pylist()
            lost = [number for number in found if not kept[number]]
            assert not lost, (predicate, [(paths[number], self.tables[paths[number]].to_pylist()) for number in lost])
            told.predicates += 1
            told.files += len(files)
            told.rows += len(found)
            told.skipped += kept.count(False)
            told.skippable += len(files) - len(set(found))
        told.types.update(self.types.values())

    def literal(self, name: str) -> Value:
        """Return a literal of a column."""
        if name in PARTITIONS:
            value = self._partition(Path(f"{name}={self.chance.choice(PARTITIONS[name][1])}/f"), name)[0].as_py()
            nulls: dict[str, Value] = {"date": 0, "string": "zz", "integer": 5}
            if value is None:
                return nulls[self.types[name]]
        else:
            value = self.chance.choice(COLUMNS[name][2])
        found: Value = plain(name, value)
        return found


def stamp_of(path: Path) -> tuple[int, int]:
    """Return when a file was changed, in milliseconds, and its length."""
    found = path.stat()
    return found.st_mtime_ns // 1_000_000, found.st_size


def pad(path: Path) -> None:
    """Put zeros before a file's footer, so that files with other rows have one length."""
    data = path.read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    path.write_bytes(data[:footer] + bytes(-len(data) % LENGTHS) + data[footer:])


def narrowed(values: pa.Array, older: pa.DataType) -> pa.Array:
    """Return a column in its older type; values that it cannot hold become null."""

    def fitting(value: Any) -> Any:
        try:
            return pa.scalar(value, older).as_py()
        except pa.ArrowInvalid:
            return None

    return pa.array([fitting(value) for value in values.to_pylist()], older)


def run(seed: int, predicates: int, root: Path) -> Told:
    """Ask so many predicates, over as many lakes as that takes; each has four rounds, stale and refreshed."""
    told, number = Told(), 0
    while told.predicates < predicates:
        lake, number = Lake(root / str(number), seed * 1000 + number), number + 1
        for turn in range(4):
            lake.ask(told, min(EACH, predicates - told.predicates))
            if turn % 2:
                lake.refresh()
            else:
                lake.change()
    return told


def main() -> int:
    """Run for as many predicates as were asked for, and say what was shown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--predicates", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        told = run(options.seed, options.predicates, Path(folder))
    print(
        f"{told.predicates:,} predicates over {told.files:,} files in {time.monotonic() - began:.0f} s: {told.rows:,}"
    )
    print(f"rows with and without the index alike; {told.skipped:,} files skipped of {told.skippable:,} without a row")
    return 0


if __name__ == "__main__":
    sys.exit(main())

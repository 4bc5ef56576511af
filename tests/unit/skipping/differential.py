"""Random predicates over files with and without an index: rows that pyarrow finds must be the same.

    python -m tests.unit.skipping.differential --predicates 10000 --seed 1

Files are written by pyarrow into partitions: all types, nulls, NaN, -0.0, columns that are absent or of an older type,
statistics cut or left out, pages of several codecs and encodings.  Each column has bounds, a list of values, a Bloom
filter, or several of these.  Between rounds files come, go and are written again, under one name and time too; the
store is asked while it is stale, and after a refresh.
"""

from __future__ import annotations

import argparse
import datetime
import os
import random
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sparkcrypt.skipping.format.naming import BLOOM, MINMAX, VALUES
from sparkcrypt.skipping.format.types import Value
from sparkcrypt.skipping.keep.create import Wanted, create_store, plan_store
from sparkcrypt.skipping.keep.entries import FILTER_TYPES
from sparkcrypt.skipping.keep.files import DataFolder
from sparkcrypt.skipping.keep.refresh import keys_of_store, refresh_store
from sparkcrypt.skipping.query.predicate import Predicate
from sparkcrypt.skipping.query.skipper import Listed, Skipper
from sparkcrypt.skipping.trusted.local_folder import LocalFolder
from sparkcrypt.skipping.trusted.trust import Expected, TrustedStore, open_store
from sparkcrypt.skipping.trusted.write import StoreKeys
from tests.unit.skipping.keys import Keys
from tests.unit.skipping.random_rows import COLUMNS, Chooser, drawn, evaluated, plain

FILES, ROWS, EACH = 24, 6, 60
PARTITIONS: dict[str, tuple[str, list[str]]] = {
    "day": ("date", ["2024-02-29", "1970-01-01", "1850-07-04", "__HIVE_DEFAULT_PARTITION__"]),
    "p": ("string", ["a", "b%2Fc", "", "é", "__HIVE_DEFAULT_PARTITION__"]),
    "m": ("integer", ["1", "-7", "02", "soon"]),
}
"""Partition column -> its type, and the texts of its folders; ``soon`` is no integer, which Spark reads as null."""
OLDER = {"l": pa.int32(), "x": pa.float32()}
"""Columns that were of another type before the table's was widened."""
DEFAULT = 3
"""What the absent column reads as in files from before it was added."""


@dataclass
class Told:
    """What a run has shown."""

    predicates: int = 0
    files: int = 0
    skipped: int = 0
    skippable: int = 0
    rows: int = 0


class Lake:
    """A table whose files come and go, and its store."""

    def __init__(self, root: Path, seed: int) -> None:
        self.chance, self.root = random.Random(seed), root
        self.keys = Keys(root / "keys")
        self.tables: dict[Path, pa.Table] = {}
        self.columns = self.chance.sample(sorted(COLUMNS), k=self.chance.randint(1, 4))
        self.partitions = self.chance.sample(sorted(PARTITIONS), k=self.chance.randint(0, 2))
        self.clock, self.number = 1_700_000_000, 0
        self.data = DataFolder(str(root / "data"), self.keys, lambda *_: None)
        self.folder = LocalFolder(root / "store")
        for _ in range(FILES):
            self.add()
        kinds = {name: PARTITIONS[name][0] for name in self.partitions}
        indexes = {name: self._kinds(name) for name in self.columns}
        wanted = Wanted(tuple(self.columns), kinds, kinds=indexes, most_values=self.chance.choice([2, 3, 1000]))
        plan = plan_store(self.data, wanted)
        create_store(self.folder, plan, StoreKeys(self.keys.keys.maker, "footer", {}))
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
        older = chance.choice([None, None, "l", "x"]) if self.number > 1 else None
        written = dict(columns)
        if older is not None:
            values = [value if value is None or abs(value) < 2**31 else 0 for value in columns[older].to_pylist()]
            written[older] = pa.array(values, OLDER[older])
            columns[older] = written[older].cast(columns[older].type)
        if self.number > 1 and chance.random() < 0.2:
            del written["i"]
            columns["i"] = pa.array([DEFAULT] * ROWS, pa.int32())
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
        self.clock += 1
        os.utime(path, (at or self.clock, at or self.clock))
        for name in self.partitions:
            columns[name] = self._partition(path, name)
        self.tables[path] = pa.table(columns)

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
        """Add, overwrite and delete files; an overwrite may keep the time, and then has another length."""
        chance = self.chance
        for path in chance.sample(sorted(self.tables), k=4):
            length, stamp = path.stat().st_size, path.stat().st_mtime
            self.add(path, at=stamp if chance.random() < 0.5 else None)
            if path.stat().st_size == length:
                os.utime(path, (self.clock, self.clock))
        for path in chance.sample(sorted(self.tables), k=2):
            path.unlink()
            del self.tables[path]
        for _ in range(3):
            self.add()

    def opened(self) -> TrustedStore:
        """Open the store."""
        return open_store(self.folder, self.keys, Expected(None, ("footer",), None))

    def refresh(self) -> None:
        """Bring the store up to date."""
        opened = self.opened()
        keys = StoreKeys(self.keys.keys.maker, "footer", keys_of_store(opened.store, "footer"))
        refresh_store(self.folder, self.data, opened, keys)

    def ask(self, told: Told, count: int) -> None:
        """Ask random predicates, and compare the rows that are found with all files and without the skipped ones."""
        opened = self.opened()
        skipper = Skipper(opened.store, opened.sidecar.objects, self.types)
        paths = sorted(self.tables)
        stamps = [path.stat() for path in paths]
        files = [
            Listed(str(path), stamp.st_mtime_ns // 1_000_000, stamp.st_size)
            for path, stamp in zip(paths, stamps, strict=True)
        ]
        rows = [self.tables[path].append_column("row", pa.array(range(ROWS))) for path in paths]
        rows = [table.append_column("file", pa.array([number] * ROWS)) for number, table in enumerate(rows)]
        whole = pa.concat_tables(rows)
        chooser = Chooser(self.chance, [*self.columns, *self.partitions], self.literal)
        for _ in range(count):
            predicate = chooser.predicate(3)
            kept = skipper.select_files(files, predicate)
            opens = [table for table, keep in zip(rows, kept, strict=True) if keep]
            expected = found_rows(whole, predicate)
            found = found_rows(pa.concat_tables(opens), predicate) if opens else []
            assert found == expected, (predicate, set(expected) - set(found))
            told.predicates += 1
            told.files += len(files)
            told.rows += len(expected)
            told.skipped += kept.count(False)
            told.skippable += len(files) - len({number for number, _ in expected})

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


def found_rows(table: pa.Table, predicate: Predicate) -> list[tuple[int, int]]:
    """Return file and row of each row for which a predicate is true."""
    chosen = table.filter(evaluated(table, predicate))
    return list(zip(chosen["file"].to_pylist(), chosen["row"].to_pylist(), strict=True))


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

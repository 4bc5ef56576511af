"""Random predicates through Spark: by its store a table whose files change has the rows of a whole scan."""

from __future__ import annotations

import datetime
import math
import os
import random
import shutil
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from sparkcrypt import names, skipping_report
from sparkcrypt.cli.main import cli
from sparkcrypt.skipping.indexes.entries import FILTER_TYPES
from sparkcrypt.skipping.query.skipper import And, Compare, In, IsNull, Not, Or, Predicate, StartsWith
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.stored_tables import index, policy_file
from tests.spark.support import Lake, data_files
from tests.unit.skipping.random_rows import COLUMNS, Chooser, drawn

pytestmark = [pytest.mark.spark, pytest.mark.newest, pytest.mark.timeout(600)]
FILES, ROWS, PREDICATES, EACH, PHASES = 8, 5, 300, 25, 4
PARTITIONS = ("a", "é", None)
SQL_TYPES = {"byte": "TINYINT", "short": "SMALLINT", "integer": "INT", "long": "BIGINT"}
OLDER = {"l": pa.int32(), "x": pa.float32()}
"""Columns that a file may have in the type that they had before the table's was widened."""
COLUMN_KEYS = "pii:s,l;fin:n,x"


class Changing:
    """A table of random rows of every type, its store, and changes to its files that keep the store as it was."""

    def __init__(self, lake: Lake, seed: int) -> None:
        self.lake, self.chance, self.number = lake, random.Random(seed), 0
        lake.policy(more="index: {location: indexes/}\n")
        columns = ", ".join(f"{name} {SQL_TYPES.get(kind, kind)}" for name, (kind, _, _) in COLUMNS.items())
        lake.sql(f"CREATE TABLE t (id INT, {columns}, p STRING) USING parquet PARTITIONED BY (p)")
        set_tags(lake.spark, "t", {"s": ["pii"], "l": ["pii"], "n": ["fin"], "x": ["fin"]}, None)
        self.append(FILES)

    @property
    def files(self) -> list[Path]:
        """The table's files, in an order that does not hang on their random names."""
        return sorted(data_files(self.lake.path("t")), key=lambda file: (file.stat().st_size, file.name))

    def rows(self) -> pa.Table:
        """Return the rows of one file."""
        self.number += 1
        columns = {name: drawn(self.chance, name, ROWS) for name in COLUMNS}
        ids = range(self.number * 100, self.number * 100 + ROWS)
        table = pa.table({"id": pa.array(ids, pa.int32()), **columns})
        return table.replace_schema_metadata({"org.apache.spark.version": "4.1.0"})

    def append(self, count: int) -> None:
        """Append files by Spark, each of one partition."""
        made = self.lake.root / f"made{self.number}"
        made.mkdir()
        for number in range(count):
            table = self.rows()
            partition = pa.array([self.chance.choice(PARTITIONS)] * ROWS, pa.string())
            table = table.append_column("p", partition).append_column("file", pa.array([number] * ROWS, pa.int32()))
            pq.write_table(table, made / f"{number}.parquet")
        with self.lake.stranger() as stranger:
            read = stranger.read.parquet(str(made))
            frame = self.lake.spark.createDataFrame(read.toArrow())
        frame.repartitionByRange(count, "file").drop("file").write.insertInto("t")

    def overwrite(self, path: Path, *, older: bool, at: float | None) -> None:
        """Put other rows under a file's name: of today's types, or with a column less and others of older types."""
        table = self.rows()
        for name in ("f", "x"):  # Arrow leaves the NaN out of the file's bounds
            values = pa.array([math.nan, *[0.5] * (ROWS - 1)], COLUMNS[name][1])
            table = table.set_column(table.column_names.index(name), name, values)
        for name in OLDER if older else ():
            values = [value if value is None or abs(value) < 2**31 else None for value in table[name].to_pylist()]
            table = table.set_column(table.column_names.index(name), name, pa.array(values, OLDER[name]))
        made = self.lake.root / "rows.parquet"
        pq.write_table(table.drop_columns(["i"]) if older else table, made)
        self._encrypt(made, path, at)

    def exchange(self, first: Path, second: Path) -> None:
        """Exchange two files' contents; each name keeps its time."""
        clear = [self.lake.root / f"clear{number}.parquet" for number in range(2)]
        for file, target in zip((first, second), clear, strict=True):
            target.unlink(missing_ok=True)
            order("rewrite", str(file), str(target), "--decrypt", "--policy", policy_file(self.lake))
        self._encrypt(clear[1], first, first.stat().st_mtime)
        self._encrypt(clear[0], second, second.stat().st_mtime)

    def _encrypt(self, rows: Path, path: Path, at: float | None) -> None:
        kept, made = path.stat(), self.lake.root / "other" / path.relative_to(self.lake.path("t"))
        made.parent.mkdir(parents=True, exist_ok=True)
        made.unlink(missing_ok=True)
        policy = policy_file(self.lake)
        order("rewrite", str(rows), str(made), "--policy", policy, "--column-keys", COLUMN_KEYS)
        (path.parent / f".{path.name}.crc").unlink(missing_ok=True)
        shutil.copyfile(made, path)
        moment = kept.st_mtime + 60 if at is None or made.stat().st_size == kept.st_size else at
        os.utime(path, (moment, moment))

    def change(self) -> None:
        """Append, overwrite, exchange and delete files."""
        first, second, third, fourth, fifth = self.chance.sample(self.files, k=5)
        self.append(2)
        self.overwrite(first, older=True, at=first.stat().st_mtime)
        self.overwrite(second, older=False, at=None)
        self.exchange(third, fourth)
        fifth.unlink()
        self.lake.sql("REFRESH TABLE t")


def order(*words: str) -> None:
    """Run a command."""
    done = CliRunner().invoke(cli, list(words))
    assert done.exit_code == 0, done.output


def sql_of(predicate: Predicate) -> str:
    """Return a predicate in SQL, its literals of their columns' types."""
    match predicate:
        case And(parts) | Or(parts):
            return (" AND " if isinstance(predicate, And) else " OR ").join(f"({sql_of(part)})" for part in parts)
        case Not(part):
            return f"NOT ({sql_of(part)})"
        case IsNull(name):
            return f"{name} IS NULL"
        case StartsWith(name, prefix):
            return f"{name} LIKE '{prefix}%'"
        case In(name, literals):
            return f"{name} IN ({', '.join(literal_of(name, literal) for literal in literals)})"
        case Compare(name, operator, literal):
            return f"{name} {operator} {literal_of(name, literal)}"
    raise AssertionError(predicate)


def literal_of(name: str, value: Any) -> str:
    """Return a literal of a column's type."""
    kind = COLUMNS[name][0] if name in COLUMNS else "string"
    if value is None:
        text = "NULL"
    elif isinstance(value, bytes):
        text = f"X'{value.hex()}'"
    elif isinstance(value, datetime.datetime) and kind == "timestamp":
        text = f"'{value} UTC'"
    else:
        text = f"'{value:f}'" if isinstance(value, Decimal) else f"'{value}'"
    return f"CAST({text} AS {SQL_TYPES.get(kind, kind)})"


def batches(chance: random.Random) -> Iterator[list[str]]:
    """Yield random predicates."""

    def literal(name: str) -> Any:
        return chance.choice(COLUMNS[name][2] if name in COLUMNS else ["a", "é", "none"])

    chooser = Chooser(chance, [*COLUMNS, "p"], literal)
    for _ in range(PREDICATES // EACH):
        yield [sql_of(chooser.predicate(2)) for _ in range(EACH)]


def found_by_scan(lake: Lake, predicates: list[str]) -> list[list[int]]:
    """Return the ids of the rows for which each predicate is true, by a scan that filters nothing."""
    lake.spark.conf.set(names.SKIPPING, "false")
    rows = lake.sql(f"SELECT id, {', '.join(f'({predicate}) q{at}' for at, predicate in enumerate(predicates))} FROM t")
    found = rows.collect()
    return [sorted(row["id"] for row in found if row[f"q{at}"]) for at in range(len(predicates))]


def found_by_store(lake: Lake, predicates: list[str]) -> tuple[list[list[int]], int]:
    """Return the ids of the rows that a query with each predicate finds, and how many files the queries left out."""
    lake.spark.conf.set(names.SKIPPING, "true")
    asked = [f"SELECT {at} q, id FROM t WHERE {predicate}" for at, predicate in enumerate(predicates)]
    frame = lake.sql(" UNION ALL ".join(asked))
    found: list[list[int]] = [[] for _ in predicates]
    for number, row in frame.collect():
        found[number].append(row)
    return [sorted(rows) for rows in found], sum(scan.skipped for scan in skipping_report(frame))


def test_random_predicates_find_the_rows_of_a_whole_scan(lake: Lake) -> None:
    """Hundreds of predicates over all types find the same rows, fresh, after changes, refreshed, and changed again.

    Parquet's own pushdown is off: of a file whose writer left NaN out of the bounds, it loses rows by itself.
    """
    for name, value in {
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.parquet.filterPushdown": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }.items():
        lake.spark.conf.set(name, value)
    table, skipped, rows = Changing(lake, seed=4), [0] * PHASES, 0
    kinds = {
        name: ":values:minmax" + (":bloom" if kind in FILTER_TYPES else "") for name, (kind, *_) in COLUMNS.items()
    }
    index(lake, "t", *(name + kind for name, kind in kinds.items()))
    steps, turns = iter((table.change, lambda: index(lake, "t", verb="refresh"), table.change)), PREDICATES // EACH
    for turn, predicates in enumerate(batches(table.chance)):
        phase = turn * PHASES // turns
        if turn and turn % (turns // PHASES) == 0:
            next(steps)()
        found, left_out = found_by_store(lake, predicates)
        for predicate, ids, expected in zip(predicates, found, found_by_scan(lake, predicates), strict=True):
            assert ids == expected, predicate
            rows += len(ids)
        skipped[phase] += left_out
    assert rows > PREDICATES
    assert min(skipped) > 0 and sum(skipped) > PREDICATES

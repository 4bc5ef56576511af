"""An estate: a database of tables under a policy, with sessions of people and drivers of commands."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.tables.tagging import set_tags
from tests.everyday.model import Bytes, Model, Row, Table, Wrong, judge_folders
from tests.everyday.seam import Ending, Kill, run_driver
from tests.spark.support import Lake, quiet, read_options, said_of, with_keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KINDS = ("managed", "partitioned", "external", "external_partitioned")
_MORE = "old_files: {grace: 0s}\naudit: {key: audit}\n"
_ROWS_AT_ONCE = 3


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows that are about to be written.

    Attributes:
        ids: of the rows.
        p: their partition.
        columns: the query that makes them, without the partition column.
        whole: the same with it.
    """

    ids: range
    p: int | None
    columns: str
    whole: str


class Estate:
    """The tables, what people did to them, and what they do it with.

    Args:
        lake: a new database, whose folder is the estate's.
        outside: a folder for what is not the estate's, such as the input of streams.
        random: draws what is left open.

    Attributes:
        side: the name of a second database, which people drop and make anew.
        away: tables that are not there, since a verb failed half-way.
        streams: input -> table and checkpoint of streams that people run.
    """

    def __init__(self, lake: Lake, outside: Path, random: Random) -> None:
        self.lake, self.outside, self.random, self.model = lake, outside, random, Model()
        self.policy: Policy = lake.policy(more=_MORE, keys=["audit"])
        self._file = lake.root / "policy-0" / "policy.yaml"
        self._bytes, self._next_id, self._copies = Bytes(lake.root), 1, 0
        self.side = f"{lake.database}_side"
        self.away: set[str] = set()
        self.streams: dict[str, tuple[Table, str]] = {}
        outside.mkdir()

    def make(self, number: int) -> Table:
        """Make a table of people who know nothing of tags, with rows, and tag it."""
        kind = KINDS[number % len(KINDS)]
        partitioned = kind.endswith("partitioned")
        home = self.lake.root / "homes" / f"n={number}" if kind.startswith("external") else None
        table = self.model.tables[f"t{number}"] = Table(f"t{number}", partitioned, home)
        with self.lake.stranger() as stranger:
            stranger.sql(
                f"CREATE TABLE {table.name} (id BIGINT, email STRING, note STRING{', p INT' if partitioned else ''}) "
                f"USING parquet{' PARTITIONED BY (p)' if partitioned else ''}"
                + (f" LOCATION 'file:{home}'" if home else "")
            )
            for p in (0, 1) if partitioned else (None,):
                batch = self.batch(table, p, plain=True)
                stranger.sql(f"INSERT INTO {table.name}{table.spec(p)} {batch.columns}")
                table.add(batch.ids, p)
        self.tag(table, "email", "pii")
        return table

    def tag(self, table: Table, column: str, tag: str) -> None:
        """Tag a column; what is there in clear is so until a pass."""
        set_tags(self.lake.spark, table.name, {column: [tag]}, self.policy)
        table.tagged.add(column[0])

    def correct(self, table: Table) -> None:
        """Add the column that a tag names and the table lacks."""
        if table.absent:
            self.sql(f"ALTER TABLE {table.name} ADD COLUMNS ({table.absent} STRING)")
            table.more.append(table.absent)
            table.absent = ""

    def batch(self, table: Table, p: int | None = None, *, plain: bool = False) -> Batch:
        """Return rows for a table; before they are written, since a write may leave what it did not commit."""
        ids = range(self._next_id, self._next_id + _ROWS_AT_ONCE)
        self._next_id = ids.stop
        if table.partitioned and p is None:
            p = self.random.choice((0, 1))
        self.model.intend(table, ids, plain=plain)
        columns = ", ".join(values("id", table))
        source = f"FROM range({ids.start}, {ids.stop}, 1, 1)"
        last = f", {p} AS p" if table.partitioned else ""
        return Batch(ids, p, f"SELECT {columns} {source}", f"SELECT {columns}{last} {source}")

    def session(self) -> SparkSession:
        """Return a new session of somebody under the policy."""
        session = self.lake.spark.newSession()
        session.sql(f"USE {self.lake.database}")
        quiet(session)
        return session

    def sql(self, text: str) -> DataFrame:
        """Let somebody under the policy run a statement."""
        return self.session().sql(text)

    def command(self, *arguments: str, kill: Kill | None = None) -> Ending:
        """Run a command in a driver of its own."""
        databases = [self.lake.database, *({self.side} & {name.partition(".")[0] for name in self.model.tables})]
        chosen = [word for name in databases for word in ("--database", name)] if arguments[0] == "backfill" else []
        words = [*arguments, *chosen, "--policy", str(self._file)]
        state = self._file.parent / "state"
        return run_driver(self.lake.spark, self.lake.root, state, words, self.lake.database, kill)

    def folders(self, name: str) -> list[Path]:
        """Return the folders that the metastore names for a table: its own, or those of its partitions."""
        catalog = self.lake.spark._jsparkSession.sharedState().externalCatalog()
        database, name = name.split(".") if "." in name else (self.lake.database, name)
        table = catalog.getTable(database, name)
        found = [table]
        if table.partitionColumnNames().nonEmpty():
            none: Any = self.lake.jvm.scala.Option.empty()
            listed = catalog.listPartitions(database, name, none)
            found = [listed.apply(number) for number in range(listed.size())]
        return [path_of(entry.storage().locationUri().get().toString()) for entry in found]

    def forget_cleared(self, folders: Sequence[Path]) -> None:
        """Take note that people had Spark delete what lay in some folders, checkpoints of streams among it.

        Such a stream would read all its input again: people begin with new input.
        """
        self.model.forget_cleared(folders)
        for source, (_, checkpoint) in list(self.streams.items()):
            if not Path(checkpoint).exists():
                del self.streams[source]
                shutil.rmtree(source)

    def close(self) -> None:
        """Drop what is not in the database of the lake."""
        with self.lake.stranger() as stranger:
            stranger.sql(f"DROP DATABASE IF EXISTS {self.side} CASCADE")

    def judge(self, tables: Sequence[Table], *, settled: bool = False) -> list[Wrong]:
        """Return what is wrong with the bytes of all files, and with the rows of some tables.

        Args:
            tables: whose rows are read.
            settled: whether passes and expires are done, so that every tagged table must be encrypted.
        """
        if settled:
            self.model.settle()
        there = [table for table in tables if table.name not in self.away]
        wrong = self._bytes.judge(self.model)
        wrong += self._judge_rows([table.name for table in there]) if there else []
        for table in there if settled else ():
            if table.tagged and not table.reported:
                wrong += judge_folders(table, self.folders(table.name))
        return wrong

    def _judge_rows(self, names: list[str]) -> list[Wrong]:
        try:
            return self.model.judge_rows(self._rows(names), names)
        except (PySparkException, Py4JError) as error:
            if len(names) == 1:
                return [Wrong("unreadable", f"{names[0]}: {reason_of(error)}")]
        return [finding for name in names for finding in self._judge_rows([name])]

    def forget_keys(self) -> None:
        """Let the next query open its keys anew, whatever caches have."""
        self._copies += 1

    def _rows(self, names: Sequence[str]) -> list[Row]:
        reader = self.session().read
        if self._copies:
            folder = self.outside / f"keys-{self._copies}"
            if folder.exists():
                shutil.rmtree(folder)
            reader = reader.options(**read_options(with_keys(self.policy, folder, lambda _: None)))
        frames = []
        for name in names:
            p = "p" if self.model.tables[name].partitioned else "CAST(NULL AS INT) AS p"
            frames.append(reader.table(name).selectExpr(f"'{name}' AS name", "id", "email", "note", p))
        return [tuple(row) for row in reduce(lambda one_frame, other: one_frame.union(other), frames).collect()]

    @contextlib.contextmanager
    def plain_session(self) -> Iterator[SparkSession]:
        """Yield a session of somebody who knows nothing of the policy."""
        with self.lake.stranger() as stranger:
            yield stranger


def values(row_id: str, table: Table) -> tuple[str, ...]:
    """Return a table's columns as SQL, by the id of a row; no plan and no statement has a value as a text."""
    number = f"lpad(CAST({row_id} AS STRING), 6, '0')"
    texts = [f"concat('CNRY-', {number}, '-{name[0]}') AS {name}" for name in ("email", "note")]
    return (f"CAST({row_id} AS BIGINT) AS id", *texts, *(f"CAST(NULL AS STRING) AS {name}" for name in table.more))


def reason_of(error: BaseException) -> str:
    """Return what an error of Spark says, and the cause that it names last."""
    text = str(error)
    causes = re.findall(r"Caused by: ([^\n]*)", said_of(error))
    return " ".join([*text.split()[:60], *causes[-1:]])[:700]


def path_of(uri: str) -> Path:
    """Return the path of a location."""
    return Path(unquote(urlsplit(uri).path))

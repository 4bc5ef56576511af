"""What people do to tables: each verb an action that tells the model what it did, as far as it came."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.functions import lit

from sparkcrypt import names
from sparkcrypt.errors import PlanError
from sparkcrypt.spark.tables.tagging import unset_tags
from tests.everyday.estate import Batch, Estate, values
from tests.everyday.model import Model, Table, canary

Act = Callable[[Estate, Table], Table | None]
Fits = Callable[[Table], bool]


@dataclass(frozen=True, slots=True)
class Verb:
    """One thing that people do.

    Attributes:
        name: of it.
        act: does it; returns another table that it made, if it did.
        fits: tells whether it can be done to a table.
        may_refuse: whether the policy may forbid it, so that it fails and leaves the table as it was.
        may_report: whether a pass may say afterwards that the table is not as it should be.
        clears: whether Spark deletes all that lies in the folders of what is replaced.
    """

    name: str
    act: Act
    fits: Fits
    may_refuse: bool = False
    may_report: bool = False
    clears: bool = False


VERBS: dict[str, Verb] = {}


def _any(table: Table) -> bool:
    return True


def _partitioned(table: Table) -> bool:
    return table.partitioned


def _managed(table: Table) -> bool:
    return table.home is None


def _external(table: Table) -> bool:
    return table.home is not None and not table.partitioned


def _unpartitioned(table: Table) -> bool:
    return not table.partitioned


def _verb(fits: Fits = _any, **may: bool) -> Callable[[Act], Act]:
    def add(act: Act) -> Act:
        VERBS[act.__name__] = Verb(act.__name__, act, fits, **may)
        return act

    return add


@_verb()
def insert(estate: Estate, table: Table) -> None:
    """INSERT INTO."""
    batch = estate.batch(table)
    estate.sql(f"INSERT INTO {table.name}{table.spec(batch.p)} {batch.columns}")
    table.add(batch.ids, batch.p)


@_verb()
def insert_frame(estate: Estate, table: Table) -> None:
    """Append a frame by position."""
    batch = estate.batch(table)
    estate.sql(batch.whole).write.insertInto(table.name)
    table.add(batch.ids, batch.p)


@_verb()
def insert_plain(estate: Estate, table: Table) -> None:
    """INSERT INTO by somebody who knows nothing of the policy."""
    batch = estate.batch(table, plain=True)
    with estate.plain_session() as session:
        session.sql(f"INSERT INTO {table.name}{table.spec(batch.p)} {batch.columns}")
    table.add(batch.ids, batch.p)


@_verb(clears=True)
def overwrite(estate: Estate, table: Table) -> None:
    """INSERT OVERWRITE of the table, or of a partition."""
    batch = estate.batch(table)
    estate.sql(f"INSERT OVERWRITE TABLE {table.name}{table.spec(batch.p)} {batch.columns}")
    _replace(table, batch)


@_verb(_partitioned, clears=True)
def overwrite_and_retag(estate: Estate, table: Table) -> None:
    """INSERT OVERWRITE of a partition, after which another column is tagged."""
    overwrite(estate, table)
    retag(estate, table)


@_verb(_partitioned, clears=True)
def drop_partition(estate: Estate, table: Table) -> None:
    """DROP PARTITION; of an external table its owner deletes the files too, else an INSERT would bring them back.

    Those in a folder of a run stay there, in no table, until `orphans`.
    """
    p = estate.random.choice((0, 1))
    left = [folder for folder in estate.folders(table.name) if folder.name == f"p={p}"]
    estate.sql(f"ALTER TABLE {table.name} DROP IF EXISTS PARTITION (p = {p})")
    for folder in left:
        if folder.parent == table.home:
            shutil.rmtree(folder)
        else:
            estate.model.left |= {row for row, place in table.rows.items() if place == p}
    _empty(table, p)


@_verb(_managed, may_report=True, clears=True)
def truncate(estate: Estate, table: Table) -> None:
    """TRUNCATE of the table, or of a partition that has rows."""
    places = sorted({p for p in table.rows.values() if p is not None})
    if table.partitioned and not places:
        return
    p = estate.random.choice(places) if table.partitioned else None
    estate.sql(f"TRUNCATE TABLE {table.name}{table.spec(p)}")
    _empty(table, p)


@_verb(clears=True)
def erase(estate: Estate, table: Table) -> None:
    """Overwrite the table with what it has, but one row."""
    if not table.rows:
        return
    gone = estate.random.choice(sorted(table.rows))
    p = table.rows[gone]
    session = estate.session()
    where = f"id <> {gone}" + ("" if p is None else f" AND p = {p}")
    rest = session.table(table.name).where(where).select("id", "email", "note", *table.more).localCheckpoint()
    rest.createOrReplaceTempView("kept")
    estate.model.expose(table, [row for row, place in table.rows.items() if place == p])
    session.sql(f"INSERT OVERWRITE TABLE {table.name}{table.spec(p)} SELECT * FROM kept")
    del table.rows[gone]


@_verb()
def add_column(estate: Estate, table: Table) -> None:
    """ADD COLUMNS."""
    name = f"more_{len(table.more)}"
    estate.sql(f"ALTER TABLE {table.name} ADD COLUMNS ({name} STRING)")
    table.more.append(name)


@_verb()
def retag(estate: Estate, table: Table) -> None:
    """Tag another column, or give it another tag."""
    table.note_tag = "pii" if table.note_tag == "fin" else "fin"
    estate.tag(table, "note", table.note_tag)


@_verb(may_report=True)
def keep_files(estate: Estate, table: Table) -> None:
    """Put files of one's own, such as no query reads, into the table's folder."""
    for folder in estate.folders(table.name)[:1]:
        for place in ("_README", "_archive/last year.csv", ".backup/part-0.csv"):
            content = f"of {table.name}, {len(estate.model.kept)}".encode()
            path = folder / f"{place}-{len(estate.model.kept)}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            estate.model.kept[content] = path


@_verb(_unpartitioned, may_report=True)
def stream(estate: Estate, table: Table) -> None:
    """Let a stream append what is new in its input; its checkpoint is in the table's folder, as many have it."""
    checkpoint = table.home or estate.lake.path(table.name)
    _stream(estate, table, str(checkpoint / "_checkpoint"))


@_verb()
def stream_elsewhere(estate: Estate, table: Table) -> None:
    """The same with a checkpoint outside of the table."""
    _stream(estate, table, str(estate.outside / f"checkpoint-{table.name}"))


@_verb(_external, may_refuse=True)
def append_path(estate: Estate, table: Table) -> None:
    """Append to the folder that the table's creator named."""
    batch = estate.batch(table)
    estate.sql(batch.whole).write.mode("append").parquet(str(table.home))
    table.add(batch.ids, batch.p)


@_verb(_external, may_refuse=True, clears=True)
def overwrite_path(estate: Estate, table: Table) -> None:
    """Overwrite that folder."""
    batch = estate.batch(table)
    estate.sql(batch.whole).write.mode("overwrite").parquet(str(table.home))
    _replace(table, batch)


@_verb(_unpartitioned, may_refuse=True)
def append_through_link(estate: Estate, table: Table) -> None:
    """Append to the table's folder by another name of it."""
    batch = estate.batch(table)
    link = estate.outside / f"link-{batch.ids.start}"
    link.symlink_to(estate.folders(table.name)[0])
    estate.sql(batch.whole).write.mode("append").parquet(str(link))
    table.add(batch.ids, batch.p)


@_verb(_unpartitioned, may_refuse=True, may_report=True)
def append_below(estate: Estate, table: Table) -> None:
    """Append to a folder below the table's, where its queries do not look."""
    batch = estate.batch(table)
    estate.sql(batch.whole).write.mode("append").parquet(str(estate.folders(table.name)[0] / "late"))


@_verb(_partitioned, may_refuse=True)
def append_partition_path(estate: Estate, table: Table) -> None:
    """Append to the folder of a partition."""
    folders = estate.folders(table.name)
    if not folders:
        return
    folder = estate.random.choice(folders)
    batch = estate.batch(table, int(folder.name.removeprefix("p=")))
    estate.sql(batch.columns).write.mode("append").parquet(str(folder))
    table.add(batch.ids, batch.p)


@_verb(_unpartitioned, may_refuse=True, may_report=True)
def second_table(estate: Estate, table: Table) -> None:
    """Make a second table over the table's folder, and INSERT into that."""
    batch = estate.batch(table)
    folder, name = estate.folders(table.name)[0], f"over_{batch.ids.start}"
    table.questionable = True
    estate.sql(f"CREATE TABLE {name} (id BIGINT, email STRING, note STRING) USING parquet LOCATION 'file:{folder}'")
    try:
        estate.sql(f"INSERT INTO {name} {batch.columns}")
        table.add(batch.ids, batch.p)
    finally:
        estate.sql(f"DROP TABLE {name}")


@_verb(_managed, may_refuse=True, may_report=True, clears=True)
def save_over(estate: Estate, table: Table) -> None:
    """Overwrite the table by ``saveAsTable``, which makes another one of its name."""
    batch = estate.batch(table)
    writer = estate.sql(batch.whole).write.mode("overwrite").format("parquet")
    (writer.partitionBy("p") if table.partitioned else writer).saveAsTable(table.name)
    _renew(table, batch, estate.model)


@_verb(_managed, may_refuse=True, may_report=True, clears=True)
def drop_and_create(estate: Estate, table: Table) -> None:
    """DROP, and CREATE TABLE AS SELECT."""
    batch = estate.batch(table)
    estate.away.add(table.name)
    estate.sql(f"DROP TABLE {table.name}")
    parts = " PARTITIONED BY (p)" if table.partitioned else ""
    estate.sql(f"CREATE TABLE {table.name} USING parquet{parts} AS {batch.whole}")
    estate.away.discard(table.name)
    _renew(table, batch, estate.model)


@_verb(_managed, may_refuse=True, may_report=True, clears=True)
def swap_by_rename(estate: Estate, table: Table) -> None:
    """Make the next table, rename the table away and that one to its name; the former table stays."""
    batch = estate.batch(table, plain=True)
    parts = " PARTITIONED BY (p)" if table.partitioned else ""
    former = Table(f"former_{batch.ids.start}", table.partitioned, None, dict(table.rows), set(table.written))
    former.tagged, former.questionable, former.more = set(table.tagged), True, list(table.more)
    estate.sql(f"CREATE TABLE next_{batch.ids.start} USING parquet{parts} AS {batch.whole}")
    estate.sql(f"ALTER TABLE {table.name} RENAME TO {former.name}")
    estate.model.tables[former.name] = former
    estate.away.add(table.name)
    try:
        estate.sql(f"ALTER TABLE next_{batch.ids.start} RENAME TO {table.name}")
    except (PySparkException, Py4JError):
        estate.sql(f"DROP TABLE next_{batch.ids.start}")
        raise
    estate.away.discard(table.name)
    _renew(table, batch)


@_verb(_managed, may_refuse=True, may_report=True)
def create_like(estate: Estate, table: Table) -> Table | None:
    """CREATE TABLE LIKE, and INSERT into the copy."""
    batch = estate.batch(table)
    copy = Table(f"like_{batch.ids.start}", table.partitioned, tagged=set(table.tagged), questionable=True, copied=True)
    copy.more = list(table.more)
    estate.sql(f"CREATE TABLE {copy.name} LIKE {table.name}")
    estate.model.tables[copy.name] = copy
    estate.model.intend(copy, batch.ids, plain=False)
    estate.sql(f"INSERT INTO {copy.name} {batch.whole}")
    copy.add(batch.ids, batch.p)
    return copy


@_verb(_managed, may_refuse=True, may_report=True)
def derive(estate: Estate, table: Table) -> Table | None:
    """CREATE TABLE AS SELECT from the table; no pass has touched the new one yet."""
    if not table.rows:
        return None
    name = f"derived_{estate.batch(table).ids.start}"
    made = Table(name, False, tagged=set(table.tagged), questionable=True, copied=True)
    estate.model.intend(made, table.rows, plain=True)  # they may be in clear in the table itself
    estate.model.expose(made, table.rows)
    estate.sql(f"CREATE TABLE {name} USING parquet AS SELECT id, email, note FROM {table.name}")
    made.add(table.rows, None)
    estate.model.tables[name] = made
    return made


@_verb(_external, may_refuse=True)
def append_parent(estate: Estate, table: Table) -> None:
    """Append to the folder above the table's, partitioned so that the files come into the table's."""
    batch = estate.batch(table)
    assert table.home is not None
    name, _, value = table.home.name.partition("=")
    frame = estate.sql(batch.whole).withColumn(name, lit(value))
    frame.write.mode("append").partitionBy(name).parquet(str(table.home.parent))
    table.add(batch.ids, batch.p)


@_verb(_managed, may_refuse=True, may_report=True)
def stream_to_new_table(estate: Estate, table: Table) -> Table | None:
    """Let a stream copy the table into one that it makes."""
    name = f"copied_{estate.batch(table).ids.start}"
    made = Table(name, False, tagged=set(table.tagged), questionable=True, copied=True)
    estate.model.intend(made, table.rows, plain=True)  # they may be in clear in the table itself
    estate.model.expose(made, table.rows)
    frame = estate.session().readStream.table(table.name).select("id", "email", "note")
    checkpoint = str(estate.outside / name)
    writer = frame.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    writer.toTable(f"{estate.lake.database}.{name}").awaitTermination()
    made.add(table.rows, None)
    estate.model.tables[name] = made
    return made


@_verb(may_report=True)
def tag_in_properties(estate: Estate, table: Table) -> None:
    """Tag a column where Hive tables have their tags; in other tables that has no effect, as plans and passes say."""
    estate.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES ('{names.TAGS_PREFIX}note' = 'fin')")


@_verb(_unpartitioned, may_report=True)
def old_writer_of_lists(estate: Estate, table: Table) -> None:
    """Let an old writer put a file with a repeated field, without LIST, into the folder of a new tagged table."""
    batch = estate.batch(table, plain=True)
    made = Table(f"lists_{batch.ids.start}", False, questionable=True)
    estate.sql(f"CREATE TABLE {made.name} (id INT, email ARRAY<STRING>) USING parquet")
    estate.tag(made, "email", "pii")
    estate.model.intend(made, batch.ids, plain=True)
    estate.model.tables[made.name] = made
    estate.away.add(made.name)  # its rows are others than the model knows; its bytes are judged
    write_lists(estate, estate.folders(made.name)[0] / "part-0.parquet", batch.ids)


@_verb()
def tag_in_other_case(estate: Estate, table: Table) -> None:
    """Tag a column by a property that names it in another case."""
    estate.sql(f"ALTER TABLE {table.name} SET SERDEPROPERTIES ('{names.TAGS_PREFIX}NOTE' = 'fin')")
    table.tagged.add("n")


@_verb(may_report=True)
def tag_absent_column(estate: Estate, table: Table) -> None:
    """Tag a column that the table lacks: the command refuses it; with a property writes are, and passes report it."""
    with pytest.raises(PlanError, match="has no column"):
        estate.tag(table, "absent", "pii")
    table.absent = f"absent_{len(table.more)}"
    estate.sql(f"ALTER TABLE {table.name} SET SERDEPROPERTIES ('{names.TAGS_PREFIX}{table.absent}' = 'pii')")
    batch = estate.batch(table)
    with pytest.raises((PySparkException, Py4JError)):
        estate.sql(f"INSERT INTO {table.name}{table.spec(batch.p)} {batch.columns}")


@_verb(may_refuse=True)
def append_by_other_name(estate: Estate, table: Table) -> None:
    """Append to the table's folder, or to a partition's, by another name of it."""
    folders = estate.folders(table.name)
    if not folders:
        return
    folder = estate.random.choice(folders)
    batch = estate.batch(table, int(folder.name.removeprefix("p=")) if table.partitioned else None)
    above = estate.outside / f"above-{batch.ids.start}"
    above.symlink_to(folder.parent)
    dotted = f"file://{folder.parent}/../{folder.parent.name}/./{folder.name}/"
    name = estate.random.choice([str(above / folder.name), dotted, f"{folder.parent}//{folder.name}"])
    estate.sql(batch.columns).write.mode("append").parquet(name)
    table.add(batch.ids, batch.p)


@_verb()
def drop_database(estate: Estate, table: Table) -> Table:
    """DROP DATABASE CASCADE, of another database than the table's, and make it anew with its table."""
    name, place = f"{estate.side}.s", estate.lake.root / "side"
    made = estate.model.tables.get(name) or Table(name, False)
    if name not in estate.model.tables:
        estate.model.tables[name] = made
        rows = estate.batch(made, plain=True)
        with estate.plain_session() as session:
            session.sql(f"CREATE DATABASE {estate.side} LOCATION 'file:{place}'")
            session.sql(f"CREATE TABLE {name} USING parquet AS {rows.columns}")
        estate.tag(made, "email", "pii")
    estate.sql(f"DROP DATABASE {estate.side} CASCADE")
    estate.sql(f"CREATE DATABASE {estate.side} LOCATION 'file:{place}'")
    batch = estate.batch(made)
    estate.sql(f"CREATE TABLE {name} USING parquet AS {batch.columns}")
    _renew(made, batch, estate.model)
    return made


@_verb(may_refuse=True, may_report=True)
def untag(estate: Estate, table: Table) -> None:
    """Take the tags of a column away, with which nobody has consented to decrypt it; or put them back."""
    if "e" not in table.tagged:
        estate.tag(table, "email", "pii")
        return
    unset_tags(estate.lake.spark, table.name, ["email"])
    table.tagged.discard("e")


def write_lists(estate: Estate, file: Path, ids: range) -> None:
    """Write a file whose column ``email`` is a bare repeated field."""
    machine = estate.lake.jvm
    schema = machine.org.apache.parquet.schema.MessageTypeParser.parseMessageType(
        "message old { required int32 id; repeated binary email (UTF8); }"
    )
    path = machine.org.apache.hadoop.fs.Path(file.as_uri())
    builder = machine.org.apache.parquet.hadoop.example.ExampleParquetWriter.builder(path)
    writer = builder.withType(schema).build()
    for row in ids:
        group = machine.org.apache.parquet.example.data.simple.SimpleGroup(schema)
        group.append("id", row).append("email", canary(row, "e"))
        writer.write(group)
    writer.close()


def _replace(table: Table, batch: Batch) -> None:
    """Take note that a batch is all that is there now, or in its partition."""
    table.keep({row for row, p in table.rows.items() if table.partitioned and p != batch.p})
    table.add(batch.ids, batch.p)


def _renew(table: Table, batch: Batch, dropped_from: Model | None = None) -> None:
    """Take note that a table has another of its name as its successor, with a batch of rows.

    Old files of a table that was dropped are no table's: `orphans` deletes them, after a week.
    """
    if dropped_from is not None:
        dropped_from.left |= table.written
    table.rows = dict.fromkeys(batch.ids, batch.p)
    table.written = set(batch.ids)


def _empty(table: Table, p: int | None) -> None:
    """Take note that a table, or its partition, has no row any more."""
    table.keep({row for row, place in table.rows.items() if table.partitioned and place != p})


def _stream(estate: Estate, table: Table, checkpoint: str) -> None:
    batch = estate.batch(table, 0 if table.partitioned else None)  # as `run_stream` writes it
    source = estate.outside / f"input-{Path(checkpoint).parent.name}-{table.name}"
    session = estate.session()
    session.range(batch.ids.start, batch.ids.stop, 1, 1).write.mode("append").parquet(str(source))
    run_stream(estate, table, str(source), checkpoint)
    estate.streams[str(source)] = (table, checkpoint)
    table.add(batch.ids, batch.p)


def run_stream(estate: Estate, table: Table, source: str, checkpoint: str) -> None:
    """Let a stream append what is new in its input to a table, or to its first partition."""
    session = estate.session()
    last = ["0 AS p"] if table.partitioned else []
    frame = session.readStream.schema("id LONG").parquet(source).selectExpr(*values("id", table), *last)

    def append(rows: Any, _: int) -> None:
        rows.write.insertInto(f"{estate.lake.database}.{table.name}")

    query = frame.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True).foreachBatch(append)
    query.start().awaitTermination()

"""What a worker can do: SQL as its session says it, work on files below it, and the command line of a driver."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.chaos.steps import Hooks, Steps, set_clock_and_lifetime, wait_shortly_for_writers

EMAIL = "concat('CANARY-', id)"
"""The value of the tagged column."""
REACHED = ".reached"
"""What is appended to a gate's name for the file that says somebody waits there."""
_GATE_SECONDS = 90.0
_MAGIC = {b"PAR1": "plaintext", b"PARE": "encrypted"}


class Actions:
    """The commands of a worker; every public method is one, and its arguments and value are JSON."""

    def __init__(self, session: Any) -> None:
        self._base, self._lanes = session, threading.local()
        self._hooks: Hooks | None = None

    def configure(self, policy: str) -> None:
        """Put the session, and those made of it, under a policy."""
        from sparkcrypt import configure, load_policy

        configure(self._base, load_policy(policy))

    def warm_up(self, policy: str, table: str) -> None:
        """Encrypt a table of its own once, so that the first command of a round is not the first of its JVM."""
        self.configure(policy)
        self._base.sql(f"CREATE TABLE {table} (id INT, email STRING) USING parquet")
        self.insert(table, [1], None)
        self.tag(table, {"email": ["pii"]}, policy)
        if self.command(["backfill", "--table", table, "--policy", policy])["code"]:
            raise RuntimeError("the first pass did not go through")
        self._base.sql(f"DROP TABLE {table}")

    def sql(self, text: str, conf: dict[str, str] | None = None) -> list[list[Any]]:
        """Run a statement in a session of its own; return its rows."""
        session = self._session(conf)
        return [list(row) for row in session.sql(text).collect()]

    def tag(self, table: str, tags: dict[str, list[str]], policy: str) -> None:
        """Set tags of columns."""
        from sparkcrypt import load_policy
        from sparkcrypt.spark.tables.tagging import set_tags

        set_tags(self._base, table, tags, load_policy(policy))

    def insert(
        self,
        table: str,
        ids: Sequence[int],
        partition: int | None,
        verb: str = "INTO",
        dynamic: bool = False,
        seconds: float = 0.0,
        gate: str | None = None,
    ) -> None:
        """INSERT rows by SQL; between its plan and its commit it computes for some seconds, or waits at a gate."""
        session = self._session({"spark.sql.sources.partitionOverwriteMode": "dynamic" if dynamic else "static"})
        session.catalog.refreshTable(table)
        names = [name for name in session.table(table).columns if name != "p"]
        values = ", ".join({"id": "id", "email": EMAIL, "note": "'note'"}.get(name, "NULL") for name in names)
        where, last = "", ""
        if partition is not None:
            where = "PARTITION (p)" if dynamic else f"PARTITION (p = {partition})"
            last = f", {partition}" if dynamic else ""
        session.sql(
            f"INSERT {verb} {table} {where} SELECT {values}{last} FROM ({_rows(ids, seconds)}){_behind(session, gate)}"
        )

    def save_as_table(self, table: str, rows: dict[str, list[int]], kind: str, path: str | None) -> None:
        """Overwrite a whole table with ``saveAsTable``, which drops it and makes another one."""
        session = self._session(None)
        parts = [
            f"SELECT id, {EMAIL} AS email, 'note' AS note, {p} AS p FROM ({_rows(ids)})" for p, ids in rows.items()
        ]
        frame = session.sql(" UNION ALL ".join(parts))
        frame = frame.drop("p") if kind == "plain" else frame
        writer = frame.coalesce(1).write.mode("overwrite").format("parquet")
        writer = writer.option("path", path) if path else writer
        (writer if kind == "plain" else writer.partitionBy("p")).saveAsTable(table)

    def rewrite(
        self,
        table: str,
        partition: int | None,
        without: Sequence[int],
        seconds: float = 0.0,
        gate: str | None = None,
        adds_first: bool = False,
    ) -> dict[str, Any]:
        """Rewrite the files of a folder into one, as compaction and erasure jobs do that know no table format.

        It lists, reads, adds the new file, and removes those it had listed; before or after it adds it may wait at a
        gate.
        """
        session = self._session(None)
        session.catalog.refreshTable(table)
        folder = self._folder(session, table, partition)
        listed = _data_files(folder)
        if not listed:
            return {"folder": str(folder), "files": 0}
        frame = session.read.schema(session.table(table).drop("p").schema).parquet(*map(str, listed))
        kept = frame.where(f"id NOT IN ({', '.join(map(str, without))})") if without else frame
        time.sleep(seconds / 2)
        _wait_at(None if adds_first else gate)
        kept.coalesce(1).write.mode("append").parquet(str(folder))
        time.sleep(seconds / 2)
        _wait_at(gate if adds_first else None)
        for file in listed:
            file.unlink()
        return {"folder": str(folder), "files": len(listed)}

    def erase_file(self, table: str, partition: int | None, gate: str | None = None) -> list[int]:
        """Delete a file of those that it lists before it waits at a gate; return the ids of its rows."""
        session = self._session(None)
        session.catalog.refreshTable(table)
        listed = _data_files(self._folder(session, table, partition))
        ids = self.read_files([str(file) for file in listed[:1]])
        _wait_at(gate)
        for file in listed[:1]:
            file.unlink()
        return ids

    def read(self, table: str, seconds: float = 0.0) -> list[list[Any]]:
        """Return every row as id, email and partition, by a session that has nothing cached of the table.

        Args:
            table: which.
            seconds: between the query's plan, for which files are listed, and its execution.
        """
        session = self._session(None)
        session.catalog.refreshTable(table)
        frame = session.table(table)
        columns = ["id", "email", *(["p"] if "p" in frame.columns else [])]
        chosen = frame.select(*columns)
        chosen._jdf.queryExecution().executedPlan()
        time.sleep(seconds)
        return [[row.id, row.email, row.p if "p" in columns else None] for row in chosen.collect()]

    def read_files(self, files: Sequence[str]) -> list[int]:
        """Return the ids in files."""
        existing = [file for file in files if Path(file).exists()]
        return [row.id for row in self._session(None).read.parquet(*existing).collect()] if existing else []

    def folder(self, table: str, partition: int | None) -> str:
        """Return the folder that a partition or a table points to."""
        session = self._session(None)
        session.catalog.refreshTable(table)
        return str(self._folder(session, table, partition))

    def places(self, table: str) -> dict[str, dict[str, str]]:
        """Return the folders that a table points to, each with its files: plaintext, encrypted, or empty."""
        session = self._session(None)
        session.catalog.refreshTable(table)
        partitioned = "p" in session.table(table).columns
        known = session.sql(f"SHOW PARTITIONS {table}").collect() if partitioned else []
        partitions = [int(row[0].partition("=")[2]) for row in known] if partitioned else [None]
        folders = [self._folder(session, table, partition) for partition in partitions]
        return {str(folder): {str(file): _kind(file) for file in _data_files(folder)} for folder in folders}

    def command(
        self,
        arguments: Sequence[str],
        sleeps: dict[str, float] | None = None,
        kill: int = 0,
        after: bool = False,
        lock_seconds: float = 120.0,
        seconds_ahead: float = 0.0,
    ) -> dict[str, Any]:
        """Run the command line, slowed down or killed at some of its steps."""
        from click.testing import CliRunner

        from sparkcrypt.cli.main import cli

        self._hooks = self._hooks or Hooks()
        set_clock_and_lifetime(seconds_ahead, lock_seconds)
        wait_shortly_for_writers()
        steps = Steps({int(number): seconds for number, seconds in (sleeps or {}).items()}, kill, after)
        self._hooks.put(steps)
        self._activate()
        try:
            done = CliRunner().invoke(cli, list(arguments))
        finally:
            self._hooks.take_off()
        failed = None if done.exception is None or isinstance(done.exception, SystemExit) else repr(done.exception)
        return {"code": done.exit_code, "out": done.stdout, "err": done.stderr, "raised": failed, "steps": steps.number}

    def _activate(self) -> None:
        """Make the session the one that commands find in this thread."""
        sessions = self._base._jvm.org.apache.spark.sql.classic.SparkSession
        sessions.setActiveSession(self._base._jsparkSession)

    def _session(self, conf: dict[str, str] | None) -> Any:
        session = self._base.newSession()
        for name, value in {"spark.sql.shuffle.partitions": "1", **(conf or {})}.items():
            session.conf.set(name, value)
        return session

    def _folder(self, session: Any, table: str, partition: int | None) -> Path:
        spec = "" if partition is None else f" PARTITION (p = {partition})"
        described = session.sql(f"DESCRIBE EXTENDED {table}{spec}").collect()
        at = next(row[1] for row in described if row[0] == "Location")
        return Path(unquote(urlsplit(at).path))


def _rows(ids: Sequence[int], seconds: float = 0.0) -> str:
    """Return a query of ids in one file; it is no local relation, which would be computed while it is planned."""
    slow = (
        f" WHERE coalesce(reflect('java.lang.Thread', 'sleep', {int(seconds * 1000)}L), '') <> 'x'" if seconds else ""
    )
    return f"SELECT explode(array({', '.join(map(str, ids))})) AS id FROM range(0, 1, 1, 1){slow}"


def _behind(session: Any, gate: str | None) -> str:
    """Return the condition of a query that waits at a gate while it is computed."""
    if gate is None:
        return ""
    session.udf.register("behind", _wait_at, "boolean")
    return f" WHERE behind('{gate}')"


def _wait_at(gate: str | None) -> bool:
    """Say that a gate was reached, and wait until it is there, which is to say open."""
    if gate is not None:
        Path(f"{gate}{REACHED}").touch()
        end = time.monotonic() + _GATE_SECONDS
        while not Path(gate).exists() and time.monotonic() < end:
            time.sleep(0.05)
    return True


def _data_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    found = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith((".", "_")))
    return sorted(
        path for path in found if not any(part.startswith(("_", ".")) for part in path.relative_to(folder).parts)
    )


def _kind(file: Path) -> str:
    """Return what a Parquet file is by its last bytes; one without rows has nothing that could be in clear."""
    import pyarrow.parquet

    kind = _MAGIC.get(file.read_bytes()[-4:], "damaged")
    if kind == "plaintext" and not pyarrow.parquet.read_metadata(file).num_rows:
        return "empty"
    return kind

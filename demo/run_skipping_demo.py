"""The demo of data skipping: one value in an encrypted table of many files, with a store and without."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from showcase import HERE, ROOT, DemoError, check, console, fresh, open_readers, say, tool

sys.path.insert(0, str(ROOT))

import sparkcrypt
from sparkcrypt.spark.tables.tagging import set_tags

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WORK = HERE / "work-skipping"
FILES, ROWS_EACH = 400, 1_000
POLICY = """\
version: 1
key_service: {{type: local, path: {keys}/}}
footer: {{key: footer}}
untagged: plaintext
run_state: state/
index: {{location: indexes/}}
tags:
  pii: {{key: pii}}
"""
EMAIL = "user00123456@example.org"
BY_EMAIL = f"SELECT id, city FROM customers WHERE email = '{EMAIL}'"
BY_ID = "SELECT id, city FROM customers WHERE id = 123456"
FOUND = [(123456, "city 6")]


def main() -> int:
    """Make the table and its store, and ask; return the exit code."""
    work, started = fresh(WORK), time.monotonic()
    try:
        rich, poor = open_readers(work, POLICY, "pii")
        folder = make_table(work, rich)
        make_store(work, folder)
        say("3", "the reader with every key")
        opened = ask_twice(rich, BY_EMAIL, "by the encrypted column")
        check("files opened with the store", opened, 1)
        say("4", "the reader without the key pii")
        check("what a denied column says, with the store and without", *(refusal(poor, on) for on in (True, False)))
        console.print(f"   {BY_EMAIL}\n   is refused, with the store and without: {refusal(poor, True)}", markup=False)
        check("files opened by another column", ask_twice(poor, BY_ID, "by a column in clear"), 1)
        show_changes(work, rich, folder)
        rich.stop()
    except DemoError as error:
        console.print(f"The demo failed: {error}", style="red", markup=False)
        return 1
    seconds = time.monotonic() - started
    console.print(f"The demo passed: 1 of {FILES} encrypted files was opened, for whoever may, in {seconds:.0f} s.")
    return 0


def make_table(work: Path, session: SparkSession) -> Path:
    """Write the table: a file for each thousand ids, ``email`` encrypted under ``pii``; return its folder."""
    say("1", f"a table of {FILES} files with {ROWS_EACH} rows each; the tag of email encrypts it in every file")
    policy = sparkcrypt.load_policy(work / "policy-keys.yaml")
    session.sql("CREATE TABLE customers (id BIGINT, email STRING, city STRING) USING parquet")
    set_tags(session, "customers", {"email": ["pii"]}, policy)
    append(session, 0, FILES)
    folder = work / "warehouse" / "customers"
    check("files", len(list(files_of(folder))), FILES)
    return folder


def append(session: SparkSession, first: int, count: int) -> None:
    """Append files, each with the rows that follow those of the one before."""
    ids = session.range(first * ROWS_EACH, (first + count) * ROWS_EACH, 1, count)
    columns = ("id", "concat('user', lpad(id, 8, '0'), '@example.org') email", "concat('city ', id % 10) city")
    ids.selectExpr(*columns).write.insertInto("customers")


def files_of(folder: Path) -> Iterator[Path]:
    """Yield the data files of the table."""
    return folder.glob("part-*.parquet")


def make_store(work: Path, folder: Path) -> None:
    """Index the table's columns from its footers, and look for a value in what was written."""
    say("2", "its store: bounds of id and email, from the footers alone; email's under the key of email")
    settle(files_of(folder))
    started = time.monotonic()
    index(work, "create", "--path", str(folder), "--column", "id", "--column", "email")
    took = time.monotonic() - started
    stored = [file for file in (work / "indexes").rglob("*") if file.is_file()]
    size = sum(file.stat().st_size for file in stored)
    console.print(f"   sparkcrypt index create: {took:.1f} s, {size / 1024:.0f} KiB")
    check("files of the store in which a value is in clear", [f for f in stored if b"@example" in f.read_bytes()], [])


def index(work: Path, *arguments: str) -> Any:
    """Run `sparkcrypt index …` and return what it says.

    Raises:
        DemoError: it failed.
    """
    command = [tool("sparkcrypt"), "index", *arguments, "--policy", str(work / "policy-keys.yaml"), "--json"]
    done = subprocess.run(command, cwd=work, text=True, capture_output=True, check=False)
    if done.returncode != 0:
        raise DemoError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def ask_twice(session: SparkSession, query: str, what: str) -> int:
    """Ask without the store and with it; print files and seconds of both, and return how many the second opens."""
    table = Table("", "files opened", "seconds", "rows", title=f"{what}: {query}", title_justify="left")
    opened = 0
    for word, name in (("false", "without the store"), ("true", "with the store")):
        session.conf.set("spark.sparkcrypt.skipping", word)
        session.sql(query).collect()  # warm, so that the seconds of both compare
        started = time.monotonic()
        frame = session.sql(query)
        rows = [tuple(row) for row in frame.collect()]
        took = time.monotonic() - started
        opened = files_opened(frame)
        check(f"rows {name}", rows, FOUND)
        table.add_row(name, str(opened), f"{took:.2f}", str(rows))
    console.print(table)
    return opened


def files_opened(frame: DataFrame) -> int:
    """Return how many files the scan of an executed query opened, by Spark's own metric."""
    plan = frame._jdf.queryExecution().executedPlan()
    while plan.getClass().getSimpleName() != "FileSourceScanExec":
        plan = plan.children().head()
    return int(plan.metrics().apply("numFiles").value())


def refusal(session: SparkSession, with_store: bool) -> str:
    """Return what the reader without the key is told, less the file that was met first."""
    session.conf.set("spark.sparkcrypt.skipping", str(with_store).lower())
    try:
        session.sql(BY_EMAIL).collect()
    except Exception as error:  # noqa: BLE001  # Spark's errors have no common base that its versions share
        text = str(error)
        start = text.find("column email of table")
        return text[start : text.find("(file", start)].strip() if start >= 0 else text[:500]
    raise DemoError("a denied column was read")


def show_changes(work: Path, session: SparkSession, folder: Path) -> None:
    """Append a file that the store does not know, ask for its rows, and refresh the store."""
    say("5", "a file that comes later is opened by every query, until the store is refreshed")
    append(session, FILES, 1)
    session.sql("REFRESH TABLE customers")
    session.conf.set("spark.sparkcrypt.skipping", "true")
    show_opened(session, "before the refresh", 2)
    settle(file for file in files_of(folder) if file.stat().st_mtime > time.time() - 60)
    index(work, "refresh", "--path", str(folder))
    session.sql("REFRESH TABLE customers")
    show_opened(session, "after it", 1)


def show_opened(session: SparkSession, name: str, opened: int) -> None:
    """Print how many files a lookup opens, and see that rows of the file that came later are found."""
    (report,) = sparkcrypt.skipping_report(session.sql(BY_EMAIL))
    console.print(f"   {name}: {report.opened} of {report.listed} files are opened")
    check(f"files opened {name}", report.opened, opened)
    late = session.sql(f"SELECT count(*) FROM customers WHERE id >= {FILES * ROWS_EACH}").collect()
    check("rows of the new file", [tuple(row) for row in late], [(ROWS_EACH,)])


def settle(files: Iterable[Path]) -> None:
    """Let files be a minute old: the command leaves out those that may still change."""
    for file in files:
        os.utime(file, (time.time() - 60, time.time() - 60))


if __name__ == "__main__":
    sys.exit(main())

"""The demo of ORC: a table is tagged, encrypted by one run, and read with and without its key."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.orc
from rich.table import Table
from showcase import HERE, DemoError, check, console, fresh, open_readers, say, tool

import sparkcrypt
from sparkcrypt.arrow import open_orc
from sparkcrypt.errors import KeyNotFoundError
from sparkcrypt.spark.tables.tagging import set_tags

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORK = HERE / "work-orc"
ROWS = 60_000
POLICY = """\
version: 1
key_service: {{type: local, path: {keys}/}}
footer: {{key: footer}}
audit: {{key: audit}}
untagged: plaintext
run_state: state/
formats: [parquet, orc]
tags:
  pii: {{key: pii}}
"""
COLUMNS = ("id", "concat('user', lpad(id, 8, '0'), '@example.org') email", "concat('city ', id % 10) city")
QUERY = "SELECT email, city FROM customers WHERE id = 4711"


def main() -> int:
    """Make the table, encrypt it, append to it, and read it; return the exit code."""
    work, started = fresh(WORK), time.monotonic()
    try:
        rich, poor = open_readers(work, POLICY, "pii")
        before = make_table(rich)
        encrypt(work, rich)
        append(work, rich)
        show_readers(work, rich, poor, before)
        rich.stop()
    except DemoError as error:
        console.print(f"The demo failed: {error}", style="red", markup=False)
        return 1
    console.print(
        f"The demo passed: an ORC table is encrypted by its tag, and read by whoever may, in "
        f"{time.monotonic() - started:.0f} s."
    )
    return 0


def make_table(session: SparkSession) -> list[Any]:
    """Write the table in clear, before anybody tagged it; return what a query finds."""
    say("1", f"an ORC table of {ROWS:,} rows in four partitions, as it is today: in clear")
    rows = session.range(0, ROWS, 1, 2).selectExpr(*COLUMNS, "id % 4 AS part")
    rows.write.format("orc").partitionBy("part").saveAsTable("customers")
    return answer(session)


def answer(session: SparkSession) -> list[Any]:
    """Return the rows of the query."""
    return [tuple(row) for row in session.sql(QUERY).collect()]


def encrypt(work: Path, session: SparkSession) -> None:
    """Tag a column, and bring the table's files to it."""
    say("2", "its column email gets the tag pii; one run encrypts what is there, and decodes no value")
    before = states(work, session)
    policy = sparkcrypt.load_policy(work / "policy-keys.yaml")
    set_tags(session, "customers", {"email": ["pii"]}, policy)
    started = time.monotonic()
    report = sparkcrypt.encrypt_table(session, "customers", policy)
    check("the run", (report.outcome, report.verified), ("done", True))
    seconds = time.monotonic() - started
    console.print(f"   {report.files_rewritten} files, {report.rows:,} rows, proven, in {seconds:.1f} s")
    show_states(before, states(work, session))


def append(work: Path, session: SparkSession) -> None:
    """Write more rows by Spark, which encrypts them as they are written."""
    say("3", "what Spark writes from now on is encrypted by the same tag")
    files = len(states(work, session))
    rows = session.range(ROWS, ROWS + 1_000, 1, 1).selectExpr(*COLUMNS, "id % 4 AS part")
    rows.write.insertInto("customers")
    found = states(work, session)
    check("files with email encrypted", {state["email"] for state in found}, {"pii"})
    console.print(f"   {len(found) - files} files came, email is under pii in each of the {len(found)}")


def states(work: Path, session: SparkSession) -> list[dict[str, str]]:
    """Return of each file, as `sparkcrypt inspect` shows it without a key, the key id of each column."""
    files = [name.removeprefix("file://").removeprefix("file:") for name in session.table("customers").inputFiles()]
    command = [tool("sparkcrypt"), "inspect", "--json", *files]
    done = subprocess.run(command, cwd=work, text=True, capture_output=True, check=False)
    if done.returncode != 0:
        raise DemoError(f"inspect ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return [
        {name: column["key_id"] or "in clear" for name, column in file["columns"].items()}
        for file in json.loads(done.stdout)
    ]


def show_states(before: list[dict[str, str]], after: list[dict[str, str]]) -> None:
    """Print a row a column: what every file says of it."""
    table = Table("column", "before", "after")
    for column in before[0]:
        table.add_row(column, *(", ".join(sorted({file[column] for file in files})) for files in (before, after)))
    console.print(table)


def show_readers(work: Path, rich: SparkSession, poor: SparkSession, before: list[Any]) -> None:
    """Read with the key, without it, and by a reader of ORC that knows nothing of keys."""
    say("4", "readers")
    rich.sql("REFRESH TABLE customers")
    check("the rows of the reader with the key", answer(rich), before)
    console.print(f"   Spark with the key:  {before}")
    try:
        answer(poor)
    except Exception as error:  # noqa: BLE001  # Spark's errors have no common base that its versions share
        refused = str(error)
    else:
        raise DemoError("a denied column was read")
    check("the refusal names the key", "key 'pii' is not there" in refused, True)
    console.print("   Spark without it:    email is refused: its key 'pii' is not there")
    check("rows of other columns", poor.table("customers").select("city").dropna().count(), ROWS + 1_000)
    console.print("                        city is read")
    file = rich.table("customers").inputFiles()[0].removeprefix("file://").removeprefix("file:")
    show_python(work, file)
    nulls = pyarrow.orc.read_table(file, columns=["email"])["email"]
    check("values that pyarrow shows", len(nulls) - nulls.null_count, 0)
    console.print("   pyarrow alone:       email is null, without a word: ORC promises no more (docs/orc.md)")


def show_python(work: Path, file: str) -> None:
    """Read one file in Python, without Spark."""
    values = open_orc(file, sparkcrypt.load_policy(work / "policy-keys.yaml"), columns=["email"]).to_table()["email"]
    check("values that Python reads with the key", values.null_count, 0)
    console.print(f"   Python with the key: {values[0]} and {len(values) - 1:,} more (sparkcrypt.arrow.open_orc)")
    try:
        open_orc(file, sparkcrypt.load_policy(work / "policy-fewer-keys.yaml"), columns=["email"]).to_table()
    except KeyNotFoundError:
        console.print("   Python without it:   email is refused: its key 'pii' is not there")
    else:
        raise DemoError("a denied column was read")


if __name__ == "__main__":
    sys.exit(main())

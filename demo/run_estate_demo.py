"""The demo of an estate at a glance: tables of every state in one session, and what `sparkcrypt status` shows of them.

Usage: run_estate_demo.py [TABLES]; 30 by default, at least 6.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner
from showcase import HERE, DemoError, check, console, fresh, say, session_builder

import sparkcrypt
from sparkcrypt.cli.main import cli
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.spark.tables.tagging import set_tags

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkcrypt.policy.model import Policy

WORK = HERE / "work-estate"
TABLES, FEWEST = 30, 6
POLICY = """\
version: 1
key_service: {type: local, path: keys/}
footer: {key: footer}
audit: {key: audit}
untagged: plaintext
run_state: state/
tags:
  contact: {key: contact}
  billing: {key: billing}
"""
DATABASES = ("crm", "sales", "web")
NOUNS = ("customers", "orders", "payments", "visits", "leads", "devices", "returns", "invoices", "letters", "consents")
KINDS = ("as planned", "problem", "damaged", "drift", "untagged", "as planned")
"""What becomes of the first table, the second one and so on, again and again."""
COLUMNS = "id, concat('name-', id, '@example.org') AS email, id * 17 % 1000 AS amount, DATE '2026-11-01' AS day"


class Estate:
    """Tables of a session, each of which has a fate."""

    def __init__(self, spark: SparkSession, policy: Policy, work: Path, number: int) -> None:
        self._spark, self._policy, self._work = spark, policy, work
        places = (divmod(place, len(NOUNS)) for place in range(number))
        names = [f"{DATABASES[database % len(DATABASES)]}.{NOUNS[noun]}" for database, noun in places]
        self.kinds = {name: KINDS[place % len(KINDS)] for place, name in enumerate(names)}

    def of_kind(self, kind: str) -> list[str]:
        """Return the tables of one kind."""
        return [name for name, own in self.kinds.items() if own == kind]

    def make(self) -> None:
        """Make the tables as a job without sparkcrypt does, and tag all but those that stay untagged."""
        for database in sorted({name.partition(".")[0] for name in self.kinds}):
            self._spark.sql(f"CREATE DATABASE {database}")
        for place, (name, kind) in enumerate(self.kinds.items()):
            rows = f"SELECT /*+ COALESCE(1) */ {COLUMNS} FROM range({500 * (place % 7 + 1)})"
            self._spark.sql(f"CREATE TABLE {name} USING parquet PARTITIONED BY (day) AS {rows}")
            if kind != "untagged":
                set_tags(self._spark, name, {"email": ["contact"]}, self._policy)

    def run(self, *arguments: str, code: int = 0) -> str:
        """Run a command in this session, and return what it prints.

        Raises:
            DemoError: it ended with another exit code.
        """
        done = CliRunner().invoke(cli, [*arguments, "--policy", str(self._work / "policy.yaml")])
        if done.exit_code != code:
            raise DemoError(f"sparkcrypt {' '.join(arguments)} ended with {done.exit_code}:\n{done.output[-3000:]}")
        return done.stdout

    def backfill(self, *options: str, code: int = 0) -> dict[str, Any]:
        """Run a pass over all tables; return its report."""
        named = sorted({name.partition(".")[0] for name in self.kinds})
        databases = [word for name in named for word in ("--database", name)]
        page = ["--html", str(self._work / "pass.html")]
        report: dict[str, Any] = json.loads(
            self.run("backfill", *databases, *page, "--tables-at-once", "2", "--json", *options, code=code)
        )
        return report

    def files(self) -> dict[str, list[Path]]:
        """Return the files of each table."""
        found = {name: self._spark.table(name).inputFiles() for name in self.kinds}
        return {name: [Path(file.removeprefix("file://")) for file in files] for name, files in found.items()}

    def disturb(self, before: dict[str, list[Path]]) -> None:
        """Do what jobs and people do: delete from an old folder, damage a file, and tag another column.

        Args:
            before: the files of each table before the first pass.
        """
        now = self.files()
        for name in self.of_kind("problem"):
            before[name][0].unlink()
        for name in self.of_kind("damaged"):
            now[name][0].write_bytes(b"PAR1 damaged PAR1")
        for name in self.of_kind("drift"):
            set_tags(self._spark, name, {"email": ["contact"], "amount": ["billing"]}, self._policy)


def show(work: Path, number: int) -> None:
    """Make the estate, let two passes look at it, and show its status.

    Raises:
        DemoError: it did not show what it must.
    """
    policy = sparkcrypt.load_policy(work / "policy.yaml")
    service = open_key_service(policy.key_service)
    for key in ("footer", "audit", "contact", "billing"):
        service.create(key)
    spark = sparkcrypt.session(policy, builder=session_builder(work))
    try:
        estate = Estate(spark, policy, work, number)
        kinds = Counter(estate.kinds.values())
        say("1", f"{number} tables, which jobs without sparkcrypt made; most have a tag")
        estate.make()
        before = estate.files()
        say("2", "a pass encrypts what is tagged; then files are deleted and damaged, and columns get another tag")
        estate.backfill()
        estate.disturb(before)
        say("3", "the pass of the next night, whose budget lasts for one table")
        estate.backfill("--max-bytes", "1B", code=74)
        say("4", "sparkcrypt status --html status.html --metrics sparkcrypt.prom, without a look at any table")
        page, metrics = work / "status.html", work / "sparkcrypt.prom"
        text = estate.run("status", "--html", str(page), "--metrics", str(metrics), code=74)
        console.print(text, markup=False)
        status = json.loads(estate.run("status", "--json", code=74))
    finally:
        spark.stop()
    found = status["totals"]
    check("tables", found["tables"], number)
    check("untagged tables", found["untagged"], kinds["untagged"])
    open_problems = sum(bool(table["problems"]) for table in status["tables"])
    check("tables with an open problem", open_problems, kinds["problem"] + kinds["damaged"])
    if not found["drifting"] or not page.is_file():
        raise DemoError(f"it did not show what it must: {found}")
    samples = [line for line in metrics.read_text().splitlines() if not line.startswith("#")]
    console.print(f"   metrics: {len(samples)} samples in {metrics.relative_to(HERE)}, such as {samples[1]}")
    console.print(f"   page:    {page.relative_to(HERE)}, which links to {(work / 'pass.html').relative_to(HERE)}")


def main(arguments: list[str]) -> int:
    """Run the demo; return the exit code."""
    number = int(arguments[0]) if arguments else TABLES
    if not FEWEST <= number <= len(DATABASES) * len(NOUNS):
        console.print(f"{number} tables are not possible; allowed: {FEWEST} to {len(DATABASES) * len(NOUNS)}")
        return 64
    started, work = time.monotonic(), fresh(WORK)
    (work / "policy.yaml").write_text(POLICY)
    try:
        show(work, number)
    except DemoError as error:
        console.print(f"The demo failed: {error}", style="red", markup=False)
        return 1
    console.print(f"The demo passed: {number} tables at a glance, in {time.monotonic() - started:.0f} s.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""What both demos show: a table is tagged, encrypted by one job, and read with and without a key."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

import sparkcrypt
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.spark.setup.class_archive import QUICK, SUBMIT_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
TABLE = "demo.flights"
COPY = "demo.flights_copy"
TAGS = {"tailnum": "aircraft", "flight": "commercial", "carrier": "commercial", "origin": "public"}
KEYS = ("footer", "audit", "aircraft", "commercial")
NO_LOGGING = """\
rootLogger.level = off
rootLogger.appenderRef.none.ref = none
appender.none.type = Null
appender.none.name = none
"""
"""With an appender, though it takes nothing: Spark puts its own logging in the place of one that has none."""

console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)


class DemoError(Exception):
    """A step of the demo did not end as it must."""


@dataclass
class Showcase:
    """One set-up: a folder to work in, a policy, Spark's properties, and the environment that holds credentials."""

    work: Path
    policy: Path
    defaults: Mapping[str, str]
    credentials: Mapping[str, str] = field(default_factory=dict)

    def prepare(self) -> None:
        """Write a Spark configuration of the demo's own."""
        conf = self.work / "conf"
        conf.mkdir(parents=True, exist_ok=True)
        lines = "".join(f"{name} {value}\n" for name, value in self.defaults.items())
        (conf / "spark-defaults.conf").write_text(lines)
        (conf / "log4j2.properties").write_text(NO_LOGGING)

    def show(self, reader_without_key: Showcase) -> None:
        """Run every step and print what happens.

        Args:
            reader_without_key: the same set-up for a reader who was not granted the key ``aircraft``.

        Raises:
            DemoError: a step failed, or did not show what it must.
        """
        started = time.monotonic()
        say("1", "a real Hive table: every flight that left New York City in 2013, a partition a month")
        plain = json.loads(self.step("make", json.dumps(TAGS)))
        before = self.footers(plain["files"])
        say("2", f"{len(TAGS)} columns get tags in the metastore; the policy says which master key each tag means")
        self.commands(
            *(("keys", "create", key) for key in KEYS),
            ("tags", "set", TABLE, *(f"{column}={tag}" for column, tag in TAGS.items())),
        )
        say("3", "spark-submit jobs/encrypt_table.py")
        report = self.submit(TABLE)
        encrypted = json.loads(self.step("look", str(self.policy)))
        after = self.footers(encrypted["files"], "--policy", str(self.policy))
        show_columns(before, after)
        say("4", "sparkcrypt encrypt --engine spark, which reads and writes rows anew, on a copy of one quarter")
        show_seconds(report, self.encrypt(COPY, "--engine", "spark"))
        say("5", "readers")
        self.show_readers(plain["digest"] == encrypted["digest"], reader_without_key, report, after)
        console.print(
            f"The demo passed: {report['files_rewritten']} files with {report['rows']} rows were encrypted in "
            f"{report['seconds']:.0f} s and read back identical; all of it took {time.monotonic() - started:.0f} s."
        )

    def show_readers(self, equal: bool, reader: Showcase, report: dict[str, Any], after: list[dict[str, Any]]) -> None:
        """Tell what a reader with every key got, and read without one."""
        read = json.loads(reader.step("read", str(reader.policy), "tailnum", "carrier"))
        refused, allowed = read["tailnum"], read["carrier"]
        console.print(f"   with every key:            {report['rows']} rows, {'identical' if equal else 'DIFFERENT'}")
        console.print(
            f"   without the key aircraft:  tailnum is refused: {refused.get('refused', 'NOT REFUSED')}", markup=False
        )
        console.print(f"                              carrier is read: {allowed.get('value', allowed)}", markup=False)
        wanted = {column: "plaintext" if tag == "public" else "encrypted" for column, tag in TAGS.items()}
        found = {column: state(after, column) for column in wanted}
        named = "tailnum" in str(refused.get("refused", ""))
        if not (equal and named and "value" in allowed and found == wanted and report["verified"]):
            raise DemoError(
                f"it did not show what it must: equal {equal}, refused {refused}, read {allowed}, columns {found}"
            )

    def environment(self) -> dict[str, str]:
        """Return the environment of every step: this interpreter everywhere, nothing of the machine's own Spark.

        No step runs for long, so its JVM compiles with its first compiler alone.
        """
        known = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
        return {
            **known,
            **self.credentials,
            "SPARK_CONF_DIR": str(self.work / "conf"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            "PYTHONWARNINGS": "ignore",
            SUBMIT_OPTIONS: " ".join(QUICK),
        }

    def run(self, command: list[str], *, show_errors: bool = False) -> str:
        """Run one step and return what it prints.

        Raises:
            DemoError: it failed.
        """
        errors = None if show_errors else subprocess.PIPE
        done = subprocess.run(
            command,
            cwd=self.work,
            env=self.environment(),
            text=True,
            stdout=subprocess.PIPE,
            stderr=errors,
            check=False,
        )
        if done.returncode != 0:
            raise DemoError(
                f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{(done.stderr or '')[-3000:]}"
            )
        return done.stdout

    def step(self, *arguments: str) -> str:
        """Run a step of steps.py; return the last line that it prints."""
        lines = self.run([sys.executable, str(HERE / "steps.py"), *arguments]).strip().splitlines()
        return lines[-1] if lines else ""

    def cli(self, *arguments: str) -> str:
        """Run a command of the command line."""
        return self.run([tool("sparkcrypt"), *arguments])

    def commands(self, *commands: tuple[str, ...]) -> None:
        """Run commands of the command line in one session."""
        lines = self.work / "commands.txt"
        lines.write_text("".join(f"{shlex.join((*command, '--policy', str(self.policy)))}\n" for command in commands))
        self.cli("batch", str(lines))

    def submit(self, table: str) -> dict[str, Any]:
        """Submit the job as a user would, show what it prints, and return its report."""
        report = self.work / "report.json"
        job = ["--table", table, "--policy", str(self.policy), "--report", str(report)]
        submit = [tool("spark-submit"), str(ROOT / "jobs" / "encrypt_table.py"), *job]
        console.print(self.run(submit, show_errors=True).rstrip())
        found: dict[str, Any] = json.loads(report.read_text())
        return found

    def encrypt(self, table: str, *options: str) -> dict[str, Any]:
        """Run the command that is the same as the job, and return its report."""
        printed = self.cli("encrypt", "--table", table, "--policy", str(self.policy), "--json", *options)
        found: dict[str, Any] = json.loads(printed)
        return found

    def footers(self, files: list[str], *options: str) -> list[dict[str, Any]]:
        """Return what the footer of each file says."""
        found: list[dict[str, Any]] = json.loads(self.cli("inspect", "--json", *options, *files))
        return found


def open_readers(work: Path, policy: str, denied: str) -> tuple[SparkSession, SparkSession]:
    """Start Spark here, and return a session of a reader with every key and one of a reader without one of them.

    Args:
        work: gets ``policy-keys.yaml`` and ``policy-fewer-keys.yaml``, the keys of both, and the warehouse.
        policy: the text of both, with ``{keys}`` for the folder of keys.
        denied: the key that the second reader has not.
    """
    for name in ("keys", "fewer-keys"):
        (work / f"policy-{name}.yaml").write_text(policy.format(keys=name))
    rich = sparkcrypt.load_policy(work / "policy-keys.yaml")
    service = open_key_service(rich.key_service)
    tagged = {rule.key.text for rule in rich.tags if rule.key is not None}
    for key in sorted(key for key in {rich.footer_key, rich.audit_key, *tagged} if key is not None):
        service.create(key)
    shutil.copytree(work / "keys", work / "fewer-keys", ignore=shutil.ignore_patterns(f"{denied}*"))
    builder = session_builder(work)
    return (
        sparkcrypt.session(rich, builder=builder),
        sparkcrypt.session(sparkcrypt.load_policy(work / "policy-fewer-keys.yaml")),
    )


def session_builder(work: Path) -> Any:
    """Return what builds a quiet session on two cores, with everything below a folder."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # for tasks; PATH may name another
    logging = work / "log4j2.properties"
    logging.write_text(NO_LOGGING)
    settings = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": (work / "warehouse").as_uri(),
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={work} -Dlog4j2.configurationFile={logging}",
    }
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder


def show_seconds(native: dict[str, Any], spark: dict[str, Any]) -> None:
    """Print how long each engine's run took, from plan to audit."""
    for name, report in (("native", native), ("spark", spark)):
        console.print(
            f"   --engine {name:<7} {report['seconds']:5.1f} s for {report['files_rewritten']} files, "
            f"{report['rows']} rows, {'verified' if report['verified'] else 'NOT VERIFIED'}"
        )


def show_columns(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> None:
    """Print a row a column: what every file's footer said before, and says now."""
    table = Table(title=f"{len(before)} files before, {len(after)} files after", title_justify="left")
    for name in ("column", "tag", "before", "after", "master key"):
        table.add_column(name)
    for column in before[0]["columns"]:
        keys = {str(file["columns"][column]["key_id"] or "-") for file in after}
        table.add_row(
            column, TAGS.get(column, ""), state(before, column), state(after, column), ", ".join(sorted(keys))
        )
    console.print(table)


def state(files: list[dict[str, Any]], column: str) -> str:
    """Return whether a column is encrypted in all files, in none, or in some."""
    found = {bool(file["columns"][column]["encrypted"]) for file in files}
    return "mixed" if len(found) > 1 else "encrypted" if found.pop() else "plaintext"


def check(what: str, found: object, wanted: object) -> None:
    """Refuse an answer that is not the one that must be.

    Raises:
        DemoError: it is another.
    """
    if found != wanted:
        raise DemoError(f"{what}: {found}, not {wanted}")


def tool(name: str) -> str:
    """Return a program of this interpreter's environment."""
    return str(Path(sys.executable).parent / name)


def say(number: str, text: str) -> None:
    """Announce a step."""
    console.print(f"[bold]{number}.[/bold] {text}")


def fresh(folder: Path) -> Path:
    """Return an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder

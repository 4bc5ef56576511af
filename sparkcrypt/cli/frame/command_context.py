"""Gives a command a Spark session that starts on first use, files by path or URI, and reports, a failed run's too.

The report of a run that failed is the only result where exit codes are lost, as in YARN's cluster mode.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from sparkcrypt.cli.frame.command import describe_error
from sparkcrypt.cli.frame.options import Launch
from sparkcrypt.cli.frame.output import say
from sparkcrypt.durable import replace_file
from sparkcrypt.errors import ConfigError
from sparkcrypt.ledger.state.store import StateStore, open_state_store
from sparkcrypt.paths import is_local, local_path
from sparkcrypt.policy.load import find_user, load_policy, policy_from_text, rules_from_text
from sparkcrypt.policy.model import Policy, TableRule
from sparkcrypt.runs.rewrite.saved_plan import SavedPlan
from sparkcrypt.schema import Schema
from sparkcrypt.spark.setup.command_session import spark_session
from sparkcrypt.tags.avro import read_avro_file
from sparkcrypt.text import count_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Document = dict[str, Any]


class Workplace:
    """The session and files of one command; a session that it started stops at the end of the ``with`` block.

    A command is ``short`` if it never reads or writes rows in bulk: what it starts is made for a short life.
    """

    def __init__(self, app_name: str, launch: Launch | None = None, *, short: bool = False) -> None:
        self._app_name, self._launch, self._short = app_name, launch or Launch(), short
        self._stack = ExitStack()
        self._spark: SparkSession | None = None

    def __enter__(self) -> Workplace:
        """Return this object; the session starts on first use."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the session if it was started here."""
        self._stack.close()

    @property
    def spark(self) -> SparkSession:
        """The session.

        Raises:
            ConfigError: Spark is not installed or cannot be started.
        """
        if self._spark is None:
            launch = self._launch
            session = spark_session(
                self._app_name,
                master=launch.master,
                conf=dict(launch.conf),
                verbose=launch.verbose,
                short=self._short,
            )
            self._spark = self._stack.enter_context(session)
        return self._spark

    def policy(self, uri: str, *, principal: str | None = None) -> Policy:
        """Load a policy from a local file, or through Spark from any file system that Spark supports.

        Args:
            uri: the policy's path or URI.
            principal: as for `load_policy`.

        Raises:
            ConfigError: it cannot be read or is no policy.
        """
        if is_local(uri):
            return load_policy(uri, principal=principal)
        policy = policy_from_text(self._text(uri, "policy"), where=uri, base=uri.rpartition("/")[0])
        return policy.for_principal(principal or find_user())

    def rules(self, uri: str) -> tuple[TableRule, ...]:
        """Load rules of tables from a policy file, or from a file with only a policy's ``tables``.

        Raises:
            ConfigError: it cannot be read or is neither.
        """
        text = _local_text(uri, "rules") if is_local(uri) else self._text(uri, "rules")
        base = str(Path(local_path(uri)).absolute().parent) if is_local(uri) else uri.rpartition("/")[0]
        return rules_from_text(text, where=uri, base=base)

    def saved_plan(self, uri: str) -> SavedPlan:
        """Read a plan that `sparkcrypt plan --out` wrote.

        Raises:
            ConfigError: it cannot be read or is none.
        """
        return SavedPlan.parse(_local_text(uri, "plan") if is_local(uri) else self._text(uri, "plan"), uri)

    def avro(self, uri: str) -> Schema:
        """Read an Avro schema.

        Raises:
            PlanError: it cannot be read or is not an Avro record.
        """
        if is_local(uri):
            return read_avro_file(Path(local_path(uri)))
        from sparkcrypt.spark.tables.tagging import read_avro

        return read_avro(self.spark, uri)

    def state_directory(self, uri: str) -> StateStore:
        """Open a policy's state directory; this needs Spark unless it is on a local disk.

        Raises:
            ConfigError: it has no conditional create, or cannot be reached.
        """
        if is_local(uri):
            return open_state_store(uri)
        spark = self.spark
        from sparkcrypt.ledger.state.directory import open_state_directory

        return open_state_directory(spark, uri)

    def write(self, uri: str, text: str) -> None:
        """Write a small file, replacing an existing one.

        Raises:
            ConfigError: it cannot be written.
        """
        if is_local(uri):
            path = Path(local_path(uri))
            try:
                replace_file(path, text.encode(), mode=0o644)
            except OSError as error:
                raise ConfigError(f"{path}: cannot be written ({error.strerror}); name another file") from error
            return
        from sparkcrypt.spark.files.hadoop import HadoopFiles

        files = HadoopFiles(self.spark)
        files.delete_file(uri)
        if not files.write_new(uri, text.encode()):
            raise ConfigError(f"{uri}: is a folder, or another process writes it now; name a file")

    def write_report(self, uri: str | None, document: dict[str, Any]) -> None:
        """Write a report as JSON if a place is given for it.

        Raises:
            ConfigError: it cannot be written.
        """
        if uri is not None:
            self.write(uri, json.dumps(document, indent=2, ensure_ascii=False) + "\n")

    def _text(self, uri: str, what: str) -> str:
        from sparkcrypt.spark.files.hadoop import HadoopFiles

        files = HadoopFiles(self.spark)
        if not files.exists(uri):
            raise ConfigError(f"{what} {uri}: is not there; give its path or URI")
        try:
            return files.read(uri).decode("utf-8")
        except UnicodeDecodeError as error:
            raise ConfigError(f"{what} {uri}: is not UTF-8 text") from error


def _local_text(uri: str, what: str) -> str:
    try:
        return Path(local_path(uri)).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"{what} {uri}: cannot be read ({reason}); give its path or URI") from error


def check_writable(uri: str | None, option: str = "--report") -> None:
    """Check that a local report can be written, before hours of work.

    Raises:
        ConfigError: its folder does not exist or is not writable.
    """
    if uri is None or not is_local(uri):
        return
    folder = Path(local_path(uri)).absolute().parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise ConfigError(
            f"{option} {uri}: the folder {folder} is not there or may not be written to; name a folder that is"
        )


@contextmanager
def failed_report(
    workplace: Workplace,
    report: str | None,
    target: str | None,
    *,
    page: tuple[str, Callable[[Document], str]] | None = None,
    **known: Any,
) -> Iterator[Document]:
    """Write a report with outcome ``failed`` if the block raises an error, and re-raise the error.

    Yields a dict, to which the block can add fields about what was done so far.

    Args:
        workplace: writes the report.
        report: path or URI of the report; None writes none.
        target: the table or folder.
        page: path or URI of a page, and the function that makes it from the report.
        **known: further fields.
    """
    known = {"table": target, "started": datetime.now(timezone.utc).isoformat(timespec="seconds"), **known}
    try:
        yield known
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            error.args = (_describe_interruption(known),)
        kind, message, code = describe_error(error)
        ended = {"type": kind, "message": message, "exit_code": code}
        document = {**known, "outcome": "failed", "verified": False, "error": ended}
        if report is not None:
            _write_in_vain(workplace, report, lambda: json.dumps(document, indent=2, ensure_ascii=False) + "\n")
        if page is not None:
            make = page[1]
            _write_in_vain(workplace, page[0], lambda: make(document))
        raise


def _describe_interruption(known: Document) -> str:
    """Return what the runs that were interrupted have done, by their partial reports, and how they go on."""
    tables = known.get("tables", [known])
    done = sum(len(table.get("units", ())) for table in tables)
    left = sum(int(table.get("units_left", 0)) for table in tables)
    if not done + left:
        return "interrupted before any unit was begun; run the same command again"
    stay = "is done and stays so" if done == 1 else "are done and stay so"
    return f"interrupted: {done:,} of {count_of(done + left, 'unit')} {stay}; the same command continues"


def _write_in_vain(workplace: Workplace, report: str, text: Callable[[], str]) -> None:
    try:
        workplace.write(report, text())
    except Exception as second:  # noqa: BLE001  # the caller re-raises the first error; this one is only printed
        say(f"error: the report {report} could not be written: {describe_error(second)[1]}")

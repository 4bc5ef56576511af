"""Common code of the commands of `sparkcrypt index`: options, and the report of a store that was written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sparkcrypt.cli.files.index_text import describe_built, document_built
from sparkcrypt.cli.frame.command_context import Workplace, check_writable
from sparkcrypt.cli.frame.failed_report import failed_report
from sparkcrypt.cli.frame.options import Launch, json_option, policy_option, require_either, spark_options, table_option
from sparkcrypt.cli.frame.output import show
from sparkcrypt.skipping.keep.create import Built

if TYPE_CHECKING:
    from sparkcrypt.runs.index.table_index import TableIndex

F = TypeVar("F", bound=Callable[..., Any])
APP = "sparkcrypt index"
REPORT_KIND, REPORT_VERSION = "sparkcrypt index", 1


def store_options(function: F) -> F:
    """Add the options for a table, or a folder of files and its store, and for starting Spark."""
    options = (
        table_option,
        click.option("--path", metavar="FOLDER", help="A folder of files instead, without Spark: a path, webhdfs://…"),
        click.option(
            "--to",
            "--store",
            "to",
            metavar="STORE",
            help="With --path: the store's own folder, outside of the files'; by default the table's below "
            "index.location of the policy.",
        ),
        policy_option,
        json_option,
        spark_options,
    )
    for option in reversed(options):
        function = option(function)
    return function


def check_names(table: str | None, path: str | None, to: str | None) -> None:
    """Refuse a call that does not name either a table or a folder of files, or names a store for a table.

    Raises:
        click.UsageError: the message names the options.
    """
    require_either(table, path)
    if table is not None and to is not None:
        raise click.UsageError("--to goes with --path; a table's store is below index.location of the policy")


def open_table(workplace: Workplace, table: str, policy: str) -> TableIndex:
    """Return a table's index: the table from the catalog, and the location of its store by the policy."""
    loaded, spark = workplace.policy(policy), workplace.spark
    from sparkcrypt.runs.index.table_index import open_table_index

    return open_table_index(spark, table, loaded)


class BuiltStore:
    """The result of a command that wrote a store, for its report and output."""

    def __init__(self) -> None:
        self.document: dict[str, Any] = {}
        self._text = ""

    def __call__(self, store: str, built: Built, **named: Any) -> None:
        """Store the result."""
        self.document, self._text = document_built(named, store, built), describe_built(store, built)

    def show(self, *, as_json: bool) -> None:
        """Print the result."""
        show(self.document, self._text, as_json=as_json)


@contextmanager
def reporting(report: str | None, target: str | None, launch: Launch) -> Iterator[tuple[Workplace, BuiltStore]]:
    """Yield a workplace, and an object for the result; write the report with the result, or with the error."""
    check_writable(report)
    built_at = BuiltStore()
    with (
        Workplace(APP, launch) as workplace,
        failed_report(workplace, report, target, kind=REPORT_KIND, version=REPORT_VERSION),
    ):
        yield workplace, built_at
        if report is not None:
            document = {
                "kind": REPORT_KIND,
                "version": REPORT_VERSION,
                "table": target,
                "outcome": "done",
                **built_at.document,
            }
            workplace.write(report, json.dumps(document, indent=2, ensure_ascii=False) + "\n")

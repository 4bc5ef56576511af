"""Common code of the commands of `sparkcrypt index`: options, and the report of a store that was written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from sparkcrypt.cli.files.index_text import describe_built, document_built
from sparkcrypt.cli.frame.command_context import Workplace, check_writable
from sparkcrypt.cli.frame.failed_report import failed_report
from sparkcrypt.cli.frame.options import CommandOptions, Launch, option, require_either, table_option, use
from sparkcrypt.cli.frame.output import show
from sparkcrypt.skipping.indexes.build import Built

if TYPE_CHECKING:
    from sparkcrypt.runs.index.table_index import TableIndex

APP = "sparkcrypt index"
REPORT_KIND, REPORT_VERSION = "sparkcrypt index", 1


@dataclass(frozen=True, kw_only=True)
class StoreOptions(CommandOptions):
    """The options for a table, or for a folder of files and its store."""

    table: str | None = use(table_option)
    path: str | None = option("A folder of files instead, without Spark: a path, webhdfs://…", metavar="FOLDER")
    to: str | None = option(
        "With --path: the store's own folder, outside of the files'; by default the table's below "
        "index.location of the policy.",
        "--to",
        "--store",
        metavar="STORE",
    )

    def check(self) -> None:
        """Refuse a call that does not name either a table or a folder of files, or names a store for a table.

        Raises:
            click.UsageError: the message names the options.
        """
        require_either(self.table, self.path)
        if self.table is not None and self.to is not None:
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
        head = {"kind": REPORT_KIND, "version": REPORT_VERSION, "table": target, "outcome": "done"}
        workplace.write_report(report, {**head, **built_at.document})

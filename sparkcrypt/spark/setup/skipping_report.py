"""Reports how many files of each table a DataFrame opens with data skipping, and why."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame

from sparkcrypt import names
from sparkcrypt.errors import ConfigError
from sparkcrypt.spark.jvm.extension import call_static
from sparkcrypt.spark.jvm.gateway import is_connect


@dataclass(frozen=True, slots=True)
class ScanReport:
    """The effect of data skipping on one scan of a table.

    Attributes:
        table: the table's name, or its folder if it is read by path.
        listed: number of files that remain after partition pruning.
        opened: how many of them the query opens.
        by: index (``column kind``; several joined by ``and``) -> number of files that it leaves out.
        unused: index -> reason why it is not used.
        store: location of the table's store; None if no store was consulted.
        generation: the store's generation; None if no store was consulted.
        why: the reason why no store was consulted; None if one was.
    """

    table: str
    listed: int
    opened: int
    by: Mapping[str, int]
    unused: Mapping[str, str]
    store: str | None
    generation: int | None
    why: str | None

    @property
    def skipped(self) -> int:
        """The number of files that the query does not open."""
        return self.listed - self.opened


def skipping_report(frame: DataFrame) -> tuple[ScanReport, ...]:
    """Return the effect that data skipping has on each scan of a DataFrame when it is executed; opens no data file.

    Scans that no store can serve are left out: those with skipping off, and those of other tables than Parquet ones.
    Files that Spark leaves out while a query runs (dynamic partition pruning) count as opened.

    Args:
        frame: a DataFrame of a classic session under a policy.

    Raises:
        ConfigError: the DataFrame belongs to a Spark Connect client, and its plan is on the server.
    """
    if is_connect(frame.sparkSession):
        raise ConfigError(
            "skipping_report: the plan of a DataFrame of Spark Connect is on the server; allowed: classic sessions; "
            "EXPLAIN names SkippingFileIndex, and the server's log (INFO, io.sparkcrypt.FileSkipper) has the numbers"
        )
    found = call_static(frame.sparkSession, names.SKIPPING_REPORT_CLASS, "of", frame._jdf)
    return tuple(_scan_report(entry) for entry in json.loads(str(found)))


def _scan_report(entry: Mapping[str, object]) -> ScanReport:
    return ScanReport(
        table=str(entry["table"]),
        listed=int(str(entry["listed"])),
        opened=int(str(entry["opened"])),
        by=entry.get("by") or {},  # type: ignore[arg-type]  # as the helper answers
        unused=entry.get("unused") or {},  # type: ignore[arg-type]
        store=entry.get("store"),  # type: ignore[arg-type]
        generation=entry.get("generation"),  # type: ignore[arg-type]
        why=entry.get("why"),  # type: ignore[arg-type]
    )

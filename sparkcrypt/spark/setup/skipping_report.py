"""Data skipping in queries: how many files of each table a DataFrame opens, and why."""

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
    """What data skipping does for one scan of a table.

    Attributes:
        table: its name, or its folder where it is read by path.
        listed: files that are left when partitions are pruned.
        opened: how many of them the query opens.
        by: index (``column kind``; several joined by ``and``) -> how many files it leaves out.
        unused: index -> why it is not used.
        store: where the table's store is; None where none was asked.
        generation: of the store, likewise.
        why: why no store was asked; None where one was.
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
        """How many files the query does not open."""
        return self.listed - self.opened


def skipping_report(frame: DataFrame) -> tuple[ScanReport, ...]:
    """Return what data skipping does for each scan of a DataFrame, as its execution would; no file is opened.

    A scan that no store could serve is not among them: skipping is off, or it is no Parquet table.  Files that Spark
    leaves out while a query runs (dynamic partition pruning) count as opened.

    Args:
        frame: of a classic session under a policy.

    Raises:
        ConfigError: the DataFrame is one of Spark Connect, whose plan is on the server.
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

"""Files as a scan knows them, from summaries of footers alone."""

from __future__ import annotations

from typing import Any

from sparkcrypt.files.footers import FooterFacts
from sparkcrypt.files.parquet import FileSummary
from sparkcrypt.runs.table.columns import FileColumns, ScannedFile


def scanned_file(summary: FileSummary, columns: FileColumns, **more: Any) -> ScannedFile:
    """Return what a scan knows of a file with this footer."""
    return ScannedFile(FooterFacts(summary, {}), columns, **more)

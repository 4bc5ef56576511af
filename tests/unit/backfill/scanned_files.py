"""Files as a scan knows them, from summaries of footers alone."""

from __future__ import annotations

import json
from typing import Any

from sparkcrypt.files.footers import FooterFacts
from sparkcrypt.files.parquet import ColumnSummary, FileSummary
from sparkcrypt.runs.table.columns import FileColumns, ScannedFile
from tests.unit.schema.message_types import fields_of


def scanned_file(summary: FileSummary, columns: FileColumns, **more: Any) -> ScannedFile:
    """Return what a scan knows of a file with this footer."""
    return ScannedFile(FooterFacts(summary, {}), columns, **more)


def plain_file(*columns: tuple[str, ...], path: str = "/t/f.parquet") -> FileSummary:
    """Return the summary of a plaintext file with these columns."""
    return FileSummary(
        path=path,
        footer="plaintext",
        algorithm=None,
        footer_key=None,
        aad_prefix=None,
        supply_aad_prefix=False,
        aad_file_unique=None,
        rows=1,
        row_groups=1,
        columns={column: ColumnSummary(False, None) for column in columns},
        fields=json.dumps(fields_of(columns)),
    )

"""Defines the result of a rewrite, for reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sparkcrypt.files.parquet.file.footer import Mode
from sparkcrypt.files.parquet.file.schema import Path
from sparkcrypt.schema import join_dotted


@dataclass(frozen=True, slots=True)
class RewriteResult:
    """The result of a rewrite.

    Attributes:
        source, target: names of the files.
        footer: how the target's footer is protected.
        rows, row_groups: of both files.
        bytes_before, bytes_after: sizes of the files.
        columns: leaf path -> whether the target encrypts it.
        source_authenticated: ``all``, ``partial``, or ``none`` for a source that was not encrypted.
        unauthenticated: the parts of an encrypted source that nothing authenticated.
        notes: what the target lost, and which readers cannot read it.
    """

    source: str
    target: str
    footer: Mode
    rows: int
    row_groups: int
    bytes_before: int
    bytes_after: int
    columns: Mapping[Path, bool]
    source_authenticated: Literal["all", "partial", "none"]
    unauthenticated: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values, column paths dotted."""
        return {
            "source": self.source,
            "target": self.target,
            "footer": self.footer,
            "rows": self.rows,
            "row_groups": self.row_groups,
            "bytes_before": self.bytes_before,
            "bytes_after": self.bytes_after,
            "columns": {join_dotted(path): encrypted for path, encrypted in self.columns.items()},
            "source_authenticated": self.source_authenticated,
            "unauthenticated": list(self.unauthenticated),
            "notes": list(self.notes),
        }

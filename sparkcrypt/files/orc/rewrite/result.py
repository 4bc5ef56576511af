"""Defines the result of a rewrite of an ORC file, for reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparkcrypt.files.orc.file.tail import Tail
from sparkcrypt.files.output import Output, Target, target_name
from sparkcrypt.files.source import Input
from sparkcrypt.schema import Path, join_dotted


@dataclass(frozen=True, slots=True)
class OrcRewriteResult:
    """The result of a rewrite.

    Attributes:
        source, target: names of the files.
        rows, stripes: of both files.
        bytes_before, bytes_after: sizes of the files.
        columns: leaf path -> whether the target encrypts it.
        notes: descriptions of what the target lost.
        left_out: names of the user metadata that it lost.
    """

    source: str
    target: str
    rows: int
    stripes: int
    bytes_before: int
    bytes_after: int
    columns: Mapping[Path, bool]
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        file: Input,
        target: Target,
        tail: Tail,
        output: Output,
        columns: Mapping[Path, bool],
        notes: Sequence[str] = (),
        left_out: Sequence[str] = (),
    ) -> OrcRewriteResult:
        """Return the result of a rewrite whose target is written.

        Args:
            file: the source.
            target: as passed to `rewrite_orc`.
            tail: the source's tail.
            output: the target, before it is closed.
            columns: leaf path -> whether the target encrypts it.
            notes: descriptions of what the target lost.
            left_out: names of the user metadata that it lost.
        """
        return cls(
            source=file.name,
            target=target_name(target),
            rows=tail.rows,
            stripes=len(tail.stripes),
            bytes_before=file.size,
            bytes_after=output.position,
            columns=columns,
            notes=tuple(notes),
            left_out=tuple(left_out),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values, column paths dotted."""
        return {
            "source": self.source,
            "target": self.target,
            "format": "orc",
            "rows": self.rows,
            "stripes": self.stripes,
            "bytes_before": self.bytes_before,
            "bytes_after": self.bytes_after,
            "columns": {join_dotted(path): encrypted for path, encrypted in self.columns.items()},
            "source_authenticated": "none",
            "notes": list(self.notes),
            "left_out": list(self.left_out),
        }

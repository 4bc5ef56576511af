"""What a run reports, to machines and to people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Outcome = Literal["done", "nothing to do", "dry run", "failed"]


@dataclass(frozen=True, slots=True)
class Report:
    """The result of one run; sizes in bytes."""

    table: str
    run_id: str
    engine: str
    files_total: int
    files_rewritten: int
    files_skipped: int
    rows: int
    bytes_before: int
    bytes_after: int
    columns: Mapping[str, str]
    verified: bool
    seconds: float
    old_location: str | None
    outcome: Outcome
    swap: str | None = None
    units: tuple[Mapping[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {**asdict(self), "columns": dict(self.columns), "units": list(self.units), "warnings": list(self.warnings)}

    def to_text(self) -> str:
        """Return it as lines for people."""
        lines = [
            f"{self.table}: {self.outcome}: {self.files_rewritten} of {self.files_total} files rewritten, {self.files_skipped} "
            f"matched already; {self.rows} rows, {self.bytes_before} -> {self.bytes_after} bytes in {self.seconds:.1f} s",
        ]
        if self.files_rewritten:
            lines.append(f"swapped by: {self.swap}; verified: {'yes' if self.verified else 'NO'}; run {self.run_id}")
            lines.append(f"old files: {self.old_location}")
        lines += [f"  {column}  {key}" for column, key in self.columns.items()]
        lines += [f"note: {warning}" for warning in self.warnings]
        return "\n".join(lines)

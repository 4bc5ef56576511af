"""Reports of passes as JSON values: made up, of any size, and of the shape that a pass writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

RUN = "20261121T101112345Z-3f9a2c"
PASS = "20261121T101112Z-3f9a2c"
MEGABYTE = 10**6


def unit(number: int, table: str = "sales.orders", **changed: Any) -> dict[str, Any]:
    """Return a unit of ``number + 1`` megabytes, which took a second."""
    day = f"day=2026-{1 + number // 28 % 12:02d}-{1 + number % 28:02d}"
    return {
        "unit": day,
        "files": 2,
        "rows": 10_000,
        "bytes_before": (number + 1) * MEGABYTE,
        "bytes_after": (number + 1) * MEGABYTE + 5_000,
        "old_location": f"hdfs://nn/warehouse/{table}/{day}",
        "new_location": f"hdfs://nn/warehouse/.sparkcrypt/{table}/{RUN}/{day}",
        "verified": True,
        "engine": "native",
        "notes": [],
        "seconds": 1.0,
        "finished": "2026-11-21T10:15:12+00:00",
        **changed,
    }


def table(name: str = "sales.orders", count: int = 3, **changed: Any) -> dict[str, Any]:
    """Return a table of which everything is done, unless it is changed."""
    done = [unit(number, name) for number in range(count)]
    total = sum(swapped["bytes_before"] for swapped in done)
    return {
        "table": name,
        "run_id": RUN,
        "engine": "native",
        "outcome": "done",
        "files_total": 2 * count + 4,
        "files_rewritten": 2 * count,
        "files_skipped": 4,
        "files_left": 0,
        "rows": 10_000 * count,
        "bytes_before": total,
        "bytes_after": total + 5_000 * count,
        "bytes_left": 0,
        "units_left": 0,
        "columns": {"email": "pii", "name.first": "pii"},
        "verified": True,
        "seconds": float(count),
        "old_location": f"hdfs://nn/warehouse/{name}",
        "swap": "set location",
        "warnings": [],
        "audit": {"number": 7, "digest": "9f" * 32},
        "units": done,
        "quarantined": [],
        "drift": {"before": {"missing": 2 * count}, "after": {}},
        "coverage": {"pii": coverage(before=0.25, after=1.0)},
        **changed,
    }


def coverage(*, before: float, after: float, files: int = 40, total_bytes: int = 4_000 * MEGABYTE) -> dict[str, Any]:
    """Return the coverage of a tag of which these shares match."""
    shares = {
        name: {"files": round(files * share), "bytes": round(total_bytes * share)}
        for name, share in (("before", before), ("after", after))
    }
    return {"files": files, "bytes": total_bytes, **shares}


def points(rates: Sequence[float]) -> list[dict[str, Any]]:
    """Return how far a pass was at each full minute, at so many bytes per second in the minute before."""
    found, total = [{"seconds": 0.0, "files": 0, "bytes": 0}], 0.0
    for minute, rate in enumerate(rates, 1):
        total += rate * 60
        found.append({"seconds": 60.0 * minute, "files": minute, "bytes": round(total)})
    return found


def report(*tables: dict[str, Any], outcome: str = "done", **changed: Any) -> dict[str, Any]:
    """Return the report of a pass over these tables."""
    return {
        "kind": "sparkcrypt backfill",
        "version": 1,
        "pass_id": PASS,
        "outcome": outcome,
        "policy_digest": "3b" * 32,
        "started": "2026-11-21T10:11:12+00:00",
        "seconds": 300.0,
        "tables": list(tables),
        "failed": [],
        "refused": [],
        "passed_over": [],
        "unchanged": [],
        "throughput": points([20e6, 40e6, 30e6, 10e6]),
        "warnings": [],
        "error": None,
        **changed,
    }


def quarantined(name: str, error: str, message: str) -> dict[str, str]:
    """Return a unit that was quarantined."""
    return {"unit": name, "error": error, "message": message}


def incomplete() -> dict[str, Any]:
    """Return a pass in which everything happened that can: two units quarantined, others waiting, a table refused."""
    held = [
        quarantined("day=2026-09-01", "FormatError", "part-0.parquet: the footer ends behind the file"),
        quarantined("day=2026-09-02", "SourceChangedError", "part-1.parquet was replaced while it was staged"),
    ]
    orders = table(
        count=6,
        outcome="incomplete",
        units_left=4,
        files_left=8,
        bytes_left=800 * MEGABYTE,
        files_total=24,
        quarantined=held,
        drift={"before": {"missing": 18, "wrong_key": 2}, "after": {"missing": 8}},
        coverage={"pii": coverage(before=0.125, after=0.75), "contact": coverage(before=0.5, after=0.9)},
        warnings=["day=2026-01-01: compression differs between files, so zstd was taken"],
    )
    return report(
        orders,
        table("sales.customers", 2),
        outcome="incomplete",
        failed=[{"table": "sales.ledger", "error": "KeyAccessDeniedError", "message": "the key service refused"}],
        refused=[{"table": "sales.mirror", "reason": "it shares a folder with sales.orders"}],
        passed_over=[{"table": "sales.daily", "reason": "a view"}],
        unchanged=["sales.dim_a", "sales.dim_b"],
    )

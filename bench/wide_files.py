"""What a column costs in files of 500 to 8,000 columns: rewritten, verified, and its footer read; it must not grow."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.harness import Report, forked, in_memory
from sparkcrypt.files.parquet import DataKey, FileEncryption, KeyRequest, inspect_file, rewrite_file, verify_file

WIDTHS = (500, 1000, 2000, 4000, 8000)
ROWS = 1000
ROUNDS = 5
MOST_MICROSECONDS = 200
"""The bar of a rewrite, for each column."""
MOST_GROWTH = 1.15
"""The bar of what a column costs in the widest file by what it costs in the narrowest."""


def run() -> Report:
    """Rewrite, verify and inspect files of all widths, with every column encrypted and with one."""
    report = Report("wide_files", f"a column of files of {ROWS:,} rows and many columns, in memory, one core")
    with in_memory() as folder:
        sources = {width: _make(folder, width) for width in WIDTHS}
        for work in _works(folder, sources[WIDTHS[0]], WIDTHS[0], "one column").values():
            work()  # what this process imports at its first file is not of a column's cost
        for encrypted in ("every column", "one column"):
            _measure(report, folder, sources, encrypted)
    return report


def _make(folder: Path, width: int) -> Path:
    file, values = folder / f"{width}.parquet", np.arange(ROWS)
    pq.write_table(pa.table({f"c{number}": values for number in range(width)}), file, write_page_index=True)
    return file


def _measure(report: Report, folder: Path, sources: dict[int, Path], encrypted: str) -> None:
    seconds: dict[str, dict[int, list[float]]] = {}
    start = [forked(lambda: None).cpu for _ in range(ROUNDS)]
    for _ in range(ROUNDS):  # widths in turns, so that other load of the machine affects all
        for width, source in sources.items():
            for what, work in _works(folder, source, width, encrypted).items():
                found = seconds.setdefault(what, {}).setdefault(width, [])
                found.append((forked(work).cpu - min(start)) / width * 1e6)
    for what, by_width in seconds.items():
        for width, figures in by_width.items():
            name = f"{encrypted} encrypted, {width:,} columns: {what}"
            if what == "rewritten":
                report.at_most(name, "us", figures, MOST_MICROSECONDS)
            else:
                report.add(name, "us", figures)
        growth = [wide / narrow for narrow, wide in zip(by_width[WIDTHS[0]], by_width[WIDTHS[-1]], strict=True)]
        name = f"{encrypted} encrypted: {what}, a column of {WIDTHS[-1]:,} by one of {WIDTHS[0]:,}"
        report.at_most(name, "x", growth, MOST_GROWTH)


def _works(folder: Path, source: Path, width: int, encrypted: str) -> dict[str, Callable[[], object]]:
    """Return what is measured, in order: the rewrite makes the file that the others read."""
    target = folder / "target.parquet"
    target.unlink(missing_ok=True)
    names = [f"c{number}" for number in range(width if encrypted == "every column" else 1)]
    encryption = FileEncryption(
        DataKey(_make_key("footer"), b"footer"),
        columns={(name,): DataKey(_make_key(name), name.encode()) for name in names},
        aad_prefix=os.urandom(16),
    )
    return {
        "rewritten": partial(rewrite_file, source, target, encryption=encryption),
        "verified": partial(verify_file, target, retrieve_key=_retrieve, digest_key=bytes(32)),
        "footer read": partial(inspect_file, target, retrieve_key=_retrieve),
    }


def _retrieve(request: KeyRequest) -> bytes:
    return _make_key((request.key_metadata or b"").decode())


def _make_key(name: str) -> bytes:
    return name.encode().ljust(16, b"\0")

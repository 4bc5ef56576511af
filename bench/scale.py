"""The cost of a large table before a rewrite: listing its files, and reading their footers."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench.harness import Report, process

LISTED = 200_000
SCANNED = 20_000
FILES_A_PARTITION = 500
RUNS = 5


def run() -> Report:
    """List 200,000 files, and compare 20,000 footers with a plan, read and from the cache; each in a new process."""
    report = Report("scale", f"a listing of {LISTED:,} files, and the drift of {SCANNED:,}, on two cores")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        _make(root / "listed", LISTED, link=True)
        _make(root / "scanned", SCANNED, link=False)
        listed = [_child("list", root) for _ in range(RUNS)]
        report.add("listing", "files/s", [LISTED / measured["seconds"] for measured in listed])
        report.add("listing, memory beyond that of a tenth of it", "MB", [measured["grown"] for measured in listed])
        scanned = [_child("scan", root) for _ in range(RUNS)]
        report.at_least(
            "drift, footers read by tasks",
            "files/s a core",
            [SCANNED / measured["cold"] / 2 for measured in scanned],
            1800,
        )
        report.add("drift, from the cache", "files/s", [SCANNED / measured["warm"] for measured in scanned])
        report.add("drift, memory beyond that of a tenth of it", "MB", [measured["grown"] for measured in scanned])
    return report


def _make(root: Path, files: int, *, link: bool) -> None:
    """Create partitions of small files of 10 columns; if only listed, links to one file in each."""
    root.mkdir()
    original = root.parent / "one.parquet"
    pq.write_table(pa.table({f"c{number}": range(100) for number in range(10)}), original)
    for number in range(files):
        folder = root / f"p={number // FILES_A_PARTITION}"
        first, file = folder / "part-000000.parquet", folder / f"part-{number % FILES_A_PARTITION:06d}.parquet"
        folder.mkdir(exist_ok=True)
        if link and file != first:  # a file system allows some ten thousand links to a file
            os.link(first, file)
        else:
            shutil.copyfile(original, file)


def _child(what: str, root: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.scale_child", what, str(root)]
    found: dict[str, float] = json.loads(process(command, env={"PYSPARK_PYTHON": sys.executable})[1])
    return found

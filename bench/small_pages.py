"""The cost of pages of 8 KiB, and of 1,000 columns: the work depends on their number and not on bytes."""

from __future__ import annotations

import os
import statistics
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.harness import Report, forked, in_memory, process, spawned, with_target
from sparkcrypt.files.parquet import DataKey, FileEncryption, read_footer, rewrite_file
from sparkcrypt.files.parquet.rewrite.source_chunk import source_chunks
from sparkcrypt.files.source import open_source

SPARK = Path(__file__).parent / "spark_write.py"
ROUNDS = 7
PAGE_BYTES = 8 * 1024


def run() -> Report:
    """Measure both files, every column of them encrypted."""
    report = Report(
        "small_pages", "encrypt every column of a file of 8 KiB pages, and of one of 1,000 columns, in memory"
    )
    with in_memory() as folder:
        _measure(report, folder, "8 KiB pages", _small_pages(folder), "page", f"parquet.page.size={PAGE_BYTES}")
        _measure(report, folder, "1,000 columns", _wide(folder), "column chunk")
    return report


def _small_pages(folder: Path) -> Path:
    rows, random = 2_000_000, np.random.default_rng(1)
    content = pa.table({f"c{number}": random.integers(0, 2**62, rows) for number in range(6)})
    file = folder / "pages" / "part-0.parquet"
    file.parent.mkdir()
    writing = {"data_page_size": PAGE_BYTES, "write_batch_size": 512, "use_dictionary": False}
    pq.write_table(content, file, row_group_size=500_000, write_page_index=True, **writing)
    return file


def _wide(folder: Path) -> Path:
    rows, random = 20_000, np.random.default_rng(1)
    content = pa.table({f"c{number}": random.integers(0, 1000, rows) for number in range(1000)})
    file = folder / "wide" / "part-0.parquet"
    file.parent.mkdir()
    pq.write_table(content, file, row_group_size=10_000, write_page_index=True)
    return file


def _measure(report: Report, folder: Path, what: str, file: Path, piece: str, *options: str) -> None:
    names = pq.read_schema(file).names
    chunks, pages = _count(file)
    pieces = pages if piece == "page" else chunks
    megabytes = file.stat().st_size / 1e6
    report.facts[what] = {"megabytes": round(megabytes), "columns": len(names), "column chunks": chunks, "pages": pages}
    copied, ours = [], []
    for _ in range(ROUNDS):  # in turns, so that other load of the machine affects both
        copied.append(with_target(folder, lambda target: spawned(["cp", str(file), str(target)])).cpu)
        ours.append(with_target(folder, lambda target: forked(lambda: _rewrite(file, target, names))).cpu)
    encrypt = [sys.executable, str(SPARK), "encrypt", str(file.parent), "snappy", str(folder / "out"), ",".join(names)]
    printed = process([*encrypt, *options])[1]
    spark = [float(line.split()[1]) for line in printed.splitlines() if line.strip()][2:]  # the JVM has warmed up
    for name, figures in (("cp", copied), ("ours", ours), ("Spark", spark)):
        report.add(f"{what}: {name}, a {piece}", "us", [figure / pieces * 1e6 for figure in figures])
    report.add(f"{what}: ours, speed of one core", "MB/s", [megabytes / figure for figure in ours])
    report.add(f"{what}: Spark's CPU by ours", "x", [figure / statistics.median(ours) for figure in spark])


def _count(file: Path) -> tuple[int, int]:
    with open_source(file) as opened:
        found = [
            sum(1 for _ in chunk.page_source().pages())
            for chunks in source_chunks(opened, read_footer(file), None)
            for chunk in chunks
        ]
    return len(found), sum(found)


def _rewrite(file: Path, target: Path, names: list[str]) -> None:
    encryption = FileEncryption(
        DataKey(os.urandom(16), b"footer"),
        columns={(name,): DataKey(os.urandom(16), name.encode()) for name in names},
        aad_prefix=b"bench\0",
    )
    rewrite_file(file, target / "part-0.parquet", encryption=encryption)

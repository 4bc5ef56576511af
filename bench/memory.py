"""The memory of a process that rewrites, or proves, a file of 4 GB."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.harness import Cost, Report, spawned

ROW_GROUPS, ROWS = 50, 1_000_000
RUNS = 5
COLUMNS = tuple(f"c{number}" for number in range(10))
ENCRYPTED = COLUMNS[:6]


def run() -> Report:
    """Encrypt the file on disk in separate processes, and prove that the target's content equals the source's."""
    report = Report("memory", "encrypt 6 of 10 columns of one file of 4 GB, on disk, in a process of its own")
    with tempfile.TemporaryDirectory() as name:
        source, target, key = Path(name) / "source.parquet", Path(name) / "target.parquet", os.urandom(32).hex()
        spawned(_step("make", source))
        report.facts["source"] = {"bytes": source.stat().st_size, "row groups": ROW_GROUPS, "rows": ROW_GROUPS * ROWS}
        rewritten, proven = [], []
        for _ in range(RUNS):
            target.unlink(missing_ok=True)
            rewritten.append(spawned(_step("rewrite", source, target)))
        for _ in range(RUNS):  # reads both files: fails unless each part of the digest is equal
            proven.append(spawned(_step("prove", source, target, key)))
        report.facts["target"] = {"bytes": target.stat().st_size, "content": "equal to the source's by every digest"}
    _add(report, "rewrite", rewritten, source_bytes=report.facts["source"]["bytes"])
    _add(report, "proof of the content", proven, source_bytes=2 * report.facts["source"]["bytes"])
    return report


def _add(report: Report, what: str, costs: list[Cost], source_bytes: int) -> None:
    report.at_most(f"{what}: peak memory", "MB", [cost.peak for cost in costs], 200)
    report.add(f"{what}: CPU", "s", [cost.cpu for cost in costs])
    report.add(f"{what}: speed of one core", "MB/s", [source_bytes / 1e6 / cost.cpu for cost in costs])


def _step(name: str, *arguments: object) -> list[str]:
    return [sys.executable, "-m", "bench.memory", name, *map(str, arguments)]


def _make(path: str) -> None:
    """Write 4 GB of numbers, uncompressed, so that each byte has to be copied."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    random = np.random.default_rng(1)
    schema = pa.schema([(name, pa.int64() if number % 2 else pa.float64()) for number, name in enumerate(COLUMNS)])
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False, write_page_index=True) as writer:
        for _ in range(ROW_GROUPS):
            columns = [
                random.random(ROWS) if number % 2 == 0 else random.integers(0, 2**62, ROWS) for number in range(10)
            ]
            writer.write_table(pa.table(columns, schema=schema), row_group_size=ROWS)


def _rewrite(source: str, target: str) -> None:
    from sparkcrypt.files.parquet import DataKey, FileEncryption, rewrite_file

    encryption = FileEncryption(
        DataKey(bytes(16), b"footer"),  # the proof needs them again: this file is deleted at once
        columns={(name,): DataKey(bytes([number + 1] * 16), name.encode()) for number, name in enumerate(ENCRYPTED)},
        aad_prefix=b"bench\0",
    )
    rewrite_file(source, target, encryption=encryption)


def _prove(source: str, target: str, key: str) -> None:
    from sparkcrypt.files.parquet import KeyRequest, verify_file

    def retrieve(request: KeyRequest) -> bytes:
        return bytes(16) if request.column is None else bytes([COLUMNS.index(request.column[0]) + 1] * 16)

    before = verify_file(source, digest_key=bytes.fromhex(key))
    verify_file(target, retrieve_key=retrieve, digest_key=bytes.fromhex(key), equal_to=before.digest)


if __name__ == "__main__":
    steps: dict[str, Callable[..., None]] = {"make": _make, "rewrite": _rewrite, "prove": _prove}
    steps[sys.argv[1]](*sys.argv[2:])

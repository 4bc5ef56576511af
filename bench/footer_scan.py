"""Footers that one core reads in a second."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench.harness import Report, forked
from sparkcrypt.files.parquet import DataKey, FileEncryption, inspect_file, rewrite_file

FILES = 1000
RUNS = 5


def run() -> Report:
    """Read 1,000 small files of 10 columns: plaintext, signed, and encrypted without key and with it."""
    report = Report("footer_scan", f"{FILES:,} footers of 10 columns, one core")
    with tempfile.TemporaryDirectory() as folder:
        sources = _files(Path(folder))
        keys = {b"footer": bytes(16), b"column": bytes(range(16))}
        for name, files in sources.items():

            def scan(files: list[str] = files, keyed: bool = name.endswith("with key")) -> None:
                for file in files:
                    inspect_file(file, retrieve_key=(lambda r: keys[r.key_metadata or b""]) if keyed else None)

            figures = [FILES / forked(scan).cpu for _ in range(RUNS)]
            report.at_least(name, "files/s", figures, 1000)
    return report


def _files(folder: Path) -> dict[str, list[str]]:
    names = [f"c{i}" for i in range(10)]
    plain = folder / "plain.parquet"
    pq.write_table(pa.table({name: range(1000) for name in names}), plain)
    made = {"plaintext": plain}
    for mode in ("plaintext", "encrypted"):
        made[mode + " footer"] = folder / f"{mode}.parquet"
        encryption = FileEncryption(
            DataKey(bytes(16), b"footer"),
            footer_mode=mode,
            columns={(name,): DataKey(bytes(range(16)), b"column") for name in names[:6]},
            aad_prefix=os.urandom(16),
        )
        rewrite_file(plain, made[mode + " footer"], encryption=encryption)
    copies = {name: _copies(source, folder / str(number)) for number, (name, source) in enumerate(made.items())}
    return {
        "plaintext": copies["plaintext"],
        "signed footer, no key": copies["plaintext footer"],
        "encrypted footer, no key": copies["encrypted footer"],
        "encrypted footer, with key": copies["encrypted footer"],
    }


def _copies(source: Path, folder: Path) -> list[str]:
    folder.mkdir()
    return [str(shutil.copy(source, folder / f"{number}.parquet")) for number in range(FILES)]

"""Writes tests/interop/files/*.orc with pyorc: ``python -m tests.interop.make_orc_files``."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyorc

from tests.unit.orc.java_orc import CODECS, SCHEMA

FILES = Path(__file__).parent / "files"
ROWS = 400
START = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)


def row(n: int) -> dict[str, Any]:
    """Return a row of every type, with nulls in each column but the first, in leaves and above them."""
    at = START + datetime.timedelta(hours=n, microseconds=n)
    deep = None if n % 11 == 0 else {"z": str(n % 4)}
    values: dict[str, Any] = {
        "b": n % 2 == 0,
        "t": n % 100,
        "s": n,
        "i": n * 31 % 113,
        "l": n * n,
        "f": n / 4,
        "d": n / 8,
        "name": f"v{n % 9}",
        "other": f"w{n * 7919 % 99_999}",
        "bin": b"\0\xff" + str(n).encode(),
        "ts": at,
        "tz": at,
        "dec": Decimal(n) * 10**20 / 1000,
        "small": Decimal(n) / 100,
        "day": at.date(),
        "vc": f"c{n % 9}",
        "ch": "ab",
        "st": {"x": n if n % 3 else None, "y": str(n), "deep": deep},
        "li": [None if k == 2 else {"num": str(n), "n": k} for k in range(n % 4)],
        "kv": {str(k): k or None for k in range(n % 3)},
        "un": n if n % 2 else str(n),
    }
    found = enumerate(values.items(), start=5)
    return {"id": n, **{name: None if n % every == 0 else value for every, (name, value) in found}}


def main() -> None:
    """Write a file of each codec, without row indexes, in several stripes."""
    for codec in CODECS:
        with (
            (FILES / f"pyorc_{codec.lower()}.orc").open("wb") as file,
            pyorc.Writer(
                file,
                SCHEMA,
                batch_size=50,
                stripe_size=1024,
                row_index_stride=0,
                compression=getattr(pyorc.CompressionKind, codec),
                compression_block_size=1024,
                memory_block_size=1024,
                struct_repr=pyorc.StructRepr.DICT,
            ) as writer,
        ):
            for n in range(ROWS):
                writer.write(row(n))
    print("pyorc", pyorc.__version__, "ORC", pyorc.orc_version)


if __name__ == "__main__":
    main()

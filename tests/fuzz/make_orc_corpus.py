"""Makes the ORC files of the corpus: ``python -m tests.fuzz.make_orc_corpus``."""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc

from tests.unit.orc.java_orc import CODECS, JavaOrc, WriteOrder, key_lines

CORPUS = Path(__file__).parent / "corpus"
SMALL = (
    "struct<id:bigint,name:string,st:struct<x:int,y:string>,li:array<struct<n:int>>,ts:timestamp,"
    "dec:decimal(20,3),flag:boolean>"
)
ENCRYPTED = "pii:name,st.y,ts;fin:dec,li._elem.n"
ALL_ENCRYPTED = "pii:name,b,t,i,f,d,bin,ts,st,kv,un;fin:s,other,tz,dec,small,day,vc,ch,li"
KEYS = 40


def main() -> None:
    """Write the files, and the local keys of those that are encrypted."""
    local = [
        (name, f"wrapped {name} {number}".encode(), hashlib.sha256(f"{name} {number}".encode()).digest()[:size])
        for name, size in (("pii", 16), ("fin", 32))
        for number in range(KEYS)
    ]
    with tempfile.TemporaryDirectory() as folder:
        keys = Path(folder) / "keys"
        keys.write_text(key_lines(local))
        small: dict[str, Any] = {"schema": SMALL, "rows": 2500, "stripe_rows": 1500, "keys": keys}
        orders = [WriteOrder(CORPUS / f"java_{codec.lower()}.orc", codec=codec, **small) for codec in CODECS]
        orders += [
            WriteOrder(CORPUS / f"java_{codec.lower()}_encrypted.orc", codec=codec, encrypt=ENCRYPTED, **small)
            for codec in CODECS
        ]
        orders.append(WriteOrder(CORPUS / "java_types.orc", rows=2500, stripe_rows=1500))
        orders.append(
            WriteOrder(
                CORPUS / "java_types_encrypted.orc", rows=2500, stripe_rows=1500, encrypt=ALL_ENCRYPTED, keys=keys
            )
        )
        orders.append(WriteOrder(CORPUS / "java_sha256.orc", encrypt="pii:name", masks="sha256:name", **small))
        orders.append(WriteOrder(CORPUS / "java_bloom.orc", encrypt="pii:name", blooms="name,id", **small))
        orders.append(WriteOrder(CORPUS / "java_stride0.orc", encrypt=ENCRYPTED, stride=0, **small))
        for order in orders:
            order.path.unlink(missing_ok=True)
        with JavaOrc(Path(folder)) as program:
            program.write(orders)
    for crc in CORPUS.glob(".*.crc"):
        crc.unlink()
    found = {hashlib.sha256(wrapped).hexdigest(): key.hex() for _, wrapped, key in local}
    (CORPUS / "orc_keys.json").write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    rows = pa.table(
        {
            "id": pa.array(range(900)),
            "name": pa.array([None if n % 5 == 0 else f"name {n % 13}" for n in range(900)]),
            "st": pa.array([None if n % 7 == 0 else {"x": n, "y": str(n)} for n in range(900)]),
            "li": pa.array([[n] * (n % 3) for n in range(900)]),
        }
    )
    pa.orc.write_table(rows, CORPUS / "arrow_zstd.orc", compression="zstd", stripe_size=4096, row_index_stride=300)


if __name__ == "__main__":
    main()

"""Lookups of rows of an encrypted ORC file by number; prints the decrypted part of each column.

Usage: orc_lookup.py FOLDER PLAINTEXT ENCRYPTED ROUNDS
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc

from sparkcrypt.arrow import open_orc
from sparkcrypt.files.orc import read_tail
from sparkcrypt.policy.load import load_policy
from tests.unit.orc.decrypted_bytes import count_decrypted

LOOKED_UP = {"numbers": "l0", "a dictionary's texts": "s0"}


def main(folder: Path, plaintext: str, encrypted: str, rounds: int) -> None:
    """Read each column as a whole, then by one row at a time.

    Raises:
        SystemExit: rows differ from those of the plaintext file, or more than one row group was read.
    """
    policy, plain = load_policy(folder / "policy.yaml"), pa.orc.ORCFile(plaintext)
    number_of = {column.path: column.number for column in read_tail(encrypted).columns}
    for what, name in LOOKED_UP.items():
        rows = plain.read(["id", name])
        with count_decrypted() as counted:
            same = open_orc(encrypted, policy, ["id", name]).to_table().equals(rows)
            whole = counted[number_of[name,]]
            for number in range(rounds):
                counted.clear()
                wanted = rows.slice(rows.num_rows * (2 * number + 1) // (2 * rounds), 1)
                opened = open_orc(encrypted, policy, ["id", name], pc.field("id") == wanted["id"][0])
                same &= opened.to_table().equals(wanted) and opened.groups.read == 1
                print(what, counted[number_of[name,]] / whole, sep="|")
        if not same:
            raise SystemExit(f"{name}: rows differ, or were in several row groups, so its figures would mean nothing")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))

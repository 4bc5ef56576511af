"""Values that must be nowhere, and the search for them in files, as they are and as they may be encoded."""

from __future__ import annotations

import base64
import gzip
import random
import struct
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa


@dataclass(frozen=True)
class Canaries:
    """A text and a number that a tagged table has."""

    text: str
    number: int

    @classmethod
    def of(cls, seed: int, table: str) -> Canaries:
        """Return those of a seed for a table."""
        draw = random.Random(f"{seed}: {table}")
        return cls("canary" + "".join(draw.choices("abcdefghjkmnpr", k=18)), draw.randrange(10**14, 10**15))

    def forms(self) -> dict[str, bytes]:
        """Return what to search for in a content in lower case: a name of each form, and its bytes."""
        text, upper = self.text.encode(), self.text.upper().encode()
        found = {"text": text, "number": str(self.number).encode(), "number in hex": f"{self.number:x}".encode()}
        found["bytes of the number"] = struct.pack("<q", self.number).lower()
        found["big-endian bytes of the number"] = struct.pack(">q", self.number).lower()
        for name, raw in {"text": text, "upper case": upper}.items():
            found[f"hex of {name}"] = raw.hex().encode()
            found[f"UTF-16 of {name}"] = raw.decode().encode("utf-16-le").lower()
            for shift in range(3):  # of a longer text: the whole groups in the middle
                whole = base64.b64encode(b"\0" * shift + raw)[4 * (shift > 0) :].rstrip(b"=")[:-1]
                found[f"base64 of {name}, {shift}"] = whole.lower()
        return found


def holds(content: bytes, canaries: Canaries) -> list[str]:
    """Return the forms in which a content has a canary."""
    low = content.lower()
    return [name for name, form in canaries.forms().items() if form in low]


def contents(file: Path) -> list[bytes]:
    """Return what a file has: its bytes, and what they are when decompressed."""
    raw = file.read_bytes()
    found = [raw]
    if raw[:4] == b"\x28\xb5\x2f\xfd":
        found.append(_stream(raw, "zstd"))
    elif raw[:4] == b"\x04\x22\x4d\x18":
        found.append(_stream(raw, "lz4"))
    elif raw[:2] == b"\x1f\x8b":
        found.append(gzip.decompress(raw))
    return found


def _stream(raw: bytes, codec: str) -> bytes:
    parts = []
    with pa.CompressedInputStream(pa.BufferReader(raw), codec) as stream:
        try:
            while part := stream.read(1 << 20):
                parts.append(part)
        except OSError:  # a file whose writer was cut off has no end
            pass
    return b"".join(parts)


def search(root: Path, canaries: Canaries) -> dict[str, list[str]]:
    """Return the files below a folder that have a canary, in their name or content, and in which forms."""
    found = {}
    for file in sorted(root.rglob("*")):
        forms = holds(str(file.relative_to(root)).encode(), canaries)
        if file.is_file() and not file.is_symlink():
            forms += [form for content in contents(file) for form in holds(content, canaries)]
        if forms:
            found[str(file.relative_to(root))] = forms
    return found

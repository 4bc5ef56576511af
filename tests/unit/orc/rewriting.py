"""Encryptions for rewrites of ORC files, what opens the files that were written, and what stands in clear of them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from sparkcrypt.files.orc import OrcEncryption, OrcKey, read_tail
from sparkcrypt.files.orc.file.protobuf import Message, decode
from sparkcrypt.files.orc.file.stripe import ROW_INDEX, read_stream_whole, read_stripe_footer
from sparkcrypt.files.orc.file.tail import Tail, clear_statistics
from sparkcrypt.files.parquet import KeyRequest
from sparkcrypt.files.source import open_source
from sparkcrypt.schema import split_dotted
from tests.unit.orc.corpus import retrieve_key


@dataclass
class OrcKeys:
    """Makes local keys, and opens them; keys of the corpus too."""

    made: dict[bytes, bytes] = field(default_factory=dict)

    def encryption(self, columns: Iterable[str], *, size: int = 16, master: str = "pii") -> OrcEncryption:
        """Return new keys for columns, each of so many bytes."""
        return OrcEncryption({split_dotted(name): self.key(size, master) for name in columns})

    def key(self, size: int = 16, master: str = "pii") -> OrcKey:
        """Return a new key."""
        key, wrapped = os.urandom(size), f"made {len(self.made)}".encode()
        self.made[wrapped] = key
        return OrcKey(key, wrapped, master)

    def __call__(self, request: KeyRequest) -> bytes:
        """Return a local key by its wrapped form."""
        return self.made.get(request.key_metadata or b"") or retrieve_key(request)


def patched(tail: Tail, data: bytes, footer: Message) -> bytes:
    """Return the file with another footer, of any length."""
    raw = tail.compression.deflate(footer.encode())
    postscript = tail.postscript.replace_field(1, [len(raw)]).encode()
    return data[: tail.footer_offset] + raw + postscript + bytes((len(postscript),))


def without_magic(data: bytes) -> bytes:
    """Return a file as Hive 0.11 wrote it: its postscript has neither magic nor version."""
    end = len(data) - 1 - data[-1]
    postscript = decode(data[end:-1], "the postscript").replace_field(8000, []).replace_field(4, []).encode()
    return data[:end] + postscript + bytes((len(postscript),))


def clear_parts(path: Path) -> list[object]:
    """Return what stands in clear of a file: streams, their content, encodings, statistics without sizes and totals."""
    tail = read_tail(path)
    parts: list[object] = []
    with open_source(path) as opened:
        known = clear_statistics(opened, tail)
        parts += [_told(data) for stripe in (known.file, *known.stripes) for data in stripe]
        for stripe in tail.stripes:
            footer = read_stripe_footer(opened, tail, stripe)
            parts += [encoding.fields for encoding in footer.encodings]
            for stream in sorted(footer.streams, key=lambda stream: (stream.column, stream.kind)):
                if stream.variant is None:
                    content: object = read_stream_whole(opened, stream, None, tail.compression)
                    if stream.kind == ROW_INDEX:
                        entries = [decode(e, "entry") for e in decode(bytes(content), "i").read_repeated(1)]  # type: ignore[call-overload]
                        content = [(entry.integers(1), _told(entry.data(2) or b"")) for entry in entries]
                    parts.append((stream.column, stream.kind, content))
    return parts


def _told(data: bytes) -> list[object]:
    """Leave out bytes on disk, and totals of elements, which Java's writer counts in what a mask has left unset."""
    return [field for field in decode(data, "statistics").fields if field[0] >> 3 not in (11, 12)]

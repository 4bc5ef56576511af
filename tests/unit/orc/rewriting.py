"""Encryptions for rewrites of ORC files, and what opens the files that were written."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field

from sparkcrypt.orc import OrcEncryption, OrcKey
from sparkcrypt.orc.file.protobuf import Message
from sparkcrypt.orc.file.tail import Tail
from sparkcrypt.parquet import KeyRequest
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

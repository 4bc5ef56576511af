"""Counts at the cipher what of an ORC file's columns is decrypted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from sparkcrypt.files.orc.file.encryption import LocalKey, StreamCipher


@contextmanager
def count_decrypted() -> Iterator[Counter[int]]:
    """Count bytes by the column's number while the block lasts, row indexes and dictionaries included."""
    counted: Counter[int] = Counter()
    opened: dict[int, tuple[StreamCipher, int]] = {}  # keeps the ciphers, so that no other gets the number of one
    update, stream = StreamCipher.update, LocalKey.stream

    def open_stream(key: LocalKey, column: int, *place: int) -> StreamCipher:
        made = stream(key, column, *place)
        opened[id(made)] = made, column
        return made

    def count(cipher: StreamCipher, data: bytes) -> bytes:
        counted[opened[id(cipher)][1]] += len(data)
        return update(cipher, data)

    with patch.object(StreamCipher, "update", count), patch.object(LocalKey, "stream", open_stream):
        yield counted

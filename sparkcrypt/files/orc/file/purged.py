"""Reads and writes the note, in a file's user metadata, of columns that nulls replaced and of their shredded keys."""

from __future__ import annotations

from collections.abc import Mapping

from sparkcrypt.errors import FormatError
from sparkcrypt.files.orc.file.protobuf import Message, decode, message
from sparkcrypt.files.orc.file.tail import USER_METADATA
from sparkcrypt.files.parquet.summary import describe_purged, parse_purged
from sparkcrypt.names import PURGED
from sparkcrypt.schema import Path

_NAME, _VALUE = 1, 2


def is_purged_note(item: bytes) -> bool:
    """Return whether an entry of the user metadata is this note."""
    try:
        return decode(item, "user metadata").data(_NAME) == PURGED.encode()
    except FormatError:
        return False


def encode_purged_note(purged: Mapping[Path, str]) -> bytes:
    """Return the note as an entry of the user metadata."""
    return message("user metadata", (_NAME, PURGED.encode()), (_VALUE, describe_purged(purged).encode())).encode()


def read_purged_note(footer: Message) -> dict[Path, str]:
    """Return the columns of a footer's note, which nothing in ORC authenticates; empty if there is no note."""
    own = (item for item in footer.read_repeated(USER_METADATA) if is_purged_note(item))
    try:
        text = decode(next(own, b""), "user metadata").text(_VALUE)
    except FormatError:
        return {}
    return parse_purged(text)

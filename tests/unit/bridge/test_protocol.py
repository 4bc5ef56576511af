"""Frames: what is written is read, and nothing else is taken for a frame."""

from __future__ import annotations

import io
import json
import struct

import pytest

from sparkcrypt.bridge import protocol
from sparkcrypt.bridge.protocol import read_frame, write_frame
from sparkcrypt.errors import BridgeError


def test_frames_come_back_in_order() -> None:
    """Two objects written one after another are read as they were, then None at the end."""
    stream = io.BytesIO()
    documents = [{"id": 1, "text": "ä\u2028$"}, {"id": 2, "list": [1, None]}]
    for document in documents:
        write_frame(stream, document)
    stream.seek(0)
    assert [read_frame(stream), read_frame(stream), read_frame(stream)] == [*documents, None]


def test_length_is_four_bytes_big_endian() -> None:
    """The length field is what the Java half reads with readInt."""
    stream = io.BytesIO()
    write_frame(stream, {})
    assert stream.getvalue() == b"\0\0\0\2{}"


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0",
        b"\0\0\0\5{}",
        struct.pack(">I", protocol.MAX_FRAME_BYTES + 1) + b"{}",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\0\0\0\0",
        b"\0\0\0\2[]",
        b"\0\0\0\4null",
        b"\0\0\0\3{\xff}",
    ],
    ids=["cut length", "cut body", "oversized", "another protocol", "empty", "a list", "null", "not UTF-8"],
)
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    """Anything but a whole frame of one JSON object within the limit is a BridgeError."""
    with pytest.raises(BridgeError):
        read_frame(io.BytesIO(data))


def test_oversized_message_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message over the limit is refused before a byte of it is written, so that the stream stays usable."""
    monkeypatch.setattr(protocol, "MAX_FRAME_BYTES", 20)
    stream = io.BytesIO()
    with pytest.raises(BridgeError, match="allowed: 20"):
        write_frame(stream, {"text": "x" * 20})
    write_frame(stream, {"id": 1})
    assert json.loads(stream.getvalue()[4:]) == {"id": 1}

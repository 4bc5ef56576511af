"""The bridge's wire format: frames of a 4-byte big-endian length and one JSON object in UTF-8, in both directions.

A request is ``{"id": n, "op": name, …}``, its answer ``{"id": n, "ok": {…}}`` or ``{"id": n, "error": {"type": class
name in sparkcrypt.errors, "message": text}}``.  Answers come in any order.  Bytes inside are base64.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, BinaryIO

from sparkcrypt.errors import BridgeError

MAX_FRAME_BYTES = 64 * 1024 * 1024
_LENGTH = struct.Struct(">I")


def read_frame(stream: BinaryIO) -> dict[str, Any] | None:
    """Read one frame.

    Args:
        stream: a blocking stream of bytes.

    Returns:
        The object in it, or None if the stream ended between two frames.

    Raises:
        BridgeError: the stream ended inside a frame, the frame is over 64 MiB, or it does not contain one JSON object.
            The stream cannot be used after that.
    """
    head = _read_exactly(stream, _LENGTH.size)
    if not head:
        return None
    (length,) = _LENGTH.unpack(head)
    if length > MAX_FRAME_BYTES:
        raise BridgeError(
            f"a frame of {length} bytes; allowed: {MAX_FRAME_BYTES}; something else writes to the bridge's pipe"
        )
    body = _read_exactly(stream, length)
    if len(body) < length:
        raise BridgeError("the bridge's pipe ended inside a frame")
    try:
        parsed = json.loads(body)
    except ValueError as error:
        raise BridgeError("a frame that is not JSON; something else writes to the bridge's pipe") from error
    if not isinstance(parsed, dict):
        raise BridgeError("a frame that is not a JSON object; something else writes to the bridge's pipe")
    return parsed


def write_frame(stream: BinaryIO, document: Mapping[str, Any]) -> None:
    """Write one frame and flush it.

    Raises:
        BridgeError: the frame would be over 64 MiB; nothing was written.
    """
    body = json.dumps(document, separators=(",", ":")).encode()
    if len(body) > MAX_FRAME_BYTES:
        raise BridgeError(
            f"a message of {len(body)} bytes; allowed: {MAX_FRAME_BYTES}; the schema or policy is too large"
        )
    stream.write(_LENGTH.pack(len(body)) + body)
    stream.flush()


def _read_exactly(stream: BinaryIO, length: int) -> bytes:
    """Read that many bytes, or fewer if the stream ends.

    Raises:
        BridgeError: the stream ended within the length field.
    """
    body = stream.read(length)
    if 0 < len(body) < length == _LENGTH.size:
        raise BridgeError("the bridge's pipe ended inside a frame")
    return body

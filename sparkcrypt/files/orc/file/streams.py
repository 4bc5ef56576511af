"""Reads and decrypts streams from front to back, and checks that they consist of whole compression chunks."""

from __future__ import annotations

from collections.abc import Iterator

from sparkcrypt.errors import FormatError
from sparkcrypt.files.orc.file.cipher import StreamCipher
from sparkcrypt.files.orc.file.compression import HEADER_BYTES, Compression
from sparkcrypt.files.orc.file.stripe import Stream
from sparkcrypt.files.source import Input

PIECE_BYTES = 256 * 1024
"""The number of bytes decrypted, digested and written at a time, small enough to stay in the processor's cache."""


def read_pieces(file: Input, stream: Stream, cipher: StreamCipher | None) -> Iterator[bytes]:
    """Yield a stream's bytes, decrypted if there is a cipher, in pieces of at most 256 KiB.

    Raises:
        FormatError, StorageError: as `Input.read`.
    """
    for start in range(0, stream.length, PIECE_BYTES):
        size = min(PIECE_BYTES, stream.length - start)
        data = file.read(stream.offset + start, size, str(stream))
        yield data if cipher is None else cipher.update(data)


def read_stream_whole(file: Input, stream: Stream, cipher: StreamCipher | None, compression: Compression) -> bytes:
    """Return a stream's content, decrypted and decompressed.

    Raises:
        FormatError: it does not decompress.
        StorageError: the storage failed.
    """
    return compression.inflate(b"".join(read_pieces(file, stream, cipher)), str(stream))


class ChunkCheck:
    """A check that decompresses the chunks of a stream, which is passed in pieces, and keeps no content."""

    __slots__ = ("_compression", "_rest", "_stored", "_what")

    def __init__(self, compression: Compression, what: str) -> None:
        self._compression = compression
        self._what = what
        self._rest = b""
        self._stored = 0  # missing bytes of an uncompressed chunk

    def feed(self, piece: bytes) -> None:
        """Check the next bytes.

        Raises:
            FormatError: a chunk does not decompress, or is too large.
        """
        if self._compression.codec == "none":
            return
        data = memoryview(self._rest + piece if self._rest else piece)
        position = min(self._stored, len(data))
        self._stored -= position
        while position + HEADER_BYTES <= len(data):
            header = int.from_bytes(data[position : position + HEADER_BYTES], "little")
            begin, size = position + HEADER_BYTES, header >> 1
            if size > self._compression.block_bytes:
                raise FormatError(
                    f"{self._what}: a chunk of {size} bytes; expected at most {self._compression.block_bytes}"
                )
            if header & 1:
                position = min(begin + size, len(data))
                self._stored = begin + size - position
            elif begin + size > len(data):
                break
            else:
                self._compression.inflate_chunk(data[begin : begin + size], self._what)
                position = begin + size
        self._rest = bytes(data[position:])

    def finish(self) -> None:
        """Check that the stream ended with a whole chunk.

        Raises:
            FormatError: it did not.
        """
        if self._rest or self._stored:
            difference = (
                f"{len(self._rest)} bytes after its chunks" if self._rest else f"{self._stored} bytes are missing"
            )
            raise FormatError(f"{self._what}: {difference}; expected whole ones")

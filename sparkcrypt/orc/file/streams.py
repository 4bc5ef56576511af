"""Reads streams from front to back, decrypted, and sees that they are whole compression chunks."""

from __future__ import annotations

from collections.abc import Iterator

from sparkcrypt.errors import FormatError
from sparkcrypt.orc.file.cipher import StreamCipher
from sparkcrypt.orc.file.compression import HEADER_BYTES, Compression
from sparkcrypt.orc.file.stripe import Stream
from sparkcrypt.parquet.file.source import Input

PIECE_BYTES = 1024 * 1024


def read_pieces(file: Input, stream: Stream, cipher: StreamCipher | None) -> Iterator[bytes]:
    """Yield a stream's bytes, decrypted where it has a cipher, in pieces of at most 1 MiB.

    Raises:
        FormatError, StorageError: as `Input.read`.
    """
    for start in range(0, stream.length, PIECE_BYTES):
        size = min(PIECE_BYTES, stream.length - start)
        data = file.read(stream.offset + start, size, str(stream))
        yield data if cipher is None else cipher.update(data)


def read_stream_whole(file: Input, stream: Stream, cipher: StreamCipher | None, compression: Compression) -> bytes:
    """Return what a stream holds, decrypted and decompressed.

    Raises:
        FormatError: it does not decompress.
        StorageError: the storage failed.
    """
    return compression.inflate(b"".join(read_pieces(file, stream, cipher)), str(stream))


class ChunkCheck:
    """Decompresses the chunks of a stream that comes in pieces, and keeps none."""

    __slots__ = ("_compression", "_rest", "_what")

    def __init__(self, compression: Compression, what: str) -> None:
        self._compression = compression
        self._what = what
        self._rest = b""

    def feed(self, piece: bytes) -> None:
        """Take the next bytes.

        Raises:
            FormatError: a chunk does not decompress, or is larger than one may be.
        """
        if self._compression.codec == "none":
            return
        data = self._rest + piece
        end = 0
        while end + HEADER_BYTES <= len(data):
            size = int.from_bytes(data[end : end + HEADER_BYTES], "little") >> 1
            if size > self._compression.block_bytes:
                raise FormatError(
                    f"{self._what}: a chunk of {size} bytes; expected at most {self._compression.block_bytes}"
                )
            if end + HEADER_BYTES + size > len(data):
                break
            end += HEADER_BYTES + size
        for _ in self._compression.chunks(data[:end], self._what):
            pass
        self._rest = data[end:]

    def finish(self) -> None:
        """See that the stream ended with a whole chunk.

        Raises:
            FormatError: it did not.
        """
        if self._rest:
            raise FormatError(f"{self._what}: {len(self._rest)} bytes after its chunks; expected whole ones")

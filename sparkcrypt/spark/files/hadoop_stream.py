"""A Python file object over a Hadoop input stream."""

from __future__ import annotations

import io
from typing import Any

from sparkcrypt.parquet.file.beside import Beside


class HadoopFile(io.BufferedReader):
    """A seekable buffered reader over an FSDataInputStream.

    Args:
        machine: py4j's view of the JVM.
        stream: the open FSDataInputStream.
        length: the file's length in bytes.
        beside: reads other files of the file's folder.
    """

    def __init__(self, machine: Any, stream: Any, length: int, beside: Beside) -> None:
        super().__init__(_HadoopStream(machine, stream, length), buffer_size=1 << 16)
        self.beside = beside


class _HadoopStream(io.RawIOBase):
    """A raw Python stream over an FSDataInputStream."""

    def __init__(self, machine: Any, stream: Any, length: int) -> None:
        self._read, self._stream = machine.org.apache.commons.io.IOUtils.toByteArray, stream
        self._length, self._position = length, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._length}[whence] + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any) -> int:
        count = max(0, min(len(buffer), self._length - self._position))
        if count:
            self._stream.seek(self._position)
            buffer[:count] = self._read(self._stream, count)
            self._position += count
        return count

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()

"""Implements a pyarrow file system for an HDFS that is reached over WebHDFS.

fsspec's is not used: its rename hides that HDFS refused, its reads do not check the answer's status, it appends a file
in pieces of one request each, and it has no timeout.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow.fs import FileInfo, FileSystem, FileSystemHandler, FileType, PyFileSystem

from sparkcrypt.errors import UnsupportedFileError
from sparkcrypt.files.webhdfs.client import NameNodes, WebHdfs, connect_data_node, read_answer, send_request

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyarrow.fs import FileSelector

SKIP_BYTES = 256 * 1024
"""A gap of up to this many bytes between two reads is read and discarded; for a larger one a new stream costs less."""
STREAMS = 3
CREATED = 201


@dataclass(slots=True)
class _Stream:
    """A DataNode's answer that is being read; ``at`` is the offset in the file of its next byte."""

    connection: HTTPConnection
    response: HTTPResponse
    at: int


class ReadStream(io.RawIOBase):
    """A seekable stream of a file's bytes.

    Pages and their indexes are read in turns, each from front to back, so a few connections are kept open, and a read
    uses the nearest one before its position.  Only the bytes that the caller asked for are held in memory, except of a
    file of up to `SKIP_BYTES`: that is read at once, since each stream costs the NameNode as much as the file.
    """

    def __init__(self, hdfs: WebHdfs, path: str, size: int) -> None:
        self._hdfs, self._path, self._size = hdfs, path, size
        self._position = 0
        self._streams: list[_Stream] = []
        self._host = ""
        self._whole: bytes | None = None

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position of the next read."""
        self._position = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence] + offset
        return self._position

    def size(self) -> int:
        """Return the file's length when it was opened."""
        return self._size

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer, or as much of it as the rest of the file does; see `io.RawIOBase.readinto`.

        Raises:
            UnsupportedFileError: the file's DataNodes cannot be reached.
            OSError: they can be reached, and fail.
        """
        view = memoryview(buffer).cast("B")
        view = view[: max(0, min(len(view), self._size - self._position))]
        if self._size > SKIP_BYTES:
            self._fill(view)
        elif view:
            view[:] = self._read_whole()[self._position : self._position + len(view)]
            self._position += len(view)
        return len(view)

    def _fill(self, view: memoryview) -> None:
        done = 0
        while done < len(view):
            done += self._read_some(view[done:])

    def _read_whole(self) -> bytes:
        if self._whole is None:
            wanted, self._position = self._position, 0
            content = bytearray(self._size)
            try:
                self._fill(memoryview(content))
            finally:
                self._position = wanted
            self._leave()
            self._whole = bytes(content)
        return self._whole

    def read(self, size: int = -1) -> bytes:
        """Return ``size`` bytes, fewer only at the file's end."""
        left = max(0, self._size - self._position)
        buffer = bytearray(left if size < 0 else min(size, left))
        count = self.readinto(buffer)
        return bytes(memoryview(buffer)[:count])

    def close(self) -> None:
        """Close the connections to DataNodes."""
        self._leave()
        super().close()

    def _read_some(self, view: memoryview) -> int:
        """Read at least one byte; if a DataNode fails, retry with another, and then once more with any of them."""
        failures: list[OSError | UnsupportedFileError] = []
        for excluded in (False, True, False):
            try:
                stream = self._stream(self._host if excluded else "")
                count = stream.response.readinto(view)
                if not count:
                    raise OSError(f"{self._path}: its DataNode ended it at byte {stream.at} of {self._size}")
            except HTTPException as error:
                failures.append(OSError(f"{self._path}: its DataNode's answer broke off: {type(error).__name__}"))
            except (OSError, UnsupportedFileError) as error:
                failures.append(error)
            else:
                stream.at += count
                self._position += count
                return count
            self._leave()
        raise failures[0]

    def _stream(self, excluded: str) -> _Stream:
        """Return a stream at the present position, and keep ``_streams`` sorted by last use."""
        near = [stream for stream in self._streams if 0 <= self._position - stream.at <= SKIP_BYTES]
        if near:
            stream = max(near, key=lambda entry: entry.at)
            self._streams.remove(stream)
            self._streams.append(stream)
            stream.at += len(stream.response.read(self._position - stream.at))
            if stream.at < self._position:
                raise OSError(f"{self._path}: its DataNode ended it at byte {stream.at} of {self._size}")
            return stream
        if len(self._streams) == STREAMS:
            self._streams.pop(0).connection.close()
        more = {"excludedatanodes": excluded} if excluded else {}
        url = self._hdfs.find_data_node("GET", "OPEN", self._path, offset=str(self._position), **more)
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        connection = connect_data_node(url, self._path)
        response = send_request(connection, f"{parts.scheme}://{parts.netloc}", "GET", f"{parts.path}?{parts.query}")
        self._streams.append(_Stream(connection, response, self._position))
        return self._streams[-1]

    def _leave(self) -> None:
        for stream in self._streams:
            stream.connection.close()
        self._streams.clear()


class WriteStream(io.RawIOBase):
    """A stream that sends a new file's bytes to a DataNode; the file is complete when `close` returns."""

    def __init__(self, hdfs: WebHdfs, path: str, permission: str = "600") -> None:
        self._path, self._position = path, 0
        url = hdfs.find_data_node("PUT", "CREATE", path, overwrite="false", permission=permission)
        parts = urlsplit(url)
        self._where = f"{parts.scheme}://{parts.netloc}"
        self._connection: HTTPConnection | None = connect_data_node(url, path)
        self._connection.putrequest("PUT", f"{parts.path}?{parts.query}")
        self._connection.putheader("Content-Type", "application/octet-stream")
        self._connection.putheader("Transfer-Encoding", "chunked")
        self._send()

    def writable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return how many bytes were written."""
        return self._position

    def write(self, data: Any) -> int:
        """Send bytes.

        Raises:
            OSError: HDFS answered with an error, or the connection failed.
        """
        view = memoryview(data).cast("B")
        if view:
            self._send(b"%x\r\n" % len(view), view, b"\r\n")
            self._position += len(view)
        return len(view)

    def close(self) -> None:
        """Finish the file.

        Raises:
            OSError: HDFS did not accept the whole file.
        """
        if self.closed:
            return
        super().close()
        if self._connection is None:
            return
        try:
            self._send(b"0\r\n\r\n")
            response = read_answer(self._connection, self._where)
            if response.status != CREATED:
                raise OSError(f"{self._path}: {self._where} answers {response.status} to a file's end")
        finally:
            self._give_up()

    def _send(self, *pieces: bytes | memoryview) -> None:
        if self._connection is None:
            raise OSError(f"{self._path}: its DataNode has refused it already")
        try:
            if not pieces:
                self._connection.endheaders()
            for piece in pieces:
                self._connection.send(piece)
        except (OSError, HTTPException) as error:
            try:
                read_answer(self._connection, self._where)  # raises HDFS's own error, if it refused the file
            finally:
                self._give_up()
            raise OSError(f"{self._path}: {self._where} takes no more bytes: {error}") from error

    def _give_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


def open_webhdfs(nodes: NameNodes) -> FileSystem:
    """Return a file system whose paths are absolute paths of that HDFS.

    Raises:
        OSError: none of the NameNodes answers, or the one that does refuses this user.
    """
    hdfs = WebHdfs(nodes)
    hdfs.ask("GET", "GETFILESTATUS", "/")
    return PyFileSystem(_Handler(hdfs))


class _Handler(FileSystemHandler):  # type: ignore[misc]
    """The part of a pyarrow file system that the native engine uses.

    Attributes:
        never_replaces: `move` refuses a name that is taken, so that nobody needs to look before.
    """

    never_replaces = True

    def __init__(self, hdfs: WebHdfs) -> None:
        self._hdfs = hdfs

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def get_type_name(self) -> str:
        return "sparkcrypt+webhdfs"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: Sequence[str]) -> list[FileInfo]:
        return [self._info(path) for path in paths]

    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        try:
            return list(self._list_below(selector.base_dir.rstrip("/"), selector.recursive))
        except FileNotFoundError:
            if not selector.allow_not_found:
                raise
            return []

    def create_dir(self, path: str, recursive: bool) -> None:
        self._hdfs.ask("PUT", "MKDIRS", path)

    def mode_of(self, path: str) -> int:
        """Return the permissions of a file or folder."""
        return _mode_of(self._status(path))

    def give_mode(self, path: str, mode: int) -> None:
        """Set the permissions of a file or folder."""
        self._hdfs.ask("PUT", "SETPERMISSION", path, permission=f"{mode:03o}")

    def make_folder(self, path: str, mode: Callable[[], int]) -> None:
        """Make a folder and its missing parents, with the permissions for new ones that ``mode`` returns."""
        try:
            self._status(path)
        except FileNotFoundError:
            self._hdfs.ask("PUT", "MKDIRS", path, permission=f"{mode() | 0o700:03o}")

    def delete_dir(self, path: str) -> None:
        self._hdfs.ask("DELETE", "DELETE", path, recursive="true")

    def delete_file(self, path: str) -> None:
        self._hdfs.ask("DELETE", "DELETE", path, recursive="false")

    def move(self, src: str, dest: str) -> None:
        self._hdfs.ask("PUT", "RENAME", src, destination=dest, renameoptions="NONE")

    def replace_file(self, source: str, target: str) -> None:
        """Rename a file atomically, replacing a file of that name."""
        self._hdfs.ask("PUT", "RENAME", source, destination=target, renameoptions="OVERWRITE")

    def open_with_mode(self, path: str) -> tuple[Any, int]:
        """Open a file for reading, and return its permissions too."""
        status = self._status(path)
        if status["type"] != "FILE":
            raise IsADirectoryError(f"{path} is a folder")
        return pa.PythonFile(ReadStream(self._hdfs, path, int(status["length"])), mode="r"), _mode_of(status)

    def open_input_file(self, path: str) -> Any:
        return self.open_with_mode(path)[0]

    open_input_stream = open_input_file

    def open_output_stream(self, path: str, metadata: object) -> Any:
        return pa.PythonFile(WriteStream(self._hdfs, path), mode="w")

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        try:
            found = self._list_below(path, recursive=False)
        except FileNotFoundError:
            if not missing_dir_ok:
                raise
            return
        for info in found:
            self._hdfs.ask("DELETE", "DELETE", info.path, recursive="true")

    def delete_root_dir_contents(self) -> NoReturn:
        raise io.UnsupportedOperation("the content of a whole file system is not deleted; name a folder")

    def copy_file(self, src: str, dest: str) -> NoReturn:
        raise io.UnsupportedOperation(f"{src}: WebHDFS has no copy within the cluster; read the file and write {dest}")

    def open_append_stream(self, path: str, metadata: object) -> NoReturn:
        raise io.UnsupportedOperation(f"{path}: files are written whole, since a Parquet file cannot be appended to")

    def _info(self, path: str) -> FileInfo:
        try:
            return _file_info(path, self._status(path))
        except FileNotFoundError:
            return FileInfo(path, FileType.NotFound)

    def _list_below(self, folder: str, recursive: bool) -> list[FileInfo]:
        listed = self._hdfs.ask("GET", "LISTSTATUS", folder or "/")["FileStatuses"]["FileStatus"]
        found = []
        for status in listed:
            path = f"{folder}/{status['pathSuffix']}"
            found.append(_file_info(path, status))
            if recursive and status["type"] == "DIRECTORY":
                found += self._list_below(path, recursive)
        return found

    def _status(self, path: str) -> dict[str, Any]:
        status: dict[str, Any] = self._hdfs.ask("GET", "GETFILESTATUS", path)["FileStatus"]
        return status


def _mode_of(status: dict[str, Any]) -> int:
    return int(status.get("permission", "600"), 8) & 0o777


def _file_info(path: str, status: dict[str, Any]) -> FileInfo:
    kind = {"FILE": FileType.File, "DIRECTORY": FileType.Directory}.get(status["type"], FileType.Unknown)
    size = int(status["length"]) if kind == FileType.File else None
    return FileInfo(path, kind, size=size, mtime_ns=int(status["modificationTime"]) * 1_000_000)

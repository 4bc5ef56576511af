"""Implements a pyarrow file system for an HDFS that is reached over WebHDFS.

fsspec's is not used: its rename hides that HDFS refused, its reads do not check the answer's status, it appends a file
in pieces of one request each, and it has no timeout.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
from pyarrow.fs import FileInfo, FileSystem, FileSystemHandler, FileType, PyFileSystem

from sparkcrypt.files.webhdfs.client import WebHdfs
from sparkcrypt.files.webhdfs.name_nodes import NameNodes
from sparkcrypt.files.webhdfs.streams import ReadStream, WriteStream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyarrow.fs import FileSelector


def open_webhdfs(nodes: NameNodes) -> FileSystem:
    """Return a file system whose paths are absolute paths of that HDFS.

    Raises:
        OSError: none of the NameNodes answers, or the one that does refuses this user.
    """
    hdfs = WebHdfs(nodes)
    hdfs.ask("GET", "GETFILESTATUS", "/")
    return PyFileSystem(_Handler(hdfs))


class _Handler(FileSystemHandler):  # type: ignore[misc]
    """The part of a pyarrow file system that the native engine uses; `move` never replaces an existing file."""

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
        return int(self._status(path).get("permission", "600"), 8) & 0o777

    def give_mode(self, path: str, mode: int) -> None:
        """Set the permissions of a file or folder."""
        self._hdfs.ask("PUT", "SETPERMISSION", path, permission=f"{mode:03o}")

    def make_folder(self, path: str, mode: int) -> None:
        """Make a folder and its missing parents, with these permissions for new folders."""
        try:
            self._status(path)
        except FileNotFoundError:
            self._hdfs.ask("PUT", "MKDIRS", path, permission=f"{mode | 0o700:03o}")

    def delete_dir(self, path: str) -> None:
        self._hdfs.ask("DELETE", "DELETE", path, recursive="true")

    def delete_file(self, path: str) -> None:
        self._hdfs.ask("DELETE", "DELETE", path, recursive="false")

    def move(self, src: str, dest: str) -> None:
        self._hdfs.ask("PUT", "RENAME", src, destination=dest, renameoptions="NONE")

    def replace_file(self, source: str, target: str) -> None:
        """Rename a file atomically, replacing a file of that name."""
        self._hdfs.ask("PUT", "RENAME", source, destination=target, renameoptions="OVERWRITE")

    def open_input_file(self, path: str) -> Any:
        return pa.PythonFile(ReadStream(self._hdfs, path, self._length(path)), mode="r")

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

    def _length(self, path: str) -> int:
        status = self._status(path)
        if status["type"] != "FILE":
            raise IsADirectoryError(f"{path} is a folder")
        return int(status["length"])


def _file_info(path: str, status: dict[str, Any]) -> FileInfo:
    kind = {"FILE": FileType.File, "DIRECTORY": FileType.Directory}.get(status["type"], FileType.Unknown)
    size = int(status["length"]) if kind == FileType.File else None
    return FileInfo(path, kind, size=size, mtime_ns=int(status["modificationTime"]) * 1_000_000)

"""A file system for pyarrow that opens judged files, and does nothing else."""

from __future__ import annotations

import logging
from typing import Any, NoReturn

import pyarrow as pa
from pyarrow.fs import FileInfo, FileSystemHandler, FileType

from sparkcrypt.arrow.judge import Judge
from sparkcrypt.errors import ConfigError, SparkcryptError

_LOG = logging.getLogger(__name__)


class JudgedFiles(FileSystemHandler):  # type: ignore[misc]  # pyarrow ships no types
    """Hands each file to a judge as it is opened; for ``pyarrow.fs.PyFileSystem``.

    Args:
        judge: opens the files.
        raises: whether a file that is refused is an error with its reason.  Else it is an empty file, which pyarrow
            refuses, and the reason is logged: under readers that keep Python's lock while they wait, as DuckDB does, an
            error of Python hangs.
    """

    def __init__(self, judge: Judge, *, raises: bool = True) -> None:
        super().__init__()
        self._judge = judge
        self._raises = raises

    def __eq__(self, other: object) -> bool:
        """Tell whether another is this one."""
        return self is other

    def __ne__(self, other: object) -> bool:
        """Tell whether another is not this one."""
        return self is not other

    __hash__ = object.__hash__

    def get_type_name(self) -> str:
        """Return a name for messages."""
        return "sparkcrypt"

    def normalize_path(self, path: str) -> str:
        """Return a path as it is."""
        return path

    def get_file_info(self, paths: list[str]) -> list[FileInfo]:
        """Say that paths are files: the table's own listing found them."""
        return [FileInfo(path, FileType.File) for path in paths]

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Open a file, once it is judged.

        Raises:
            SparkcryptError: as `Judge.open`.
        """
        try:
            return pa.PythonFile(self._judge.open(path), mode="r")
        except SparkcryptError as error:
            if self._raises:
                raise
            _LOG.error("%s", error)
            return pa.BufferReader(b"")

    def open_input_stream(self, path: str) -> pa.NativeFile:
        """Open a file as `open_input_file` does."""
        return self.open_input_file(path)

    def _refuse(self, *_: Any) -> NoReturn:
        raise ConfigError("this file system opens the files of one table to read them; allowed: open_input_file")

    get_file_info_selector = _refuse
    create_dir = _refuse
    delete_dir = _refuse
    delete_dir_contents = _refuse
    delete_root_dir_contents = _refuse
    delete_file = _refuse
    move = _refuse
    copy_file = _refuse
    open_output_stream = _refuse
    open_append_stream = _refuse

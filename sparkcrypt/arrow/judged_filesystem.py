"""A read-only file system for pyarrow that judges each file when it opens it."""

from __future__ import annotations

import logging
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileInfo, FileSystemHandler, FileType

from sparkcrypt.arrow.judge import Judge
from sparkcrypt.errors import ConfigError, SparkcryptError

_LOG = logging.getLogger(__name__)


class JudgedFiles(FileSystemHandler):  # type: ignore[misc]  # pyarrow ships no types
    """A handler for ``pyarrow.fs.PyFileSystem`` that opens each file through a judge.

    A file whose dates and times pyarrow would not read as Spark does is opened as one without rows.

    Args:
        judge: opens the files.
        schema: the columns that are read.
        raises: whether a refused file raises its error.  If not, it is opened as an empty file, which pyarrow refuses,
            and the error is logged: a Python error hangs in readers that hold the GIL while they wait, such as DuckDB.
    """

    def __init__(self, judge: Judge, schema: pa.Schema, *, raises: bool = True) -> None:
        super().__init__()
        self._judge = judge
        self._schema = schema
        self._raises = raises

    def __eq__(self, other: object) -> bool:
        """Tell whether another object is this one."""
        return self is other

    def __ne__(self, other: object) -> bool:
        """Tell whether another object is not this one."""
        return self is not other

    __hash__ = object.__hash__

    def get_type_name(self) -> str:
        """Return a name for messages."""
        return "sparkcrypt"

    def normalize_path(self, path: str) -> str:
        """Return a path unchanged."""
        return path

    def get_file_info(self, paths: list[str]) -> list[FileInfo]:
        """Return the paths as files without checking them, since the table's listing found them."""
        return [FileInfo(path, FileType.File) for path in paths]

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Open a file through the judge.

        Raises:
            SparkcryptError: as `Judge.open`.
        """
        try:
            file = self._judge.open(path)
            if not self._judge.old_columns(path):
                return pa.PythonFile(file, mode="r")
            file.close()
            if not self._raises:
                raise ConfigError(f"{path}: was rewritten in the old calendar; open the dataset again")
            empty = pa.BufferOutputStream()
            pq.write_table(self._schema.empty_table(), empty)
            return pa.BufferReader(empty.getvalue())
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

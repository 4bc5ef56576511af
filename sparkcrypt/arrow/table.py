"""A table under a policy that pyarrow reads: its files are judged as by Spark's readers, denied columns masked.

A file is read by pyarrow's scanner through a file system that judges it; one with denied leaves, or dates
of the old calendar, by itself, with nulls and dates of the new calendar in place of these.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow.fs import FileInfo, FileSystemHandler, FileType, PyFileSystem

from sparkcrypt.arrow.denied import Denied, DeniedLeaves, kept_type, restore
from sparkcrypt.arrow.files import DataFile, PartitionColumns, table_folder
from sparkcrypt.arrow.judge import Judge
from sparkcrypt.arrow.old_calendar import to_new_calendar
from sparkcrypt.arrow.reader import Reader
from sparkcrypt.arrow.shape import (
    INT96_UNIT,
    columns_in,
    columns_of,
    leaves_of,
    make_nullable,
    paths_in_file,
    spark_json,
    with_sparks_times,
)
from sparkcrypt.errors import ConfigError, FormatError, PlanError, SparkcryptError, UnsupportedFileError
from sparkcrypt.files.open_places import Settings
from sparkcrypt.schema import Path, shown_path

BATCH_ROWS = 131_072
_OPENED_AT_A_TIME = 8
SCANS_NEED_FEW_KEYS = int(pa.__version__.split(".")[0]) >= 26
"""Whether a dataset scan of this pyarrow requests only the keys of the columns that it reads.

Before 26, a scan of n columns requests the keys of a file's first n columns, whichever it reads; reads of single files
do not.
"""


@dataclass(frozen=True, slots=True)
class GuardedTable:
    """A table as one reader may see it, with the methods of a pyarrow dataset, as pandas and polars use them.

    Attributes:
        schema: the columns of the files, then those of the partitions, without dropped columns.
        masked: column path -> reason why it is null; empty unless nulls were requested in place of denied columns.
        files: paths of the data files.
    """

    reader: Reader
    properties: Mapping[str, str]
    settings: Settings
    listed: tuple[DataFile, ...]
    partitions: PartitionColumns
    file_schema: pa.Schema
    denied: DeniedLeaves
    dropped: frozenset[str]

    def __repr__(self) -> str:
        return f"GuardedTable({self.reader.table or self.listed[0].path!r}, {len(self.listed)} files)"

    @property
    def schema(self) -> pa.Schema:
        """The columns of the files, then those of the partitions, without dropped columns."""
        fields = [field for field in self.file_schema if field.name not in self.dropped]
        return pa.schema([*fields, *self.partitions.fields])

    @property
    def masked(self) -> dict[str, str]:
        """Column path -> reason why it is null, in the words of ``sparkcrypt.masked_columns``."""
        return {name: why for name, why in self.denied.reasons().items() if name not in self.dropped}

    @property
    def files(self) -> tuple[str, ...]:
        """Paths of the data files, in the order in which they are read."""
        return tuple(file.path for file in self.listed)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        *,
        batch_size: int = BATCH_ROWS,
    ) -> pa.RecordBatchReader:
        """Return a reader of the rows, which reads them lazily.

        Args:
            columns: names of top-level columns, in the order wanted; None for all.
            filter: rows for which it is null or false are left out; a masked column is null in it.
            batch_size: maximum number of rows in a batch.

        Raises:
            KeyAccessDeniedError, KeyNotFoundError: a column that is read or in the filter is denied; the message names
                column, table, key, principal and file.  Or a masked column is named, and the policy has
                ``strict_projection``.
            VerificationError: the policy, the table's history or the file's location do not allow a file.
            FormatError, StorageError: a file is damaged, or cannot be accessed.
            PlanError: a file's values do not fit the type that the table has for their column.
            ConfigError: a column does not exist, or is named twice.
        """
        wanted, filtered = self._check(columns), columns_in(filter, self.schema)
        self.reader.refuse_named((*(columns or ()), *filtered), self.denied.reasons())
        read = frozenset((*wanted, *filtered))
        schema = pa.schema([self.schema.field(name) for name in wanted])
        batches = self._batches(wanted, read, filter, batch_size)
        return pa.RecordBatchReader.from_batches(schema, batches)

    def to_batches(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        *,
        batch_size: int = BATCH_ROWS,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows; arguments and errors as `scan`."""
        yield from self.scan(columns, filter, batch_size=batch_size)

    def to_table(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
    ) -> pa.Table:
        """Return the rows as a table; arguments and errors as `scan`."""
        return self.scan(columns, filter).read_all()

    def head(
        self,
        num_rows: int,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
    ) -> pa.Table:
        """Return the first rows; the other arguments and errors as `scan`."""
        with self.scan(columns, filter, batch_size=min(BATCH_ROWS, max(1, num_rows))) as reader:
            found, rows_left = [], num_rows
            for batch in reader:
                if rows_left <= 0:
                    break
                found.append(batch.slice(0, rows_left))
                rows_left -= found[-1].num_rows
            return pa.Table.from_batches(found, reader.schema)

    def count_rows(self, filter: pc.Expression | None = None) -> int:
        """Return the number of rows; the filter and errors as in `scan`."""
        return sum(batch.num_rows for batch in self.scan([], filter))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return all rows as an Arrow stream, for ``pyarrow.table``, ``polars.from_arrow``, DuckDB and others."""
        return self.scan().__arrow_c_stream__(requested_schema)

    def dataset(self, columns: Sequence[str] | None = None) -> ds.FileSystemDataset:
        """Return some columns as a pyarrow dataset, into which DuckDB pushes projection and filter.

        Every file is judged now, and the keys of all these columns are opened.  If a file is rewritten afterwards and
        may no longer be read, a query fails as for an empty file, and the reason is logged.

        Args:
            columns: names of top-level columns that queries may use; None for all.

        Raises:
            KeyAccessDeniedError, KeyNotFoundError: a column is denied; the message names column, table, key, principal
                and file.
            ConfigError: a column is masked or may be in the old calendar, which only `scan` supports, or does not
                exist; or the columns are not the table's first ones, and this pyarrow would request the keys of others.
            VerificationError, FormatError, StorageError: as `scan`.
        """
        wanted = self._check(None if columns is None else list(dict.fromkeys(columns)))
        masked = [name for name, _ in self.denied.of_any_file().items() if name in wanted]
        if masked:
            raise ConfigError(
                f"column {', '.join(masked)} is null in place of values whose key is denied, which a dataset of "
                "pyarrow cannot say; use scan(), to_table() or to_batches(), leave the column out, or open the table "
                "with on_denied='drop' or 'error'"
            )
        own = set(wanted).intersection(self.file_schema.names)
        if not SCANS_NEED_FEW_KEYS and own != set(self.file_schema.names[: len(own)]):
            raise ConfigError(
                f"columns {', '.join(wanted)}: a dataset of pyarrow {pa.__version__} asks for the keys of columns "
                "that it does not read, unless it reads the first ones of the table; install pyarrow 26 or later, use "
                f"scan(), to_table() or to_batches(), or take them in the order {', '.join(self.file_schema.names)}"
            )
        judge = self._judge(frozenset(wanted))
        with closing(judge.events), ThreadPoolExecutor(_OPENED_AT_A_TIME) as pool:
            for path, opened in zip(self.files, pool.map(judge.open, self.files), strict=True):
                opened.close()
                for column in sorted(judge.old_columns(path)):
                    raise ConfigError(
                        f"{path}: column {shown_path(column)} may have dates or times in the old calendar, which a "
                        "dataset of pyarrow does not convert; use scan(), to_table() or to_batches(), or leave it out"
                    )
        return self._dataset(self.listed, judge, wanted, raises=False)

    def _check(self, columns: Sequence[str] | None) -> list[str]:
        names = self.schema.names
        for name in columns or ():
            if name not in names:
                reason = " (its key is denied, and on_denied='drop' was asked for)" if name in self.dropped else ""
                raise ConfigError(f"column {name!r} is not in the table{reason}; allowed: {', '.join(names)}")
        wanted = names if columns is None else list(columns)
        if len(set(wanted)) < len(wanted):
            raise ConfigError(f"columns {', '.join(wanted)}: one is named twice; allowed: each once")
        return wanted

    def _judge(self, read: frozenset[str]) -> Judge:
        fields = [field for field in self.file_schema if field.name in read]
        by_path = {file.path: file for file in self.listed}
        return Judge(
            reader=self.reader,
            events=self.reader.begin_events(table_folder(self.listed[0])),
            properties=self.properties,
            settings=self.settings,
            requested=spark_json(pa.schema(fields)) if fields else None,
            columns=frozenset(path for field in self.file_schema for path in leaves_of(field.type, (field.name,))),
            needed=lambda path: _list_readable_leaves(fields, self.denied.of_file(by_path[path])),
        )

    def _dataset(
        self, files: Sequence[DataFile], judge: Judge, columns: Sequence[str], *, raises: bool = True
    ) -> ds.FileSystemDataset:
        schema = pa.schema([self.schema.field(name) for name in columns])
        filesystem = PyFileSystem(JudgedFiles(judge, schema, raises=raises))
        reading, fragments = ds.ParquetReadOptions(coerce_int96_timestamp_unit=INT96_UNIT), []
        for file in files:
            options = ds.ParquetFragmentScanOptions(decryption_config=judge.keys(file.path).dataset_config())
            parquet = ds.ParquetFileFormat(read_options=reading, default_fragment_scan_options=options)
            fragments.append(parquet.make_fragment(file.path, filesystem, self.partitions.condition(file)))
        return ds.FileSystemDataset(fragments, schema, ds.ParquetFileFormat(), filesystem)

    def _batches(
        self, wanted: list[str], read: frozenset[str], condition: pc.Expression | None, batch_rows: int
    ) -> Iterator[pa.RecordBatch]:
        judge = self._judge(read)
        by_path = {file.path: file for file in self.listed}
        names = [name for name in self.schema.names if name in read]
        remaining = [
            by_path[fragment.path] for fragment in self._dataset(self.listed, judge, names).get_fragments(condition)
        ]
        singly = partial(self._batches_of, judge, wanted, read, condition, batch_rows)
        with closing(judge.events), self._naming_types(names):
            for key, column, why in self.denied.keys_below(read):
                judge.events.note_masked(key, column, why)
            for is_single, files in groupby(remaining, key=lambda file: self._is_read_singly(file, read)):
                waiting = deque(files)
                if not is_single:
                    scanner = self._dataset(waiting, judge, names).scanner(
                        columns=wanted, filter=condition, batch_size=batch_rows
                    )
                    for found in scanner.scan_batches():  # to_reader holds the GIL, and would hang if a file is refused
                        while waiting[0].path != found.fragment.path:
                            if judge.old_columns((file := waiting.popleft()).path):
                                yield from singly(file)
                        yield found.record_batch
                for file in waiting:
                    if is_single or judge.old_columns(file.path):
                        yield from singly(file)

    @contextmanager
    def _naming_types(self, names: Sequence[str]) -> Iterator[None]:
        """Name the table and the columns in an error of pyarrow about values that do not fit, or cannot be decoded."""
        try:
            yield
        except pa.ArrowInvalid as error:
            types = ", ".join(f"{name}: {self.schema.field(name).type}" for name in names)
            raise PlanError(
                f"{self.reader.table or table_folder(self.listed[0])}: a file does not fit the filter or the types of "
                f"the table's first file ({types}): {error}; give `schema` with types that hold the values of all files"
            ) from error
        except OSError as error:  # pyarrow's, of what it cannot decode: storage raises `StorageError`
            raise FormatError(
                f"{self.reader.table or table_folder(self.listed[0])}: a page of {', '.join(names)} cannot be decoded: "
                f"{error}; open its files one by one to find the damaged one, and restore it"
            ) from error

    def _is_read_singly(self, file: DataFile, read: frozenset[str]) -> bool:
        return not SCANS_NEED_FEW_KEYS or not read.isdisjoint(self.denied.of_file(file))

    def _batches_of(
        self,
        judge: Judge,
        wanted: list[str],
        read: frozenset[str],
        condition: pc.Expression | None,
        batch_rows: int,
        file: DataFile,
    ) -> Iterator[pa.RecordBatch]:
        schema = pa.schema([field for field in self.schema if field.name in read])
        values = {field.name: self.partitions.value(file, field) for field in self.partitions.fields}
        for batch in read_masked(judge, file.path, schema, self.denied.of_file(file), values, batch_rows):
            rows = pa.Table.from_batches([batch])
            if condition is not None:
                rows = rows.filter(condition)
            yield from rows.select(wanted).to_batches()


def _list_readable_leaves(fields: Sequence[pa.Field], denied: Mapping[str, Denied]) -> frozenset[Path]:
    """Return the logical paths of the readable leaves of columns."""
    kept = ((field.name, kept_type(field.type, denied.get(field.name, {}))) for field in fields)
    return frozenset(leaf for name, kind in kept if kind is not None for leaf in leaves_of(kind, (name,)))


def dropped_columns(file_schema: pa.Schema, denied: DeniedLeaves) -> frozenset[str]:
    """Return the top-level columns that have no readable leaf in any file."""
    everywhere = denied.find_denied_everywhere()
    return frozenset(
        field.name
        for field in file_schema
        if field.name in everywhere and kept_type(field.type, everywhere[field.name]) is None
    )


def read_schema(judge: Judge, path: str) -> pa.Schema:
    """Judge a file, and return its schema with Spark's types of times and the file's metadata.

    Raises:
        UnsupportedFileError: pyarrow does not read a schema such as this one.
        SparkcryptError: as `Judge.open`.
    """
    file: Any = pa.PythonFile(judge.open(path), mode="r")
    with file:
        try:
            found = pq.ParquetFile(
                file, decryption_properties=judge.keys(path).properties(), coerce_int96_timestamp_unit=INT96_UNIT
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise UnsupportedFileError(
                f"{path}: pyarrow does not read its schema: {error}; read the table with Spark"
            ) from error
        leaves = [found.schema.column(number) for number in range(len(found.schema))]
        return with_sparks_times(found.schema_arrow, [leaf.physical_type == "INT96" for leaf in leaves])


def read_masked(
    judge: Judge,
    path: str,
    schema: pa.Schema,
    denied: Mapping[str, Denied],
    values: Mapping[str, pa.Scalar],
    batch_rows: int,
) -> Iterator[pa.RecordBatch]:
    """Yield a file's rows as Spark reads them, with nulls for its denied leaves, whose keys are not requested.

    Args:
        judge: opens the file.
        path: the file's path.
        schema: the schema of the batches.
        denied: column -> its denied leaves.
        values: partition column -> its value in this file.
        batch_rows: maximum number of rows in a batch.

    Raises:
        SparkcryptError: as `GuardedTable.scan`.
    """
    columns = columns_of(judge.footer(path))
    paths, variants = paths_in_file(columns), columns.variants()
    with (
        pa.PythonFile(judge.open(path), mode="r") as source,
        pq.ParquetFile(
            source,
            decryption_properties=judge.keys(path).properties(),
            pre_buffer=True,
            coerce_int96_timestamp_unit=INT96_UNIT,
        ) as file,
    ):
        own = (make_nullable(field, variants) for field in file.schema_arrow if field.name in schema.names)
        types = {field.name: field.type for field in own}
        kept = {name: kept_type(kind, denied.get(name, {})) for name, kind in types.items() if name not in values}
        leaves = [leaf for name, kind in kept.items() if kind is not None for leaf in leaves_of(kind, (name,))]
        names = [".".join(_find(path, paths, leaf)) for leaf in leaves]
        old = judge.old_columns(path)
        for batch in _read(file, names, batch_rows):
            read = [to_new_calendar(path, batch.column(name), (name,), old) for name in batch.schema.names if name]
            found = pa.RecordBatch.from_arrays(read, names=batch.schema.names) if read else batch
            yield pa.RecordBatch.from_arrays(
                [_column(found, field, types, denied, values) for field in schema], schema=schema
            )


def _find(path: str, known: Mapping[tuple[str, ...], tuple[str, ...]], leaf: tuple[str, ...]) -> tuple[str, ...]:
    found = known.get(leaf)
    if found is None:
        raise PlanError(
            f"{path}: column {shown_path(leaf)} cannot be told from its denied siblings by the names in this file; "
            "leave it out, or read the table with Spark"
        )
    return found


def _read(file: pq.ParquetFile, names: list[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield batches of columns; without columns, yield batches with the file's number of rows."""
    if names:
        yield from file.iter_batches(batch_size=batch_rows, columns=names)
        return
    left = file.metadata.num_rows
    while left > 0:
        count = min(left, batch_rows)
        yield pa.RecordBatch.from_arrays([pa.nulls(count)], names=[""])
        left -= count


def _column(
    batch: pa.RecordBatch,
    field: pa.Field,
    types: Mapping[str, pa.DataType],
    denied: Mapping[str, Denied],
    values: Mapping[str, pa.Scalar],
) -> pa.Array:
    if field.name in values:
        return pa.repeat(values[field.name], batch.num_rows)
    place = batch.schema.get_field_index(field.name)
    if place < 0:
        return pa.nulls(batch.num_rows, field.type)
    return restore(batch.column(place), types[field.name], denied.get(field.name, {})).cast(field.type)


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

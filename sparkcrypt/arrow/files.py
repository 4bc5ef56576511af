"""Finds the data files and partitions of a table in its folder, as Spark does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sparkcrypt.errors import ConfigError, PlanError, show
from sparkcrypt.files.listing import list_files, refuse_formats_above
from sparkcrypt.files.open_places import Settings
from sparkcrypt.paths import Partition, full_path, partition_values, trailing_partition

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file: its full path, and partition column -> value from the names of its folders, unescaped."""

    path: str
    partition: Partition


@dataclass(frozen=True, slots=True)
class PartitionColumns:
    """The partition columns of a table, each with one type for the values of all partitions."""

    fields: tuple[pa.Field, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the partition columns, outermost first."""
        return tuple(field.name for field in self.fields)

    def value(self, file: DataFile, field: pa.Field) -> pa.Scalar:
        """Return the value that a file's rows have in a partition column.

        Raises:
            PlanError: the folder's value is not of the column's type.
        """
        text = file.partition[field.name]
        if text == NULL_FOLDER:
            return pa.scalar(None, field.type)
        try:
            return pa.scalar(text).cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise PlanError(
                f"{file.path}: partition {field.name}={show(text)} is no {field.type}; give `schema` with another type"
            ) from error

    def condition(self, file: DataFile) -> pc.Expression:
        """Return an expression over the partition columns that is true for every row of a file."""
        found = pc.scalar(True)
        for field in self.fields:
            value, column = self.value(file, field), pc.field(field.name)
            found = found & (column == value if value.is_valid else column.is_null())
        return found


def find_files(folders: Sequence[str], settings: Settings) -> tuple[DataFile, ...]:
    """Return the data files below each folder, sorted by name, without hidden ones.

    Raises:
        ConfigError: a folder has no data files, or files have different partition columns.
        PlanError: a folder, or one above, has the list of its files that another format keeps.
        VerificationError: a file is a symbolic link.
    """
    found: list[DataFile] = []
    absolute = [full_path(folder) for folder in folders]
    refuse_formats_above(absolute, settings)
    for folder in absolute:
        listed = list_files(folder, settings)
        if not listed:
            raise ConfigError(f"{folder}: holds no data files; name a data file, or a folder of them")
        for entry in listed:
            path = f"{folder.rstrip('/')}/{entry.name}" if entry.name else folder
            found.append(DataFile(path, partition_values(trailing_partition(path.split("/")[:-1]))))
    first = found[0]
    for file in found:
        if tuple(file.partition) != tuple(first.partition):
            raise ConfigError(
                f"{file.path}: lies below partition columns {', '.join(file.partition) or 'none'}, and {first.path} "
                f"below {', '.join(first.partition) or 'none'}; allowed: the same for all files of a table"
            )
    return tuple(found)


def partition_columns(files: Iterable[DataFile], schema: pa.Schema | None) -> PartitionColumns:
    """Return the partition columns of files, each with its given type or the first of Spark's that fits all values.

    Args:
        files: the files of one table.
        schema: a schema that may contain types of partition columns.
    """
    values: dict[str, list[str]] = {}
    for file in files:
        for name, text in file.partition.items():
            values.setdefault(name, []).append(text)
    known = {} if schema is None else {field.name: field.type for field in schema}
    return PartitionColumns(
        tuple(pa.field(name, known.get(name) or _infer_type(dict.fromkeys(texts))) for name, texts in values.items())
    )


def _infer_type(texts: Iterable[str]) -> pa.DataType:
    known = [text for text in texts if text != NULL_FOLDER]
    for kind, parses in _TYPES:
        if known and all(_fits(parses, text) for text in known):
            return kind
    return pa.string()


def _fits(parses: Callable[[str], Any], text: str) -> bool:
    try:
        return bool(parses(text) is not None)
    except (ValueError, OverflowError):
        return False


def _integer(text: str, bits: int) -> int:
    number = int(text)
    if "_" in text or text != text.strip() or not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        raise ValueError(text)
    return number


def _double(text: str) -> float:
    if not set(text) <= set("0123456789+-.eE"):
        raise ValueError(text)
    return float(text)


def _date(text: str) -> date:
    if len(text) != len("2026-01-31"):
        raise ValueError(text)
    return date.fromisoformat(text)


_TYPES: tuple[tuple[pa.DataType, Callable[[str], Any]], ...] = (
    (pa.int32(), lambda text: _integer(text, 32)),
    (pa.int64(), lambda text: _integer(text, 64)),
    (pa.float64(), _double),
    (pa.date32(), _date),
)


def table_folder(file: DataFile) -> str:
    """Return the folder of a file's table, above the partition folders."""
    folders = file.path.split("/")[:-1]
    return "/".join(folders[: len(folders) - len(file.partition)]) or "/"

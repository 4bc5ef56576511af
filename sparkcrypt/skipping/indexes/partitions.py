"""Determines the partition columns of files and their values, from folder names and from given values.

Folder names have no types, so a value is a string unless another type is declared for its column.  A value that does
not have its column's type is unknown, and its files are always opened; ``__HIVE_DEFAULT_PARTITION__`` is null.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping, Sequence

from sparkcrypt.errors import ConfigError
from sparkcrypt.paths import partition_values, trailing_partition
from sparkcrypt.skipping.format.convert_values import INTEGERS
from sparkcrypt.skipping.format.description import PartitionColumn
from sparkcrypt.skipping.format.store import UNKNOWN

NULL = "__HIVE_DEFAULT_PARTITION__"
TYPES = ("string", *INTEGERS, "date", "boolean")
"""Types whose values have the same text in folder names of every writer."""
_EPOCH = datetime.date(1970, 1, 1)


def folder_values(name: str) -> Mapping[str, str]:
    """Return partition column -> value of a file's path below its table's folder."""
    return partition_values(trailing_partition(name.split("/")[:-1]))


def partition_columns(
    names: Sequence[str], types: Mapping[str, str], fixed_values: Mapping[str, str]
) -> tuple[PartitionColumn, ...]:
    """Return the partition columns of files.

    Args:
        names: paths of the files below their table's folder.
        types: column -> its type, if it is not a string.
        fixed_values: column -> its value in every file.

    Raises:
        ConfigError: files have different partition columns, a given column is also in folder names, or ``types`` has
            another column or a type that is not in `TYPES`.
    """
    first = tuple(folder_values(names[0])) if names else ()
    for name in names:
        check_folders(name, first)
    if twice := [column for column in fixed_values if column in first]:
        raise ConfigError(f"partition column {twice[0]!r}: folders tell its value, and it is given; leave one out")
    columns = (*first, *fixed_values)
    for column, kind in types.items():
        if column not in columns:
            there = ", ".join(columns) or "none, as no folder is named column=value"
            raise ConfigError(f"partition column {column!r}: is told by no folder; allowed: {there}")
        if kind not in TYPES:
            raise ConfigError(
                f"partition column {column!r}: values of type {kind!r} are not compared by their text; allowed: "
                f"{', '.join(TYPES)}; leave its type out if it is none of them"
            )
    return tuple(PartitionColumn("", column, types.get(column, "string")) for column in columns)


def check_folders(name: str, columns: Sequence[str]) -> None:
    """Refuse a file whose folders have other partition columns than these.

    Raises:
        ConfigError: they do.
    """
    found = tuple(folder_values(name))
    if found != tuple(columns):
        raise ConfigError(
            f"{name}: lies in folders of {', '.join(found) or 'no partition column'}, and others in those of "
            f"{', '.join(columns) or 'none'}; index each table by itself"
        )


def partition_value(text: str, kind: str | None) -> object:
    """Return a partition's value as in stores: None for null, `UNKNOWN` for a text that is no value of the type."""
    if text == NULL:
        return None
    return _READ[kind](text, kind) if kind is not None and kind in _READ else UNKNOWN


def _integer(text: str, kind: str) -> object:
    half = 1 << (INTEGERS[kind] - 1)
    return int(text) if re.fullmatch(r"-?[0-9]{1,20}", text) and -half <= int(text) < half else UNKNOWN


def _date(text: str, _: str) -> object:
    try:
        found = datetime.date.fromisoformat(text) if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text) else None
    except ValueError:
        return UNKNOWN
    return UNKNOWN if found is None else (found - _EPOCH).days


_READ: Mapping[str, Callable[[str, str], object]] = {
    "string": lambda text, _: text,
    "boolean": lambda text, _: {"true": True, "false": False}.get(text, UNKNOWN),
    "date": _date,
    **dict.fromkeys(INTEGERS, _integer),
}

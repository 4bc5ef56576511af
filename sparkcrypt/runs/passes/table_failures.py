"""Failures of single tables in a command over many: each is recorded with the table's name, and the others go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePath
from traceback import extract_tb

from sparkcrypt.errors import BridgeError, KeyServiceUnavailableError, SparkcryptError
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.spark.jvm.failures import find_carried_error, short_text

_MET_BY_ALL = (KeyServiceUnavailableError, BridgeError, MemoryError)
"""Errors that every other table would meet too."""


@dataclass(frozen=True, slots=True)
class TableError(JsonObject):
    """A table that failed, with the class name and the message of the error."""

    table: str
    error: str
    message: str


@dataclass(slots=True)
class TableFailures:
    """The tables of one command that failed.

    Attributes:
        found: the tables, each with its error.
    """

    found: list[TableError] = field(default_factory=list)

    @contextmanager
    def of(self, table: str) -> Iterator[None]:
        """Record the error of a table that the block raises, and re-raise it only if every other table would meet it.

        Args:
            table: the name of the table.

        Raises:
            KeyServiceUnavailableError, BridgeError, MemoryError: the error of the block.
        """
        try:
            yield
        except Exception as error:
            carried = error if isinstance(error, SparkcryptError) else find_carried_error(error) or error
            self.found.append(TableError(table, type(carried).__name__, _describe(carried)))
            if isinstance(carried, _MET_BY_ALL):
                raise


def _describe(error: Exception) -> str:
    if isinstance(error, SparkcryptError):
        return str(error)
    frames = extract_tb(error.__traceback__)
    where = f" ({PurePath(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return (
        f"{short_text(error)}{where}: an error that nothing foresaw; the table's journal tells what was done; report "
        "it with this text"
    )

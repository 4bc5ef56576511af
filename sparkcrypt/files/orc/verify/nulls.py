"""Checks that columns hold only nulls, which replace columns whose keys no longer exist."""

from __future__ import annotations

from collections.abc import Collection

from sparkcrypt.errors import VerificationError
from sparkcrypt.files.orc.file.protobuf import decode
from sparkcrypt.files.orc.file.statistics import tells_nothing
from sparkcrypt.files.orc.file.stripe import PRESENT, ROW_INDEX, Stream
from sparkcrypt.files.orc.file.tail import Stripe, Tail
from sparkcrypt.files.orc.verify.mask_check import count_zeros
from sparkcrypt.schema import Path, join_dotted

_BITS = 8


class NullCheck:
    """A check that columns, as readers with the keys see them, hold no values.

    Args:
        tail: the tail of their file.
        columns: the columns, each with all columns below it.
    """

    def __init__(self, tail: Tail, columns: Collection[Path]) -> None:
        roots = set(columns)
        self._tail = tail
        self._columns = {
            column.number
            for column in (tail.columns if roots else ())
            if any(column.path[:length] in roots for length in range(1, len(column.path) + 1))
        }
        self._nulls: dict[int, int] = {}

    def has(self, column: int) -> bool:
        """Return whether a column must hold only nulls."""
        return column in self._columns

    def check_statistics(self, column: int, statistics: bytes) -> None:
        """Check that statistics of a column, of the file, a stripe or a row group, are those of no values.

        Raises:
            VerificationError: they are not.
        """
        if column in self._columns and not tells_nothing(statistics):
            self._refuse(column, "its statistics tell of values")

    def check_stream(self, stream: Stream, content: bytes) -> None:
        """Check that a stream holds no value.

        Args:
            stream: of any column.
            content: its decrypted bytes; only needed for PRESENT and ROW_INDEX.

        Raises:
            VerificationError: it holds one.
            FormatError: it does not decompress.
        """
        if stream.column not in self._columns:
            return
        inflated = self._tail.compression.inflate(content, str(stream)) if content else b""
        if stream.kind == ROW_INDEX:
            for entry in decode(inflated, str(stream), max_fields=len(inflated) + 1).messages(1, "an entry"):
                self.check_statistics(stream.column, entry.data(2) or b"")
        elif stream.kind == PRESENT:
            zeros = count_zeros(inflated, str(stream))
            if zeros is None:
                self._refuse(stream.column, "a value of it is present")
            self._nulls[stream.column] = _BITS * (zeros or 0)
        elif stream.length:
            self._refuse(stream.column, f"its {stream} is not empty")

    def finish_stripe(self, stripe: Stripe) -> None:
        """Check that each top-level column was null in every row of a stripe.

        Raises:
            VerificationError: one was not.
        """
        nulls, self._nulls = self._nulls, {}
        for column in sorted(self._columns & set(self._tail.columns[0].children)):
            if nulls.get(column, 0) < stripe.rows:
                self._refuse(column, f"stripe {stripe.number} does not say of every row that it is null")

    def _refuse(self, column: int, why: str) -> None:
        name = join_dotted(self._tail.columns[column].path)
        raise VerificationError(
            f"column {name} holds more than nulls ({why}), and was to be replaced by nulls; keep the source"
        )

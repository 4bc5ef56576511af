"""Reads strings and bytes, stored directly or as references to a dictionary of the stripe.

Source: ORC specification v1, "String, Char, and VarChar Columns", "Binary Columns".
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from sparkcrypt.errors import FormatError, UnsupportedFileError
from sparkcrypt.files.orc.file.stripe import DATA, DICTIONARY_DATA, LENGTH
from sparkcrypt.files.orc.read.column import Mask, PresentColumn, count_valid, pack_valid, spread
from sparkcrypt.files.orc.read.cursor import Positions
from sparkcrypt.files.orc.read.integer_runs import Integers
from sparkcrypt.files.orc.read.stripe_streams import StripeStreams
from sparkcrypt.files.orc.read.types import ReadColumn

MOST_BYTES = (1 << 31) - 1
"""The most bytes of the texts of one batch: Arrow's offsets have 32 bits."""


class DirectColumn(PresentColumn):
    """A column of kind string, varchar, char or binary whose values are stored one after another."""

    def __init__(self, streams: StripeStreams, column: ReadColumn) -> None:
        super().__init__(streams, column)
        self._bytes = streams.cursor(column, DATA)
        self._lengths = streams.integers(column, LENGTH, is_signed=False)

    def seek_values(self, positions: Positions) -> None:
        """Move to the start of a row group."""
        self._bytes.seek(*positions.take_place())
        self._lengths.seek(positions)

    def read_values(self, count: int, valid: Mask | None) -> pa.Array:
        """Return texts."""
        lengths = self._lengths.read(count_valid(count, valid))
        total = check_lengths(lengths, self.column)
        self.streams.count_bytes(total, self.column)
        return _make_texts(self.column, self._bytes.take(total), lengths, valid)


class DictionaryColumn(PresentColumn):
    """A column of texts that are references to a dictionary, which is read when a value is first requested."""

    def __init__(self, streams: StripeStreams, column: ReadColumn, size: int) -> None:
        super().__init__(streams, column)
        self._size = size
        self._numbers = streams.integers(column, DATA, is_signed=False)
        self._known: pa.Array | None = None

    def seek_values(self, positions: Positions) -> None:
        """Move to the start of a row group."""
        self._numbers.seek(positions)

    def read_values(self, count: int, valid: Mask | None) -> pa.Array:
        """Return texts.

        Raises:
            FormatError: a reference is not to a value of the dictionary.
        """
        numbers = self._numbers.read(count_valid(count, valid))
        if not len(numbers):
            return pa.nulls(count, self.column.type)
        if numbers.min() < 0 or numbers.max() >= self._size:
            raise FormatError(
                f"column {self.column.shown} has a value that its dictionary lacks; expected 0 to {self._size - 1}"
            )
        dictionary = self._dictionary()
        lengths = np.diff(np.frombuffer(dictionary.buffers()[1], np.int32)).astype(np.int64)
        self.streams.count_bytes(check_lengths(lengths[numbers], self.column), self.column)
        places = spread(numbers, valid)
        return dictionary.take(pa.array(places, pa.int64(), mask=None if valid is None else ~valid))

    def _dictionary(self) -> pa.Array:
        if self._known is None:
            lengths = self.streams.integers(self.column, LENGTH, is_signed=False).read(self._size)
            total = check_lengths(lengths, self.column)
            self.streams.count_bytes(total, self.column, is_kept=True)
            content = self.streams.cursor(self.column, DICTIONARY_DATA).take(total)
            self._known = _make_texts(self.column, content, lengths, None)
        return self._known


def check_lengths(lengths: Integers, column: ReadColumn) -> int:
    """Return the sum of lengths, after checking them.

    Raises:
        FormatError: one is negative.
        UnsupportedFileError: the sum exceeds the size of an Arrow array.
    """
    if len(lengths) and lengths.min() < 0:
        raise FormatError(f"column {column.shown} has a negative length; expected 0 or more")
    total = float(lengths.sum(dtype=np.float64))
    if total > MOST_BYTES:
        raise UnsupportedFileError(
            f"column {column.shown} has more than {MOST_BYTES} bytes or elements in one batch; read it with Spark"
        )
    return int(lengths.sum())


def _make_texts(column: ReadColumn, content: bytes, lengths: Integers, valid: Mask | None) -> pa.Array:
    offsets = np.zeros(len(lengths if valid is None else valid) + 1, np.int32)
    np.cumsum(spread(lengths, valid), out=offsets[1:], dtype=np.int32)
    buffers = [pack_valid(valid), pa.py_buffer(offsets.tobytes()), pa.py_buffer(content)]
    found = pa.Array.from_buffers(column.type, len(offsets) - 1, buffers)
    try:
        found.validate(full=True)
    except pa.ArrowInvalid as error:
        raise FormatError(f"column {column.shown} has a text that is no UTF-8; expected such texts") from error
    return found

"""Reads a case in every way that a caller would, under a deadline."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sparkcrypt.errors import FormatError, SparkcryptError, VerificationError
from sparkcrypt.parquet import inspect_file, message_type, read_footer, verify_file
from sparkcrypt.parquet.metadata import ColumnMetaData
from sparkcrypt.parquet.pages import chunk_range, read_plain_pages
from sparkcrypt.parquet.source import Input, naming, open_source
from sparkcrypt.parquet.thrift import decode_struct
from sparkcrypt.parquet.thrift_encode import encode_struct
from sparkcrypt.parquet.window import Window
from tests.fuzz.cases import Case

DEADLINE_SECONDS = 10.0


class HangError(AssertionError):
    """A case took longer than the deadline."""


@contextmanager
def deadline(seconds: float = DEADLINE_SECONDS) -> Iterator[None]:
    """Raise in the main thread when the block takes longer."""

    def ring(_signal: int, _frame: object) -> None:
        raise HangError(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def attempt(case: Case) -> dict[str, str]:
    """Read a case; return per way of reading ``read``, or the class of the error of this package's tree.

    Raises:
        AssertionError: an error does not say what was expected, or a deadline passed.
        Exception: whatever else a way of reading raised, which is a failure.
    """
    return {name: _outcome(way, case) for name, way in WAYS.items()}


def _outcome(way: Callable[[Case], object], case: Case) -> str:
    with deadline():
        try:
            way(case)
        except SparkcryptError as error:
            text = str(error)
            assert not isinstance(error, FormatError) or ("<bytes>: " in text and "expected" in text), text
            assert isinstance(error, (FormatError, VerificationError)) or "aad_prefix" in text, repr(error)
            return type(error).__name__
    return "read"


def _footer(case: Case) -> None:
    footer = read_footer(case.data)
    if footer.metadata is not None:
        message_type(footer.metadata)
        wire = encode_struct(footer.metadata.struct)
        assert decode_struct(wire) == (footer.metadata.struct, len(wire))


def _inspect(case: Case) -> None:
    inspect_file(case.data).to_dict()


def _inspect_with_keys(case: Case) -> None:
    inspect_file(case.data, retrieve_key=case.original.retrieve_key).to_dict()


def _verify(case: Case) -> None:
    verify_file(case.data, retrieve_key=case.original.retrieve_key).to_dict()


def _pages(case: Case) -> None:
    """Walk the pages of every chunk that claims to be in clear, each for itself."""
    footer = read_footer(case.data)
    for row_group in () if footer.metadata is None else footer.metadata.row_groups:
        for number, chunk in enumerate(row_group.columns[:4]):
            with open_source(case.data) as file:
                if chunk.meta_data is not None and chunk.crypto_metadata is None:
                    _walk(file, chunk.meta_data, footer.offset, f"chunk {number}")


def _walk(file: Input, meta_data: ColumnMetaData, limit: int, name: str) -> None:
    with naming(file.name):
        window = Window(file, *chunk_range(meta_data, limit, name))
        assert all(page.end <= limit for page in read_plain_pages(window, name))


WAYS: dict[str, Callable[[Case], object]] = {
    "footer": _footer,
    "inspect": _inspect,
    "inspect with keys": _inspect_with_keys,
    "verify": _verify,
    "pages": _pages,
}

"""Reads and rewrites a case in every way that a caller would, under a deadline, and measures memory if asked to."""

from __future__ import annotations

import signal
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sparkcrypt.errors import FormatError, SparkcryptError, UnsupportedFileError, VerificationError
from sparkcrypt.files.parquet import (
    FOOTER_KEY,
    KeyRequest,
    NewKeys,
    RetrieveKey,
    inspect_file,
    message_type,
    read_footer,
    rewrap_file,
    rewrite_file,
    verify_file,
    verify_keys,
)
from sparkcrypt.files.parquet.file.layout import Window
from sparkcrypt.files.parquet.pages.chunk import chunk_range
from sparkcrypt.files.parquet.thrift.compact import decode_struct, encode_struct
from sparkcrypt.files.parquet.thrift.metadata import ColumnMetaData
from sparkcrypt.files.parquet.verify.chunk import read_plain_pages
from sparkcrypt.files.source import Input, naming, open_source
from tests.fuzz.cases import Case
from tests.unit.parquet.rewriting import new_encryption
from tests.unit.parquet.writers import ALGORITHMS, Keys

DEADLINE_SECONDS = 10.0
MEASURED_TIMES = 8
"""How many times as long a case may take while its memory is traced."""
FLOOR_BYTES = 96_000_000
"""What may be held of a file that is too small for twice its size to be a bound."""


class HangError(AssertionError):
    """A case took longer than the deadline."""


@contextmanager
def deadline(seconds: float = DEADLINE_SECONDS) -> Iterator[None]:
    """Raise in the main thread when the block takes longer; others' work does not count, only the processor's time."""

    def ring(_signal: int, _frame: object) -> None:
        raise HangError(f"not done after {seconds} s of the processor")

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def attempt(case: Case, *, measured: bool = False) -> dict[str, str]:
    """Read a case; return per way of reading ``read``, or the class of the error of this package's tree.

    Args:
        case: what is read.
        measured: whether what each way holds is bounded too; that takes several times as long.

    Raises:
        AssertionError: an error does not say what was expected, a deadline passed, too much memory was held, or what
            was written is not what was read.
        Exception: whatever else a way of reading raised, which is a failure.
    """
    run = _measured if measured else _outcome
    return {name: run(way, case) for name, way in WAYS.items()}


def _measured(way: Callable[[Case], object], case: Case) -> str:
    tracemalloc.start()
    try:
        outcome = _outcome(way, case, MEASURED_TIMES * DEADLINE_SECONDS)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < max(FLOOR_BYTES, 2 * len(case.data)), f"{peak} bytes held of a file of {len(case.data)}"
    return outcome


def _outcome(way: Callable[[Case], object], case: Case, seconds: float = DEADLINE_SECONDS) -> str:
    with deadline(seconds):
        try:
            way(case)
        except SparkcryptError as error:
            text = str(error)
            if isinstance(error, FormatError):
                assert "<bytes>: " in text and ("expected" in text or type(error) is UnsupportedFileError), text
            else:
                known = "aad_prefix" in text or "is not encrypted" in text
                assert isinstance(error, VerificationError) or known, repr(error)
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


def _rewrite(case: Case) -> None:
    """Rewrite into plaintext or either algorithm; source and target must then verify with the same digest."""
    algorithm = (None, *ALGORITHMS)[case.number % 3]
    encryption = None if algorithm is None else new_encryption(default=FOOTER_KEY, algorithm=algorithm, bits=128)
    with _folder() as folder:
        try:
            rewrite_file(case.data, folder / "out", retrieve_key=case.original.retrieve_key, encryption=encryption)
        finally:
            names = [path.name for path in folder.iterdir()]
            assert names in ([], ["out"]), names
        try:
            verify_file(case.data, retrieve_key=case.original.retrieve_key)
        except SparkcryptError as error:
            raise AssertionError(f"what cannot be verified was rewritten: {error}") from error
        _same(case, folder / "out", Keys())


def _rewrap(case: Case) -> None:
    """Wrap the keys anew; what verified before must then verify with the same digest, and with the new key metadata.

    The data is copied untouched, so what did not verify before need not.
    """
    wrapped: dict[bytes | None, bytes] = {}

    def wrap(_: KeyRequest, key: bytes) -> bytes:
        name = b"new %d" % len(wrapped)
        wrapped[name] = key
        return name

    with _folder() as folder:
        rewrap_file(case.data, folder / "out", retrieve_key=case.original.retrieve_key, new_keys=NewKeys(wrap))
        _same(case, folder / "out", lambda request: wrapped[request.key_metadata])


def _same(case: Case, written: Path, retrieve_key: RetrieveKey) -> None:
    try:
        digest = verify_file(case.data, retrieve_key=case.original.retrieve_key).digest
    except SparkcryptError:
        return
    try:
        verify_file(written, retrieve_key=retrieve_key, equal_to=digest)
    except SparkcryptError as error:
        raise AssertionError(f"what was written of a good file is not good: {error}") from error


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="sparkcrypt-fuzz-") as folder:
        yield Path(folder)


def _verify_keys(case: Case) -> None:
    verify_keys(case.data, retrieve_key=case.original.retrieve_key).to_dict()


WAYS: dict[str, Callable[[Case], object]] = {
    "footer": _footer,
    "inspect": _inspect,
    "inspect with keys": _inspect_with_keys,
    "verify": _verify,
    "pages": _pages,
    "rewrite": _rewrite,
    "rewrap": _rewrap,
    "verify keys": _verify_keys,
}

"""What the native engine hands over to another engine, and what of one file never ends the work on others."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from sparkcrypt.files import rewrite as work
from sparkcrypt.files import workers
from sparkcrypt.files.footers import read_facts
from sparkcrypt.files.orders import FileOrder, FileOutcome
from sparkcrypt.files.output import S3_MOST_BYTES
from sparkcrypt.files.proof import ContentProof
from tests.unit.native.orders import GCM, failed, rewrite
from tests.unit.parquet.handmade import data_page, index_page, make_file
from tests.unit.parquet.rewriting import drop_a_location

from .conftest import TABLE, Bench


def refused(outcome: FileOutcome) -> str:
    """Return why another engine is to do a file, which has no target."""
    assert outcome.error is None and outcome.refused is not None, outcome
    assert not Path(outcome.target).exists()
    return outcome.refused


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: make_file([[[index_page(), data_page()]]]), "INDEX_PAGE"),
        (lambda: make_file([[[data_page(), index_page()]]]), "INDEX_PAGE"),
        (lambda: make_file([[[data_page()] * 32_769]]), "32768 data pages"),
    ],
)
def test_files_that_only_an_engine_that_decodes_can_rewrite(bench: Bench, make: Callable[[], bytes], said: str) -> None:
    """INDEX_PAGEs, and more pages than can be numbered, are refused by the file's name, not failed."""
    Path(bench.source).write_bytes(make())
    reason = refused(rewrite(bench, bench.order(c0="pii")))
    assert (bench.source in reason, said in reason) == (True, True), reason


def test_a_file_whose_index_is_not_of_its_pages_loses_it(bench: Bench) -> None:
    """An OffsetIndex of another number of pages is left out, and that is said."""
    pq.write_table(TABLE, bench.source, write_page_index=True, store_schema=False)
    drop_a_location(bench.source)
    done = rewrite(bench, bench.order())
    assert (done.error, done.refused) == (None, None)
    assert [note for note in done.notes if "its indexes do not fit its pages" in note]


@pytest.mark.parametrize("action", ["rekey", "decrypt", "copy"])
def test_what_nothing_authenticated_in_the_source_is_told(bench: Bench, action: str) -> None:
    """Pages under CTR may have been altered; GCM, or plaintext, around them does not hide that."""
    order = bench.order()
    assert order.encryption is not None
    ctr = replace(order, encryption=replace(order.encryption, algorithm="AES_GCM_CTR_V1"))
    assert rewrite(bench, ctr).unauthenticated == ("pages of column ssn: AES_GCM_CTR_V1 does not authenticate them",)
    again = FileOrder(order.target, str(bench.folder / "again"), "copy", None, b"-/out.parquet\0", "AES_GCM_CTR_V1")
    if action == "rekey":
        encryption = replace(order.encryption, aad_prefix=b"-/again\0")
        again = replace(again, action="encrypt", encryption=encryption)
    elif action == "decrypt":
        again = replace(again, action="decrypt")
    done = rewrite(bench, again)
    assert done.error is None
    (told,) = done.unauthenticated
    assert told.startswith("source: " if action != "copy" else "pages") and "pages of column ssn" in told


def test_a_target_that_was_to_be_plaintext_and_is_not_is_found(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A decryption that left a file encrypted is not proven, and leaves nothing."""
    order = bench.order()
    rewrite(bench, order)

    def copied(source: Any, target: Any, **_named: Any) -> Any:
        Path(target).write_bytes(Path(source).read_bytes())
        return type("Result", (), {"notes": ()})()

    monkeypatch.setattr(work, "rewrite_file", copied)
    plain = FileOrder(order.target, str(bench.folder / "plain"), "decrypt", None, None, GCM)
    kind, message = failed(rewrite(bench, plain))
    assert (kind, "plaintext" in message) == ("VerificationError", True)


class Flaky(pafs.FSSpecHandler):  # type: ignore[misc]  # pyarrow has no types
    """A file system in memory, whose opening or reading fails so many times."""

    opening = 0
    reading = 0

    def open_input_file(self, path: str) -> Any:
        """Open a file, or fail."""
        if self.opening:
            self.opening -= 1
            raise PermissionError("no credentials")
        return pa.PythonFile(_Stream(self, self.fs.open(path, mode="rb")), mode="r")


class _Stream:
    """A file-like object that fails as its file system was told to."""

    def __init__(self, handler: Flaky, file: Any) -> None:
        self._handler, self._file = handler, file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read(self, size: int = -1) -> bytes:
        """Read, or fail."""
        if self._handler.reading:
            self._handler.reading -= 1
            raise OSError("connection reset")
        return bytes(self._file.read(size))


@pytest.fixture
def flaky(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Flaky]:
    """The bench's files as they are on a file system that fails."""
    system = fsspec.filesystem("memory")
    system.store.clear()
    system.pipe("/source.parquet", Path(bench.source).read_bytes())
    handler = Flaky(system)
    monkeypatch.setattr(work, "place", lambda path, _settings: (pafs.PyFileSystem(handler), "/" + Path(path).name))
    monkeypatch.setattr(work, "PAUSES", (0.0, 0.0))
    yield handler
    system.store.clear()


def test_a_file_that_cannot_be_opened_from_here_is_refused(bench: Bench, flaky: Flaky) -> None:
    """Credentials may be known to Spark alone: nothing is said against the file."""
    flaky.opening = 1
    reason = refused(rewrite(bench, bench.order()))
    assert "no credentials" in reason and "says nothing of the file" in reason


def test_storage_that_fails_for_a_moment_is_asked_again(bench: Bench, flaky: Flaky) -> None:
    """One broken connection costs another attempt, not the file."""
    flaky.reading = 2
    outcome = rewrite(bench, bench.order())
    assert (outcome.error, outcome.refused, outcome.rows) == (None, None, 3)


def test_storage_that_goes_on_failing_is_told_as_that(bench: Bench, flaky: Flaky) -> None:
    """The error is not that of a damaged file."""
    flaky.reading = 1000
    kind, message = failed(rewrite(bench, bench.order()))
    assert (kind, "source.parquet" in message, "connection reset" in message) == ("StorageError", True, True)


def test_a_footer_that_cannot_be_reached_is_not_called_damaged(bench: Bench, flaky: Flaky) -> None:
    """So that a scan can ask for it again elsewhere."""
    flaky.reading = 1
    place = (pafs.PyFileSystem(flaky), "/source.parquet")
    assert type(read_facts("f", place, lambda _: b"")).__name__ == "StorageError"
    assert type(read_facts("f", place, lambda _: b"")).__name__ == "FooterFacts"


@pytest.mark.parametrize("size", [S3_MOST_BYTES, S3_MOST_BYTES * 95 // 100])
def test_sources_too_large_for_s3_are_refused_first(bench: Bench, flaky: Flaky, monkeypatch: Any, size: int) -> None:
    """Where the target might be larger than what S3 copies at once, nothing is uploaded."""
    monkeypatch.setattr(work, "size_of", lambda _where: size)
    monkeypatch.setattr(work, "most_bytes", lambda _filesystem: S3_MOST_BYTES)
    assert "the most that S3 copies" in refused(rewrite(bench, bench.order()))


def test_an_unforeseen_error_is_that_files_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It names file and class, and the log has the traceback."""

    def broken(*_args: Any, **_named: Any) -> Any:
        raise RecursionError("too deep")

    monkeypatch.setattr(ContentProof, "read_source", broken)
    with caplog.at_level(logging.ERROR):
        kind, message = failed(rewrite(bench, bench.order()))
    assert kind == "SparkcryptError"
    assert bench.source in message and "RecursionError: too deep" in message
    told = [record.exc_info for record in caplog.records if record.exc_info]
    assert [str(error[1]) for error in told] == ["too deep"]  # not the text: pyspark's logger formats what it finds


def test_a_library_that_is_missing_is_no_files_error(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be missing for each, so it ends the work, and Spark's tasks tell it as what the executors lack."""

    def broken(*_args: Any, **_named: Any) -> Any:
        raise ModuleNotFoundError("No module named 'hvac'")

    monkeypatch.setattr(ContentProof, "read_source", broken)
    with pytest.raises(ModuleNotFoundError):
        rewrite(bench, bench.order())


def dying(order: FileOrder, *rest: Any) -> FileOutcome:
    """Carry out an order; one of them ends the process, as the kernel does when memory is short."""
    if "dies" in order.target:
        os._exit(9)
    return work.rewrite(order, *rest)


def test_a_worker_that_is_killed_costs_only_files_not_done(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every order has an outcome: those that were done by then, and an error by name for the others."""
    monkeypatch.setattr(workers, "rewrite", dying)
    orders = [bench.order(name) for name in ("a", "dies", "b")]
    outcomes = {outcome.target: outcome for outcome in workers.rewrite_all(orders, bench.keys, {}, processes=2)}
    assert outcomes.keys() == {order.target for order in orders}
    kind, message = outcomes[str(bench.folder / "dies")].error or ("", "")
    assert (kind, "ended from outside" in message) == ("SparkcryptError", True)
    assert outcomes[str(bench.folder / "a")].source == bench.source


def raising(order: FileOrder, *rest: Any) -> FileOutcome:
    """Carry out an order; one of them raises what no outcome can hold."""
    if "bad" in order.target:
        raise ImportError("no such library")
    return work.rewrite(order, *rest)


def test_a_worker_that_raises_costs_one_file(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The outcomes of all others are there."""
    monkeypatch.setattr(workers, "rewrite", raising)
    orders = [bench.order(name) for name in ("a", "bad", "b")]
    done = workers.rewrite_all(orders, bench.keys, {}, processes=2)
    outcomes = {Path(outcome.target).name: outcome for outcome in done}
    assert [outcomes[name].error is None for name in ("a", "bad", "b")] == [True, False, True]

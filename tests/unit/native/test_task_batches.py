"""How orders are shared out to tasks, and what a task does with several."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sparkcrypt.files import output
from sparkcrypt.files.orders import FileOutcome
from sparkcrypt.files.workers import BYTES_A_TASK, FILES_A_TASK, rewriter, share_out

from .conftest import Bench

LARGE = BYTES_A_TASK + 1


@pytest.mark.parametrize(
    ("lengths", "sizes"),
    [
        ([], []),
        ([1], [1]),
        ([LARGE], [1]),
        ([LARGE, LARGE, 1, 1], [1, 1, 2]),
        ([1, LARGE, 1], [1, 1, 1]),
        ([0] * (2 * FILES_A_TASK + 1), [FILES_A_TASK, FILES_A_TASK, 1]),
        ([BYTES_A_TASK // 4] * 9, [4, 4, 1]),
    ],
)
def test_small_files_share_a_task_and_large_ones_do_not(lengths: list[int], sizes: list[int]) -> None:
    """Every order is carried out once, in order."""
    tasks = share_out(lengths)
    assert [place for task in tasks for place in task] == list(range(len(lengths)))
    assert [len(task) for task in tasks] == sizes


def outcomes(bench: Bench, *tasks: list[str]) -> list[FileOutcome]:
    """Carry out tasks of rewrites, each of some files by their names, the last task first."""
    orders = [[bench.order(name, ssn="pii") for name in task] for task in tasks]
    work = rewriter(orders, bench.keys, {})
    places = pa.RecordBatch.from_pydict({"id": list(reversed(range(len(tasks))))})
    return [FileOutcome.from_json(text) for batch in work([places]) for text in batch.column(0).to_pylist()]


def test_one_file_of_a_task_does_not_end_the_work_on_others(bench: Bench) -> None:
    """Outcomes are in the order of the orders, and each is of its own file."""
    (bench.folder / "b.parquet").write_bytes(b"somebody's")
    found = outcomes(bench, ["a.parquet", "b.parquet", "c.parquet"], ["d.parquet"])
    told = {outcome.target.rpartition("/")[2]: outcome.error is None for outcome in found}
    assert list(told.items()) == [("d.parquet", True), ("a.parquet", True), ("b.parquet", False), ("c.parquet", True)]
    assert (bench.folder / "b.parquet").read_bytes() == b"somebody's"


def test_folder_is_synced_once_a_task_and_before_an_outcome_is_told(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where that fails no file of the task counts as written."""
    synced: list[str] = []
    monkeypatch.setattr(output, "sync_folder", synced.append)
    assert [outcome.error for outcome in outcomes(bench, ["a.parquet", "b.parquet"])] == [None, None]
    assert len(synced) == 1

    def fail(_: str) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(output, "sync_folder", fail)
    failed = outcomes(bench, ["c.parquet", "d.parquet"])
    assert [outcome.error is not None and outcome.error[0] for outcome in failed] == ["StorageError"] * 2

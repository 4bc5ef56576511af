"""Which files tasks of Spark read and authenticate, and which of them the driver has the last word on."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from sparkcrypt.errors import (
    ConfigError,
    FormatError,
    KeyAccessDeniedError,
    KeyNotFoundError,
    KeyServiceUnavailableError,
    SparkcryptError,
    StorageError,
    VerificationError,
)
from sparkcrypt.files.footers import Authentication, Depth, FooterFacts, Found
from sparkcrypt.files.parquet import FileSummary
from sparkcrypt.files.parquet.summary import ColumnSummary
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.runs.table import footers
from sparkcrypt.runs.table.footers import FEW, FEW_BYTES, TaskFooters, error_of
from sparkcrypt.runs.table.verify import _WholeFiles
from sparkcrypt.spark.files.listing import SourceFile

SERVICE = KeyServiceConfig.from_dict({"type": "local", "path": "keys"})
COLUMNS: dict[tuple[str, ...], ColumnSummary] = {
    ("ssn",): ColumnSummary(True, "pii"),
    ("tel",): ColumnSummary(True, "other"),
}


def facts_of(path: str, error: SparkcryptError | None = None, **proof: Any) -> FooterFacts:
    """Return the facts of an encrypted file that was read to its modules."""
    summary = FileSummary(path, "encrypted", "AES_GCM_V1", "footer", None, False, None, 1, 1, COLUMNS)
    return FooterFacts(summary, {}, proof=Authentication(error, error is not None, **proof))


def several(count: int, length: int = 1) -> list[SourceFile]:
    """Return some files of one length."""
    return [SourceFile(f"f{number}", length, 1) for number in range(count)]


@dataclass(frozen=True)
class Driver:
    """Instead of the driver's reader, one that reads every file and notes which."""

    depth: Depth = "modules"
    shredded: frozenset[str] = frozenset()
    asked: list[str] = field(default_factory=list)

    def read(self, sources: Sequence[SourceFile]) -> Mapping[str, Found]:
        """Return facts of each."""
        self.asked.extend(source.path for source in sources)
        return {source.path: facts_of(source.path) for source in sources}


class Tasks:
    """Instead of tasks, what they would have found: first of all files, then of those that are read again."""

    def __init__(self, *found: Mapping[str, Found]) -> None:
        self.found = list(found)
        self.calls: list[tuple[list[str], str, Depth, Collection[str]]] = []

    def __call__(
        self, _: object, sources: Sequence[SourceFile], service: tuple[object, str], *, depth: Depth, shredded: Any
    ) -> Iterator[tuple[str, Found]]:
        """Return what is found of files."""
        self.calls.append(([source.path for source in sources], service[1], depth, shredded))
        found = self.found.pop(0) if self.found else {}
        return iter([(source.path, found.get(source.path, facts_of(source.path))) for source in sources])


def reader_of(driver: Driver, tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> TaskFooters:
    """Return a reader over these."""
    monkeypatch.setattr(footers, "read_footers_in_tasks", tasks)
    return TaskFooters(cast("Any", None), SERVICE, cast("Any", driver))


@pytest.mark.parametrize(
    ("depth", "files", "length", "by_tasks"),
    [
        ("footer", FEW, FEW_BYTES, False),
        ("keys", FEW, FEW_BYTES, False),
        ("modules", FEW, FEW_BYTES // FEW, False),
        ("modules", FEW, FEW_BYTES // FEW + 1, True),
        ("modules", FEW + 1, 1, True),
    ],
)
def test_few_small_files_need_no_job(
    monkeypatch: pytest.MonkeyPatch, depth: Depth, files: int, length: int, by_tasks: bool
) -> None:
    """Of whole files their size counts too."""
    driver, tasks = Driver(depth), Tasks()
    sources = several(files, length)
    assert len(reader_of(driver, tasks, monkeypatch).read(sources)) == files
    assert bool(tasks.calls) == by_tasks and bool(driver.asked) != by_tasks


@pytest.mark.parametrize("whole", [True, False])
def test_driver_has_the_last_word_on_keys_that_tasks_may_not_use(monkeypatch: pytest.MonkeyPatch, whole: bool) -> None:
    """Executors without its credentials raise no false alarm; what speaks of the file or of a key is believed."""
    errors: list[SparkcryptError] = [
        KeyAccessDeniedError("executor"),
        KeyServiceUnavailableError("executor"),
        StorageError("executor"),
        ConfigError("executor"),
        KeyNotFoundError("gone"),
        VerificationError("changed"),
        FormatError("damaged"),
    ]
    sources = several(FEW + 1)
    failed: dict[str, Found] = {
        source.path: error if whole else facts_of(source.path, error)
        for source, error in zip(sources, errors, strict=False)
    }
    driver = Driver()
    found = reader_of(driver, Tasks(failed), monkeypatch).read(sources)
    assert driver.asked == ["f0", "f1", "f2", "f3"]
    assert [error_of(found[source.path]) for source in sources[:7]] == [None] * 4 + errors[4:]
    plan = Driver("footer")
    reader_of(plan, Tasks(failed), monkeypatch).read(sources)
    assert plan.asked == ["f2", "f3"]  # a plan reports a key that executors may not use: they encrypt


def test_files_with_dark_columns_are_read_once_more_without_these(monkeypatch: pytest.MonkeyPatch) -> None:
    """All at once, by tasks of the same reader; a key that is merely absent is no reason to."""
    sources = several(FEW + 3)
    gone = KeyNotFoundError("gone")
    absent: dict[str, Found] = {
        **{source.path: facts_of(source.path, gone) for source in sources[: FEW + 2]},
        "f0": KeyNotFoundError("the footer's"),
    }
    tasks = Tasks(absent, {source.path: facts_of(source.path, dark={("ssn",): "pii"}) for source in sources})
    asked: list[set[str]] = []

    def tell_shredded(key_ids: Collection[str]) -> Collection[str]:
        asked.append(set(key_ids))
        return {"pii"} & set(key_ids)

    reader = _WholeFiles(reader_of(Driver(), tasks, monkeypatch), tell_shredded)
    found = reader.read(sources)
    assert [(len(paths), depth, shredded) for paths, _, depth, shredded in tasks.calls] == [
        (FEW + 3, "modules", frozenset()),
        (FEW + 1, "modules", frozenset({"pii"})),
    ]
    assert len({name for _, name, _, _ in tasks.calls}) == 1 and asked == [{"pii", "other"}] * (FEW + 1)
    assert isinstance(found["f0"], KeyNotFoundError)
    again, never = found["f1"], found[f"f{FEW + 2}"]
    assert isinstance(again, FooterFacts) and again.proof is not None and again.proof.dark == {("ssn",): "pii"}
    assert isinstance(never, FooterFacts) and never.proof is not None and not never.proof.dark

    tasks = Tasks(absent)
    nothing = _WholeFiles(reader_of(Driver(), tasks, monkeypatch), lambda _: ())
    assert error_of(nothing.read(sources)["f1"]) is gone and len(tasks.calls) == 1

from __future__ import annotations

import pytest

from sparkcrypt.ledger.state.store import ListedStore
from tests.unit.backfill.memory_store import MemoryStore

NAMES = [
    "cache/a/t/1",
    "cache/ab/t/1",
    "log/t/1",
    "log/t/2",
    "log/t-2/1",
    "log/u/1",
    "log/ü/1",
    "logs/t/1",
    "locks/t/1",
]


class Counted(MemoryStore):
    """A store in memory that keeps what was listed."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(NAMES, b""))
        self.asked: list[str] = []

    def list(self, prefix: str) -> tuple[str, ...]:
        """Return names, and note the prefix."""
        self.asked.append(prefix)
        return super().list(prefix)


@pytest.mark.parametrize(
    "prefix",
    [
        "log/",
        "log/t/",
        "log/t",
        "log/t-2/",
        "log/none/",
        "log/ü",
        "cache/a/",
        "cache/a/t/",
        "cache/ab/",
        "cache/",
        "x/",
    ],
)
def test_it_lists_what_the_store_lists(prefix: str) -> None:
    """In the same order, and nothing of a folder whose name begins alike."""
    assert ListedStore(Counted()).list(prefix) == Counted().list(prefix)


def test_each_folder_is_listed_once() -> None:
    """Below the cache each kind is listed by itself, so that footers are not listed for nothing."""
    store = Counted()
    listed = ListedStore(store)
    for _ in range(3):
        for prefix in ("log/t/", "log/ü/", "log/none/", "cache/a/t/"):
            listed.list(prefix)
    assert store.asked == ["log/", "cache/a/"]


def test_records_are_those_of_the_store() -> None:
    """What is written or deleted through it is in the store, and is not seen in listings."""
    store = Counted()
    listed = ListedStore(store)
    before = listed.list("log/t/")
    assert listed.create("log/t/3", b"x") and not listed.create("log/t/3", b"y")
    listed.delete("log/t/1")
    assert listed.read("log/t/3") == b"x" and listed.read("log/t/1") is None
    assert listed.list("log/t/") == before and store.list("log/t/") == ("log/t/2", "log/t/3")

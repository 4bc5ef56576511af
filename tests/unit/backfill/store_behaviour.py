"""What every store of state does, and a script that writes into one from another process."""

from __future__ import annotations

import threading

import pytest

from sparkcrypt.errors import ConfigError
from sparkcrypt.ledger.state.store import StateStore

RACE = """
import sys
from sparkcrypt.ledger.state.store import LocalStateStore
store = LocalStateStore(sys.argv[1] + "/state")
print("ready", flush=True)
sys.stdin.readline()
for number in range(40):
    if store.create(f"runs/t/{number:06d}.json", sys.stdin.name.encode() * 1000):
        print(number)
"""


class StoreBehaviour:
    """Runs on the fixture ``store`` of the module in which a class inherits it."""

    def test_a_record_is_created_once_and_read_back(self, store: StateStore) -> None:
        """The second creation of a name is refused and changes nothing."""
        assert store.create("locks/t/1.json", b"first")
        assert not store.create("locks/t/1.json", b"second")
        assert store.read("locks/t/1.json") == b"first"

    def test_what_is_not_there_reads_as_none_and_deletes_as_nothing(self, store: StateStore) -> None:
        """A record, a folder and a name below a record are all no record."""
        store.create("a/b", b"1")
        for name in ("nothing", "a", "a/b/c", "x/y/z"):
            assert store.read(name) is None
        store.delete("nothing")
        store.delete("a/b/c")
        assert store.list("") == ("a/b",)

    def test_a_deleted_name_may_be_created_again(self, store: StateStore) -> None:
        """Deletion frees a name."""
        store.create("a/b", b"1")
        store.delete("a/b")
        assert store.read("a/b") is None
        assert store.create("a/b", b"2")

    def test_names_are_listed_sorted_by_prefix(self, store: StateStore) -> None:
        """A prefix may end inside a name; hidden files and other prefixes are not listed."""
        for name in ("a/10", "a/2", "a/1", "ab/1", "b/1"):
            store.create(name, b"")
        assert store.list("a/") == ("a/1", "a/10", "a/2")
        assert store.list("a/1") == ("a/1", "a/10")
        assert store.list("a") == ("a/1", "a/10", "a/2", "ab/1")
        assert store.list("nowhere/") == ()

    @pytest.mark.parametrize("name", ["", "/a", "a/", "a//b", "../a", "a/../b", "a/./b", ".hidden", "a/.tmp", "a\0b"])
    def test_names_that_leave_the_directory_or_hide_are_refused(self, store: StateStore, name: str) -> None:
        """No name reaches out of the state directory, or where listings do not look."""
        for use in (store.read, store.delete, lambda unsafe: store.create(unsafe, b"x")):
            with pytest.raises(ConfigError, match="not a name"):
                use(name)

    def test_of_racing_threads_exactly_one_creates_a_record(self, store: StateStore) -> None:
        """Threads of one process are kept apart as well."""
        start, won = threading.Barrier(8), []

        def create() -> None:
            start.wait()
            won.append(store.create("a/b", b"x"))

        threads = [threading.Thread(target=create) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(won) == [False] * 7 + [True]

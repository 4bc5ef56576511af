"""The pointer that spares a look into every journal: it holds for the names it was made for, and hides nothing."""

from __future__ import annotations

import pytest

from sparkcrypt.ledger.audit.trust import is_settled, settle
from sparkcrypt.ledger.state.mac import TableMac
from tests.unit.backfill.conftest import TABLE
from tests.unit.backfill.memory_store import MemoryStore

MAC, OTHER = TableMac(b"k" * 32), TableMac(b"o" * 32)


def names_in(store: MemoryStore) -> tuple[str, ...]:
    """Return the names of the table's records."""
    return store.list(f"log/{TABLE}/")


def one_run() -> MemoryStore:
    """A state directory with two records of one run."""
    return MemoryStore({f"log/{TABLE}/r1/000001.json": b"", f"log/{TABLE}/r1/000002.json": b""})


def test_a_pointer_holds_for_the_names_it_was_made_for() -> None:
    """As long as nothing comes and nothing goes it says that all is settled; a new one takes its place."""
    store = one_run()
    assert not is_settled(store, TABLE, names_in(store), MAC.check)
    settle(store, TABLE, names_in(store), MAC)
    assert is_settled(store, TABLE, names_in(store), MAC.check)
    store.create(f"log/{TABLE}/r2/000001.json", b"")
    assert not is_settled(store, TABLE, names_in(store), MAC.check)
    settle(store, TABLE, names_in(store), MAC)
    assert is_settled(store, TABLE, names_in(store), MAC.check) and len(store.list("cache/settled/")) == 1
    store.delete(f"log/{TABLE}/r2/000001.json")
    assert not is_settled(store, TABLE, names_in(store), MAC.check)


def test_a_record_that_comes_meanwhile_is_not_settled() -> None:
    """Names that are no longer those that were looked at make no pointer."""
    store = one_run()
    seen = names_in(store)
    store.create(f"log/{TABLE}/r1/000003.json", b"")
    settle(store, TABLE, seen, MAC)
    assert store.list("cache/settled/") == ()


@pytest.mark.parametrize("forged", ["without a key", "another table's", "another listing's"])
def test_a_pointer_of_somebody_else_is_none(forged: str) -> None:
    """One under another key, or that was copied from elsewhere, is as good as none, and journals are asked."""
    store, other = one_run(), one_run()
    settle(store, TABLE, names_in(store), OTHER if forged == "without a key" else MAC)
    (name,) = store.list("cache/settled/")
    if forged == "another table's":
        content = store.records.pop(name)
        moved = MemoryStore({listed.replace(TABLE, "t2"): b"" for listed in names_in(other)})
        moved.create(name.replace(TABLE, "t2"), content)
        assert not is_settled(moved, "t2", moved.list("log/t2/"), MAC.check)
        return
    if forged == "another listing's":
        store.create(f"log/{TABLE}/r2/000001.json", b"")
        settle(other, TABLE, names_in(store), MAC)
        names = names_in(store)
        settle(store, TABLE, names, MAC)
        (wanted,) = store.list("cache/settled/")
        store.records[wanted] = other.records.get(name, b"{}\n")
    assert not is_settled(store, TABLE, names_in(store), MAC.check)

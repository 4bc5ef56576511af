"""The record of tags that a table lost, which commands without Spark show."""

from __future__ import annotations

from sparkcrypt.runs.passes.lost_tags import record_lost_tags, recorded_lost_tags
from tests.unit.backfill.memory_store import MemoryStore


def test_record_lasts_until_the_tags_are_back() -> None:
    """Each table has one record, whatever the case of its name; a damaged one is ignored, and the next replaces it."""
    store = MemoryStore({})
    record_lost_tags(store, "d.t", None)
    record_lost_tags(store, "d.t", "pii is gone")
    record_lost_tags(store, "D.T", "fin is gone")
    record_lost_tags(store, "d.other", "all are gone")
    assert sorted(recorded_lost_tags(store)) == [("D.T", "fin is gone"), ("d.other", "all are gone")]
    for content in (b"[", b"[]", b'{"version": 2}', b'{"version": 1}'):
        for name in store.list("lost_tags/"):
            store.delete(name)
            store.create(name, content)
        assert list(recorded_lost_tags(store)) == []
    record_lost_tags(store, "d.other", "all are gone")
    assert list(recorded_lost_tags(store)) == [("d.other", "all are gone")]
    record_lost_tags(store, "d.other", None)
    record_lost_tags(store, "d.t", None)
    assert store.list("") == ()

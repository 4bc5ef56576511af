"""The list of files that an audit's entries make: what replaces it, what adds to it, and what is missed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkcrypt.ledger.audit.audit import AuditWriter, make_entry
from sparkcrypt.ledger.audit.manifest import CUT_OFF, GONE, LISTED_GONE, REPLACED, Manifest, keep_listed, read_listed
from sparkcrypt.ledger.state.mac import TableMac
from sparkcrypt.ledger.state.store import LocalStateStore

UNIT = "p=1"


def files(folder: str, **lengths: int) -> list[dict[str, Any]]:
    """Return files as an audit describes them."""
    return [{"path": f"{folder}/{name}", "bytes": length, "digest": name} for name, length in lengths.items()]


def entry(
    what: str, old: list[dict[str, Any]] | None = None, new: list[dict[str, Any]] | None = None, **unit: Any
) -> dict[str, Any]:
    """Return an entry on the unit."""
    changes = [{"folder": "", "sources": old or [], "targets": new or []}]
    digests = {"secret": {"key_id": "audit", "wrapped": "text"}}
    return make_entry(what, "digest", f"run-{what}", unit={"unit": UNIT, **unit}, changes=changes, digests=digests)


def listed(*entries: dict[str, Any]) -> dict[str, int]:
    """Return the unit's list after some entries: name -> length."""
    manifest = Manifest()
    for taken in entries:
        manifest.take(taken)
    return {place: file.length for place, file in manifest.listed[UNIT].items()}


RUN = entry("encrypt", files("/old", a=1, b=2), files("/new", a=11, b=12))


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        (entry("carry over", files("/old", c=3), files("/new", c=13)), {"a": 11, "b": 12, "c": 13}),
        (entry(REPLACED, None, files("/new", x=20)), {"x": 20}),
        (entry(REPLACED), {}),
        (entry("encrypt", files("/new", a=11, b=12), files("/newer", a=21, b=22)), {"a": 21, "b": 22}),
        (entry("encrypt", files("/new", a=11, c=3), files("/newer", a=21, c=23)), {"a": 21, "c": 23, "b": 12}),
        (entry("encrypt", files("/new", a=5, x=6), files("/newer", a=25, x=26)), {"a": 25, "x": 26}),
        (entry("roll back", files("/new", a=11, b=12), files("/old", a=1, b=2)), {"a": 1, "b": 2}),
        (entry("resolve", None, files("/new", a=11), kind=LISTED_GONE, keep="new"), {"a": 11}),
        (entry("resolve", kind=LISTED_GONE, keep="both"), {"a": 11, "b": 12}),
        (entry("resolve", kind=GONE, keep="new", gone=["b"], listing={"new": [["a", 11]]}), {"a": 11}),
        (entry("resolve", kind=GONE, keep="new", gone=["b"], listing={"old": []}), {"a": 11}),
        (entry("resolve", kind="removed", keep="new", gone=["a"]), {"a": 11, "b": 12}),
        (entry("resolve", kind="removed", keep="old", gone=["a"]), {}),
        (entry("resolve", kind=CUT_OFF, keep="new"), {}),
    ],
)
def test_what_an_entry_makes_of_the_list(later: dict[str, Any], expected: dict[str, int]) -> None:
    """A run that finds some listed files carries the others over as missing; a person's decision lets them go."""
    assert listed(RUN, later) == expected


def test_every_file_that_entries_name_is_known_as_an_earlier_one() -> None:
    """Sources and targets of all entries are, by their lengths, whatever became of the list."""
    manifest = Manifest()
    manifest.take(RUN)
    manifest.take(entry(REPLACED, None, files("/new", x=20)))
    assert sorted(manifest.earlier[UNIT]) == [1, 2, 11, 12, 20]


def test_kept_list_goes_on_with_newer_entries_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is as good as the whole audit; one that is forged, or of an entry that the audit has not, is ignored."""
    store, mac = LocalStateStore(tmp_path), TableMac(b"k" * 32, key_ids=("audit",))
    audit = AuditWriter(store, "t", mac)
    audit.append(RUN)
    manifest, head = read_listed(store, "t", mac)
    manifest.beside[UNIT] = {"c": 3}
    keep_listed(store, "t", mac, manifest, head)
    audit.append(entry("carry over", None, files("/new", d=4)))
    read: list[str] = []
    original = LocalStateStore.read

    def note(self: LocalStateStore, name: str) -> bytes | None:
        read.append(name)
        return original(self, name)

    monkeypatch.setattr(LocalStateStore, "read", note)
    assert set(read_listed(store, "t", mac)[0].listed[UNIT]) == {"a", "b", "d"}
    assert "listed/t/00000001.json" in read
    assert read.count("audit/t/00000001.json") == 1
    again, _ = read_listed(store, "t", mac)
    assert (set(again.listed[UNIT]), again.beside[UNIT]) == ({"a", "b", "d"}, {"c": 3})
    (name,) = store.list("listed/t/")
    store.delete(name)
    store.create(name, b'{"mac":"00"}\n')
    assert set(read_listed(store, "t", mac)[0].listed[UNIT]) == {"a", "b", "d"}
    for kept in store.list("audit/t/"):
        store.delete(kept)
    AuditWriter(store, "t", mac).append(entry("encrypt", None, files("/x", z=1)))
    assert set(read_listed(store, "t", mac)[0].listed[UNIT]) == {"z"}

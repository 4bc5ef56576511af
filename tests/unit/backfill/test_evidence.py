"""What proves which files a run has read and made: digests, and the list of them."""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import secrets
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkcrypt.errors import FormatError
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.service import KeyService
from sparkcrypt.ledger.audit.audit import AuditWriter, make_entry
from sparkcrypt.ledger.audit.evidence import DigestSecret, FileEvidence, Proof, StagedUnit, evidence_of
from sparkcrypt.ledger.audit.manifest import CUT_OFF, GONE, LISTED_GONE, REPLACED, Manifest, keep_listed, read_listed
from sparkcrypt.ledger.journal.journal import RunRecord
from sparkcrypt.ledger.log import TableLog
from sparkcrypt.ledger.state.mac import TableMac
from sparkcrypt.ledger.state.store import LocalStateStore
from sparkcrypt.policy.key_service import KeyServiceConfig, canonical_json
from sparkcrypt.spark.tasks.digest import RowsDigest
from tests.journals import start_run
from tests.unit.backfill.memory_store import MemoryStore


@pytest.fixture
def service(tmp_path: Path) -> KeyService:
    """A real key service with the key ``audit``."""
    opened = open_key_service(KeyServiceConfig.from_dict({"type": "local", "path": str(tmp_path / "keys")}))
    opened.create("audit")
    return opened


@pytest.fixture
def content() -> bytes:
    """A Parquet file."""
    stream = io.BytesIO()
    pq.write_table(pa.table({"a": list(range(100))}), stream)
    return stream.getvalue()


def test_an_auditor_with_the_master_key_can_make_the_digest_again(service: KeyService, content: bytes) -> None:
    """HMAC-SHA256 by the unwrapped secret over a label, the length as 8 bytes, and the footer with its trailer."""
    made = DigestSecret.make(service, "audit")
    told = made.to_dict()
    secret = service.unwrap(told["key_id"], told["wrapped"])
    footer = content[-8 - int.from_bytes(content[-8:-4], "little") :]
    message = b"sparkcrypt audit: length and footer\0" + len(content).to_bytes(8, "little") + footer
    assert made.of_file(io.BytesIO(content)) == hmac.new(secret, message, hashlib.sha256).hexdigest()
    rows = RowsDigest(3, 5, 7)
    message = b"sparkcrypt audit: rows\0" + canonical_json(rows.to_dict()).encode()
    assert made.of_rows(rows) == hmac.new(secret, message, hashlib.sha256).hexdigest()


def test_digests_of_two_executions_cannot_be_compared(service: KeyService, content: bytes) -> None:
    """Each has its own secret, so that equal files of two runs do not show as equal."""
    first, second = DigestSecret.make(service, "audit"), DigestSecret.make(service, "audit")
    assert first.of_file(io.BytesIO(content)) != second.of_file(io.BytesIO(content))
    assert first.of_rows(RowsDigest(1, 2, 3)) != second.of_rows(RowsDigest(1, 2, 3))
    assert len(first.secret) == 32


def test_length_and_footer_are_covered_and_pages_are_not(content: bytes) -> None:
    """As documented: a byte of the footer or of the length changes the digest, one of a plaintext page does not."""
    secret = DigestSecret("audit", "", b"s" * 32)
    before = secret.of_file(io.BytesIO(content))
    footer = bytearray(content)
    footer[-20] ^= 1
    assert secret.of_file(io.BytesIO(bytes(footer))) != before
    assert secret.of_file(io.BytesIO(content[:4] + b"x" + content[4:])) != before
    page = bytearray(content)
    page[10] ^= 1
    assert secret.of_file(io.BytesIO(bytes(page))) == before


@pytest.mark.parametrize("damaged", [b"", b"PAR1", b"PAR1" + b"\xff\xff\xff\x7fPAR1"])
def test_a_file_without_a_whole_footer_has_no_digest(damaged: bytes) -> None:
    """A footer that would begin before the file is refused."""
    with pytest.raises(FormatError, match="shorter than its footer"):
        DigestSecret("audit", "", b"s" * 32).of_file(io.BytesIO(damaged))


def test_the_secret_is_shown_nowhere() -> None:
    """Neither in its repr nor in what a journal holds."""
    key = secrets.token_bytes(32)
    secret = DigestSecret("audit", "wrapped", key)
    shown = repr(secret) + str(secret) + json.dumps(secret.to_dict())
    assert repr(key)[2:-1] not in shown and key.hex() not in shown


STAGED = StagedUnit(folders=(), summaries={}, total_bytes=12, rows=4, not_authenticated=())


def test_a_change_for_each_file_where_files_were_rewritten_one_by_one() -> None:
    """Each old file stands beside the new one that has its pages, whatever form their URIs have."""
    secret = DigestSecret("audit", "wrapped", b"s" * 32)
    old = [FileEvidence(f"file:/t/p=1/{n}", 10, 7, 2, (), f"d{n}") for n in range(2)]
    new = [FileEvidence(f"file:/s/p=1/{n}", 12, 8, 2, ("pii",), f"e{n}") for n in range(2)]
    pairs = {f"file:///s/p=1/{n}": f"file:///t/p=1/{n}" for n in range(2)}
    made = evidence_of({"p=1": old}, {"p=1": new}, Proof(STAGED, 4, pairs=pairs), secret)
    assert [(len(change["sources"]), len(change["targets"])) for change in made["changes"]] == [(1, 1), (1, 1)]
    for number, change in enumerate(made["changes"]):
        assert (change["sources"][0]["digest"], change["targets"][0]["digest"]) == (f"d{number}", f"e{number}")
        assert (change["folder"], change["pages"], change["rows"]) == (
            "p=1",
            {"equal": True},
            {"count": 2, "equal": True},
        )


def test_changes_name_old_and_new_files_of_each_folder() -> None:
    """One record a folder, with the rows that were equal before and after; as many files on each side as there are."""
    secret = DigestSecret("audit", "wrapped", b"s" * 32)
    old = [FileEvidence(f"/t/p=1/{n}", 10, 7, 2, (), f"d{n}") for n in range(2)]
    new = [FileEvidence("/s/p=1/x", 12, 8, 4, ("footer", "pii"), "e")]
    proof = Proof(STAGED, 4, row_digests={"p=1": RowsDigest(4, 1, 2)})
    made = evidence_of({"p=1": old}, {"p=1": new}, proof, secret)
    assert made["digests"]["secret"] == {"key_id": "audit", "wrapped": "wrapped"}
    change = made["changes"][0]
    assert (change["folder"], change["rows"]["count"], change["rows"]["equal"]) == ("p=1", 4, True)
    assert [source["path"] for source in change["sources"]] == ["/t/p=1/0", "/t/p=1/1"]
    assert change["targets"] == [
        {"path": "/s/p=1/x", "bytes": 12, "modified_ms": 8, "rows": 4, "key_ids": ["footer", "pii"], "digest": "e"}
    ]
    assert json.loads(json.dumps(made)) == made


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
    audit = AuditWriter(TableLog.open(store, "t", mac), 1)
    audit.append(RUN)
    manifest, head = read_listed(store, TableLog.open(store, "t", mac), mac)
    manifest.beside[UNIT] = {"c": 3}
    keep_listed(store, "t", mac, manifest, head)
    audit.append(entry("carry over", None, files("/new", d=4)))
    read: list[str] = []
    original = LocalStateStore.read

    def note(self: LocalStateStore, name: str) -> bytes | None:
        read.append(name)
        return original(self, name)

    monkeypatch.setattr(LocalStateStore, "read", note)
    assert set(read_listed(store, TableLog.open(store, "t", mac), mac)[0].listed[UNIT]) == {"a", "b", "d"}
    assert "cache/listed/t/00000001.json" in read
    assert read.count("log/t/00000001.json") == 1
    again, _ = read_listed(store, TableLog.open(store, "t", mac), mac)
    assert (set(again.listed[UNIT]), again.beside[UNIT]) == ({"a", "b", "d"}, {"c": 3})
    (name,) = store.list("cache/listed/t/")
    store.delete(name)
    store.create(name, b'{"mac":"00"}\n')
    assert set(read_listed(store, TableLog.open(store, "t", mac), mac)[0].listed[UNIT]) == {"a", "b", "d"}
    for kept in store.list("log/t/"):
        store.delete(kept)
    AuditWriter(TableLog.open(store, "t", mac), 1).append(entry("encrypt", None, files("/x", z=1)))
    assert set(read_listed(store, TableLog.open(store, "t", mac), mac)[0].listed[UNIT]) == {"z"}


def test_list_is_read_from_the_start_where_the_evidence_of_a_swap_is_before_it() -> None:
    """The list was kept as of a record between the evidence and the swap, as while a run was interrupted."""
    store, mac = MemoryStore({}), TableMac(b"k" * 32)
    journal = start_run(store, RunRecord("t", "db.t", "r", "d", {}, {}, 1), mac)
    where = {"unit": UNIT, "staged": f"/s/{UNIT}"}
    file = {"path": f"/s/{UNIT}/b", "bytes": 12, "digest": "00"}
    change = {"folder": "", "sources": [], "targets": [file]}
    journal.append("unit_listed", **where, location=f"/t/{UNIT}", files=[])
    journal.append("unit_verified", **where, evidence={"changes": [change]})
    assert read_listed(store, TableLog.open(store, "t", mac), mac)[0].listed == {}
    assert store.list("cache/listed/t/") == ("cache/listed/t/00000003.json",)
    places = {"old_location": f"/t/{UNIT}", "new_location": f"/n/{UNIT}"}
    journal.append("unit_swapped", unit=UNIT, outcome={"unit": UNIT, **places})
    assert read_listed(store, TableLog.open(store, "t", mac), mac)[0].listed[UNIT]["b"].length == 12

"""What is believed of a state directory: MAC keys, sealed records, and journals that somebody planted."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt.errors import VerificationError
from sparkcrypt.keys.service import KeyService
from sparkcrypt.ledger.audit.trust import TableTrust
from sparkcrypt.ledger.journal.journal import Journal
from sparkcrypt.ledger.journal.unit_status import status_of_units
from sparkcrypt.ledger.log import TableLog
from sparkcrypt.ledger.state.mac import TableMac, open_sealed, seal_record
from sparkcrypt.ledger.state.store import LocalStateStore, encode_record
from tests.journals import start_run
from tests.unit.backfill.believed import BASE, STAGED, make_service, policy_of
from tests.unit.backfill.conftest import RUN, TABLE, run_record

START = {name: value for name, value in asdict(run_record()).items() if name not in ("run_id", "fencing_token")}


@pytest.fixture
def service(tmp_path: Path) -> KeyService:
    """A real key service with the keys of both policies."""
    return make_service(tmp_path)


def trust_of(store: LocalStateStore, tmp_path: Path, more: str = "") -> TableTrust:
    """Return what journals are believed by, where the metastore names the table's own folder."""
    return TableTrust(store, TABLE, policy_of(tmp_path, more), BASE, lambda _: (BASE,))


def outcome(**changes: Any) -> dict[str, Any]:
    """Return what became of the unit."""
    return {"unit": "p=0", "old_location": f"{BASE}/p=0", "new_location": STAGED, **changes}


def swapped(store: LocalStateStore, trust: TableTrust) -> Journal:
    """Journal a run of one unit."""
    mac = trust.mac(renew=True)
    journal = start_run(store, run_record(), mac)
    described = {"location": f"{BASE}/p=0", "partition_path": "p=0", "files": [], "evidence": {"changes": []}}
    for kind in ("unit_listed", "unit_staged", "unit_verified", "unit_swapping"):
        journal.append(kind, unit="p=0", staged=STAGED, **described)
    journal.append("unit_swapped", unit="p=0", outcome=outcome())
    return journal


def test_what_is_whole_is_believed(store: LocalStateStore, service: KeyService, tmp_path: Path) -> None:
    """An authentic journal inside the table's folders: expire may act on it."""
    trust = trust_of(store, tmp_path)
    swapped(store, trust)
    assert status_of_units(trust.journal(RUN).records)["p=0"].swapped
    assert trust.find_unfinished() == RUN and not trust.unread


def test_an_authentic_journal_of_another_place_is_refused(
    store: LocalStateStore, service: KeyService, tmp_path: Path
) -> None:
    """A table that was moved: what its records name is outside, and is not touched on their word."""
    trust = trust_of(store, tmp_path)
    mac = trust.mac(renew=True)
    journal = start_run(store, run_record(), mac)
    journal.append("unit_listed", unit="p=0", staged=STAGED, location="/elsewhere/p=0", files=[])
    with pytest.raises(VerificationError, match="names '/elsewhere/p=0', which is outside"):
        trust.journal(RUN)
    assert trust.find_unfinished() is None and "outside" in trust.unread[RUN]


def test_lists_that_somebody_left_out_hide_no_run(store: LocalStateStore, service: KeyService, tmp_path: Path) -> None:
    """A record without them is authentic, and needs no key; only a run that has expired may lack them."""
    trust = trust_of(store, tmp_path)
    listed = swapped(store, trust).records[1]
    (short,) = dict(trust.log()._shortened(listed.number)).values()
    store.delete(listed.name)
    store.create(listed.name, short)
    again = trust_of(store, tmp_path)
    assert again.find_unfinished() is None and "were left out, though" in again.unread[RUN]
    assert store.list("cache/settled/") == ()
    with pytest.raises(VerificationError, match="were left out, though its old files have not expired"):
        again.journal(RUN)


def test_log_with_damage_is_not_settled(store: LocalStateStore, service: KeyService, tmp_path: Path) -> None:
    """Records of an unfinished run may come back under the names that the marker would be for."""
    trust = trust_of(store, tmp_path)
    ended = start_run(store, run_record(), trust.mac(renew=True))
    ended.append("run_finished", outcome="done")
    names = [record.name for record in start_run(store, run_record(run_id="later"), trust.mac()).records]
    kept = {name: store.read(name) or b"" for name in names}
    for name in names:
        store.delete(name)
        store.create(name, b"junk")
    assert trust_of(store, tmp_path).find_unfinished() is None
    for name, content in kept.items():
        store.delete(name)
        store.create(name, content)
    assert trust_of(store, tmp_path).find_unfinished() == "later"


def test_a_run_under_a_key_that_was_given_up_is_not_continued(
    store: LocalStateStore, service: KeyService, tmp_path: Path
) -> None:
    """Readers hold the footer key: what only records under it say is not done once the audit has a key of its own."""
    journal = start_run(store, run_record(), trust_of(store, tmp_path).mac(renew=True))
    journal.append("unit_listed", unit="p=0", staged=STAGED, location=f"{BASE}/p=0", files=[])
    assert trust_of(store, tmp_path).find_unfinished() == RUN
    later = trust_of(store, tmp_path, "audit: {key: audit}\n")
    later.mac(renew=True)
    assert later.find_unfinished() is None and "given up" in later.unread[RUN]


def test_no_run_asks_for_no_key(store: LocalStateStore, tmp_path: Path) -> None:
    """A table without runs needs no key service, and gets no MAC key by being looked at."""
    assert trust_of(store, tmp_path).find_unfinished() is None
    assert store.list("") == ()


def test_once_all_has_ended_one_pointer_says_so(store: LocalStateStore, service: KeyService, tmp_path: Path) -> None:
    """The first look makes it; a journal that is planted later, or an end that is cut off, makes it void."""
    journal = swapped(store, trust_of(store, tmp_path))
    journal.append("run_finished", outcome="done")
    assert trust_of(store, tmp_path).find_unfinished() is None
    assert len(store.list(f"cache/settled/{TABLE}/")) == 1
    name = plant(store, ("run_started", START), run_id="later")
    trust = trust_of(store, tmp_path)
    assert trust.find_unfinished() is None and "later" in trust.unread
    store.delete(name)
    store.delete(journal.records[-1].name)
    assert trust_of(store, tmp_path).find_unfinished() == RUN


def plant(store: LocalStateStore, *said: tuple[str, dict[str, Any]], run_id: str = RUN) -> str:
    """Add records of a run, as anybody can who has no key; return the name of the last."""
    log = TableLog.open(store, TABLE, None)
    return [log.append(kind, run_id, 9, fields).name for kind, fields in said][-1]


@pytest.mark.parametrize("audited", [True, False])
def test_an_end_without_a_mac_ends_no_run(
    store: LocalStateStore, service: KeyService, tmp_path: Path, audited: bool
) -> None:
    """A planted end is noted, settles nothing, and the run is found again once it is gone."""
    trust = trust_of(store, tmp_path)
    if audited:
        swapped(store, trust)
    else:
        start_run(store, run_record(), trust.mac(renew=True))
    name = plant(store, ("run_finished", {"outcome": "done"}))
    trust = trust_of(store, tmp_path)
    assert trust.find_unfinished() is None and name in trust.unread[RUN]
    assert not store.list("cache/settled/")
    store.delete(name)
    assert trust_of(store, tmp_path).find_unfinished() == RUN


def test_a_weaker_key_ends_no_run(store: LocalStateStore, service: KeyService, tmp_path: Path) -> None:
    """An end under a MAC key that the run has given up is noted; runs that had ended under it stay ended."""
    ended = start_run(store, run_record("20260101T000000Z-000000"), trust_of(store, tmp_path).mac(renew=True))
    ended.append("run_finished", outcome="done")
    weak = trust_of(store, tmp_path).mac()
    mac = trust_of(store, tmp_path, "audit: {key: audit}\n").mac(renew=True)
    assert trust_of(store, tmp_path, "audit: {key: audit}\n").find_unfinished() is None
    journal = start_run(store, run_record(), mac)
    forger = TableLog.open(store, TABLE, mac)
    forger.mac = weak
    name, content = forger._make(RUN, 1, [("run_finished", {"outcome": "done"})])
    store.create(name, content)
    trust = trust_of(store, tmp_path, "audit: {key: audit}\n")
    assert trust.find_unfinished() is None and list(trust.unread) == [journal.run.run_id]
    assert "had given up" in trust.unread[RUN]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"outcome": 3},
        {"outcome": {}},
        {"files": [1]},
        {"evidence": []},
        {"outcome": {"old_location": 1, "new_location": []}},
        {"audit": {"number": "x", "digest": None}},
        {"evidence": {"changes": [{"sources": 5}]}},
    ],
)
def test_a_planted_run_that_says_nothing_stops_nobody(
    store: LocalStateStore, service: KeyService, tmp_path: Path, fields: dict[str, Any]
) -> None:
    """What has the form of a record and not its members is noted, and the next run begins."""
    trust_of(store, tmp_path).mac(renew=True)
    plant(store, ("run_started", START), ("unit_swapped", {"unit": "p=0", **fields}))
    trust = trust_of(store, tmp_path)
    assert trust.find_unfinished() is None and RUN in trust.unread


def renamed(store: LocalStateStore, tmp_path: Path, *, free: bool = True) -> TableTrust:
    """Return what the same journals are believed by once the table is called ``u``."""
    base = "/warehouse/db/u"
    return TableTrust(store, TABLE, policy_of(tmp_path), base, lambda _: (base,), lambda _: free)


@pytest.mark.parametrize("free", [True, False])
def test_a_killed_run_of_a_renamed_table(
    store: LocalStateStore, service: KeyService, tmp_path: Path, free: bool
) -> None:
    """Its own records name the first folder; they are believed as long as no other table is there."""
    journal = start_run(store, run_record(), trust_of(store, tmp_path).mac(renew=True))
    journal.append("unit_listed", unit="p=0", staged=STAGED, location=f"{BASE}/p=0", files=[])
    trust = renamed(store, tmp_path, free=free)
    assert trust.find_unfinished() == (RUN if free else None)
    assert bool(trust.unread) is not free


MAC = TableMac(b"k" * 32)
PURPOSE = b"a test's record\n"
MEMBERS = {"version": 1, "table_id": "t", "said": "x"}


def opened(content: bytes, mac: TableMac = MAC, purpose: bytes = PURPOSE, **expected: Any) -> dict[str, Any]:
    """Open a record."""
    return open_sealed(purpose, "problems/t/1.json", content, mac.check, {"version": 1, "table_id": "t"} | expected)


def test_a_sealed_record_comes_back() -> None:
    """Its members are what was sealed, also under the successor of the key that sealed it."""
    content = seal_record(PURPOSE, MEMBERS, MAC)
    assert opened(content) == MEMBERS == opened(content, TableMac(b"k" * 32, b"n" * 32))


@pytest.mark.parametrize(
    "content",
    [
        encode_record(MEMBERS),
        encode_record({**MEMBERS, "mac": None}),
        encode_record({**MEMBERS, "mac": "0" * 64}),
        seal_record(PURPOSE, MEMBERS, TableMac(b"o" * 32)),
        seal_record(b"another purpose\n", MEMBERS, MAC),
        seal_record(PURPOSE, MEMBERS, MAC).replace(b'"x"', b'"y"'),
        b"torn",
    ],
)
def test_what_is_not_authentic_is_refused_by_name(content: bytes) -> None:
    """No MAC, another key's, another purpose's, an edited or torn record: none is believed."""
    with pytest.raises(VerificationError, match=r"problems/t/1\.json"):
        opened(content)


def test_an_authentic_record_in_anothers_place_is_refused() -> None:
    """What it says of its table must be what is expected there."""
    with pytest.raises(VerificationError, match="has table_id 't', where 'u' is expected"):
        opened(seal_record(PURPOSE, MEMBERS, MAC), table_id="u")


@pytest.mark.parametrize("number", range(0, 80, 7))
def test_every_changed_byte_is_found(number: int) -> None:
    """A byte that differs anywhere is refused."""
    content = bytearray(seal_record(PURPOSE, MEMBERS, MAC))
    content[number] ^= 1
    with pytest.raises(VerificationError):
        opened(bytes(content))

from __future__ import annotations

from pathlib import Path

import pytest

from sparkcrypt.backfill.audit import append_entry, key_service_mac
from sparkcrypt.backfill.journal import Journal, RunRecord
from sparkcrypt.backfill.store import LocalStateStore
from sparkcrypt.keys.service import KeyService

from .conftest import run

FIRST, SECOND = "20260101T000000000Z-aaaaaa", "20260201T000000000Z-bbbbbb"


def journal(store: LocalStateStore, run_id: str, table: str = "sales.customers", table_id: str = "uuid-1") -> Journal:
    """Begin a run of one unit."""
    options = {"engine": "spark", "where": None, "output": None, "exclusive": False}
    started = Journal.start(store, RunRecord(table_id, table, run_id, "digest", {}, options, 1))
    started.append("unit_listed", unit="p=0", files=[])
    return started


@pytest.fixture
def store(tmp_path: Path) -> LocalStateStore:
    """The policy's state directory with a finished run, and a later one that stopped while it staged."""
    store = LocalStateStore(tmp_path / "state")
    done = journal(store, FIRST)
    done.append("unit_swapped", unit="p=0", outcome={"files": 1})
    done.append("run_finished", outcome="done")
    journal(store, SECOND).append("unit_failed", unit="p=0", error="VerificationError: no")
    return store


def test_runs_are_listed_in_order(policy: Path, store: LocalStateStore) -> None:
    """Every run is listed with its state, the oldest first."""
    found = run("backfill", "list", "--policy", policy, "--json").document
    assert [(one["run_id"], one["state"], one["units"]) for one in found] == [
        (FIRST, "done", 1),
        (SECOND, "unfinished", 1),
    ]


def test_no_run_is_an_empty_list(policy: Path) -> None:
    """A state directory that was never used is no error."""
    assert run("backfill", "list", "--policy", policy, "--json").document == []


def test_a_list_can_be_of_one_table(policy: Path, store: LocalStateStore) -> None:
    """--table takes a name in any case, or the table's UUID, and passes over other tables."""
    journal(store, "20260301T000000000Z-cccccc", "sales.orders", "uuid-2")
    for table in ("Sales.Customers", "spark_catalog.sales.customers", "uuid-1"):
        found = run("backfill", "list", "--table", table, "--policy", policy, "--json").document
        assert [one["run_id"] for one in found] == [FIRST, SECOND]


def test_a_table_without_runs_is_78(policy: Path, store: LocalStateStore) -> None:
    """A table that is not known is told beside those that are."""
    done = run("backfill", "status", "--table", "sales.nosuch", "--policy", policy)
    assert done.code == 78
    assert "sales.customers" in done.errors


def test_status_is_the_latest_runs(policy: Path, store: LocalStateStore) -> None:
    """The status names each unit's last step and error, and what continues the run."""
    done = run("backfill", "status", "--table", "sales.customers", "--policy", policy, "--json").document
    assert (done["run_id"], done["state"]) == (SECOND, "unfinished")
    assert done["units"] == [{"unit": "p=0", "step": "unit_failed", "error": "VerificationError: no", "outcome": None}]
    text = run("backfill", "status", "--table", "sales.customers", "--policy", policy).output
    assert "the same `sparkcrypt encrypt` command continues it" in text


def test_one_run_is_shown(policy: Path, store: LocalStateStore) -> None:
    """A run is shown by its id; one that is not there ends with 78 and names the latest."""
    assert run("backfill", "show", FIRST, "--policy", policy, "--json").document["state"] == "done"
    done = run("backfill", "show", "nosuch", "--policy", policy)
    assert done.code == 78
    assert SECOND in done.errors


def test_a_damaged_run_does_not_hide_the_others(policy: Path, store: LocalStateStore, tmp_path: Path) -> None:
    """A journal that was changed is listed as damaged, with the reason."""
    record = tmp_path / "state" / "runs" / "uuid-1" / FIRST / "000002.json"
    record.write_bytes(record.read_bytes().replace(b"p=0", b"p=1"))
    found = run("backfill", "list", "--policy", policy, "--json").document
    assert [one["state"] for one in found] == ["damaged", "unfinished"]
    assert "000002.json" in found[0]["damage"]


@pytest.fixture
def audited(store: LocalStateStore, keys: KeyService) -> Path:
    """Two audit entries; the folder that holds them."""
    mac = key_service_mac(keys, "footer")(store, "uuid-1")
    for number in (1, 2):
        entry = {
            "who": "alice@host",
            "what": "encrypt",
            "why": {"run_id": FIRST, "policy_digest": "d"},
            "unit": {"unit": f"p={number}"},
        }
        append_entry(store, "uuid-1", entry, mac=mac)
    return Path(store._root) / "audit" / "uuid-1"


def test_the_audit_is_shown(policy: Path, audited: Path) -> None:
    """Every entry is shown with who, what, when and why."""
    found = run("audit", "show", "--table", "sales.customers", "--policy", policy, "--json").document
    assert [(one["number"], one["who"], one["unit"]["unit"]) for one in found] == [
        (1, "alice@host", "p=1"),
        (2, "alice@host", "p=2"),
    ]
    assert "alice@host" in run("audit", "show", "--table", "sales.customers", "--policy", policy).output


def test_an_audit_as_it_was_written_verifies(policy: Path, audited: Path) -> None:
    """The number of entries is told, to be kept elsewhere."""
    done = run("audit", "verify", "--table", "sales.customers", "--policy", policy, "--json")
    assert (done.code, done.document) == (0, {"table": "sales.customers", "entries": 2, "verified": True})


def test_an_edited_entry_is_74(policy: Path, audited: Path) -> None:
    """An entry that someone changed is found."""
    entry = audited / "00000001.json"
    entry.write_bytes(entry.read_bytes().replace(b"alice", b"mallo"))
    done = run("audit", "verify", "--table", "sales.customers", "--policy", policy)
    assert (done.code, done.output) == (74, "")
    assert "00000001.json" in done.errors


def test_a_dropped_entry_is_74(policy: Path, audited: Path) -> None:
    """An entry that someone deleted is found by its head."""
    (audited / "00000002.json").unlink()
    assert run("audit", "verify", "--table", "sales.customers", "--policy", policy).code == 74


def test_an_entry_that_is_no_json_is_74(policy: Path, audited: Path) -> None:
    """A damaged entry is told by name, also where it is only shown."""
    (audited / "00000002.json").write_bytes(b"torn")
    done = run("audit", "show", "--table", "sales.customers", "--policy", policy)
    assert done.code == 74
    assert "00000002.json" in done.errors


def test_verifying_without_entries_makes_nothing(policy: Path, store: LocalStateStore, keys: KeyService) -> None:
    """A table that was never audited has no entries, and asking leaves no key behind."""
    done = run("audit", "verify", "--table", "sales.customers", "--policy", policy, "--json")
    assert done.document["entries"] == 0
    assert store.list("audit/") == ()

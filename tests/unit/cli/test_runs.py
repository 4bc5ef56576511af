from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.service import KeyService
from sparkcrypt.ledger.audit.audit import AuditWriter
from sparkcrypt.ledger.journal.journal import Journal, RunRecord
from sparkcrypt.ledger.log import TableLog
from sparkcrypt.ledger.state.lock import acting_user
from sparkcrypt.ledger.state.mac import MasterKeys, TableMac, open_mac
from sparkcrypt.ledger.state.store import LocalStateStore
from sparkcrypt.policy.load import load_policy
from sparkcrypt.runs.old_folders.problems import Problem, Problems
from tests.journals import start_run
from tests.services.vault_server import VaultServer, start_vault

from .conftest import run

FIRST, SECOND = "20260101T000000000Z-aaaaaa", "20260201T000000000Z-bbbbbb"


def journal(
    store: LocalStateStore,
    run_id: str,
    table: str = "sales.customers",
    table_id: str = "uuid-1",
    mac: TableMac | None = None,
) -> Journal:
    """Begin a run of one unit."""
    options = {"engine": "spark", "where": None, "output": None, "exclusive": False}
    started = start_run(store, RunRecord(table_id, table, run_id, "digest", {}, options, 1), mac)
    started.append("unit_listed", unit="p=0", files=[])
    return started


@pytest.fixture
def store(tmp_path: Path, keys: KeyService) -> LocalStateStore:
    """The policy's state directory with a finished run, and a later one that stopped while it staged."""
    store = LocalStateStore(tmp_path / "state")
    mac = open_mac(store, "uuid-1", keys, MasterKeys("footer"))
    done = journal(store, FIRST, mac=mac)
    done.append("unit_swapped", unit="p=0", outcome={"unit": "p=0", "files": 1})
    done.append("run_finished", outcome="done")
    journal(store, SECOND, mac=mac).append("unit_failed", unit="p=0", error="VerificationError: no")
    return store


def test_runs_are_listed_in_order(policy: Path, store: LocalStateStore) -> None:
    """Every run is listed with its state, the oldest first."""
    found = run("backfill", "list", "--policy", policy, "--json").document
    assert [(listed["run_id"], listed["state"], listed["units"]) for listed in found] == [
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
        assert [listed["run_id"] for listed in found] == [FIRST, SECOND]


def test_a_table_without_runs_is_78(policy: Path, store: LocalStateStore) -> None:
    """A table that is not known is told beside those that are."""
    done = run("backfill", "status", "--table", "sales.nosuch", "--policy", policy)
    assert done.code == 78
    assert "sales.customers" in done.errors
    done = run("backfill", "status", "--table", "customer", "--policy", policy)
    assert (done.code, "did you mean sales.customers?" in done.errors) == (78, True)
    done = run("backfill", "status", "--table", "customers", "--policy", policy, "--json")
    assert done.document["table"] == "sales.customers"  # the only one of that name, and none is in the default database
    journal(store, "20260301T000000000Z-cccccc", "default.customers", "uuid-2")
    assert run("backfill", "status", "--table", "customers", "--policy", policy, "--json").document["run_id"] > SECOND


def test_status_is_the_latest_runs(policy: Path, store: LocalStateStore) -> None:
    """The status names each unit's last step and error, and what continues the run."""
    done = run("backfill", "status", "--table", "sales.customers", "--policy", policy, "--json").document
    assert (done["run_id"], done["state"]) == (SECOND, "unfinished")
    assert done["units"] == [{"unit": "p=0", "step": "unit_failed", "error": "VerificationError: no", "outcome": None}]
    text = run("backfill", "status", "--table", "sales.customers", "--policy", policy).output
    assert "the command that began it continues it" in text


def test_one_run_is_shown(policy: Path, store: LocalStateStore) -> None:
    """A run is shown by its id; one that is not there ends with 78 and names the latest."""
    assert run("backfill", "show", FIRST, "--policy", policy, "--json").document["state"] == "done"
    done = run("backfill", "show", "nosuch", "--policy", policy)
    assert done.code == 78
    assert SECOND in done.errors


def test_a_record_that_cannot_be_read_does_not_hide_other_runs(
    policy: Path, store: LocalStateStore, tmp_path: Path
) -> None:
    """The state directory's file system refuses one record: its run is listed with the reason, as are all others."""
    record = tmp_path / "state" / "log" / "uuid-1" / "00000002.json"
    record.unlink()
    record.symlink_to(record)
    found = run("backfill", "list", "--policy", policy, "--json").document
    assert [listed["state"] for listed in found] == ["damaged", "unfinished"]
    assert "000002.json" in found[0]["damage"]


def test_a_damaged_run_does_not_hide_the_others(policy: Path, store: LocalStateStore, tmp_path: Path) -> None:
    """A journal that was changed is listed as damaged, with the reason."""
    record = tmp_path / "state" / "log" / "uuid-1" / "00000002.json"
    record.write_bytes(record.read_bytes().replace(b"p=0", b"p=1"))
    found = run("backfill", "list", "--policy", policy, "--json").document
    assert [listed["state"] for listed in found] == ["damaged", "unfinished"]
    assert "000002.json" in found[0]["damage"]


@pytest.fixture
def audited(store: LocalStateStore, keys: KeyService) -> Path:
    """Three audit entries, the records 8 to 10; the folder that holds them."""
    mac = open_mac(store, "uuid-1", keys, MasterKeys("footer"))
    for number in (1, 2, 3):
        entry = {
            "what": "encrypt",
            "why": {"run_id": SECOND if number == 3 else FIRST, "policy_digest": "d"},
            "unit": {"unit": f"p={number}"},
            "changes": [{"sources": [{}, {}], "targets": [{}]}] * (number - 1),
        }
        AuditWriter(TableLog.open(store, "uuid-1", mac), 1).append(entry)
    return Path(store._root) / "log" / "uuid-1"


def test_the_audit_is_shown(policy: Path, audited: Path) -> None:
    """Every entry is shown with who, what, when and why."""
    found = run("audit", "show", "--table", "sales.customers", "--policy", policy, "--json").document
    assert [(entry["number"], entry["who"], entry["unit"]["unit"]) for entry in found] == [
        (3, acting_user(), "p=0"),
        (8, acting_user(), "p=1"),
        (9, acting_user(), "p=2"),
        (10, acting_user(), "p=3"),
    ]
    lines = run("audit", "show", "--table", "sales.customers", "--policy", policy).output.splitlines()
    assert all(acting_user() in line for line in lines[1:])
    assert "4 became 2" in lines[4]


def test_an_audit_as_it_was_written_verifies(policy: Path, audited: Path) -> None:
    """The head is told, to be kept elsewhere, and taken back as --head."""
    done = run("audit", "verify", "--table", "sales.customers", "--policy", policy, "--json")
    found = done.document
    assert (done.code, found["entries"], found["verified"]) == (0, 4, True)
    head = f"{found['heads'][0]['number']}:{found['heads'][0]['digest']}"
    again = run("audit", "verify", "--table", "sales.customers", "--policy", policy, "--head", head)
    assert (again.code, head in again.output) == (0, True)


@pytest.mark.parametrize("head", ["3", "3:ab", "0:" + "a" * 64, "x:" + "a" * 64])
def test_a_head_that_is_none_is_64(policy: Path, audited: Path, head: str) -> None:
    """What is no head is refused before anything is looked at."""
    done = run("audit", "verify", "--table", "sales.customers", "--policy", policy, "--head", head)
    assert (done.code, "NUMBER:DIGEST" in done.errors) == (64, True)


def test_a_head_that_the_audit_does_not_hold_is_74(policy: Path, audited: Path) -> None:
    """A head kept elsewhere finds an audit that was replaced with all its journals."""
    done = run("audit", "verify", "--table", "sales.customers", "--policy", policy, "--head", "3:" + "a" * 64)
    assert (done.code, done.output) == (74, "")
    assert "none is the record 3" in done.errors


def test_an_audit_under_the_footer_key_is_told_to_be_weak(policy: Path, audited: Path, keys: KeyService) -> None:
    """Who reads the result learns that readers could forge it, until a run under a key of its own has begun."""
    arguments = ("audit", "verify", "--table", "sales.customers", "--policy", policy)
    assert "every reader may use" in run(*arguments, "--json").document["warnings"][0]
    assert "warning: audit: its MAC key is wrapped by the footer key" in run(*arguments).output
    keys.create("audit")
    policy.write_text(policy.read_text() + "audit: {key: audit}\n")
    assert (run(*arguments).code, "warning:" in run(*arguments).output) == (0, True)  # nothing was written since
    store = LocalStateStore(audited.parents[1])
    mac = open_mac(store, "uuid-1", keys, MasterKeys.of(load_policy(policy)), renew=True)
    why = {"run_id": SECOND, "policy_digest": "d"}
    AuditWriter(TableLog.open(store, "uuid-1", mac), 1).append({"what": "encrypt", "why": why})
    found = run(*arguments, "--json").document
    assert (found["entries"], found["warnings"], found["heads"][0]["key_id"]) == (5, [], "audit")


def test_an_edited_entry_is_74(policy: Path, audited: Path) -> None:
    """An entry that someone changed is found."""
    entry = audited / "00000008.json"
    entry.write_bytes(entry.read_bytes().replace(b'"p=', b'"q='))
    done = run("audit", "verify", "--table", "sales.customers", "--policy", policy)
    assert (done.code, done.output) == (74, "")
    assert "00000008.json" in done.errors


def test_a_dropped_entry_is_74(policy: Path, audited: Path) -> None:
    """An entry that someone deleted is found."""
    (audited / "00000009.json").unlink()
    done = run("audit", "verify", "--table", "sales.customers", "--policy", policy)
    assert (done.code, "00000009.json: is missing" in done.errors) == (74, True)


def test_reordered_entries_are_74(policy: Path, audited: Path) -> None:
    """Entries that changed places are found."""
    first, second = audited / "00000008.json", audited / "00000009.json"
    first_content, second_content = first.read_bytes(), second.read_bytes()
    first.write_bytes(second_content)
    second.write_bytes(first_content)
    done = run("audit", "verify", "--table", "sales.customers", "--policy", policy)
    assert (done.code, "00000008.json: belongs elsewhere" in done.errors) == (74, True)


@pytest.mark.parametrize("with_other_entry", [False, True])
def test_a_cut_end_is_74(policy: Path, audited: Path, keys: KeyService, with_other_entry: bool) -> None:
    """An end that was cut off is found by a head that was kept, also when another entry took its place."""
    arguments = ("audit", "verify", "--table", "sales.customers", "--policy", policy)
    head = run(*arguments, "--json").document["heads"][0]
    (audited / "00000010.json").unlink()
    if with_other_entry:
        store = LocalStateStore(audited.parents[1])
        why = {"run_id": SECOND, "policy_digest": "d"}
        mac = open_mac(store, "uuid-1", keys, MasterKeys("footer"))
        AuditWriter(TableLog.open(store, "uuid-1", mac), 1).append({"what": "nothing", "why": why})
    done = run(*arguments, "--head", f"{head['number']}:{head['digest']}")
    assert (done.code, done.output) == (74, "")
    assert "none is the record 10" in done.errors and "its end was cut off" in done.errors


def test_an_entry_that_is_no_json_is_74(policy: Path, audited: Path) -> None:
    """A damaged entry is told by name, also where it is only shown."""
    (audited / "00000009.json").write_bytes(b"torn")
    done = run("audit", "show", "--table", "sales.customers", "--policy", policy)
    assert done.code == 74
    assert "00000009.json" in done.errors


def test_verifying_without_entries_makes_nothing(policy: Path, store: LocalStateStore, keys: KeyService) -> None:
    """A table whose runs swapped nothing has no entries, and asking leaves no key behind."""
    journal(store, SECOND, "sales.orders", "uuid-2")
    done = run("audit", "verify", "--table", "sales.orders", "--policy", policy, "--json")
    assert done.document["entries"] == 0
    assert store.list("keys/macs/uuid-2/") == ()


def recorded(store: LocalStateStore, keys: KeyService) -> tuple[TableMac, str]:
    """Record a run of another table under the MAC of its audit, which has one entry; return that and its id."""
    mac = open_mac(store, "uuid-3", keys, MasterKeys("footer"))
    run_id = "20260401T000000000Z-dddddd"
    started = start_run(store, RunRecord("uuid-3", "sales.items", run_id, "digest", {}, {"engine": "spark"}, 1), mac)
    started.append("unit_listed", unit="p=0", files=[])
    why = {"run_id": run_id, "policy_digest": "d"}
    AuditWriter(TableLog.open(store, "uuid-3", mac), 1).append({"what": "encrypt", "why": why, "unit": {"unit": "p=0"}})
    return mac, run_id


@pytest.fixture
def authentic(store: LocalStateStore, keys: KeyService) -> str:
    """A run of another table whose records bear the MAC of its audit; its id."""
    return recorded(store, keys)[1]


def shown(policy: Path, run_id: str) -> list[tuple[object, str]]:
    """Return what every command that shows runs or entries says: its document, and its text."""
    found = []
    for command in (
        ("backfill", "list", "--table", "sales.items"),
        ("backfill", "status", "--table", "sales.items"),
        ("backfill", "show", run_id),
        ("audit", "show", "--table", "sales.items"),
    ):
        document, text = run(*command, "--policy", policy, "--json"), run(*command, "--policy", policy)
        code = 74 if command[1] == "status" and "problem" in text.output else 0
        assert (document.code, text.code) == (code, code), text.errors
        said = document.document[0] if isinstance(document.document, list) else document.document
        found.append((said["authenticated"], text.output))
    return found


def test_what_is_authentic_is_shown_so(policy: Path, authentic: str) -> None:
    """With the key service every command says in JSON that records are authentic, and in text nothing else."""
    assert [authenticated for authenticated, _ in shown(policy, authentic)] == [True] * 4
    texts = [run("backfill", "status", "--table", "sales.items", "--policy", policy).output]
    assert not any("not authenticated" in text for text in texts)


@pytest.mark.parametrize("fault", ["keys are gone", "key is denied", "another service"])
def test_runs_are_shown_without_the_key_service(policy: Path, authentic: str, keys: KeyService, fault: str) -> None:
    """Where it is down or refuses, every command goes on, and says in JSON and text that nothing is authenticated."""
    folder = policy.parent / "keys"
    assert folder.is_dir()
    if fault == "keys are gone":
        shutil.rmtree(folder)
    elif fault == "key is denied":
        (folder / "footer.json").unlink()
    else:
        text = policy.read_text().replace("type: local", "type: nosuch")
        policy.write_text(text)
    found = shown(policy, authentic)
    assert [authenticated for authenticated, _ in found] == [False] * 4
    assert all("not authenticated" in text for _, text in found)


@pytest.mark.services
def test_runs_are_shown_while_vault_is_sealed(
    monkeypatch: pytest.MonkeyPatch, policy: Path, store: LocalStateStore, vault: VaultServer
) -> None:
    """A real Vault that is sealed: all is shown, open problems too, and called not authenticated, soon."""
    own = start_vault()
    try:
        monkeypatch.setenv("VAULT_TOKEN", own.root_token)
        service = f"type: vault, address: {own.address}, max_retries: 1"
        policy.write_text(policy.read_text().replace("type: local, path: keys", service))
        keys = open_key_service(load_policy(policy).key_service)
        keys.create("footer")
        mac, run_id = recorded(store, keys)
        Problems(store, "uuid-3", lambda: mac).add(Problem("", "sales.items", run_id, "p=0", "removed", "/t/p=0"))
        found = run("backfill", "status", "--table", "sales.items", "--policy", policy, "--json").document
        assert (found["authenticated"], found["problems_authenticated"], len(found["problems"])) == (True, True, 1)
        own.api("PUT", "sys/seal", {})
        began = time.monotonic()
        found = run("backfill", "status", "--table", "sales.items", "--policy", policy, "--json").document
        assert time.monotonic() - began < 30
        assert (found["authenticated"], found["problems_authenticated"], len(found["problems"])) == (False, False, 1)
        texts = shown(policy, run_id)
        assert [authenticated for authenticated, _ in texts] == [False] * 4
        assert all("not authenticated" in text and "sealed" in text for _, text in texts)
        assert "open problem (not authenticated" in texts[1][1]
    finally:
        own.stop()


def test_a_planted_record_is_shown_as_damage(policy: Path, store: LocalStateStore, authentic: str) -> None:
    """With the key service a run of which someone else wrote a record is listed as damaged."""
    planted = Journal.open(TableLog.open(store, "uuid-3", None), authentic)
    planted.append("run_finished", outcome="done")
    listed = run("backfill", "list", "--table", "uuid-3", "--policy", policy, "--json").document[0]
    assert (listed["state"], listed["authenticated"]) == ("damaged", False)
    assert "does not authenticate" in listed["damage"]


def test_an_edited_entry_is_shown_as_not_authentic(policy: Path, audited: Path) -> None:
    """The others are authentic."""
    entry = audited / "00000009.json"
    entry.write_bytes(entry.read_bytes().replace(b'"p=', b'"q='))
    found = run("audit", "show", "--table", "sales.customers", "--policy", policy, "--json").document
    assert [shown_entry["authenticated"] for shown_entry in found] == [True, True, False, True]
    text = run("audit", "show", "--table", "sales.customers", "--policy", policy).output
    assert "not authenticated: log/uuid-1/00000009.json: does not authenticate" in text


@pytest.mark.parametrize("lost", [None, 1, 2])
def test_a_journal_of_which_a_record_is_lost_is_74(
    policy: Path, store: LocalStateStore, authentic: str, lost: int | None
) -> None:
    """`audit verify` finds what is lost of a journal too."""
    if lost is not None:
        store.delete(f"log/uuid-3/0000000{lost}.json")
    done = run("audit", "verify", "--table", "uuid-3", "--policy", policy)
    assert (done.code, f"0000000{lost}.json: is missing" in done.errors) == ((0, False) if lost is None else (74, True))

"""`sparkcrypt keys status`: what the state directory and the key service tell of master keys, without Spark."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt.files.footers import FooterFacts
from sparkcrypt.files.parquet import FileSummary
from sparkcrypt.keys.local.keystore import KeyDirectory, KeyVersion, MasterKey
from sparkcrypt.keys.material import Wrapping
from sparkcrypt.keys.service import KeyService
from sparkcrypt.ledger.audit.key_audit import key_audit
from sparkcrypt.ledger.journal.journal import Journal, RunRecord
from sparkcrypt.ledger.state.store import LocalStateStore
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.policy.load import load_policy
from sparkcrypt.runs.passes.key_status import KeyStatus, find_overdue, tell_overdue
from sparkcrypt.runs.passes.keys_in_use import read_key_use
from sparkcrypt.runs.rewrite.keks import TableKeks
from sparkcrypt.runs.table.amount import Amount
from sparkcrypt.runs.table.cache import FooterCache
from sparkcrypt.spark.files.hadoop import SourceFile

from .conftest import run

FOOTER = Wrapping("footer", 1, "f")


def keep(store: LocalStateStore, table_id: str, unit: str, *files: tuple[str, int, tuple[Wrapping, ...]]) -> None:
    """Keep what the footers of some files said: name, length, and what wraps their data keys."""
    sources = [SourceFile(name, length, 1) for name, length, _ in files]
    found = {
        name: FooterFacts(
            FileSummary(name, "encrypted", "AES_GCM_V1", "footer", None, False, None, 1, 1, {}, wrapped), {}
        )
        for name, _, wrapped in files
    }
    FooterCache(store, table_id).keep(unit, sources, found)


def age(policy: Path, key_id: str, *days: int) -> None:
    """Give a key versions that are so many days old."""
    directory = KeyDirectory(policy.parent / "keys")
    versions = [
        KeyVersion(number, (datetime.now(timezone.utc) - timedelta(days=old)).strftime("%Y-%m-%dT%H:%M:%SZ"), bytes(32))
        for number, old in enumerate(days, start=1)
    ]
    directory.write(MasterKey(key_id, tuple(versions)))


@pytest.fixture
def store(tmp_path: Path) -> LocalStateStore:
    """The policy's state directory: two units of a table, and one of another whose name no journal tells."""
    store = LocalStateStore(tmp_path / "state")
    options = {"engine": "native", "where": None, "output": None, "exclusive": False}
    Journal.start(store, RunRecord("id-1", "sales.customers", "20260101T000000000Z-aaaaaa", "d", {}, options, 1))
    keep(
        store,
        "id-1",
        "p=0",
        ("/a", 100, (FOOTER, Wrapping("pii", 1, "a"))),
        ("/b", 10, (FOOTER, Wrapping("pii", 2, "b"))),
    )
    keep(store, "id-1", "p=1", ("/c", 1, (FOOTER, Wrapping("pii", 1, "b"), Wrapping("gone", 0, "c"))))
    keep(store, "id-2", "all", ("/d", 1000, (FOOTER, Wrapping("pii", 2, "d"))))
    return store


def statuses(policy: Path, *arguments: str) -> dict[str, dict[str, Any]]:
    """Return what the command tells, by key."""
    ended = run("keys", "status", *arguments, "--recorded", "--policy", policy, "--json")
    assert (ended.code, ended.document["coverage"]) == (0, None)
    return {entry["key_id"]: entry for entry in ended.document["keys"]}


def test_files_and_calls_are_counted_by_key_and_version(policy: Path, keys: KeyService, store: LocalStateStore) -> None:
    """Old are files under a version that is known to be older; what cannot be told is told so; so are lost keys."""
    age(policy, "pii", 900, 40)
    found = statuses(policy)
    pii = found["pii"]
    assert (pii["versions"], pii["age_days"], pii["files"], pii["bytes"]) == (2, 40, 4, 1111)
    assert (pii["files_on_old_versions"], pii["bytes_on_old_versions"], pii["files_of_untold_version"]) == (2, 101, 0)
    assert pii["tables"] == [{"table": "id-2", "reader_calls": 1}, {"table": "sales.customers", "reader_calls": 3}]
    footer = found["footer"]
    assert (footer["files"], footer["files_on_old_versions"], footer["tables"][1]["reader_calls"]) == (4, 0, 1)
    gone = found["gone"]
    assert (gone["versions"], gone["files"], gone["files_of_untold_version"]) == (None, 1, 1)
    assert list(statuses(policy, "pii")) == ["pii"]
    text = run("keys", "status", "--recorded", "--policy", policy).output
    assert "key 'gone' is not there, and 1 file need it" in text.replace("needs", "need")


def test_a_file_counts_once(policy: Path, keys: KeyService, store: LocalStateStore) -> None:
    """A file with keys under several old versions, or in the forms of several former key services, is one file."""
    age(policy, "pii", 900, 500, 40)
    under = (Wrapping("pii", 1, "e", kind="vault"), Wrapping("pii", 2, "f", kind="aws"), Wrapping("pii", 0, "g"))
    keep(store, "id-3", "all", ("/e", 10_000, (FOOTER, *under)))
    pii = statuses(policy)["pii"]
    assert (pii["files"], pii["files_on_old_versions"], pii["bytes_on_old_versions"]) == (5, 5, 11_111)
    assert pii["files_of_untold_version"] == 1
    status = KeyStatus("pii", None, former_kinds=frozenset({"vault", "aws"}))
    status.add("id-3", read_key_use(store, "id-3").keys["pii"])
    assert status.former == Amount(1, 10_000)


def test_table_of_which_only_a_kek_is_known_counts_as_holding_the_key(policy: Path, keys: KeyService) -> None:
    """A table that was written by a run and never looked at again has no footers there, but a KEK."""
    store, config = LocalStateStore(policy.parent / "state"), load_policy(policy).key_service
    TableKeks(store, "id-3", config, 128).find_or_make(keys, ["pii"])
    found = statuses(policy)
    assert found["pii"]["tables"] == [{"table": "id-3", "reader_calls": 0}]
    assert (found["pii"]["files"], found["footer"]["tables"]) == (0, [])


def test_rotation_is_due_by_the_age_of_the_newest_version(policy: Path, keys: KeyService) -> None:
    """365 days after its newest version a key is overdue, however old its first one is; without a period nothing is."""
    age(policy, "pii", 900, 40)
    age(policy, "footer", 400)
    assert {key: entry["overdue"] for key, entry in statuses(policy).items()} == {"pii": False, "footer": False}
    policy.write_text(policy.read_text() + "rotate_every: 365d\n")
    found = statuses(policy)
    assert {key: entry["overdue"] for key, entry in found.items()} == {"pii": False, "footer": True}
    assert [entry["rotate_every_days"] for entry in found.values()] == [365, 365]
    due = datetime.strptime(found["pii"]["rotation_due"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
    assert (due - datetime.now(timezone.utc)).days in (324, 325)
    assert "sparkcrypt rotate --key footer" in run("keys", "status", "--recorded", "--policy", policy).output
    loaded = load_policy(policy)
    assert [due.key_id for due in find_overdue(keys, loaded, ["pii", "footer", "gone"])] == ["footer"]


def test_status_of_a_run_tells_overdue_keys_of_its_table(
    policy: Path, keys: KeyService, store: LocalStateStore
) -> None:
    """Of that table alone; that the key service does not answer is told, and is no error."""

    def told(*, table: str = "sales.customers") -> list[str]:
        ended = run("backfill", "status", "--table", table, "--policy", policy, "--json")
        assert ended.code == 0
        return list(ended.document["rotations_overdue"])

    age(policy, "pii", 900, 40)
    age(policy, "footer", 400)
    assert told() == []
    policy.write_text(policy.read_text() + "rotate_every: 365d\n")
    (line,) = told()
    assert "key 'footer': its newest version is of" in line
    ended = run("backfill", "status", "--table", "sales.customers", "--policy", policy)
    assert f"rotation overdue: {line}" in ended.output
    loaded = load_policy(policy)
    assert tell_overdue(loaded, [(store, "id-1"), (store, "id-2")]) == (line,)
    assert tell_overdue(loaded, [(store, "id-3")]) == ()
    away = replace(loaded, key_service=KeyServiceConfig.from_dict({"type": "vault", "address": "http://127.0.0.1:9"}))
    assert tell_overdue(away, [(store, "id-1")])[0].startswith("whether keys are overdue is not known: ")


def test_facts_that_cannot_be_understood_are_none(policy: Path, keys: KeyService, store: LocalStateStore) -> None:
    """A damaged record of footers hides its unit's files, which the next run reads anew, and nothing else."""
    (name,) = store.list("footers/id-2/")
    store.delete(name)
    store.create(name, b'{"version": 2, "unit": 3}')
    assert statuses(policy)["pii"]["files"] == 3


def test_holds_and_shredded_keys_are_shown(policy: Path, keys: KeyService, store: LocalStateStore) -> None:
    """A held key says by whom and why; a shredded one is listed though it is gone, and again if somebody made it."""
    held = run("keys", "hold", "pii", "--reason", "case 4711", "--policy", policy, "--json")
    assert (held.code, held.document["number"]) == (0, 1)
    assert statuses(policy)["pii"]["holds"] == [
        {name: held.document[name] for name in ("number", "reason", "who", "time")}
    ]
    text = run("keys", "status", "--recorded", "--policy", policy).output
    assert "key 'pii': hold 1 of" in text
    assert "case 4711" in text
    released = run("keys", "release", "pii", "--reason", "closed", "--policy", policy)
    assert (released.code, "released hold 1" in released.output) == (0, True)
    assert statuses(policy)["pii"]["holds"] == []
    with key_audit(store, load_policy(policy), "shred apply") as audit:
        audit.begin("gone", "over", "probe", [])
        audit.bury("gone", "over", "2026-12-01T00:00:00Z", [], "told")
    assert statuses(policy)["gone"]["shredded"]["reason"] == "over"
    text = run("keys", "status", "--recorded", "--policy", policy).output
    assert "key 'gone' was shredded by" in text
    assert "THERE AGAIN" not in text
    keys.create("gone")
    assert "THERE AGAIN" in run("keys", "status", "--recorded", "--policy", policy).output


def test_status_does_not_trust_a_changed_audit(policy: Path, keys: KeyService, store: LocalStateStore) -> None:
    """A hold that was deleted ends the command with 74, and a denied audit key is told."""
    run("keys", "hold", "pii", "--reason", "case 4711", "--policy", policy)
    (store_root,) = policy.parent.glob("state")
    for file in (store_root / "audit" / "keys").glob("*0001.json"):
        file.unlink()
    ended = run("keys", "status", "--recorded", "--policy", policy)
    assert ended.code == 74
    assert "the audit, or the state directory" in ended.errors


def test_files_under_a_former_key_service_are_counted(policy: Path, keys: KeyService) -> None:
    """For the keys that the policy names for it, and with what moves them; a key that is only there is told so."""
    store = LocalStateStore(policy.parent / "state")
    own, other = Wrapping("pii", 1, "a", "local"), Wrapping("pii", 1, "b", "vault")
    keep(store, "id-1", "p=0", ("/a", 1, (FOOTER, own)), ("/b", 1, (FOOTER, other)), ("/c", 1, (own, other)))
    keep(store, "id-1", "p=1", ("/d", 1, (Wrapping("elsewhere", 1, "c", "vault"),)))
    assert {entry["files_under_former_service"] for entry in statuses(policy).values()} == {0}
    former = 'former: [{type: vault, address: "https://vault:8200", keys: [pii, elsewhere]}]'
    policy.write_text(policy.read_text().replace("path: keys}", f"path: keys, {former}}}"))
    found = statuses(policy)
    assert {key: entry["files_under_former_service"] for key, entry in found.items() if entry["files"]} == {
        "footer": 0,
        "pii": 2,
        "elsewhere": 1,
    }
    text = run("keys", "status", "--recorded", "--policy", policy).output
    assert "key 'pii': 2 files under a former key service: `sparkcrypt rotate --key pii --keep-version`" in text
    assert "key 'elsewhere' is in a former key service alone: make it" in text

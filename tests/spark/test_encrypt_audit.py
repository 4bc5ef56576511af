"""Audits of runs: what they name, and the list of files that follows from them."""

from __future__ import annotations

import hashlib
import hmac
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt import encrypt_table, load_policy, verify_table
from sparkcrypt.errors import ConfigError, VerificationError
from sparkcrypt.ledger.audit.audit import list_entries, verify_audit
from sparkcrypt.ledger.log import TableLog
from sparkcrypt.ledger.state.mac import MasterKeys, open_mac
from sparkcrypt.ledger.state.store import LocalStateStore, open_state_store
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.old_folders.expire import expire_run
from sparkcrypt.runs.old_folders.rollback import rollback_run
from sparkcrypt.runs.table.verify import TableVerification
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.killing import Clock, after_record, after_swap, kill
from tests.spark.late_writers import leave
from tests.spark.sessions import run_command
from tests.spark.support import SECRET, Lake, data_files, key_service, rows_of
from tests.spark.tables import PARTITIONED, UNPARTITIONED, fill

pytestmark = pytest.mark.spark

AUDIT = "audit: {key: audit}"


def audited(lake: Lake, create: str, more: str = AUDIT, *, external: bool = False) -> Policy:
    """Make a plaintext table with a tag; return its policy."""
    fill(lake, create, external=external)
    policy = lake.policy(more=more, keys=("audit",))
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    return policy


def store_of(lake: Lake, policy: Policy) -> tuple[LocalStateStore, str]:
    """Return the state directory and the table's id in it."""
    return LocalStateStore(policy.run_state), str(Catalog(lake.spark).table("t").uuid)


def entries(lake: Lake, policy: Policy) -> list[dict[str, Any]]:
    """Return the table's audit entries, once they are seen to be authentic."""
    store, table_id = store_of(lake, policy)
    mac = open_mac(store, table_id, key_service(policy), MasterKeys.of(policy))
    assert verify_audit(store, table_id, mac) is not None
    return [signed.entry for signed in list_entries(store, table_id, None)]


def local(uri: str) -> Path:
    """Return the path of a file URI."""
    return Path("/" + uri.removeprefix("file:").lstrip("/"))


def digest(secret: bytes, file: Path) -> str:
    """Make the digest of a file as the documentation says it is made."""
    content = file.read_bytes()
    footer = content[-8 - int.from_bytes(content[-8:-4], "little") :]
    message = b"sparkcrypt audit: length and footer\0" + len(content).to_bytes(8, "little") + footer
    return hmac.new(secret, message, hashlib.sha256).hexdigest()


def check_files(policy: Policy, entry: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Check every file of an entry against the bytes on disk; return the names of old and of new ones."""
    told = entry["digests"]["secret"]
    secret = key_service(policy).unwrap(told["key_id"], told["wrapped"])
    old, new = [], []
    for change in entry["changes"]:
        assert change["rows"]["equal"] is True
        for file in change["sources"]:
            assert file["digest"] == digest(secret, local(file["kept"]))
            assert (file["key_ids"], file["bytes"]) == ([], local(file["kept"]).stat().st_size)
            old.append(local(file["path"]).name)
        for file in change["targets"]:
            assert file["digest"] == digest(secret, local(file["path"]))
            assert file["key_ids"] == ["footer", "pii"]
            assert local(file["staged"]).name == local(file["path"]).name
            new.append(local(file["path"]).name)
        assert sum(file["rows"] for file in change["sources"]) == change["rows"]["count"]
        assert sum(file["rows"] for file in change["targets"]) == change["rows"]["count"]
    return old, new


@pytest.mark.parametrize(
    ("create", "external"),
    [(PARTITIONED["using"], False), (UNPARTITIONED["using"], False), (UNPARTITIONED["hive"], True)],
    ids=["partitioned", "renamed", "external"],
)
def test_audit_names_old_and_new_files_with_digests_that_hold(lake: Lake, create: str, external: bool) -> None:
    """Who, what, when, why, and for each folder which files became which: an auditor can check every one on disk."""
    policy = audited(lake, create, external=external)
    listed = {file.name for file in lake.root.rglob("part-*") if "policy-" not in str(file)}
    report = encrypt_table(lake.spark, "t", policy)
    found = entries(lake, policy)
    old, new = [], []
    for entry in found:
        assert (entry["what"], entry["engine"], entry["table"]) == ("encrypt", "native", lake.name("t"))
        assert "@" in entry["who"]
        assert entry["why"] == {"policy_digest": policy.digest(), "run_id": report.run_id}
        assert entry["digests"]["secret"]["key_id"] == "audit"
        names = check_files(policy, entry)
        old += names[0]
        new += names[1]
    assert set(old) == listed and len(old) == len(listed) == report.files_rewritten
    kept = create != UNPARTITIONED["using"]  # the native engine keeps names, except where the folder is renamed
    token = "" if kept else f"run-{report.run_id.rpartition('-')[2]}-"
    assert new == [token + name for name in old]
    head = TableLog.open(*store_of(lake, policy), None).head
    assert report.audit == {"number": head[0], "digest": head[1]}


@pytest.mark.parametrize("step", ["after unit_swapping", "after the swap"])
@pytest.mark.parametrize("create", [PARTITIONED["using"], UNPARTITIONED["using"]], ids=["partitioned", "renamed"])
def test_audit_of_a_killed_run_says_as_much(lake: Lake, clock: Clock, step: str, create: str) -> None:
    """What was verified before the kill is in the journal, and the audit of the continued run tells it in full."""
    policy = audited(lake, create)
    kill(lake, policy, clock, after_swap if step == "after the swap" else after_record("unit_swapping"))
    encrypt_table(lake.spark, "t", policy)
    names = [check_files(policy, entry) for entry in entries(lake, policy)]
    assert all(old and new for old, new in names)
    assert len({name for old, _ in names for name in old}) == sum(len(old) for old, _ in names)


def test_state_directory_holds_no_secret_and_no_value(lake: Lake) -> None:
    """Neither the run's secret, nor a plain digest of a file, nor a value stands in journal or audit."""
    policy = audited(lake, PARTITIONED["using"])
    plain = [hashlib.sha256(file.read_bytes()).hexdigest() for file in lake.path("t").rglob("part-*")]
    encrypt_table(lake.spark, "t", policy)
    told = entries(lake, policy)[0]["digests"]["secret"]
    secret = key_service(policy).unwrap("audit", told["wrapped"])
    everything = b"".join(file.read_bytes() for file in Path(policy.run_state).rglob("*.json"))
    assert plain and not [digest for digest in plain if digest.encode() in everything]
    assert SECRET.encode() not in everything
    assert secret.hex().encode() not in everything and secret not in everything


def test_audit_under_the_footer_key_is_told_and_goes_on_under_a_key_of_its_own(lake: Lake) -> None:
    """Without a key of its own the report tells who could forge the audit; with one later, all of it still verifies."""
    policy = audited(lake, PARTITIONED["using"], more="")
    report = encrypt_table(lake.spark, "t", policy, where="p = 0")
    assert [
        warning for warning in report.warnings if "every reader may use" in warning and "audit: {key: audit}" in warning
    ]
    file = Path(policy.run_state).parent / "policy.yaml"
    file.write_text(file.read_text() + AUDIT + "\n")
    stronger = load_policy(file)
    assert len(entries(lake, stronger)) == 1
    report = encrypt_table(lake.spark, "t", stronger)
    assert not [warning for warning in report.warnings if "every reader may use" in warning]
    assert [entry["digests"]["secret"]["key_id"] for entry in entries(lake, stronger)] == ["footer", "audit"]


def test_readers_key_forges_no_entry(lake: Lake) -> None:
    """Who holds every key but the audit's, and the state directory, can write nothing that verifies."""
    policy = audited(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy)
    store, table_id = store_of(lake, policy)
    folder = Path(policy.run_state) / "keys" / "macs" / table_id
    kept = json.loads((folder / "mac-key.json").read_text())
    assert kept["key_id"] == "audit"
    forged = {**kept, "key_id": "footer", "wrapped": key_service(policy).wrap("footer", b"f" * 32)}
    (folder / "mac-key.json").write_bytes(json.dumps(forged, sort_keys=True, separators=(",", ":")).encode() + b"\n")
    mac = open_mac(store, table_id, key_service(policy), MasterKeys.of(policy))
    with pytest.raises(VerificationError, match="does not authenticate"):
        verify_audit(store, table_id, mac)


def encrypted(lake: Lake, *tags: str, create: str = PARTITIONED["using"]) -> Policy:
    """Make a plaintext table, and run over it under each of these tags of a column in turn."""
    fill(lake, create)
    policy = lake.policy()
    for tag in tags:
        set_tags(lake.spark, "t", {"email": [tag]}, policy)
        assert encrypt_table(lake.spark, "t", policy).outcome == "done"
    return policy


def folder(lake: Lake, p: int) -> Path:
    """Return where a partition's files are now."""
    catalog = Catalog(lake.spark)
    (found,) = catalog.partitions(catalog.table("t"), {"p": str(p)})
    return Path(found.location.removeprefix("file:"))


def listed(lake: Lake, policy: Policy, table: str = "t", where: str | None = None) -> TableVerification:
    """Verify a table against its plan and its list."""
    return verify_table(lake.spark, table, policy, where=where, manifest=True)


def differences(found: TableVerification) -> dict[str, list[str]]:
    """Return the paths in which a table differs from its list, by kind, those without any left out."""
    assert found.manifest is not None
    told = {name: value for name, value in found.manifest.to_dict().items() if name != "files"}
    return {name: [path.removeprefix("file:") for path in paths] for name, paths in told.items() if paths}


def exit_codes(lake: Lake) -> tuple[int, ...]:
    """Return with what the command ends: without the list, with it, and where other files are differences too."""
    command = ["verify", "--table", lake.name("t"), "--policy", str(lake.root / "policy-0" / "policy.yaml")]
    ways: tuple[tuple[str, ...], ...] = ((), ("--manifest",), ("--manifest", "--complete"))
    return tuple(run_command(lake, *command, *more).exit_code for more in ways)


@pytest.mark.parametrize("tags", [("pii",), ("pii", "fin")])
def test_deleted_file_is_missing(lake: Lake, tags: tuple[str, ...]) -> None:
    """A file that is gone is nothing to the plan, and named by the list: after one run, and after another."""
    policy = encrypted(lake, *tags)
    whole = listed(lake, policy)
    assert whole.ok and whole.manifest is not None
    assert (whole.manifest.files, differences(whole)) == (4, {})
    assert exit_codes(lake) == (0, 0, 0)
    gone = data_files(folder(lake, 1))[0]
    gone.unlink()
    found = listed(lake, policy)
    assert (found.ok, found.drift, differences(found)) == (False, (), {"missing": [str(gone)]})
    assert exit_codes(lake) == (0, 74, 74)
    assert listed(lake, policy, where="p = 0").ok


def test_replayed_file_is_changed(lake: Lake) -> None:
    """An older file of the same name, place, length and keys is as the plan says, and is not the one of the list."""
    policy = encrypted(lake, "pii")
    old = {file.name: file.read_bytes() for file in data_files(folder(lake, 0))}
    for tag in ("fin", "pii"):
        set_tags(lake.spark, "t", {"email": [tag]}, policy)
        encrypt_table(lake.spark, "t", policy)
    replayed = data_files(folder(lake, 0))[0]
    new = replayed.read_bytes()
    assert len(new) == len(old[replayed.name]) and new != old[replayed.name]
    replayed.write_bytes(old[replayed.name])
    found = listed(lake, policy)
    assert (found.ok, found.drift, differences(found)) == (False, (), {"changed": [str(replayed)]})
    assert exit_codes(lake) == (0, 74, 74)
    replayed.write_bytes(new)
    assert listed(lake, policy).ok


def test_file_of_another_length_is_changed(lake: Lake) -> None:
    """What is no Parquet file any more is named by the list too, beside the plan's drift."""
    policy = encrypted(lake, "pii")
    cut = data_files(folder(lake, 0))[0]
    cut.write_bytes(cut.read_bytes()[:-4])
    found = listed(lake, policy)
    assert [drift.kind for drift in found.drift] == ["unreadable"]
    assert differences(found) == {"changed": [str(cut)]}


@pytest.mark.parametrize("origin", ["another table", "another partition", "another name"])
def test_foreign_file_is_unlisted(lake: Lake, origin: str) -> None:
    """A file that was copied into the table is not in the list, and drifts besides: its identity is another one."""
    policy = encrypted(lake, "pii")
    lake.sql("CREATE TABLE u (id INT, email STRING, note STRING, p INT) USING parquet PARTITIONED BY (p)")
    set_tags(lake.spark, "u", {"email": ["pii"]}, policy)
    lake.sql(f"INSERT INTO u VALUES (9, '{SECRET}-9', 'foreign', 1)")
    source = {"another table": lake.path("u"), "another partition": folder(lake, 0)}.get(origin, folder(lake, 1))
    file = data_files(source)[0]
    copy = folder(lake, 1) / (f"x-{file.name}" if origin == "another name" else file.name)
    assert not copy.exists()
    shutil.copyfile(file, copy)
    found = listed(lake, policy)
    assert [(drift.kind, drift.file.removeprefix("file:")) for drift in found.drift] == [("aad_mismatch", str(copy))]
    assert differences(found) == {"unlisted": [str(copy)]}
    assert exit_codes(lake) == (74, 74, 74)


def test_file_of_a_writer_is_unlisted_and_a_difference_only_if_asked(lake: Lake) -> None:
    """What a session wrote after the run is as the plan says; --complete alone ends with 74 for it, until a run."""
    policy = encrypted(lake, "pii")
    lake.sql(f"INSERT INTO t VALUES (9, '{SECRET}-9', 'new', 1)")
    found = listed(lake, policy)
    ((kind, (path,)),) = differences(found).items()
    assert (found.ok, kind, Path(path).parent) == (True, "unlisted", folder(lake, 1))
    assert exit_codes(lake) == (0, 0, 74)
    set_tags(lake.spark, "t", {"note": ["pii"]}, policy)
    encrypt_table(lake.spark, "t", policy)
    assert exit_codes(lake) == (0, 0, 0)


def test_dropped_partition_is_missing(lake: Lake) -> None:
    """Every file of a partition that is gone is named, also when another one of its value was made since."""
    policy = encrypted(lake, "pii")
    expire_run(lake.spark, "t", policy)
    gone = [str(file) for file in data_files(folder(lake, 1))]
    lake.sql("ALTER TABLE t DROP PARTITION (p = 1)")
    found = listed(lake, policy)
    assert (found.ok, found.drift, differences(found)) == (False, (), {"missing": gone})
    assert exit_codes(lake) == (0, 74, 74)
    assert listed(lake, policy, where="p = 0").ok
    lake.sql(f"INSERT INTO t VALUES (9, '{SECRET}-9', 'new', 1)")
    made = [str(file) for file in data_files(folder(lake, 1))]
    assert differences(listed(lake, policy)) == {"missing": gone, "unlisted": made}


def test_old_files_that_came_back_are_changed(lake: Lake) -> None:
    """A partition that is dropped and made anew before expire has its old files again: none is the one of the list."""
    policy = encrypted(lake, "pii")
    lake.sql("ALTER TABLE t DROP PARTITION (p = 1)")
    lake.sql("ALTER TABLE t ADD PARTITION (p = 1)")
    old = [str(file) for file in data_files(lake.path("t") / "p=1")]
    found = listed(lake, policy)
    assert [(drift.kind, drift.file.removeprefix("file:")) for drift in found.drift] == [
        ("plaintext", path) for path in old
    ]
    assert differences(found) == {"changed": old}


@pytest.mark.parametrize("create", [PARTITIONED["using"], UNPARTITIONED["using"]])
def test_rolled_back_run_leaves_the_list_of_old_files(lake: Lake, create: str) -> None:
    """After a rollback the list is that of the old files, of which none may be gone; the run's own are not in it."""
    policy = encrypted(lake, "pii", create=create)
    set_tags(lake.spark, "t", {"note": ["fin"]}, policy)
    second = encrypt_table(lake.spark, "t", policy).run_id
    rollback_run(lake.spark, "t", policy, second)
    found = listed(lake, policy)
    assert {drift.kind for drift in found.drift} == {"missing"}
    assert found.manifest is not None and found.manifest.ok
    assert (found.manifest.files, differences(found)) == (found.files, {})
    at = folder(lake, 1) if "PARTITIONED" in create else lake.path("t")
    gone = data_files(at)[0]
    gone.unlink()
    assert differences(listed(lake, policy)) == {"missing": [str(gone)]}


def test_file_that_was_carried_over_is_listed(lake: Lake) -> None:
    """A stale writer's file comes into the list beside the run's own, and is missed like them."""
    policy = encrypted(lake, "pii")
    leave(lake, lake.path("t") / "p=0", 77)
    known = {file.name for file in data_files(folder(lake, 0))}
    assert expire_run(lake.spark, "t", policy).carried == 1
    whole = listed(lake, policy)
    assert whole.manifest is not None
    assert (whole.ok, whole.manifest.files, differences(whole)) == (True, 5, {})
    (carried,) = (file for file in data_files(folder(lake, 0)) if file.name not in known)
    carried.unlink()
    assert differences(listed(lake, policy)) == {"missing": [str(carried)]}


def test_renamed_table_has_the_same_list(lake: Lake) -> None:
    """Places count, not paths: RENAME TABLE moves the folder, and a file that is gone is missed all the same."""
    policy = encrypted(lake, "pii", create=UNPARTITIONED["using"])
    before = rows_of(lake.spark.table("t"))
    lake.sql("ALTER TABLE t RENAME TO s")
    assert rows_of(lake.spark.table("s")) == before
    assert listed(lake, policy, "s").ok
    gone = data_files(lake.path("s"))[0]
    gone.unlink()
    ((kind, (path,)),) = differences(listed(lake, policy, "s")).items()
    assert (kind, Path(path).name) == ("missing", gone.name)


def test_list_that_was_cut_or_never_made_is_refused(lake: Lake) -> None:
    """Without a run there is no list; an audit whose last entry is gone, or that is gone altogether, makes none."""
    fill(lake, PARTITIONED["using"])
    policy = lake.policy()
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    with pytest.raises(ConfigError, match="there is no audit of this table"):
        listed(lake, policy)
    encrypt_table(lake.spark, "t", policy)
    store = open_state_store(policy.run_state)
    table_id = str(Catalog(lake.spark).table("t").uuid)
    records = TableLog.open(store, table_id, None).records
    assert [record.kind for record in records[-2:]] == ["unit_swapped", "run_finished"]
    store.delete(records[-1].name)
    assert listed(lake, policy).ok  # it says no more than that nothing follows
    for name in (records[-2].name, *store.list("log/"), *store.list(f"keys/macs/{table_id}/")):
        store.delete(name)
        with pytest.raises(VerificationError):
            listed(lake, policy)

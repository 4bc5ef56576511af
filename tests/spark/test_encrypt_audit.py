"""What a run's audit says of its files, and who could have written it."""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt import encrypt_table, load_policy
from sparkcrypt.errors import VerificationError
from sparkcrypt.ledger.audit.audit import audit_entries, journalled_head, verify_audit
from sparkcrypt.ledger.state.mac import MasterKeys, open_mac
from sparkcrypt.ledger.state.store import LocalStateStore
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.killing import Clock, after_record, after_swap, kill
from tests.spark.support import SECRET, Lake, key_service
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
    head = journalled_head(store, table_id)
    assert head is not None and verify_audit(store, table_id, check_mac=mac.check, expected=[head]) == head
    return [signed.entry for signed in audit_entries(store, table_id)]


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
    head = journalled_head(*store_of(lake, policy))
    assert head is not None and report.audit == {"number": len(found), "digest": head.digest}


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
    folder = Path(policy.run_state) / "audit" / table_id
    kept = json.loads((folder / "mac-key.json").read_text())
    assert kept["key_id"] == "audit"
    forged = {**kept, "key_id": "footer", "wrapped": key_service(policy).wrap("footer", b"f" * 32)}
    (folder / "mac-key.json").write_bytes(json.dumps(forged, sort_keys=True, separators=(",", ":")).encode() + b"\n")
    mac = open_mac(store, table_id, key_service(policy), MasterKeys.of(policy))
    with pytest.raises(VerificationError, match="does not authenticate"):
        verify_audit(store, table_id, check_mac=mac.check)

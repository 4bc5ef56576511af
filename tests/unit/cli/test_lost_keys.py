"""`sparkcrypt keys create` of a key that is lost, and not new: the state directory knows what is under it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sparkcrypt.files.footers import FooterFacts
from sparkcrypt.files.parquet import FileSummary
from sparkcrypt.keys.local.service import LocalKeyService
from sparkcrypt.keys.material import Wrapping
from sparkcrypt.keys.service import KeyService
from sparkcrypt.ledger.audit.key_audit import key_audit
from sparkcrypt.ledger.state.mac import MasterKeys, open_mac
from sparkcrypt.ledger.state.store import LocalStateStore
from sparkcrypt.policy.load import load_policy
from sparkcrypt.runs.rewrite.keks import TableKeks
from sparkcrypt.runs.table.cache import FooterCache
from sparkcrypt.spark.files.hadoop import SourceFile

from .conftest import run

Know = Callable[[LocalStateStore, Path, KeyService], object]


def know_kek(store: LocalStateStore, policy: Path, keys: KeyService) -> None:
    """Keep a KEK of a table under the key."""
    TableKeks(store, "id-1", load_policy(policy).key_service, 128).find_or_make(keys, ["pii"])


def know_mac(store: LocalStateStore, policy: Path, keys: KeyService) -> None:
    """Keep the MAC key of a table's audit under the key."""
    open_mac(store, "id-1", keys, MasterKeys("pii"))


def know_footer(store: LocalStateStore, policy: Path, keys: KeyService) -> None:
    """Keep what a file's footer said: its data key is under the key."""
    wrapped = (Wrapping("pii", 1, "a"),)
    summary = FileSummary("/a", "encrypted", "AES_GCM_V1", "footer", None, False, None, 1, 1, {}, wrapped)
    FooterCache(store, "id-1", name="sales.customers").keep(
        "all", [SourceFile("/a", 1, 1)], {"/a": FooterFacts(summary, {})}
    )


def know_hold(store: LocalStateStore, policy: Path, keys: KeyService) -> None:
    """Hold the key."""
    with key_audit(store, load_policy(policy), "keys hold") as audit:
        audit.hold("pii", "case 4711")


def know_begun_shredding(store: LocalStateStore, policy: Path, keys: KeyService) -> None:
    """Begin to shred the key, and be killed before its deletion is proven."""
    with key_audit(store, load_policy(policy), "shred apply") as audit:
        audit.begin("pii", "case 4711", "probe", [])


@pytest.mark.parametrize("know", [know_kek, know_mac, know_footer, know_hold, know_begun_shredding])
def test_known_key_is_not_made_anew(policy: Path, keys: KeyService, tmp_path: Path, know: Know) -> None:
    """A key that something is under is lost: a new one of its id would open nothing, so that has to be accepted."""
    know(LocalStateStore(tmp_path / "state"), policy, keys)
    LocalKeyService(load_policy(policy).key_service).delete_key("pii")
    refused = run("keys", "create", "new", "pii", "--policy", policy)
    assert (refused.code, "key 'pii'" in refused.errors, "Restore it" in refused.errors) == (69, True, True)
    assert [key.key_id for key in keys.list_keys()] == ["footer"]
    assert run("keys", "create", "new", "--policy", policy).code == 0
    accepted = run("keys", "create", "pii", "--lost-key-accepted", "--policy", policy)
    assert (accepted.code, accepted.output) == (0, "pii: made\n")


@pytest.mark.parametrize("empty", [True, False])
def test_key_folder_that_is_not_mounted_gets_no_key(
    policy: Path, keys: KeyService, tmp_path: Path, empty: bool
) -> None:
    """Where the state directory knows keys and the folder has none, no key is made: also none that is new."""
    know_kek(LocalStateStore(tmp_path / "state"), policy, keys)
    shutil.rmtree(tmp_path / "keys")
    if empty:
        (tmp_path / "keys").mkdir(mode=0o700)
    refused = run("keys", "create", "contact-2026-12", "--policy", policy)
    assert (refused.code, "is it mounted" in refused.errors) == (69, True)
    assert (tmp_path / "keys").exists() is empty
    assert keys.list_keys() == ()
    assert run("keys", "create", "footer", "--lost-key-accepted", "--policy", policy).code == 0


def test_keys_that_move_are_made_under_their_ids(policy: Path, keys: KeyService, tmp_path: Path) -> None:
    """A key that a former key service has is not lost; one that it lacks is."""
    store = LocalStateStore(tmp_path / "state")
    know_kek(store, policy, keys)
    (tmp_path / "keys").rename(tmp_path / "former")
    former = "former: [{type: local, path: former, keys: ['*']}]"
    policy.write_text(policy.read_text().replace("path: keys}", f"path: keys, {former}}}"))
    assert run("keys", "create", "footer", "pii", "--policy", policy).code == 0
    shutil.rmtree(tmp_path / "keys")
    shutil.rmtree(tmp_path / "former")
    assert run("keys", "create", "pii", "--policy", policy).code == 69
    assert not (tmp_path / "keys").exists()

"""Commands about keys: made, listed, backed up, lost, and which versions are in use."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyrage
import pytest

from sparkcrypt.cli.setup import keys as keys_module
from sparkcrypt.files.footers import FooterFacts
from sparkcrypt.files.parquet import FileSummary
from sparkcrypt.keys.local.ephemeral import EphemeralKeyService
from sparkcrypt.keys.local.keystore import KeyDirectory, KeyVersion, MasterKey
from sparkcrypt.keys.local.service import LocalKeyService
from sparkcrypt.keys.material import Wrapping
from sparkcrypt.keys.service import KeyService
from sparkcrypt.ledger.audit.key_audit import key_audit
from sparkcrypt.ledger.journal.journal import RunRecord
from sparkcrypt.ledger.state.mac import MasterKeys, open_mac
from sparkcrypt.ledger.state.store import LocalStateStore
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.policy.load import load_policy
from sparkcrypt.runs.passes.key_status import KeyStatus, find_overdue, tell_overdue
from sparkcrypt.runs.passes.keys_in_use import read_key_use
from sparkcrypt.runs.rewrite.keks import TableKeks
from sparkcrypt.runs.table.amount import Amount
from sparkcrypt.runs.table.cache import FooterCache
from sparkcrypt.spark.files.listing import SourceFile
from tests.footers import keep_footers
from tests.journals import start_run

from .conftest import run

KEK = b"0123456789abcdef"


def test_keys_are_made_and_listed(policy: Path) -> None:
    """Each key is made once; the list is sorted and holds no key bytes."""
    made = run("keys", "create", "pii", "arn:aws:kms:1/ä", "--policy", policy, "--json")
    assert [(key["key_id"], key["versions"], key["made"]) for key in made.document] == [
        ("pii", 1, True),
        ("arn:aws:kms:1/ä", 1, True),
    ]
    listed = run("keys", "list", "--policy", policy, "--json").document
    assert [sorted(key) for key in listed] == [["created", "key_id", "versions"]] * 2
    assert [key["key_id"] for key in listed] == ["arn:aws:kms:1/ä", "pii"]


def test_a_key_that_is_there_is_left_as_it_is(policy: Path, keys: KeyService) -> None:
    """Making a key again changes nothing of it, and says so."""
    wrapped = keys.wrap("pii", b"0123456789abcdef")
    done = run("keys", "create", "pii", "--policy", policy)
    assert (done.code, done.output) == (0, "pii: is there already\n")
    assert keys.unwrap("pii", wrapped) == b"0123456789abcdef"
    assert keys.describe("pii").versions == 1


def test_an_absent_key_is_not_shown(policy: Path, keys: KeyService) -> None:
    """Showing a key that is not there ends with 69 and makes none."""
    done = run("keys", "show", "nosuch", "--policy", policy)
    assert (done.code, done.output) == (69, "")
    assert [key.key_id for key in keys.list_keys()] == ["footer", "pii"]


def test_an_empty_key_service_lists_nothing(policy: Path) -> None:
    """A list of no keys is an empty list, not an error."""
    assert run("keys", "list", "--policy", policy, "--json").document == []
    assert "no keys" in run("keys", "list", "--policy", policy).output


def test_rotation_adds_a_version(policy: Path, keys: KeyService) -> None:
    """A rotated key has one version more, and still opens what the older one wrapped."""
    wrapped = keys.wrap("pii", b"0123456789abcdef")
    assert run("keys", "rotate", "pii", "--policy", policy, "--json").document["versions"] == 2
    assert keys.unwrap("pii", wrapped) == b"0123456789abcdef"


def test_a_service_without_rotation_refuses(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the key service does not rotate through us, the command says where to do it."""
    other = EphemeralKeyService(KeyServiceConfig.from_dict({"type": "ephemeral", "secret": "00" * 32}))
    monkeypatch.setattr(keys_module, "open_key_service", lambda _: other)
    done = run("keys", "rotate", "pii", "--policy", policy)
    assert done.code == 78
    assert "rotate 'pii' with the service's own tools" in done.errors


def test_a_key_directory_that_others_can_use_is_refused(policy: Path, keys: KeyService) -> None:
    """A key file that others may read ends with 78 and the command that mends it."""
    next((policy.parent / "keys").glob("pii*")).chmod(0o644)
    done = run("keys", "show", "pii", "--policy", policy)
    assert done.code == 78
    assert "chmod 600" in done.errors


@pytest.fixture
def recovery(tmp_path: Path) -> tuple[str, Path]:
    """A recovery key: its public half, and the file of its secret half as age-keygen writes it."""
    identity = pyrage.x25519.Identity.generate()
    file = tmp_path / "recovery.txt"
    file.write_text(f"# created: today\n# public key: {identity.to_public()}\n\n{identity}\n")
    return str(identity.to_public()), file


def test_exported_keys_come_back(policy: Path, keys: KeyService, recovery: tuple[str, Path], tmp_path: Path) -> None:
    """Every version of every key opens what it wrapped, in a key directory that was empty; the backup shows no key."""
    public, secret = recovery
    first = keys.wrap("pii", KEK)
    assert run("keys", "rotate", "pii", "--policy", policy).code == 0
    second = keys.wrap("pii", KEK)
    backup = tmp_path / "keys.age"
    done = run("keys", "export", backup, "--recipient", public, "--policy", policy, "--json")
    assert done.document["keys"] == [{"key_id": "footer", "versions": 1}, {"key_id": "pii", "versions": 2}]
    assert backup.stat().st_mode & 0o777 == 0o600
    key_bytes = [base64.b64encode(version.key) for version in KeyDirectory(tmp_path / "keys").read("pii").versions]
    assert [text for text in (*key_bytes, b'"pii"') if text in backup.read_bytes()] == []
    shutil.rmtree(tmp_path / "keys")
    dry = run("keys", "import", backup, "--identity", secret, "--dry-run", "--policy", policy, "--json")
    assert [(row["key_id"], row["added"]) for row in dry.document] == [("footer", 1), ("pii", 2)]
    assert not (tmp_path / "keys").exists()
    assert run("keys", "import", backup, "--identity", secret, "--policy", policy).code == 0
    assert [keys.unwrap("pii", wrapped) for wrapped in (first, second)] == [KEK, KEK]
    again = run("keys", "import", backup, "--identity", secret, "--policy", policy, "--json")
    assert [row["added"] for row in again.document] == [0, 0]


def test_import_keeps_newer_versions(
    policy: Path, keys: KeyService, recovery: tuple[str, Path], tmp_path: Path
) -> None:
    """A backup from before a rotation takes nothing back, and one key may be imported alone."""
    public, secret = recovery
    backup = tmp_path / "keys.age"
    run("keys", "export", backup, "pii", "--recipient", public, "--policy", policy)
    run("keys", "rotate", "pii", "--policy", policy)
    wrapped = keys.wrap("pii", KEK)
    done = run("keys", "import", backup, "pii", "--identity", secret, "--policy", policy, "--json")
    assert [(row["key_id"], row["versions"], row["added"]) for row in done.document] == [("pii", 2, 0)]
    assert keys.unwrap("pii", wrapped) == KEK
    other = run("keys", "import", backup, "footer", "--identity", secret, "--policy", policy)
    assert (other.code, "holds no key 'footer'" in other.errors) == (69, True)


def test_import_of_another_key_changes_nothing(
    policy: Path, keys: KeyService, recovery: tuple[str, Path], tmp_path: Path
) -> None:
    """Where a version is two different keys, none of the backup's is added, those that would fit neither."""
    public, secret = recovery
    backup = tmp_path / "keys.age"
    run("keys", "create", "aaa", "--policy", policy)
    run("keys", "export", backup, "--recipient", public, "--policy", policy)
    shutil.rmtree(tmp_path / "keys")
    keys.create("pii")
    wrapped = keys.wrap("pii", KEK)
    done = run("keys", "import", backup, "--identity", secret, "--policy", policy)
    assert done.code == 69
    assert "version 1 here is another key than in the backup" in done.errors
    assert [key.key_id for key in keys.list_keys()] == ["pii"]
    assert keys.unwrap("pii", wrapped) == KEK


def test_export_never_replaces_a_file(
    policy: Path, keys: KeyService, recovery: tuple[str, Path], tmp_path: Path
) -> None:
    """An older backup stays, and no file is begun where there is nothing to write or nobody to write it for."""
    public, _ = recovery
    backup = tmp_path / "keys.age"
    backup.write_bytes(b"older")
    done = run("keys", "export", backup, "--recipient", public, "--policy", policy)
    assert (done.code, backup.read_bytes()) == (78, b"older")
    for recipient, key_id, code in (("age1nobody", "pii", 78), (public, "absent", 69)):
        done = run("keys", "export", tmp_path / "new", key_id, "--recipient", recipient, "--policy", policy)
        assert done.code == code
        assert not (tmp_path / "new").exists()
    assert run("keys", "export", tmp_path / "no" / "new", "--recipient", public, "--policy", policy).code == 71


@pytest.mark.parametrize(
    ("spoil", "code", "says"),
    [
        (lambda backup, secret: backup.write_bytes(backup.read_bytes()[:-1]), 69, "not opened"),
        (lambda backup, secret: backup.write_bytes(b"x" * 300), 69, "not opened"),
        (lambda backup, secret: secret.write_text(str(pyrage.x25519.Identity.generate())), 69, "another recovery key"),
        (lambda backup, secret: secret.write_text("# nothing\n"), 78, "holds no secret key"),
        (lambda backup, secret: secret.write_text("AGE-SECRET-KEY-1CANARY"), 78, "line 1"),
        (lambda backup, secret: backup.unlink(), 71, "cannot be read"),
    ],
)
def test_spoilt_backups_are_refused(
    policy: Path,
    keys: KeyService,
    recovery: tuple[str, Path],
    tmp_path: Path,
    spoil: Callable[[Path, Path], object],
    code: int,
    says: str,
) -> None:
    """The message names what is wrong, quotes no secret, and nothing is added."""
    public, secret = recovery
    backup = tmp_path / "keys.age"
    run("keys", "export", backup, "--recipient", public, "--policy", policy)
    shutil.rmtree(tmp_path / "keys")
    spoil(backup, secret)
    done = run("keys", "import", backup, "--identity", secret, "--policy", policy)
    assert (done.code, says in done.errors) == (code, True), done.errors
    assert "CANARY" not in done.errors
    assert keys.list_keys() == ()


@pytest.mark.parametrize("content", ["[]", "{}", '{"format": "sparkcrypt master keys", "version": 2, "keys": []}'])
def test_other_files_of_the_recovery_key_are_refused(
    policy: Path, recovery: tuple[str, Path], tmp_path: Path, content: str
) -> None:
    """What was encrypted to the same key and is no backup of keys is said to be none."""
    public, secret = recovery
    backup = tmp_path / "other.age"
    backup.write_bytes(pyrage.encrypt(content.encode(), [pyrage.x25519.Recipient.from_str(public)]))
    done = run("keys", "import", backup, "--identity", secret, "--policy", policy)
    assert (done.code, "holds no sparkcrypt master keys" in done.errors) == (69, True)


def test_other_services_export_nothing(
    policy: Path, recovery: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where keys never leave their service, the command says whose tools back them up."""
    other = EphemeralKeyService(KeyServiceConfig.from_dict({"type": "ephemeral", "secret": "00" * 32}))
    monkeypatch.setattr(keys_module, "open_key_service", lambda _: other)
    done = run("keys", "export", tmp_path / "new", "--recipient", recovery[0], "--policy", policy)
    assert (done.code, "gives no key away" in done.errors) == (78, True)
    assert not (tmp_path / "new").exists()


def test_shredded_key_is_neither_made_nor_imported_again(policy: Path, keys: KeyService, tmp_path: Path) -> None:
    """Who makes it again, or imports it, is told when and why it was shredded; other keys are not in the way."""
    loaded = load_policy(policy)
    secret, backup = tmp_path / "recovery.txt", tmp_path / "keys.age"
    identity = pyrage.x25519.Identity.generate()
    secret.write_text(str(identity))
    exported = run("keys", "export", backup, "--recipient", identity.to_public(), "--policy", policy)
    assert exported.code == 0
    with key_audit(LocalStateStore(tmp_path / "state"), loaded, "shred apply") as audit:
        audit.begin("pii", "case 4711", "probe", [])
        audit.bury("pii", "case 4711", "2026-12-01T00:00:00Z", [], "told")
    assert run("keys", "create", "pii", "--policy", policy).code == 0  # it is there, so nothing is made
    LocalKeyService(loaded.key_service).delete_key("pii")
    refused = run("keys", "create", "other", "pii", "--policy", policy)
    assert (refused.code, "was shredded by" in refused.errors, "case 4711" in refused.errors) == (69, True, True)
    assert [key.key_id for key in keys.list_keys()] == ["footer"]
    imported = run("keys", "import", backup, "--identity", secret, "--policy", policy)
    assert (imported.code, "not imported again" in imported.errors) == (69, True)
    assert run("keys", "import", backup, "footer", "--identity", secret, "--policy", policy).code == 0
    assert [key.key_id for key in keys.list_keys()] == ["footer"]


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
    cache = FooterCache(store, "id-1", name="sales.customers")
    keep_footers(cache, "all", [SourceFile("/a", 1, 1)], {"/a": FooterFacts(summary, {})})


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
    keep_footers(FooterCache(store, table_id), unit, sources, found)


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
    start_run(store, RunRecord("id-1", "sales.customers", "20260101T000000000Z-aaaaaa", "d", {}, options, 1))
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
    (name,) = store.list("cache/footers/id-2/")
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
    for file in (store_root / "log" / "keys").glob("*0001.json"):
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

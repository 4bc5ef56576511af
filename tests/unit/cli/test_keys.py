from __future__ import annotations

import base64
import shutil
from collections.abc import Callable
from pathlib import Path

import pyrage
import pytest

from sparkcrypt.cli.setup import keys as keys_module
from sparkcrypt.keys.local.ephemeral import EphemeralKeyService
from sparkcrypt.keys.local.keystore import KeyDirectory
from sparkcrypt.keys.local.service import LocalKeyService
from sparkcrypt.keys.service import KeyService
from sparkcrypt.ledger.audit.key_audit import key_audit
from sparkcrypt.ledger.state.store import LocalStateStore
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.policy.load import load_policy

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

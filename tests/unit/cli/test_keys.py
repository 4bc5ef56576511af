from __future__ import annotations

from pathlib import Path

import pytest

from sparkcrypt.cli.setup import keys as keys_module
from sparkcrypt.keys.ephemeral import EphemeralKeyService
from sparkcrypt.keys.service import KeyService
from sparkcrypt.policy.key_service import KeyServiceConfig

from .conftest import run


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

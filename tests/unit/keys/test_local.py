"""The local key service: its files, their modes, and what a crash leaves behind."""

from __future__ import annotations

import json
import multiprocessing
import secrets
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from sparkcrypt.errors import ConfigError, KeyNotFoundError, KeyServiceError
from sparkcrypt.keys.local.keystore import KeyDirectory
from sparkcrypt.keys.local.service import LocalKeyService
from sparkcrypt.policy.key_service import KeyServiceConfig

KEY = secrets.token_bytes(16)


def local(path: Path) -> LocalKeyService:
    """Open the local key service of a directory."""
    return LocalKeyService(KeyServiceConfig.from_dict({"type": "local", "path": str(path)}))


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A directory for keys, which is not there yet."""
    return tmp_path / "deep" / "keys"


def test_directory_and_files_are_private(keys: Path) -> None:
    """The directory is made with mode 0700, every file in it with 0600."""
    local(keys).create("pii")
    assert stat.S_IMODE(keys.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in keys.iterdir()} == {0o600}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666, 0o610])
def test_key_file_that_others_may_use_is_refused(keys: Path, mode: int) -> None:
    """A key file open to group or others is not used; the message says the mode and the command that mends it."""
    service = local(keys)
    service.create("pii")
    (keys / "pii.json").chmod(mode)
    with pytest.raises(ConfigError, match=rf"pii\.json has mode {mode:04o}.*chmod 600"):
        service.wrap("pii", KEY)
    with pytest.raises(ConfigError, match="chmod 600"):
        service.list_keys()


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
def test_directory_that_others_may_change_is_refused(keys: Path, mode: int) -> None:
    """Whoever can write to the directory can replace keys, so such a directory is not used."""
    service = local(keys)
    service.create("pii")
    keys.chmod(mode)
    with pytest.raises(ConfigError, match="chmod 700"):
        service.wrap("pii", KEY)
    with pytest.raises(ConfigError, match="chmod 700"):
        service.create("other")


def test_rotated_key_wraps_with_the_new_version_and_unwraps_with_both(keys: Path) -> None:
    """After a rotation new wraps name version 2, and what version 1 wrapped still opens."""
    service = local(keys)
    service.create("pii")
    before = service.wrap("pii", KEY)
    assert service.rotate("pii").versions == 2
    after = service.wrap("pii", KEY)
    assert (before[:9], after[:9]) == ("local:v1:", "local:v2:")
    assert service.unwrap("pii", before) == service.unwrap("pii", after) == KEY


def test_version_in_the_text_is_the_one_that_unwraps(keys: Path) -> None:
    """A text whose version was changed is refused: each version is another key."""
    service = local(keys)
    service.create("pii")
    service.rotate("pii")
    with pytest.raises(KeyServiceError):
        service.unwrap("pii", service.wrap("pii", KEY).replace("local:v2:", "local:v1:"))


def test_version_that_is_not_there_is_not_found(keys: Path) -> None:
    """A text of a version that the file no longer has says which version that is."""
    service = local(keys)
    service.create("pii")
    with pytest.raises(KeyNotFoundError, match="no version 7"):
        service.unwrap("pii", service.wrap("pii", KEY).replace(":v1:", ":v7:"))


def test_key_bytes_moved_to_another_key_id_do_not_unwrap(keys: Path) -> None:
    """The wrap binds the key id: with the same master key under another id the text is refused."""
    service = local(keys)
    service.create("pii")
    document = json.loads((keys / "pii.json").read_text())
    (keys / "other.json").write_text(json.dumps({**document, "key_id": "other"}))
    (keys / "other.json").chmod(0o600)
    with pytest.raises(KeyServiceError, match="'other'"):
        service.unwrap("other", service.wrap("pii", KEY))


def test_file_of_another_key_is_refused(keys: Path) -> None:
    """A key file that was copied over another one is noticed by the key id inside it."""
    service = local(keys)
    service.create("pii")
    service.create("fin")
    (keys / "fin.json").write_bytes((keys / "pii.json").read_bytes())
    with pytest.raises(KeyServiceError, match=r"fin\.json holds key 'pii'"):
        service.wrap("fin", KEY)


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "null", '{"key_id": "pii"}', '{"key_id": "pii", "versions": []}', '{"key_id": 1, "versions": [1]}',
     '{"key_id": "pii", "versions": [{"version": 1, "created": "x", "key": "c2hvcnQ="}]}', "\udcff"],
)  # fmt: skip
def test_damaged_key_file_is_refused_without_being_quoted(keys: Path, content: str) -> None:
    """A file that is not a key file is named, and neither the message nor a chained error shows its content."""
    service = local(keys)
    service.create("pii")
    (keys / "pii.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(KeyServiceError, match=r"pii\.json is not a key file") as raised:
        service.wrap("pii", KEY)
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None


def test_deleted_key_is_gone(keys: Path) -> None:
    """Deleting removes the file; a new key of the same id does not open what the old one wrapped."""
    service = local(keys)
    service.create("pii")
    wrapped = service.wrap("pii", KEY)
    service.delete_key("pii")
    with pytest.raises(KeyNotFoundError):
        service.unwrap("pii", wrapped)
    service.create("pii")
    with pytest.raises(KeyServiceError, match="another key"):
        service.unwrap("pii", wrapped)


@pytest.mark.parametrize("change", ["rotate", "delete_key"])
def test_changing_an_absent_key_makes_nothing(keys: Path, change: str) -> None:
    """Rotating or deleting a key that is not there says so and makes neither key nor directory."""
    with pytest.raises(KeyNotFoundError, match="not there on this machine"):
        getattr(local(keys), change)("pii")
    assert not keys.exists()
    local(keys).create("other")
    with pytest.raises(KeyNotFoundError, match="'pii' is not in"):
        getattr(local(keys), change)("pii")


CRASH = """
import os, sys
from pathlib import Path
from sparkcrypt.keys.local.service import LocalKeyService
from sparkcrypt.policy.key_service import KeyServiceConfig

Path.replace = lambda self, target: os._exit(9)
getattr(LocalKeyService(KeyServiceConfig.from_dict({"type": "local", "path": sys.argv[1]})), sys.argv[2])("pii")
"""


@pytest.mark.parametrize("operation", ["create", "rotate"])
def test_crash_between_write_and_rename_changes_nothing(keys: Path, operation: str) -> None:
    """A process that dies before the rename leaves the old state, which works on, and its leftover is removed."""
    service = local(keys)
    service.create("fin")
    if operation == "rotate":
        service.create("pii")
    before = service.list_keys()
    crashed = subprocess.run([sys.executable, "-c", CRASH, keys, operation], check=False)
    assert crashed.returncode == 9
    assert len(list(keys.glob(".*.tmp"))) == 1
    assert service.list_keys() == before
    assert service.create("pii").versions == 1
    assert list(keys.glob(".*.tmp")) == []


def _create_and_rotate(path: str) -> None:
    service = local(Path(path))
    service.create("pii")
    for _ in range(5):
        service.rotate("pii")


def test_processes_that_change_the_same_key_lose_no_version(keys: Path) -> None:
    """Four processes that rotate one key five times each make twenty versions."""
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_create_and_rotate, args=(str(keys),)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 4
    assert local(keys).describe("pii").versions == 21


def test_write_that_fails_leaves_no_temporary_file(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk at the rename is a KeyServiceError, and no key bytes stay behind."""
    service = local(keys)
    service.create("fin")

    def full(self: Path, target: object) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(KeyServiceError, match="No space left on device"):
        service.create("pii")
    assert list(keys.glob(".*.tmp")) == []


@pytest.mark.parametrize("path", [None, "", "keys", "./keys", 7])
def test_path_that_is_not_absolute_is_refused(path: object) -> None:
    """A missing or relative path is a ConfigError when the service is opened."""
    with pytest.raises(ConfigError, match="absolute"):
        LocalKeyService(KeyServiceConfig.from_dict({"type": "local", "path": path}))


def test_unknown_option_is_refused() -> None:
    """An option that is misspelt is named, with the allowed ones."""
    with pytest.raises(ConfigError, match=r"'paht'.*allowed: path"):
        LocalKeyService(KeyServiceConfig.from_dict({"type": "local", "paht": "/keys"}))


def test_path_that_is_a_file_is_an_error_of_the_tree(tmp_path: Path) -> None:
    """A file where the directory should be is a KeyServiceError."""
    (tmp_path / "file").write_text("")
    for call in (local(tmp_path / "file").create, local(tmp_path / "file").describe):
        with pytest.raises(KeyServiceError):
            call("pii")


def test_directory_is_closed_to_nobody_else_when_reading(keys: Path) -> None:
    """Reading makes no file and no directory."""
    assert local(keys).list_keys() == ()
    assert not keys.exists()
    assert repr(KeyDirectory(keys)) == f"KeyDirectory({str(keys)!r})"

"""The files of a local key directory: one JSON file per master key, private, written whole or not at all; and backups.

{"key_id": "pii", "versions": [{"version": 1, "created": "2025-01-31T12:00:00Z", "key": "<base64>"}]}

``"retired_below": 3`` beside them sets aside the versions below 3.

A backup is one file in the age format (age-encryption.org/v1) that only the holder of a recovery key can open, also by
the tools of that format.  Inside is JSON:
``{"format": "sparkcrypt master keys", "version": 1, "keys": [<key file>, …]}``.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import json
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from sparkcrypt.durable import TEMPORARY, replace_file, sync_folder
from sparkcrypt.errors import ConfigError, KeyAccessDeniedError, KeyNotFoundError, KeyServiceError
from sparkcrypt.keys.ids import encode_key_id
from sparkcrypt.keys.service import ABSENT_ADVICE

MASTER_KEY_BYTES = 32
_SUFFIX = ".json"
_LOCK = ".lock"
_NAME_MAX = 255
_READABLE_BY_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
FORMAT = "sparkcrypt master keys"
VERSION = 1


@dataclass(frozen=True, slots=True)
class KeyVersion:
    """One version of a master key."""

    version: int
    created: str
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class MasterKey:
    """A master key: its id and its versions, oldest first; those below a number are set aside and unwrap nothing."""

    key_id: str
    versions: tuple[KeyVersion, ...]
    retired_below: int = 0

    @property
    def newest(self) -> KeyVersion:
        """The version that wraps."""
        return self.versions[-1]

    def version(self, number: int) -> KeyVersion | None:
        """Return a version by its number, None when there is none."""
        return next((version for version in self.versions if version.version == number), None)


def file_name(key_id: str) -> str:
    """Return the name of a key's file; different key ids have different names.

    The name is the percent-encoded id.  If that exceeds a file system's 255 bytes, it is the beginning of the encoded
    id, a ``+`` (which no encoded id contains) and the SHA-256 of the whole encoded id.
    """
    encoded = encode_key_id(key_id)
    if len(encoded) + len(_SUFFIX) <= _NAME_MAX:
        return encoded + _SUFFIX
    return f"{encoded[:120]}+{hashlib.sha256(encoded.encode()).hexdigest()}{_SUFFIX}"


class KeyDirectory:
    """The master keys of a directory, for reading and writing; safe for many threads and processes.

    Args:
        path: an absolute directory; ``lock`` creates it, with mode 0700.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __repr__(self) -> str:
        return f"KeyDirectory({str(self.path)!r})"

    def read(self, key_id: str) -> MasterKey:
        """Return a master key.

        Raises:
            KeyNotFoundError: there is no such key here.
            ConfigError: others may read the key's file, or write to the directory.
            KeyAccessDeniedError: this user may not read it.
            KeyServiceError: the file is not a key file, or contains another key.
        """
        name = file_name(key_id)
        key = _parse_key(self.path / name, self._bytes(name, key_id))
        if key.key_id != key_id:
            raise KeyServiceError(
                f"{self.path / name} holds key {key.key_id!r} and not {key_id!r}; restore it from a backup"
            )
        return key

    def read_all(self) -> tuple[MasterKey, ...]:
        """Return every master key, sorted by key id; none if the directory does not exist."""
        with self._translate_errors("list"):
            names = [entry for entry in os.listdir(self.path)] if self.path.exists() else []  # noqa: PTH208 - names only
        keys = [_parse_key(self.path / name, self._bytes(name, name)) for name in names if name.endswith(_SUFFIX)]
        return tuple(sorted(keys, key=lambda key: key.key_id))

    def write(self, key: MasterKey) -> None:
        """Store a master key, replacing an earlier file, whole or not at all.  Call it while holding ``lock``."""
        with self._translate_errors(f"write key {key.key_id!r} to"):
            replace_file(self.path / file_name(key.key_id), json.dumps(encode_key(key), indent=1).encode())

    def remove(self, key_id: str) -> None:
        """Remove a master key's file for good.  Call it while holding ``lock``.

        Raises:
            KeyNotFoundError: there is no such key here.
        """
        try:
            with self._translate_errors(f"remove key {key_id!r} from"):
                (self.path / file_name(key_id)).unlink()
                sync_folder(self.path)
        except FileNotFoundError as error:
            raise self._make_absent_error(key_id) from error

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the directory's lock, which excludes every other thread and process that writes."""
        with self._translate_errors("lock"):
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._check_directory()
            # flock belongs to the open file, so it also excludes other threads of this process.
            descriptor = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            self._remove_leftovers()
            yield
        finally:
            os.close(descriptor)

    def _remove_leftovers(self) -> None:
        """Remove files that a killed writer left: they may contain key bytes, and no other writer has the lock."""
        for leftover in self.path.glob(f".*{TEMPORARY}"):
            leftover.unlink(missing_ok=True)

    def _bytes(self, name: str, key_id: str) -> bytes:
        try:
            with self._translate_errors(f"read key {key_id!r} from"), (self.path / name).open("rb") as stream:
                self._check_directory()
                mode = stat.S_IMODE(os.fstat(stream.fileno()).st_mode)
                if mode & _READABLE_BY_OTHERS:
                    raise ConfigError(
                        f"{self.path / name} has mode {mode:04o}, so others than its owner may use the key; allowed: "
                        "0600; run chmod 600 on it, and rotate the key if others may have read it"
                    )
                return stream.read()
        except FileNotFoundError as error:
            raise self._make_absent_error(key_id) from error

    def _check_directory(self) -> None:
        mode = stat.S_IMODE(self.path.stat().st_mode)
        if mode & _WRITABLE_BY_OTHERS:
            raise ConfigError(
                f"key directory {self.path} has mode {mode:04o}, so others than its owner may replace keys; allowed: "
                "0700; run chmod 700 on it"
            )

    def _make_absent_error(self, key_id: str) -> KeyNotFoundError:
        if not self.path.is_dir():
            return KeyNotFoundError(
                f"key {key_id!r}: the key directory {self.path} is not there on this machine; is it mounted? A local "
                "key service is for one machine or a shared file system, and a relative path counts from the policy "
                f"file's folder, so a copy of the policy elsewhere names another one; {ABSENT_ADVICE}"
            )
        return KeyNotFoundError(f"key {key_id!r} is not in the key directory {self.path}; {ABSENT_ADVICE}")

    @contextlib.contextmanager
    def _translate_errors(self, doing: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except PermissionError as error:
            raise KeyAccessDeniedError(
                f"cannot {doing} key directory {self.path}: {error.strerror}; run as the user who owns it"
            ) from error
        except OSError as error:
            raise KeyServiceError(f"cannot {doing} key directory {self.path}: {error.strerror}") from error


def encode_key(key: MasterKey) -> dict[str, Any]:
    """Return a master key in the form of a key file."""
    versions = [
        {"version": version.version, "created": version.created, "key": base64.b64encode(version.key).decode()}
        for version in key.versions
    ]
    aside = {"retired_below": key.retired_below} if key.retired_below else {}
    return {"key_id": key.key_id, "versions": versions, **aside}


def decode_key(document: Any) -> MasterKey:
    """Return the master key in the JSON of a key file.

    Raises:
        ValueError, KeyError, TypeError: it contains none; the message may contain key bytes.
    """
    versions = tuple(_version(entry) for entry in document["versions"])
    numbers = [version.version for version in versions]
    key_id, retired_below = document["key_id"], document.get("retired_below", 0)
    if not isinstance(key_id, str) or not numbers or numbers != sorted(set(numbers)):
        raise ValueError("not a master key")
    if type(retired_below) is not int or not 0 <= retired_below <= numbers[-1]:
        raise ValueError("not a number of a version")
    return MasterKey(key_id, versions, retired_below)


def merge_versions(here: MasterKey | None, backup: MasterKey) -> MasterKey:
    """Return a key with the versions of both; versions that are here are unchanged, also set aside.

    Raises:
        KeyServiceError: both have a version with the same number and different keys.
    """
    if here is None:
        return backup
    versions = {version.version: version for version in here.versions}
    for version in backup.versions:
        same = versions.setdefault(version.version, version)
        if same.key != version.key:
            raise KeyServiceError(
                f"key {here.key_id!r}: version {version.version} here is another key than in the backup, so files "
                "under one cannot be opened with the other; import it into an empty key directory, and find out "
                "which files need which"
            )
    return replace(here, versions=tuple(versions[number] for number in sorted(versions)))


def _parse_key(path: Path, content: bytes) -> MasterKey:
    """Parse a key file; the error never quotes its content, and no error that does is its cause."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return decode_key(json.loads(content))
    raise KeyServiceError(f"{path} is not a key file of this key service; restore it from a backup")


def _version(document: dict[str, Any]) -> KeyVersion:
    key = base64.b64decode(document["key"], validate=True)
    if len(key) != MASTER_KEY_BYTES or not isinstance(document["version"], int):
        raise ValueError("not a version of a master key")
    return KeyVersion(document["version"], str(document["created"]), key)


def encrypt_backup(keys: Sequence[MasterKey], recipients: Sequence[str]) -> bytes:
    """Return a backup of master keys.

    Args:
        keys: the master keys, with all their versions.
        recipients: the public halves of recovery keys (``age1…``); the holder of any one can open it.

    Raises:
        ConfigError: there is no recipient, one is not a public key of age, or pyrage is not installed.
    """
    pyrage = _import_pyrage()
    if not recipients:
        raise ConfigError("a backup of keys needs a recipient (age1…): the public half of a recovery key")
    parsed = []
    for text in recipients:
        try:
            parsed.append(pyrage.x25519.Recipient.from_str(text))
        except pyrage.RecipientError as error:
            raise ConfigError(
                f"recipient {text!r} is not a public key of age; allowed: age1… as age-keygen prints it"
            ) from error
    document = {"format": FORMAT, "version": VERSION, "keys": [encode_key(key) for key in keys]}
    return bytes(pyrage.encrypt(json.dumps(document).encode(), parsed))


def decrypt_backup(content: bytes, identities: str) -> tuple[MasterKey, ...]:
    """Return the master keys of a backup.

    Args:
        content: the content of the backup's file.
        identities: the text of an identity file: lines of ``AGE-SECRET-KEY-1…``, comments after ``#``, empty ones.

    Raises:
        ConfigError: the text contains no identity of age, or pyrage is not installed.
        KeyServiceError: no identity opens the backup, it is damaged, or it is not a backup of keys.
    """
    pyrage = _import_pyrage()
    parsed = _parse_identities(pyrage, identities)
    try:
        document = pyrage.decrypt(content, parsed)
    except pyrage.DecryptError as error:
        raise KeyServiceError(
            f"the backup was not opened ({error}): it is damaged, no file of age, or was made for another recovery key"
        ) from error
    keys = _parse_document(document)
    if keys is None:
        raise KeyServiceError(
            f"the file was opened, and holds no {FORMAT} of version {VERSION}; was it written by `sparkcrypt keys "
            "export`, or by a later release?"
        )
    return keys


def _parse_identities(pyrage: ModuleType, text: str) -> list[object]:
    lines = [line.strip() for line in text.splitlines()]
    found = []
    for number, line in enumerate(lines, 1):
        if not line or line.startswith("#"):
            continue
        try:
            found.append(pyrage.x25519.Identity.from_str(line))
        except pyrage.IdentityError:  # whose message may quote the line
            raise ConfigError(
                f"line {number} of the identity file is no secret key of age; allowed: AGE-SECRET-KEY-1…, comments "
                "after #, and empty lines"
            ) from None
    if not found:
        raise ConfigError("the identity file holds no secret key of age (AGE-SECRET-KEY-1…)")
    return found


def _parse_document(content: bytes) -> tuple[MasterKey, ...] | None:
    try:
        document = json.loads(content)
        if (document["format"], document["version"]) != (FORMAT, VERSION):
            return None
        return tuple(decode_key(key) for key in document["keys"])
    except (ValueError, KeyError, TypeError):
        return None


def _import_pyrage() -> ModuleType:
    try:
        import pyrage
    except ModuleNotFoundError as error:
        raise ConfigError("backups of keys need pyrage; pip install 'sparkcrypt[recovery]'") from error
    module: ModuleType = pyrage
    return module

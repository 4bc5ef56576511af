"""The embedded key service: AES-256 master keys in a directory of this machine, or of a shared file system.

Anyone who can read the directory has every key: it protects data that leave the machine, not the machine itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from sparkcrypt.errors import ConfigError, KeyNotFoundError, KeyServiceError, SparkcryptError
from sparkcrypt.keys.access_decisions import decision_of
from sparkcrypt.keys.ids import check_key_id
from sparkcrypt.keys.local.keystore import MASTER_KEY_BYTES, KeyDirectory, KeyVersion, MasterKey, merge_versions
from sparkcrypt.keys.service import Decision, KeyDeletion, KeyDescription, KeyService, check_options, make_retired_error
from sparkcrypt.keys.wrapping import seal_key, unseal_key
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.text import utc_text

_WRAPPED = re.compile(r"local:v([1-9][0-9]{0,8}):([A-Za-z0-9+/]+={0,2})", re.ASCII)
_AAD = b"sparkcrypt local wrap\0"


class LocalKeyService(KeyService):
    """A key service that wraps with AES-256-GCM, bound to the key id.

    A wrapped text is ``local:v<version>:<base64 of nonce(12), ciphertext, tag(16)>``.

    Options: ``path``, an absolute directory.  Key files are read on every call, so a rotation or a deletion takes
        effect at once.

    Raises:
        ConfigError: an unknown option, or a path that is missing or not absolute.
    """

    def __init__(self, config: KeyServiceConfig) -> None:
        path = check_options(config, ("path",)).get("path")
        if not isinstance(path, str) or not Path(path).is_absolute():
            raise ConfigError(
                f"key_service of type 'local': path is {path!r}; allowed: an absolute directory (a policy file may "
                "name it relative to itself)"
            )
        self._directory = KeyDirectory(Path(path))

    def __repr__(self) -> str:
        return f"LocalKeyService({str(self._directory.path)!r})"

    def wrap(self, key_id: str, key: bytes) -> str:
        """Wrap with the newest version.

        Raises:
            KeyNotFoundError: there is no such key.
            KeyServiceError: its file cannot be used; the message says why.
        """
        newest = self._directory.read(key_id).newest
        return f"local:v{newest.version}:{seal_key(newest.key, key, _AAD + check_key_id(key_id))}"

    def unwrap(self, key_id: str, wrapped: str) -> bytes:
        """Unwrap with the version that the wrapped text names.

        Raises:
            KeyNotFoundError: there is no such key, or not in that version.
            KeyRetiredError: that version is set aside.
            KeyServiceError: the text is not one that this key wrapped.
        """
        master_key = self._directory.read(key_id)
        parts = _WRAPPED.fullmatch(wrapped)
        if parts is None:
            raise KeyServiceError(
                f"key {key_id!r}: the wrapped key is not one of a local key service; allowed: "
                "local:v<version>:<base64>; was it wrapped by another key service?"
            )
        version = master_key.version(int(parts[1]))
        if version is None:
            raise KeyNotFoundError(
                f"key {key_id!r} has no version {parts[1]} in {self._directory.path}; its newest is "
                f"{master_key.newest.version}; restore the key file from a backup (`sparkcrypt keys import`)"
            )
        if version.version < master_key.retired_below:
            raise make_retired_error(key_id, version.version, str(self._directory.path))
        try:
            return unseal_key(version.key, parts[2], _AAD + check_key_id(key_id))
        except ValueError as error:
            raise KeyServiceError(
                f"key {key_id!r}: the wrapped key is {error}; use the key directory and the key id that it was "
                "wrapped with"
            ) from error

    def describe(self, key_id: str) -> KeyDescription:
        """Describe a key."""
        return _describe_key(self._directory.read(key_id))

    def create(self, key_id: str) -> KeyDescription:
        """Create a key with one version; an existing one is left unchanged."""
        check_key_id(key_id)
        with self._directory.lock():
            try:
                return _describe_key(self._directory.read(key_id))
            except KeyNotFoundError:
                made = MasterKey(key_id, (_new_version(1),))
                self._directory.write(made)
                return _describe_key(made)

    def rotate(self, key_id: str) -> KeyDescription:
        """Add a version, which wraps from now on; earlier versions still unwrap."""
        with self._existing():
            key = self._directory.read(key_id)
            rotated = replace(key, versions=(*key.versions, _new_version(key.newest.version + 1)))
            self._directory.write(rotated)
            return _describe_key(rotated)

    def set_aside(self, key_id: str, below: int) -> KeyDescription:
        """Stop the versions below a number from unwrapping; they stay in the key's file.

        Raises:
            KeyNotFoundError: there is no such key.
            KeyServiceError: the newest version would be set aside too.
        """
        with self._existing():
            key = self._directory.read(key_id)
            if below > key.newest.version:
                raise KeyServiceError(
                    f"key {key_id!r}: versions below {below} are all that it has; its newest is {key.newest.version}, "
                    "which wraps and stays"
                )
            if below > key.retired_below:
                key = replace(key, retired_below=below)
                self._directory.write(key)
            return _describe_key(key)

    def bring_back(self, key_id: str) -> KeyDescription:
        """Let the versions that are set aside unwrap again."""
        with self._existing():
            key = self._directory.read(key_id)
            if key.retired_below:
                key = replace(key, retired_below=0)
                self._directory.write(key)
            return _describe_key(key)

    def destroy_versions(self, key_id: str, below: int) -> KeyDescription:
        """Remove versions that are set aside: what they wrapped can be unwrapped only with a backup of them.

        Raises:
            KeyNotFoundError: there is no such key.
            KeyServiceError: a version below that number is not set aside.
        """
        with self._existing():
            key = self._directory.read(key_id)
            kept = tuple(version for version in key.versions if version.version >= below)
            if kept != key.versions:
                if below > key.retired_below:
                    raise KeyServiceError(
                        f"key {key_id!r}: versions below {below} are not set aside; retire them first"
                    )
                key = replace(key, versions=kept, retired_below=key.retired_below if key.retired_below > below else 0)
                self._directory.write(key)
            return _describe_key(key)

    def delete_key(self, key_id: str) -> KeyDeletion:
        """Remove a key's file with every version: what it wrapped can never be unwrapped again."""
        with self._existing():
            self._directory.remove(key_id)
        return KeyDeletion(
            key_id,
            None,
            f"the key's file was removed from {self._directory.path}; nobody can prove that of a disk: snapshots, "
            "backups and blocks that are not overwritten yet may still hold it",
        )

    def list_keys(self) -> tuple[KeyDescription, ...]:
        """Describe every key, sorted by key id."""
        return tuple(_describe_key(key) for key in self._directory.read_all())

    def export_keys(self, key_ids: Collection[str] = ()) -> tuple[MasterKey, ...]:
        """Return master keys with all their versions, sorted by key id; for backups only.

        Args:
            key_ids: the keys to return; all if it is empty.
        """
        if not key_ids:
            return self._directory.read_all()
        return tuple(self._directory.read(key_id) for key_id in sorted(set(key_ids)))

    def import_keys(self, keys: Collection[MasterKey], *, dry_run: bool = False) -> dict[KeyDescription, int]:
        """Add a backup's keys, and the versions that keys here lack; nothing that is here is changed or removed.

        Args:
            keys: the keys of the backup.
            dry_run: only return what would be added.

        Returns:
            Description of each key of the backup after the import -> number of its versions that the import added.

        Raises:
            KeyServiceError: a version is another key here than in the backup; then nothing is added.
        """
        with nullcontext() if dry_run else self._directory.lock():
            before = [self._find(key.key_id) for key in keys]
            merged = [merge_versions(here, key) for here, key in zip(before, keys, strict=True)]
            changed = [(here, key) for here, key in zip(before, merged, strict=True) if here != key]
            if not dry_run:
                for _, key in changed:
                    self._directory.write(key)
        return {
            _describe_key(key): len(key.versions) - len(here.versions if here else ())
            for here, key in zip(before, merged, strict=True)
        }

    def _find(self, key_id: str) -> MasterKey | None:
        try:
            return self._directory.read(key_id)
        except KeyNotFoundError:
            return None

    def may(self, key_ids: Collection[str]) -> Mapping[str, Decision]:
        """Return for each key whether this user may read its file."""
        return {key_id: self._decision(key_id) for key_id in key_ids}

    def _decision(self, key_id: str) -> Decision:
        try:
            self._directory.read(key_id)
        except SparkcryptError as error:
            return decision_of(error)
        return "allowed"

    def credential_identity(self) -> bytes:
        """Return the user that reads the files."""
        return str(os.geteuid()).encode()

    @contextmanager
    def _existing(self) -> Iterator[None]:
        """Hold the lock of an existing directory; a missing one is not created, since it has no key to change."""
        if self._directory.path.is_dir():
            with self._directory.lock():
                yield
        else:
            yield


def _new_version(number: int) -> KeyVersion:
    created = utc_text(datetime.now(timezone.utc))
    return KeyVersion(number, created, os.urandom(MASTER_KEY_BYTES))


def _describe_key(key: MasterKey) -> KeyDescription:
    usable = max(key.versions[0].version, key.retired_below)
    return KeyDescription(key.key_id, key.newest.version, key.versions[0].created, key.newest.created, usable)

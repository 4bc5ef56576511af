"""Records of master key rotations, by which a repeated command continues an unfinished rotation.

    rotations/<digest of the key id>/00000002.json     the version that it makes, and whether everything is under it

The record is written before the key service is asked for a version.  A command that was killed, or whose budget was
spent, therefore continues with the version that it made, and makes no other.  The record is used for nothing else: a
process that can write to the state directory can make a rotation use the newest existing version, which the report
names.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass

from sparkcrypt.errors import ConfigError, KeyServiceError
from sparkcrypt.keys.ids import key_digest
from sparkcrypt.keys.service import KeyService
from sparkcrypt.ledger.state.store import LatestRecord, StateStore

VERSION = 1


@dataclass(frozen=True, slots=True)
class RotationRecord:
    """The last rotation of a master key that was begun.

    Attributes:
        key_id: the master key.
        to: the version that it makes.
        asked: whether the key service was asked for it, and answered.
        finished: whether the pass over the chosen tables ended without a failure or a spent budget.
        rekeys: whether files get new data keys under it, instead of being rewrapped only.
    """

    key_id: str
    to: int
    asked: bool = False
    finished: bool = False
    rekeys: bool = False

    def keep(self, store: StateStore) -> None:
        """Write it in place of the previous record."""
        body = {"version": VERSION, "key_id": self.key_id, "to": self.to, "asked": self.asked}
        content = json.dumps({**body, "finished": self.finished, "rekeys": self.rekeys})
        _record(store, self.key_id).replace(content.encode())

    @classmethod
    def read(cls, store: StateStore, key_id: str) -> RotationRecord | None:
        """Return the record of a master key; None if there is none."""
        for content in _record(store, key_id).read():
            with contextlib.suppress(ValueError, KeyError, TypeError):
                record = json.loads(content)
                if record["version"] == VERSION and record["key_id"] == key_id:
                    marks = (bool(record[name]) for name in ("asked", "finished", "rekeys"))
                    return cls(key_id, int(record["to"]), *marks)
        return None


def plan_version(
    store: StateStore, service: KeyService, key_id: str, *, keep_version: bool, rekeys: bool = False
) -> int:
    """Return the version under which a rotation would wrap; nothing is changed.  See `begin_version`.

    Raises:
        KeyServiceError: the key does not exist, or these credentials may not describe it.
    """
    newest = service.describe(key_id).versions
    begun = _find_unfinished(store, key_id, rekeys=rekeys)
    return newest if keep_version or (begun is not None and begun.to <= newest) else newest + 1


def begin_version(
    store: StateStore, service: KeyService, key_id: str, *, keep_version: bool, rekeys: bool = False
) -> int:
    """Return the version under which a rotation wraps; create it, unless an unfinished rotation has created it.

    Args:
        store: the state directory.
        service: the key service.
        key_id: the master key.
        keep_version: create no version, and use the newest one.
        rekeys: files get new data keys; the version of an unfinished rotation that only rewraps is not used for that.

    Raises:
        ConfigError: the key service cannot rotate keys through sparkcrypt.
        KeyServiceError: it did not add the version, or does not list it.
    """
    newest = service.describe(key_id).versions
    begun = _find_unfinished(store, key_id, rekeys=rekeys)
    if keep_version or (begun is not None and begun.to <= newest):
        RotationRecord(key_id, newest, asked=True, rekeys=rekeys).keep(store)
        return newest
    if begun is not None and begun.asked:
        raise _untold_error(key_id, begun.to, newest)
    if not service.offers("rotate"):
        raise ConfigError(
            f"this policy's key service ({service.provider}) does not rotate keys here; rotate {key_id!r} with "
            "the service's own tools, then give --keep-version, which rewraps under the version that is newest"
        )
    RotationRecord(key_id, newest + 1, rekeys=rekeys).keep(store)
    version = service.rotate(key_id).versions
    RotationRecord(key_id, newest + 1, asked=True, rekeys=rekeys).keep(store)
    if version <= newest:
        raise _untold_error(key_id, newest + 1, version)
    return version


def finish_rotation(store: StateStore, key_id: str, version: int) -> None:
    """Record that a rotation is complete, so that the next one creates a version."""
    RotationRecord(key_id, version, asked=True, finished=True).keep(store)


def _find_unfinished(store: StateStore, key_id: str, *, rekeys: bool) -> RotationRecord | None:
    begun = RotationRecord.read(store, key_id)
    return None if begun is None or begun.finished or begun.rekeys != rekeys else begun


def _record(store: StateStore, key_id: str) -> LatestRecord:
    return LatestRecord(store, f"rotations/{key_digest(key_id)}/")


def _untold_error(key_id: str, version: int, newest: int) -> KeyServiceError:
    return KeyServiceError(
        f"the key service was asked for version {version} of {key_id!r}, and tells of {newest}; it may take a while, "
        "or hide versions from these credentials (AWS: kms:ListKeyRotations); run again when it tells of it, or give "
        "--keep-version to rewrap under what it tells of"
    )

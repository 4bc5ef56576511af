"""Histories in a table's properties, each sealed under the key that its column has now.

Whoever may change a table's properties could let forged files in by a history, so where encryption is required only the
policy's history and sealed entries count.  Who may wrap under a column's present key can write files under it anyway.
A seal is the last entry of the property: ``!`` and base64url of JSON, with an HMAC under a secret that the key wraps.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias
from urllib.parse import quote

from sparkcrypt.errors import KeyAccessDeniedError, KeyServiceError, KeyServiceUnavailableError
from sparkcrypt.keys.service import KeyService
from sparkcrypt.plan import ColumnPlan
from sparkcrypt.policy.model import Policy
from sparkcrypt.schema import Path, fold

Unwrap: TypeAlias = Callable[[str, str], bytes]
"""``KeyService.unwrap``: a key id and a wrapped key -> the key."""
_MARK = "!"  # in no percent-encoded key id
_LABEL = b"sparkcrypt history\0"
_SECRET_BYTES = 32


def seal_history(service: KeyService, key_id: str, uuid: str, path: Path, entries: Iterable[str]) -> tuple[str, ...]:
    """Return the entries of a column's history with their seal.

    Args:
        service: wraps the seal's secret.
        key_id: the key that the column has now.
        uuid: the table's UUID.
        path: the column's logical path.
        entries: percent-encoded key ids.

    Raises:
        KeyServiceError: the key service does not wrap under this key.
    """
    kept = tuple(dict.fromkeys(entries))
    secret = os.urandom(_SECRET_BYTES)
    body = {"uuid": uuid, "path": list(path), "key": key_id, "entries": list(kept)}
    seal = {**body, "mac": _mac(secret, body), "secret": service.wrap(key_id, secret)}
    return (*kept, _MARK + base64.urlsafe_b64encode(json.dumps(seal).encode()).decode())


def no_unwrap(key_id: str, wrapped: str) -> bytes:
    """Open nothing, for readers without a key service."""
    raise KeyServiceError(f"no key service to open {wrapped!r} under {key_id!r}")


@dataclass(frozen=True, slots=True)
class SealedHistories:
    """Decides which history counts for the columns of a table that requires encryption.

    Attributes:
        policy: its own history always counts.
        uuid: the table's UUID.
        unwrap: opens the secrets of seals.
        unread: tells of a column's plan whether the reader does not read the column: then a seal whose key is denied to
            the reader counts, since nothing of the column reaches the reader.
    """

    policy: Policy
    uuid: str | None
    unwrap: Unwrap
    unread: Callable[[ColumnPlan], bool] = lambda _: False

    def judge(self, columns: Iterable[ColumnPlan]) -> tuple[ColumnPlan, ...]:
        """Return the columns with that part of their history which counts; one that is plaintext keeps all of it."""
        return tuple(
            column
            if column.action == "plaintext"
            else replace(column, history=tuple(dict.fromkeys(self._list_counting(column))))
            for column in columns
        )

    def _list_counting(self, column: ColumnPlan) -> Iterator[str]:
        rule = self.policy.tag(column.tag) if column.tag is not None else None
        yield from (quote(entry, safe="-_.~") for entry in (rule.history if rule is not None else ()))
        for entry in column.history if column.key is not None and not column.key.columns else ():
            if entry.startswith(_MARK):
                yield from self.open(entry, column.key.text if column.key else "", column.leaf.logical, column)

    def open(self, entry: str, key_id: str, path: Path, column: ColumnPlan | None = None) -> tuple[str, ...]:
        """Return the entries that a seal is for; none if it is not one by this key for this table and column.

        Args:
            entry: an entry of a history.
            key_id: the column's key.
            path: the column's logical path.
            column: its plan, for ``unread``.

        Raises:
            KeyServiceUnavailableError: the key service does not answer.
        """
        try:
            seal = json.loads(base64.urlsafe_b64decode(entry.removeprefix(_MARK)))
            body = {name: seal[name] for name in ("uuid", "path", "key", "entries")}
            sealed, mac, secret = fold(tuple(map(str, seal["path"]))), str(seal["mac"]), str(seal["secret"])
            entries = tuple(map(str, seal["entries"]))
        except (ValueError, KeyError, TypeError, RecursionError):
            return ()
        if (seal["uuid"], seal["key"]) != (self.uuid, key_id) or fold(path)[: len(sealed)] != sealed:
            return ()
        try:
            right = hmac.compare_digest(_mac(self.unwrap(key_id, secret), body), mac)
        except KeyServiceUnavailableError:
            raise
        except KeyAccessDeniedError:
            right = column is not None and self.unread(column)
        except KeyServiceError:
            right = False
        return entries if right else ()


def _mac(secret: bytes, body: Mapping[str, object]) -> str:
    return hmac.new(secret, _LABEL + json.dumps(body, sort_keys=True).encode(), hashlib.sha256).hexdigest()

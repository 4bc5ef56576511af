"""Whether credentials may use master keys: asked once for a key, and refusals remembered for a moment."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from sparkcrypt.errors import KeyAccessDeniedError, KeyNotFoundError, KeyServiceError, SparkcryptError
from sparkcrypt.keys.expiring_cache import ExpiringCache
from sparkcrypt.keys.service import Unwrapper
from sparkcrypt.policy.former_services import kind_of

Decision: TypeAlias = Literal["allowed", "denied", "shredded"]
REFUSAL_SECONDS = 10.0
"""How long a refusal is believed: a right that was granted takes this long to be seen."""
_MOST_REFUSALS = 10_000


@runtime_checkable
class AccessDecider(Protocol):
    """A key service that can say what its credentials may unwrap with, without anything to unwrap: an optional verb."""

    def may(self, key_ids: Collection[str]) -> Mapping[str, Decision]:
        """Return what these credentials may do with each key; a key that is left out is undecided.

        ``shredded`` says that the key is not there; whether somebody shredded it, a tombstone tells.

        Raises:
            KeyServiceUnavailableError: it cannot be told now.
        """
        ...


def decision_of(error: SparkcryptError) -> Decision:
    """Return what a failed unwrap says of the right to use its key.

    Raises:
        SparkcryptError: it says nothing of that; the error itself.
    """
    if isinstance(error, KeyNotFoundError):
        return "shredded"
    if isinstance(error, KeyAccessDeniedError):
        return "denied"
    raise error


class KeyDecisions:
    """Decides on keys of one key service; safe for many threads, and bounded.

    Args:
        service: what is asked: its ``may`` where it has that verb, else one unwrap of a KEK that is given.
    """

    def __init__(self, service: Unwrapper) -> None:
        self._service = service
        self._known: ExpiringCache[tuple[str, bool], Decision | None] = ExpiringCache(REFUSAL_SECONDS)

    def __repr__(self) -> str:
        return f"KeyDecisions({self._service!r})"

    def decide(self, key_ids: Iterable[str], wrapped_keks: Mapping[str, str]) -> dict[str, Decision]:
        """Decide on keys, each at most once in ``REFUSAL_SECONDS``; what cannot be decided is left out.

        Args:
            key_ids: master keys, not encoded.
            wrapped_keks: key id -> a KEK that this key wrapped, for services without ``may``.

        Raises:
            KeyServiceUnavailableError: the key service does not answer.
        """
        found: dict[str, Decision] = {}
        for key_id in dict.fromkeys(key_ids):
            kek = wrapped_keks.get(key_id)
            # What could not be decided without a KEK is asked anew when there is one.
            decision = self._known.get((key_id, kek is None), partial(self._ask, key_id, kek))
            if decision is not None:
                found[key_id] = decision
        return found

    def _ask(self, key_id: str, wrapped_kek: str | None) -> Decision | None:
        if isinstance(self._service, AccessDecider):
            said = self._service.may((key_id,)).get(key_id)
            if said is not None:
                return said
        if wrapped_kek is None:
            return None
        try:
            self._service.unwrap(key_id, wrapped_kek)
        except SparkcryptError as error:
            return decision_of(error)
        return "allowed"


@dataclass(frozen=True, slots=True)
class _Refusal:
    error: KeyServiceError
    expires: float


class RefusalKeeper:
    """Unwraps with another key service, and gives a refusal again without a call for ``seconds``.

    A key that is denied is so for whatever it wrapped; where keys move from a former key service, for whatever has the
    form of the same one.  One that is not there may lack a version alone, which is what a file says that anybody may
    have written: that is kept for this wrapped key, and no other.  That the service cannot be reached is never kept.
    """

    def __init__(self, service: Unwrapper, *, seconds: float = REFUSAL_SECONDS) -> None:
        self._service = service
        self._seconds = seconds
        self._lock = threading.Lock()
        self._refused: dict[tuple[str, bytes | str], _Refusal] = {}

    def __repr__(self) -> str:
        return f"RefusalKeeper({self._service!r})"

    def unwrap(self, key_id: str, wrapped: str) -> bytes:
        """Unwrap, or refuse as before.

        Raises:
            KeyServiceError: what the key service said, now or within ``seconds``.
        """
        entry = (key_id, hashlib.sha256(wrapped.encode("utf-8", "surrogatepass")).digest())
        form = kind_of(wrapped)
        with self._lock:
            kept = self._refused.get((key_id, form)) or self._refused.get(entry)
        if kept is not None and time.monotonic() < kept.expires:
            raise type(kept.error)(*kept.error.args)
        try:
            return self._service.unwrap(key_id, wrapped)
        except KeyAccessDeniedError as error:
            self._keep((key_id, form), error)
            raise
        except KeyNotFoundError as error:
            self._keep(entry, error)
            raise

    def _keep(self, key: tuple[str, bytes | str], error: KeyServiceError) -> None:
        with self._lock:
            self._refused.pop(key, None)
            self._refused[key] = _Refusal(error, time.monotonic() + self._seconds)
            while len(self._refused) > _MOST_REFUSALS:
                del self._refused[next(iter(self._refused))]

"""Decisions whether credentials may use master keys, and refusals, both cached for a short time."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from sparkcrypt.errors import KeyAccessDeniedError, KeyNotFoundError, KeyServiceError, SparkcryptError
from sparkcrypt.keys.expiring_cache import ExpiringCache
from sparkcrypt.keys.service import Decision, KeyService, Unwrapper
from sparkcrypt.policy.key_service import kind_of

REFUSAL_SECONDS = 10.0
"""How long a decision or a refusal is cached: a newly granted right takes this long to be seen."""
_MOST_REFUSALS = 10_000


def decision_of(error: SparkcryptError) -> Decision:
    """Return the decision on a key that follows from a failed unwrap.

    Raises:
        SparkcryptError: the error itself, if no decision follows from it.
    """
    if isinstance(error, KeyNotFoundError):
        return "shredded"
    if isinstance(error, KeyAccessDeniedError):
        return "denied"
    raise error


class KeyDecisions:
    """Cached decisions on the keys of one key service; bounded, and safe for many threads.

    Args:
        service: asked by ``may``; if it has no such verb or does not decide, by one unwrap of a given KEK.
    """

    def __init__(self, service: KeyService) -> None:
        self._service = service
        self._known: ExpiringCache[tuple[str, bool], Decision | None] = ExpiringCache(REFUSAL_SECONDS)

    def __repr__(self) -> str:
        return f"KeyDecisions({self._service!r})"

    def decide(self, key_ids: Iterable[str], wrapped_keks: Mapping[str, str]) -> dict[str, Decision]:
        """Decide on keys, asking about each at most once in ``REFUSAL_SECONDS``; undecided keys are left out.

        Args:
            key_ids: master keys, not encoded.
            wrapped_keks: key id -> a KEK that this key wrapped, for services without ``may``.

        Raises:
            KeyServiceUnavailableError: the key service does not answer.
        """
        found: dict[str, Decision] = {}
        for key_id in dict.fromkeys(key_ids):
            kek = wrapped_keks.get(key_id)
            # A key that could not be decided without a KEK is asked about again when there is one.
            decision = self._known.get((key_id, kek is None), partial(self._ask, key_id, kek))
            if decision is not None:
                found[key_id] = decision
        return found

    def _ask(self, key_id: str, wrapped_kek: str | None) -> Decision | None:
        decision = self._service.may((key_id,)).get(key_id)
        if decision is not None or wrapped_kek is None:
            return decision
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
    """An unwrapper that repeats refusals of another key service for ``seconds``, without a call.

    A denied key is denied for all that it wrapped; if keys move from a former key service, for all of the same form.
    A missing key may lack only a version, and the version comes from a file that anyone may have written: that refusal
    is kept for this wrapped key alone.  That the service cannot be reached is never kept.
    """

    def __init__(self, service: Unwrapper, *, seconds: float = REFUSAL_SECONDS) -> None:
        self._service = service
        self._seconds = seconds
        self._lock = threading.Lock()
        self._refused: dict[tuple[str, bytes | str], _Refusal] = {}

    def __repr__(self) -> str:
        return f"RefusalKeeper({self._service!r})"

    def unwrap(self, key_id: str, wrapped: str) -> bytes:
        """Unwrap a key, or repeat an earlier refusal.

        Raises:
            KeyServiceError: the key service's refusal, of now or of the last ``seconds``.
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

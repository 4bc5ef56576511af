"""When a Vault client's token is renewed or replaced; a `VaultLogin` does either."""

from __future__ import annotations

import hashlib
import threading
import time
from typing import Any, Protocol

from sparkcrypt.keys.vault.options import VaultAuth, VaultCredential, read_credential

_NEVER = float("inf")


class VaultLogin(Protocol):
    """The operations on Vault that a session needs."""

    def log_in(self, credential: VaultCredential) -> tuple[Any, float]:
        """Return a client with a token, and the token's lifetime in seconds; 0 if it needs no renewal."""
        ...

    def renew(self, client: Any) -> float | None:
        """Renew a client's token; return its lifetime now in seconds, or None if it was not renewed."""
        ...

    def is_alive(self, client: Any) -> bool:
        """Return whether Vault still accepts a client's token."""
        ...


class VaultSession:
    """A client whose token is renewed when less than a third of its life remains, and replaced when it is invalid.

    Safe for many threads: while one thread renews the token, the others use the old one.

    Args:
        auth: the method, and where the credential is read.
        login: logs in, renews and looks up tokens.
    """

    def __init__(self, auth: VaultAuth, login: VaultLogin) -> None:
        self._auth = auth
        self._login = login
        self._lock = threading.Lock()
        self._client: Any = None
        self._credential: VaultCredential | None = None
        self._renew_at = _NEVER

    def __repr__(self) -> str:
        return f"VaultSession(method={self._auth.method!r})"

    def client(self) -> Any:
        """Return the client, logging in or renewing its token first if that is due."""
        if self._client is None:
            with self._lock:
                if self._client is None:
                    self._log_in()
        elif time.monotonic() >= self._renew_at and self._lock.acquire(blocking=False):
            try:
                self._renew()
            finally:
                self._lock.release()
        return self._client

    def after_refusal(self, refused: Any) -> Any:
        """Return a client with another token if the refused one is no longer valid, None if the refusal stands.

        A plain token is read again, since an agent may have written a new one; the other methods log in again.
        """
        with self._lock:
            if self._client is not refused:
                return self._client  # another thread was here first
            if self._auth.method == "token":
                is_dead = read_credential(self._auth) != self._credential
            else:
                is_dead = not self._login.is_alive(refused)
            if not is_dead:
                return None
            self._log_in()
            return self._client

    def credential_identity(self) -> bytes:
        """Return a digest of the credential that a login would use now."""
        credential = read_credential(self._auth)
        # A service account's JWT is replaced every hour, so the role identifies the credential.
        shown = credential.secrets[:1] if credential.method == "kubernetes" else credential.secrets
        return hashlib.sha256("\0".join((credential.method, *shown)).encode()).digest()

    @property
    def logged_in(self) -> bool:
        """Whether there is a client with a token."""
        return self._client is not None

    def secrets(self) -> tuple[str, ...]:
        """Return the secrets that no message may contain: the credential and the token in use."""
        known = self._credential.secrets if self._credential is not None else ()
        return (*known, str(getattr(self._client, "token", None) or ""))

    def _log_in(self) -> None:
        credential = read_credential(self._auth)
        client, lifetime_seconds = self._login.log_in(credential)
        self._client, self._credential = client, credential
        self._schedule(lifetime_seconds)

    def _renew(self) -> None:
        lifetime_seconds = self._login.renew(self._client)
        if lifetime_seconds is not None:
            self._schedule(lifetime_seconds)
        elif self._auth.method == "token":
            self._renew_at = _NEVER  # it serves until Vault refuses it
        else:
            self._log_in()

    def _schedule(self, lifetime_seconds: float) -> None:
        self._renew_at = time.monotonic() + lifetime_seconds * 2 / 3 if lifetime_seconds > 0 else _NEVER

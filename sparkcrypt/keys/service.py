"""Protocols of key services: what each of them does, and the optional verbs that some have."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from sparkcrypt.errors import ConfigError, KeyRetiredError
from sparkcrypt.policy.key_service import KeyServiceConfig

ABSENT_ADVICE = "restore it, or correct the policy's key id (docs/keys.md, 'Missing keys')"
"""Of every service for a key that is not there: whether it is lost or was never made, the service cannot tell."""


@dataclass(frozen=True, slots=True)
class KeyDescription:
    """A key service's description of a master key; it contains no secret.

    Attributes:
        key_id: the key id, not encoded.
        versions: number of its newest version; 1 when it was never rotated, 0 if the service does not report it.
        created: creation time of the key, ISO 8601 in UTC; None if the service does not report it.
        rotated: creation time of its newest version, likewise; ignored when descriptions are compared.
        first_usable: number of the lowest version that unwraps, likewise ignored; 1 if the service does not report it.
    """

    key_id: str
    versions: int
    created: str | None
    rotated: str | None = field(default=None, compare=False)
    first_usable: int = field(default=1, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return ``{"key_id", "versions", "created"}``."""
        return {"key_id": self.key_id, "versions": self.versions, "created": self.created}


class Unwrapper(Protocol):
    """The part of a key service that readers need: unwrapping."""

    def unwrap(self, key_id: str, wrapped: str) -> bytes:
        """Return the key inside a text that ``KeyService.wrap`` returned for the same key id."""
        ...


class KeyService(Protocol):
    """A service that wraps and unwraps keys with master keys that never leave it; safe for many threads.

    Key ids are raw: any text that is not empty.  Every method raises ``KeyServiceError`` or one of its subclasses:
    ``KeyNotFoundError`` (no such key), ``KeyAccessDeniedError`` (these credentials may not),
    ``KeyServiceUnavailableError`` (not reachable, or cannot serve now), and ``ConfigError`` for an invalid key id.
    """

    def wrap(self, key_id: str, key: bytes) -> str:
        """Return ``key`` wrapped with the newest version of a master key, as text that only ``unwrap`` reads.

        A missing master key is never created by this.
        """
        ...

    def unwrap(self, key_id: str, wrapped: str) -> bytes:
        """Return the key inside a text that ``wrap`` returned for the same key id."""
        ...

    def describe(self, key_id: str) -> KeyDescription:
        """Return the service's description of a master key."""
        ...

    def create(self, key_id: str) -> KeyDescription:
        """Create a master key and return its description; an existing one is left unchanged."""
        ...

    def list_keys(self) -> tuple[KeyDescription, ...]:
        """Return every master key, sorted by key id."""
        ...


@runtime_checkable
class CredentialBearer(Protocol):
    """A key service that can identify the credential that it uses."""

    def credential_identity(self) -> bytes:
        """Return bytes that differ between credentials.  They are secret: only a keyed digest of them may be shown."""
        ...


@runtime_checkable
class Rotating(Protocol):
    """A key service that can add a version to a key by itself."""

    def rotate(self, key_id: str) -> KeyDescription:
        """Add a version, which wraps from now on; earlier ones still unwrap."""
        ...


@runtime_checkable
class Rewrapping(Protocol):
    """A key service that can rewrap a wrapped key without revealing it."""

    def rewrap(self, key_id: str, wrapped: str) -> str:
        """Return the same key wrapped with the newest version; a text that this key did not wrap is refused."""
        ...


@runtime_checkable
class Retiring(Protocol):
    """A key service that can end the use of a key's older versions: reversibly at first, then for good."""

    def set_aside(self, key_id: str, below: int) -> KeyDescription:
        """Stop versions below a number from unwrapping anything, until they are brought back; the newest stays.

        What they wrapped is refused by ``KeyRetiredError``.  Versions that are set aside already stay so.
        """
        ...

    def bring_back(self, key_id: str) -> KeyDescription:
        """Let all versions that are set aside unwrap again."""
        ...

    def destroy_versions(self, key_id: str, below: int) -> KeyDescription:
        """Delete versions below a number for good; refused unless they are set aside."""
        ...


def make_retired_error(key_id: str, version: int, where: str) -> KeyRetiredError:
    """Return the error for a text that a retired version of a key wrapped.

    Args:
        key_id: the master key.
        version: the version that wrapped the text.
        where: the key service, for the message.
    """
    return KeyRetiredError(
        f"version {version} of key {key_id!r} is retired in {where}, so it unwraps nothing; `sparkcrypt keys retire "
        f"{shlex.quote(key_id)} --undo` brings it back, until it is destroyed"
    )


@dataclass(frozen=True, slots=True)
class KeyDeletion:
    """What a key service guarantees of a key that it was told to delete.

    Attributes:
        key_id: the master key, which unwraps nothing from now on.
        final_at: time until which a caller with the right can restore the key (ISO 8601, UTC); None if it is deleted at
            once, or the service names no time.
        promise: what the service guarantees, and what it cannot know.
    """

    key_id: str
    final_at: str | None
    promise: str


@runtime_checkable
class Deleting(Protocol):
    """A key service that can delete a key with all of its versions, for good."""

    def delete_key(self, key_id: str) -> KeyDeletion:
        """Delete a key, so that it never unwraps anything again; a key that already waits for deletion is accepted.

        Raises ``KeyNotFoundError`` if there is no such key, nor one that waits for its deletion.
        """
        ...


def check_options(config: KeyServiceConfig, allowed: tuple[str, ...]) -> dict[str, Any]:
    """Return a configuration's options after checking that every name is allowed.

    Raises:
        ConfigError: an option is not known; the message names it and the allowed ones.
    """
    options = config.options
    unknown = sorted(set(options) - set(allowed))
    if unknown:
        raise ConfigError(
            f"key_service of type {config.type!r}: option {', '.join(map(repr, unknown))} is not known; "
            f"allowed: {', '.join(allowed)}"
        )
    return options

"""What a key service is, and what it may be besides."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from sparkcrypt.errors import ConfigError
from sparkcrypt.policy.key_service import KeyServiceConfig


@dataclass(frozen=True, slots=True)
class KeyDescription:
    """A master key as its key service describes it: no secret.

    Attributes:
        key_id: its name there, not encoded.
        versions: number of its newest version; 1 when it was never rotated.
        created: when it was made, ISO 8601 in UTC, or None when the service does not say.
        rotated: when its newest version was made, likewise; two descriptions of one key may differ in it.
    """

    key_id: str
    versions: int
    created: str | None
    rotated: str | None = field(default=None, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return ``{"key_id", "versions", "created"}``."""
        return {"key_id": self.key_id, "versions": self.versions, "created": self.created}


class Unwrapper(Protocol):
    """What unwraps keys: the part of a key service that readers need."""

    def unwrap(self, key_id: str, wrapped: str) -> bytes:
        """Return the key inside a text that ``KeyService.wrap`` gave for the same key id."""
        ...


class KeyService(Protocol):
    """What wraps and unwraps keys with master keys that never leave it.  Every method may be called by many threads.

    Key ids are raw: any text that is not empty.  Every method raises ``KeyServiceError`` or one of its subclasses:
    ``KeyNotFoundError`` (no such key), ``KeyAccessDeniedError`` (these credentials may not),
    ``KeyServiceUnavailableError`` (not reachable, or cannot serve now), and ``ConfigError`` for an impossible key id.
    """

    def wrap(self, key_id: str, key: bytes) -> str:
        """Return ``key`` wrapped with the newest version of a master key, as text that only ``unwrap`` reads.

        A key that is not there is never made by this.
        """
        ...

    def unwrap(self, key_id: str, wrapped: str) -> bytes:
        """Return the key inside a text that ``wrap`` gave for the same key id."""
        ...

    def describe(self, key_id: str) -> KeyDescription:
        """Return what the service says of a master key."""
        ...

    def create(self, key_id: str) -> KeyDescription:
        """Make a master key; one that is there already is left as it is and described."""
        ...

    def list_keys(self) -> tuple[KeyDescription, ...]:
        """Return every master key, sorted by key id."""
        ...


@runtime_checkable
class CredentialBearer(Protocol):
    """A key service that can say by which credential it is used."""

    def credential_identity(self) -> bytes:
        """Return bytes that differ between credentials.  They are secret: only a keyed digest of them may be shown."""
        ...


@runtime_checkable
class Rotating(Protocol):
    """A key service that can add a version to a key itself."""

    def rotate(self, key_id: str) -> KeyDescription:
        """Add a version, which wraps from now on; earlier ones still unwrap."""
        ...


@runtime_checkable
class Rewrapping(Protocol):
    """A key service that can rewrap what it wrapped, without giving away what is inside."""

    def rewrap(self, key_id: str, wrapped: str) -> str:
        """Return the same key wrapped with the newest version; a text that this key did not wrap is refused."""
        ...


@runtime_checkable
class Retiring(Protocol):
    """A key service that can end the use of a key's older versions."""

    def retire(self, key_id: str, below: int) -> KeyDescription:
        """Let versions below a number unwrap nothing any more; the newest one stays."""
        ...


@dataclass(frozen=True, slots=True)
class KeyDeletion:
    """What a key service promises of a key that it was told to delete.

    Attributes:
        key_id: the master key, which unwraps nothing from now on.
        final_at: until when whoever has the right may bring it back (ISO 8601, UTC); None: it is gone at once.
        promise: what the service vouches for, and what it cannot know.
    """

    key_id: str
    final_at: str | None
    promise: str


@runtime_checkable
class Deleting(Protocol):
    """A key service that can delete a key with all of its versions, for good."""

    def delete_key(self, key_id: str) -> KeyDeletion:
        """Delete a key, so that nothing that it wrapped is unwrapped again; one that waits for that is as good.

        ``KeyNotFoundError`` says that there is no such key, nor one that waits for its deletion.
        """
        ...


@runtime_checkable
class Remote(Protocol):
    """A provider over a network that asks to be guarded by deadline, breaker and failover (``keys/steady``).

    Attributes:
        retries_itself: whether it tries again what passes; else it is tried again for it.
    """

    retries_itself: bool


def check_options(config: KeyServiceConfig, allowed: tuple[str, ...]) -> dict[str, Any]:
    """Return a configuration's options once every name is allowed.

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

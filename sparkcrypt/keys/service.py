"""What a key service is, and how the one that a policy names is opened.

A provider's library is imported only when a policy asks for it, so a process needs no more than it uses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Protocol, TypeAlias, cast, runtime_checkable

from sparkcrypt.errors import ConfigError
from sparkcrypt.policy.key_service import KeyServiceConfig

ENTRY_POINT_GROUP = "sparkcrypt.key_services"


@dataclass(frozen=True, slots=True)
class KeyDescription:
    """A master key as its key service describes it: no secret.

    Attributes:
        key_id: its name there, not encoded.
        versions: number of its newest version; 1 when it was never rotated.
        created: when it was made, ISO 8601 in UTC, or None when the service does not say.
    """

    key_id: str
    versions: int
    created: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return ``{"key_id", "versions", "created"}``."""
        return {"key_id": self.key_id, "versions": self.versions, "created": self.created}


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


KeyServiceFactory: TypeAlias = Callable[[KeyServiceConfig], KeyService]

_BUILT_IN = {
    "local": ("sparkcrypt.keys.local", "LocalKeyService"),
    "vault": ("sparkcrypt.keys.vault", "VaultKeyService"),
    "ephemeral": ("sparkcrypt.keys.ephemeral", "EphemeralKeyService"),
}


def open_key_service(config: KeyServiceConfig) -> KeyService:
    """Open the key service that a configuration names; nothing is sent to it yet.

    Args:
        config: its type is a built-in one, or the name of an entry point of the group ``sparkcrypt.key_services``,
            which is a callable that takes the configuration and returns the service.

    Raises:
        ConfigError: the type is not known, its library is not installed, or its options are not right.
    """
    try:
        factory = _factory(config.type)
    except ImportError as error:
        raise ConfigError(
            f"key service {config.type!r} needs {error.name or 'a library'}, which this interpreter does not have; "
            "install it for the interpreter that runs here"
        ) from error
    return factory(config)


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


def _factory(kind: str) -> KeyServiceFactory:
    if kind in _BUILT_IN:
        module, name = _BUILT_IN[kind]
        return cast(KeyServiceFactory, getattr(import_module(module), name))
    installed = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
    if kind not in installed:
        raise ConfigError(
            f"key_service: type {kind!r} is not known; allowed: "
            f"{', '.join(sorted({'local', 'vault'} | set(installed)))}, or "
            f"the name of an installed entry point of the group {ENTRY_POINT_GROUP}"
        )
    return cast(KeyServiceFactory, installed[kind].load())

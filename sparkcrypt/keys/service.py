"""What a key service does: the verbs that each has, and those that some have."""

from __future__ import annotations

import base64
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from sparkcrypt.errors import ConfigError, KeyRetiredError
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.policy.key_service import KeyServiceConfig

T = TypeVar("T")
Decision: TypeAlias = Literal["allowed", "denied", "shredded"]
OptionalVerb: TypeAlias = Literal[
    "credential_identity", "may", "rotate", "rewrap", "set_aside", "bring_back", "destroy_versions", "delete_key"
]
ABSENT_ADVICE = "restore it, or correct the policy's key id (docs/keys.md, 'Missing keys')"
"""Of every service for a key that is not there: whether it is lost or was never made, the service cannot tell."""


@dataclass(frozen=True, slots=True)
class KeyDescription(JsonObject, json_names={"rotated": None, "first_usable": None}):
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


class Unwrapper(Protocol):
    """The part of a key service that readers need: unwrapping."""

    def unwrap(self, key_id: str, wrapped: str) -> bytes:
        """Return the key inside a text that ``KeyService.wrap`` returned for the same key id."""
        ...


class KeyService(ABC):
    """A service that wraps and unwraps keys with master keys that never leave it; safe for many threads.

    Key ids are raw: any text that is not empty.  Every method raises ``KeyServiceError`` or one of its subclasses:
    ``KeyNotFoundError`` (no such key), ``KeyAccessDeniedError`` (these credentials may not),
    ``KeyServiceUnavailableError`` (not reachable, or cannot serve now), and ``ConfigError`` for an invalid key id.

    A provider defines the first five verbs, and of the others those that its service has (`offers`).

    Attributes:
        retries_itself: of a provider over a network, whether it retries transient failures itself; None: it needs no
            network.
        serve_stale_seconds: how long an opened key is used beyond its lifetime while the service does not answer.
    """

    retries_itself: bool | None = None
    serve_stale_seconds: int = 0

    @abstractmethod
    def wrap(self, key_id: str, key: bytes) -> str:
        """Return ``key`` wrapped with the newest version of a master key, as text that only ``unwrap`` reads.

        A missing master key is never created by this.
        """

    @abstractmethod
    def unwrap(self, key_id: str, wrapped: str) -> bytes:
        """Return the key inside a text that ``wrap`` returned for the same key id."""

    @abstractmethod
    def describe(self, key_id: str) -> KeyDescription:
        """Return the service's description of a master key."""

    @abstractmethod
    def create(self, key_id: str) -> KeyDescription:
        """Create a master key and return its description; an existing one is left unchanged."""

    @abstractmethod
    def list_keys(self) -> tuple[KeyDescription, ...]:
        """Return every master key, sorted by key id."""

    @property
    def provider(self) -> str:
        """The name of its class, for messages."""
        return type(self).__name__

    def offers(self, verb: OptionalVerb) -> bool:
        """Return whether the service has one of the verbs below."""
        return getattr(type(self), verb) is not getattr(KeyService, verb)

    def credential_identity(self) -> bytes:
        """Return bytes that differ between credentials.  They are secret: only a keyed digest of them may be shown."""
        return b""

    def may(self, key_ids: Collection[str]) -> Mapping[str, Decision]:  # the providers' own use it
        """Return what these credentials may do with each key; a key that is left out is undecided.

        ``shredded`` means that the key does not exist; a tombstone shows whether it was shredded.

        Raises:
            KeyServiceUnavailableError: the service cannot decide now.
        """
        return {}

    def rotate(self, key_id: str) -> KeyDescription:
        """Add a version, which wraps from now on; earlier ones still unwrap."""
        raise self._make_missing_error("rotate", key_id)

    def rewrap(self, key_id: str, wrapped: str) -> str:
        """Rewrap with the newest version without revealing the key; a text that this key did not wrap is refused."""
        raise self._make_missing_error("rewrap", key_id)

    def set_aside(self, key_id: str, below: int) -> KeyDescription:
        """Stop versions below a number from unwrapping anything, until they are brought back; the newest stays.

        What they wrapped is refused by ``KeyRetiredError``.  Versions that are set aside already stay so.
        """
        raise self._make_missing_error("set_aside", key_id)

    def bring_back(self, key_id: str) -> KeyDescription:
        """Let all versions that are set aside unwrap again."""
        raise self._make_missing_error("bring_back", key_id)

    def destroy_versions(self, key_id: str, below: int) -> KeyDescription:
        """Delete versions below a number for good; refused unless they are set aside."""
        raise self._make_missing_error("destroy_versions", key_id)

    def delete_key(self, key_id: str) -> KeyDeletion:
        """Delete a key, so that it never unwraps anything again; a key that already waits for deletion is accepted.

        Raises:
            KeyNotFoundError: there is no such key, nor one that waits for its deletion.
        """
        raise self._make_missing_error("delete_key", key_id)

    def _make_missing_error(self, verb: str, key_id: str | None) -> ConfigError:
        return ConfigError(
            f"this policy's key service ({self.provider}) has no {verb!r}, which was asked of key {key_id!r}; "
            "use the service's own tools"
        )


class DelegatingKeyService(KeyService):
    """A key service that passes each verb to another one, by `_call`; it offers what that one offers.

    Args:
        service: the other one.  It may be of a class of users that has the verbs and is no `KeyService`.
    """

    def __init__(self, service: KeyService) -> None:
        self._service = service
        self.retries_itself = getattr(service, "retries_itself", None)
        self.serve_stale_seconds = getattr(service, "serve_stale_seconds", 0)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._service!r})"

    @property
    def provider(self) -> str:
        """The name of the other key service's class, for messages."""
        service: object = self._service
        return service.provider if isinstance(service, KeyService) else type(service).__name__

    def offers(self, verb: OptionalVerb) -> bool:
        """Return whether the other key service has a verb."""
        service: object = self._service
        return service.offers(verb) if isinstance(service, KeyService) else callable(getattr(service, verb, None))

    def wrap(self, key_id: str, key: bytes) -> str:
        """Wrap a key."""
        return self._call("wrap", key_id, lambda service: service.wrap(key_id, key))

    def unwrap(self, key_id: str, wrapped: str) -> bytes:
        """Unwrap a key."""
        return self._call("unwrap", key_id, lambda service: service.unwrap(key_id, wrapped))

    def describe(self, key_id: str) -> KeyDescription:
        """Describe a key."""
        return self._call("describe", key_id, lambda service: service.describe(key_id))

    def create(self, key_id: str) -> KeyDescription:
        """Create a key."""
        return self._call("create", key_id, lambda service: service.create(key_id))

    def list_keys(self) -> tuple[KeyDescription, ...]:
        """List the keys."""
        return self._call("list_keys", None, lambda service: service.list_keys())

    def credential_identity(self) -> bytes:
        """Return the identity of the other key service's credential, without a call."""
        return self._service.credential_identity() if self.offers("credential_identity") else b""

    def may(self, key_ids: Collection[str]) -> Mapping[str, Decision]:
        """Decide on keys."""
        return self._call("may", None, lambda service: service.may(key_ids)) if self.offers("may") else {}

    def rotate(self, key_id: str) -> KeyDescription:
        """Add a version."""
        return self._call("rotate", key_id, lambda service: service.rotate(key_id))

    def rewrap(self, key_id: str, wrapped: str) -> str:
        """Rewrap a key."""
        return self._call("rewrap", key_id, lambda service: service.rewrap(key_id, wrapped))

    def set_aside(self, key_id: str, below: int) -> KeyDescription:
        """Stop versions from unwrapping."""
        return self._call("set_aside", key_id, lambda service: service.set_aside(key_id, below))

    def bring_back(self, key_id: str) -> KeyDescription:
        """Let versions unwrap again."""
        return self._call("bring_back", key_id, lambda service: service.bring_back(key_id))

    def destroy_versions(self, key_id: str, below: int) -> KeyDescription:
        """Delete versions."""
        return self._call("destroy_versions", key_id, lambda service: service.destroy_versions(key_id, below))

    def delete_key(self, key_id: str) -> KeyDeletion:
        """Delete a key."""
        return self._call("delete_key", key_id, lambda service: service.delete_key(key_id))

    def _call(self, verb: str, key_id: str | None, call: Callable[[KeyService], T]) -> T:
        """Make a call of a verb; its key is None if the call names no key, or several."""
        if not hasattr(self._service, verb):
            raise self._make_missing_error(verb, key_id)
        return call(self._service)


def read_wrapped(prefix: str, wrapped: str) -> bytes:
    """Return what a provider wrapped as a prefix and base64; no bytes if the text has another form."""
    if not wrapped.startswith(prefix):
        return b""
    try:
        return base64.b64decode(wrapped.removeprefix(prefix), validate=True)
    except ValueError:
        return b""


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

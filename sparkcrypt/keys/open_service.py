"""Opens the key service that a policy names, and the former ones from which keys move.

A provider's library is imported only if a policy names that provider, so a process needs no more than it uses.

The current service wraps; former ones, which the policy names for these keys, only unwrap.  The policy's order decides
which service is asked first.  Each service authenticates what it unwraps: a text opens under the master key that
wrapped it and under no other.  Nothing in a file selects a service.  A built-in service writes its type before what it
wraps, so it is not asked about a text of another form; that leaves services out, and never adds one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import TypeAlias, cast

from sparkcrypt.errors import (
    ConfigError,
    KeyAccessDeniedError,
    KeyNotFoundError,
    KeyRetiredError,
    KeyServiceError,
    KeyServiceUnavailableError,
)
from sparkcrypt.keys.service import Decision, DelegatingKeyService, KeyDeletion, KeyService
from sparkcrypt.policy.key_service import (
    ENDURANCE_OPTIONS,
    KEY_SERVICE_OPTIONS,
    FormerService,
    KeyServiceConfig,
    endurance_of,
    is_form_of,
    replicas_of,
    split_former,
)

ENTRY_POINT_GROUP = "sparkcrypt.key_services"
KeyServiceFactory: TypeAlias = Callable[[KeyServiceConfig], KeyService]
_BUILT_IN = {
    "local": ("sparkcrypt.keys.local.service", "LocalKeyService"),
    "vault": ("sparkcrypt.keys.vault.service", "VaultKeyService"),
    "aws": ("sparkcrypt.keys.cloud.aws", "AwsKeyService"),
    "hadoop": ("sparkcrypt.keys.hadoop", "HadoopKeyService"),
    "gcp": ("sparkcrypt.keys.cloud.gcp", "GcpKeyService"),
    "azure": ("sparkcrypt.keys.cloud.azure", "AzureKeyService"),
    "ephemeral": ("sparkcrypt.keys.local.ephemeral", "EphemeralKeyService"),
}
_EXTRAS = {kind: f"sparkcrypt[{kind}]" for kind in ("aws", "azure", "gcp")}


class MovingKeyService(DelegatingKeyService):
    """A key service that wraps with the current service and unwraps with former ones too; safe for many threads.

    Keys are described, created, listed, rotated and retired in the current service alone; a key is deleted everywhere.
    It has the optional verbs of the current service.

    Args:
        kind: the type of the current key service.
        current: the key service that wraps.
        former: the former key services, each by its entry in the policy, in the order in which they are asked.
    """

    def __init__(self, kind: str, current: KeyService, former: Mapping[FormerService, KeyService]) -> None:
        super().__init__(current)
        self._kind, self._former = kind, dict(former)

    def __repr__(self) -> str:
        return f"MovingKeyService({self._service!r}, former={[*self._former.values()]!r})"

    def unwrap(self, key_id: str, wrapped: str) -> bytes:
        """Unwrap with the service that wrapped a text.

        The next service is asked only if one has no such key, or its key did not wrap the text.  A refusal of
        credentials and a service that cannot be reached are final, since they do not show which service wrapped the
        text.

        Raises:
            KeyNotFoundError: no service that may have wrapped it has such a key.
            KeyAccessDeniedError, KeyServiceUnavailableError: one of them refused, or did not answer.
            KeyRetiredError: none opened it, and one has set aside the version that may have wrapped it.
            KeyServiceError: a service has the key, but that key did not wrap this text.
        """
        refusals: list[KeyServiceError] = []
        for what, service in self._candidates(key_id, wrapped):
            try:
                return service.unwrap(key_id, wrapped)
            except (KeyAccessDeniedError, KeyServiceUnavailableError) as error:
                raise type(error)(f"{what}: {error}") from error
            except KeyServiceError as error:
                refusals.append(type(error)(f"{what}: {error}"))
        absent = all(isinstance(refusal, KeyNotFoundError) for refusal in refusals)
        retired = any(isinstance(refusal, KeyRetiredError) for refusal in refusals)
        kind = KeyNotFoundError if absent else KeyRetiredError if retired else KeyServiceError
        raise kind("; ".join(map(str, refusals))) from refusals[-1]

    def credential_identity(self) -> bytes:
        """Return bytes that differ if the credential of any of the services differs."""
        services = (self._service, *self._former.values())
        identities = [service.credential_identity() for service in services]
        return b"".join(len(identity).to_bytes(4, "big") + identity for identity in identities)

    def is_former(self, key_id: str, wrapped: str) -> bool:
        """Return whether a text must be wrapped again before the former services may be removed from the policy.

        The current service is asked only if the form of the text does not decide it.

        Raises:
            KeyAccessDeniedError, KeyServiceUnavailableError: the current service refused or did not answer.
        """
        former = [entry for entry in self._former if entry.has(key_id)]
        if not any(is_form_of(entry.config.type, wrapped) for entry in former):
            return False
        if not is_form_of(self._kind, wrapped):
            return True
        try:
            self._service.unwrap(key_id, wrapped)
        except (KeyAccessDeniedError, KeyServiceUnavailableError):
            raise
        except KeyServiceError:
            return True
        return False

    def _candidates(self, key_id: str, wrapped: str) -> list[tuple[str, KeyService]]:
        """Return the services that may have wrapped a text, with their names for messages; all services if none may."""
        named = [
            (entry.config.type, f"former key service of type {entry.config.type!r}", service)
            for entry, service in self._former.items()
            if entry.has(key_id)
        ]
        services = [(self._kind, f"key service of type {self._kind!r}", self._service), *named]
        likely = [(what, service) for kind, what, service in services if is_form_of(kind, wrapped)]
        return likely or [(what, service) for _, what, service in services]

    def may(self, key_ids: Collection[str]) -> Mapping[str, Decision]:
        """Return the current service's decisions; of a key that is moving, only that it is allowed.

        A former service may allow what the current one refuses, and the other way round, so a refusal is left to the
        unwrap.
        """
        decided = self._service.may(key_ids)
        moving = {key_id for key_id in decided if any(entry.has(key_id) for entry in self._former)}
        return {
            key_id: decision for key_id, decision in decided.items() if decision == "allowed" or key_id not in moving
        }

    def delete_key(self, key_id: str) -> KeyDeletion:
        """Delete a key in each service that has it, the current one last; see `KeyService.delete_key`.

        Raises:
            ConfigError: a former service that has the key cannot delete keys; nothing was deleted.
            KeyServiceError: a former service still has a key that it was told to delete.
        """
        former = [
            (entry.config.type, service)
            for entry, service in self._former.items()
            if entry.has(key_id) and has_key(service, key_id)
        ]
        for kind, service in former:
            if not service.offers("delete_key"):
                raise ConfigError(
                    f"the former key service of type {kind!r} has key {key_id!r} and does not "
                    "delete keys here; delete it there with the service's own tools first; nothing was deleted"
                )
        done = [_delete_from(kind, service, key_id) for kind, service in former]
        try:
            done.append(self._service.delete_key(key_id))
        except KeyNotFoundError:
            if not done:
                raise
        finals = [deletion.final_at for deletion in done if deletion.final_at is not None]
        return KeyDeletion(key_id, max(finals, default=None), "; ".join(deletion.promise for deletion in done))


def needs_moving(service: KeyService, key_id: str, wrapped: str) -> bool:
    """Return whether what a master key wrapped is still under a former key service.

    Raises:
        KeyAccessDeniedError, KeyServiceUnavailableError: the current service refused or did not answer.
    """
    return isinstance(service, MovingKeyService) and service.is_former(key_id, wrapped)


def has_key(service: KeyService, key_id: str) -> bool:
    """Return whether a key service has a key."""
    try:
        service.describe(key_id)
    except KeyNotFoundError:
        return False
    return True


def _delete_from(kind: str, service: KeyService, key_id: str) -> KeyDeletion:
    deletion = service.delete_key(key_id)
    if has_key(service, key_id):
        raise KeyServiceError(
            f"the former key service of type {kind!r} still has key {key_id!r}, though it was told "
            "to delete it; look there, and give the command again"
        )
    return deletion


def open_key_service(config: KeyServiceConfig) -> KeyService:
    """Open the key service that a configuration names; nothing is sent to it yet.

    Args:
        config: its type is a built-in one, or the name of an entry point of the group ``sparkcrypt.key_services``,
            which is a callable that takes the configuration and returns the service.  A provider over a network has
            an attribute ``retries_itself``, whether it retries transient failures itself, else its guard does.  It is
            guarded by deadline, breaker and failover (`sparkcrypt.keys.steady`), and gets the configuration without
            the options of its guard.  Former key services that it names are opened too, for unwrapping only.

    Raises:
        ConfigError: the type is not known, its library is not installed, or its options are not right.
    """
    own, former = split_former(config)
    if not former:
        return _open_one(config)
    opened = {entry: _open_one(entry.config) for entry in former}
    return MovingKeyService(own.type, _open_one(own), opened)


def _open_one(config: KeyServiceConfig) -> KeyService:
    try:
        factory = _factory(config.type)
    except ImportError as error:
        raise ConfigError(
            f"key service {config.type!r} needs {error.name or 'a library'}, which this interpreter does not have; "
            f"install {_EXTRAS.get(config.type, 'it')} for the interpreter that runs here"
        ) from error
    if getattr(factory, "retries_itself", None) is not None:
        return _open_guarded(factory, config)
    return _complete(factory(config))


def _open_guarded(factory: KeyServiceFactory, config: KeyServiceConfig) -> KeyService:
    from sparkcrypt.keys.steady import SteadyKeyService

    endurance, taken = endurance_of(config), set(ENDURANCE_OPTIONS)
    if getattr(factory, "retries_itself", None) is False:
        taken.add("max_retries")
    services = []
    for entry in replicas_of(config):
        left = {name: value for name, value in entry.options.items() if name not in taken}
        services.append(_complete(factory(KeyServiceConfig.from_dict({"type": entry.type, **left}))))
    return SteadyKeyService(services, endurance)


def _complete(service: object) -> KeyService:
    """Return a key service with every verb: an entry point's may be of a class that is no `KeyService`."""
    return service if isinstance(service, KeyService) else DelegatingKeyService(cast(KeyService, service))


def _factory(kind: str) -> KeyServiceFactory:
    if kind in _BUILT_IN:
        module, name = _BUILT_IN[kind]
        return cast(KeyServiceFactory, getattr(import_module(module), name))
    installed = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
    if kind not in installed:
        raise ConfigError(
            f"key_service: type {kind!r} is not known; allowed: "
            f"{', '.join(sorted({*KEY_SERVICE_OPTIONS, *installed}))}, or "
            f"the name of an installed entry point of the group {ENTRY_POINT_GROUP}"
        )
    return cast(KeyServiceFactory, installed[kind].load())

"""Opens the key service that a policy names.

A provider's library is imported only if a policy names that provider, so a process needs no more than it uses.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
from typing import TypeAlias, cast

from sparkcrypt.errors import ConfigError
from sparkcrypt.keys.former_services import MovingKeyService, OpenedFormer
from sparkcrypt.keys.service import DelegatingKeyService, KeyService
from sparkcrypt.policy.former_services import split_former
from sparkcrypt.policy.key_service import (
    ENDURANCE_OPTIONS,
    KEY_SERVICE_OPTIONS,
    KeyServiceConfig,
    endurance_of,
    replicas_of,
)

ENTRY_POINT_GROUP = "sparkcrypt.key_services"
KeyServiceFactory: TypeAlias = Callable[[KeyServiceConfig], KeyService]

_BUILT_IN = {
    "local": ("sparkcrypt.keys.local.service", "LocalKeyService"),
    "vault": ("sparkcrypt.keys.vault.service", "VaultKeyService"),
    "aws": ("sparkcrypt.keys.cloud.aws", "AwsKeyService"),
    "hadoop": ("sparkcrypt.keys.hadoop.service", "HadoopKeyService"),
    "gcp": ("sparkcrypt.keys.cloud.gcp", "GcpKeyService"),
    "azure": ("sparkcrypt.keys.cloud.azure", "AzureKeyService"),
    "ephemeral": ("sparkcrypt.keys.local.ephemeral", "EphemeralKeyService"),
}
_EXTRAS = {kind: f"sparkcrypt[{kind}]" for kind in ("aws", "azure", "gcp")}


def open_key_service(config: KeyServiceConfig) -> KeyService:
    """Open the key service that a configuration names; nothing is sent to it yet.

    Args:
        config: its type is a built-in one, or the name of an entry point of the group ``sparkcrypt.key_services``,
            which is a callable that takes the configuration and returns the service.  A provider over a network has
            an attribute ``retries_itself``, whether it retries transient failures itself, else its guard does.  It is
            guarded by deadline, breaker and failover (``keys/steady``), and gets the configuration without the options
            of its guard.  Former key services that it names are opened too, for unwrapping only.

    Raises:
        ConfigError: the type is not known, its library is not installed, or its options are not right.
    """
    own, former = split_former(config)
    if not former:
        return _open_one(config)
    opened = [OpenedFormer(entry, _open_one(entry.config)) for entry in former]
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
    from sparkcrypt.keys.steady.service import SteadyKeyService

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

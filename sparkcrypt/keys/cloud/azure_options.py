"""Options of an Azure Key Vault key service, and the key names there for key ids."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from sparkcrypt.errors import ConfigError
from sparkcrypt.keys.address_checks import auth_option, check_address, file_option, number_option, text_option
from sparkcrypt.keys.ids import NameRule
from sparkcrypt.keys.service import check_options
from sparkcrypt.policy.key_service import ENDURANCE_OPTIONS, KEY_SERVICE_OPTIONS, KeyServiceConfig

KIND = "azure"
ADDRESS = "https://acme.vault.azure.net"
OPTIONS = tuple(name for name in KEY_SERVICE_OPTIONS[KIND] if name not in {"type", "max_retries", *ENDURANCE_OPTIONS})
AUTH_OPTIONS: dict[str, tuple[str, ...]] = {
    "environment": ("method",),
    "workload": ("method", "client_id"),
    "managed": ("method", "client_id"),
}
RSA_WRAP, AES_WRAP = "RSA-OAEP-256", "A256KW"
KEY_TYPES: dict[str, tuple[str, int]] = {
    "RSA": (RSA_WRAP, 3072),
    "RSA-HSM": (RSA_WRAP, 3072),
    "oct-HSM": (AES_WRAP, 256),
}
"""Type of a new key -> the algorithm that wraps with it, and its bits."""
_OWN_NAME = re.compile(r"keys/([A-Za-z0-9-]{1,127})", re.ASCII)
_NAMES = NameRule("a-z0-9", "-", 127, "Azure Key Vault")
_CLIENT = re.compile(r"[A-Za-z0-9-]{1,64}", re.ASCII)
_DOMAINS = (
    *("vault.azure.net", "managedhsm.azure.net", "vault.azure.cn", "managedhsm.azure.cn"),
    *("vault.usgovcloudapi.net", "managedhsm.usgovcloudapi.net"),
)


@dataclass(frozen=True, slots=True)
class AzureOptions:
    """The checked options."""

    address: str
    method: str
    client_id: str | None
    key_type: str
    ca_bundle: str | None
    timeout_seconds: float

    @property
    def scope(self) -> str:
        """The scope of access tokens: the vaults or managed HSMs of the cloud that the address belongs to."""
        host = urlsplit(self.address).hostname or ""
        domain = next((domain for domain in _DOMAINS if host.endswith(f".{domain}")), _DOMAINS[0])
        return f"https://{domain}/.default"


def azure_options(config: KeyServiceConfig) -> AzureOptions:
    """Check the options of a configuration.

    Raises:
        ConfigError: an option is missing, is not known or has a value that is not allowed.
    """
    options = check_options(config, OPTIONS)
    auth = auth_option(options.get("auth", {}), AUTH_OPTIONS, "environment", KIND)
    client = auth.get("client_id")
    if client is not None and not _CLIENT.fullmatch(client):
        raise ConfigError(
            f"key_service of type 'azure': auth.client_id is {client!r}; allowed: the client id of an identity, such "
            "as 00000000-0000-0000-0000-000000000000"
        )
    kind = text_option(options, "key_type", "RSA", KIND)
    if kind not in KEY_TYPES:
        raise ConfigError(f"key_service of type 'azure': key_type is {kind!r}; allowed: {', '.join(KEY_TYPES)}")
    if "address" not in options:
        raise ConfigError(f"key_service of type 'azure': address is missing; allowed: the vault's, such as {ADDRESS}")
    address = check_address(options["address"], KIND, example=ADDRESS)
    if urlsplit(address).path:
        raise ConfigError(f"key_service of type 'azure': address {address!r} has a path; allowed: {ADDRESS}")
    return AzureOptions(
        address=address,
        method=auth["method"],
        client_id=client,
        key_type=kind,
        ca_bundle=file_option(text_option(options, "ca_bundle", "", KIND) or None, "ca_bundle", KIND),
        timeout_seconds=number_option(options, "timeout_seconds", 10.0, KIND, least=0.1, most=600.0),
    )


def is_own(key_id: str) -> bool:
    """Return whether a key id is the name of a key that users create, ``keys/<name>``."""
    return _OWN_NAME.fullmatch(key_id) is not None


def name_key(key_id: str) -> str:
    """Return a key's name in the vault: the name in ``keys/<name>``, or a name that encodes any other key id.

    Azure ignores case in names, so capital letters are escaped.

    Raises:
        ConfigError: the key id is empty, is not Unicode, or has a name that is too long.
    """
    own = _OWN_NAME.fullmatch(key_id)
    return own[1] if own else _NAMES.encode(key_id)


def find_key_id(name: str) -> str | None:
    """Return the key id that a key of the vault stands for by its name, or None if it stands for none."""
    found = _NAMES.decode(name)
    return found if found is not None and not is_own(found) else None

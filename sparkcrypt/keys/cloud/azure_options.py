"""Options of an Azure Key Vault key service, and the key names there for key ids."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from sparkcrypt.keys.ids import NameRule
from sparkcrypt.keys.provider_options import address, certificates, choice, login, number

ADDRESS = "https://acme.vault.azure.net"
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
_DOMAINS = (
    *("vault.azure.net", "managedhsm.azure.net", "vault.azure.cn", "managedhsm.azure.cn"),
    *("vault.usgovcloudapi.net", "managedhsm.usgovcloudapi.net"),
)


@dataclass(frozen=True, slots=True)
class AzureOptions:
    """The checked options."""

    address: str = address(ADDRESS, missing=f"allowed: the vault's, such as {ADDRESS}", has_path=False)
    method: str = login(AUTH_OPTIONS)
    client_id: str | None = login(
        AUTH_OPTIONS,
        "client_id",
        pattern="[A-Za-z0-9-]{1,64}",
        allowed="the client id of an identity, such as 00000000-0000-0000-0000-000000000000",
    )
    key_type: str = choice(*KEY_TYPES, default="RSA")
    ca_bundle: str | None = certificates()
    timeout_seconds: float = number(10.0, 0.1, 600.0)

    @property
    def scope(self) -> str:
        """The scope of access tokens: the vaults or managed HSMs of the cloud that the address belongs to."""
        host = urlsplit(self.address).hostname or ""
        domain = next((domain for domain in _DOMAINS if host.endswith(f".{domain}")), _DOMAINS[0])
        return f"https://{domain}/.default"


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

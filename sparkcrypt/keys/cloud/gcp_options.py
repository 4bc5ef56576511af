"""Options of a Google Cloud KMS key service, and the resource names for key ids."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sparkcrypt.errors import ConfigError
from sparkcrypt.keys.ids import NameRule, check_key_id
from sparkcrypt.keys.provider_options import address, certificates, choice, login, number, text

ENDPOINT = "https://cloudkms.googleapis.com"
AUTH_OPTIONS: dict[str, tuple[str, ...]] = {
    "file": ("method", "credentials_file"),
    "metadata": ("method", "service_account"),
}
_RING = r"projects/[A-Za-z0-9][A-Za-z0-9.:_-]{0,127}/locations/[a-z0-9-]{1,63}/keyRings/[A-Za-z0-9_-]{1,63}"
_OWN_NAME = re.compile(rf"{_RING}/cryptoKeys/[A-Za-z0-9_-]{{1,63}}", re.ASCII)
_VERSION = re.compile(rf"{_RING}/cryptoKeys/[A-Za-z0-9_-]{{1,63}}/cryptoKeyVersions/[0-9]+", re.ASCII)
_NAMES = NameRule("A-Za-z0-9-", "_", 63, "Google Cloud KMS")


@dataclass(frozen=True, slots=True)
class GcpOptions:
    """The checked options."""

    key_ring: str | None = text(pattern=f"(?:{_RING})?", allowed="projects/…/locations/…/keyRings/…", stripped="/")
    endpoint: str = address(ENDPOINT, default=ENDPOINT)
    method: str = login(AUTH_OPTIONS)
    credentials_file: str | None = login(AUTH_OPTIONS, "credentials_file")
    service_account: str | None = login(
        AUTH_OPTIONS,
        "service_account",
        pattern="default|[A-Za-z0-9_.-]+@[A-Za-z0-9_.-]+",
        allowed="an account's e-mail address",
    )
    protection_level: str = choice("SOFTWARE", "HSM", default="SOFTWARE")
    ca_bundle: str | None = certificates()
    timeout_seconds: float = number(10.0, 0.1, 600.0)


@dataclass(frozen=True, slots=True)
class KeyNames:
    """The resource names for key ids: a resource name is used unchanged, any other id is a key of the key ring.

    Attributes:
        key_ring: the key ring's resource name; None if the policy names keys only by their resource names.
    """

    key_ring: str | None

    def of(self, key_id: str) -> str:
        """Return the resource name of a key.

        Raises:
            ConfigError: the key id is empty, is not Unicode, names a version, or needs a key ring and there is none.
        """
        check_key_id(key_id)
        if self.is_own(key_id):
            return key_id
        if _VERSION.fullmatch(key_id):
            raise ConfigError(
                f"key id {key_id!r} names a version; allowed: the key's own name, …/cryptoKeys/<key>, whose primary "
                "version wraps"
            )
        return f"{self.ring(key_id)}/cryptoKeys/{_NAMES.encode(key_id)}"

    def ring(self, key_id: str | None = None) -> str:
        """Return the key ring's resource name.

        Raises:
            ConfigError: the policy names none.
        """
        if self.key_ring is None:
            purpose = "listing keys" if key_id is None else f"key id {key_id!r}"
            raise ConfigError(
                f"key_service of type 'gcp': {purpose} needs key_ring, and there is none; allowed: key_ring: "
                "projects/…/locations/…/keyRings/…, or a key's whole resource name as its key id"
            )
        return self.key_ring

    def is_own(self, key_id: str) -> bool:
        """Return whether a key id is a resource name, so that it has no encoded name."""
        return _OWN_NAME.fullmatch(key_id) is not None

    def key_id(self, name: str) -> str | None:
        """Return the key id that a key of the ring stands for by its resource name, or None if it stands for none."""
        found = _NAMES.decode(name.rpartition("/")[2])
        return found if found is not None and not self.is_own(found) else None

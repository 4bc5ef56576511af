"""Options and credentials of a Hadoop KMS key service, and the key names there for key ids."""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from sparkcrypt.errors import ConfigError
from sparkcrypt.keys.hadoop.tokens import TOKENS_VARIABLE, read_kms_token
from sparkcrypt.keys.ids import NameRule
from sparkcrypt.keys.provider_options import address, certificates, choice, login, number, text

_ADDRESS = "https://host:9600/kms"
AUTH_OPTIONS: dict[str, tuple[str, ...]] = {
    "kerberos": ("method",),
    "simple": ("method", "user"),
    "token": ("method", "token_file"),
}
NAMES = NameRule("a-z0-9-", "_", 200, "Hadoop KMS")
"""Java's key stores ignore case in names, so capital letters are escaped."""


@dataclass(frozen=True, slots=True)
class HadoopOptions:
    """The checked options."""

    address: str = address(
        _ADDRESS, missing=f"allowed: {_ADDRESS}, as hadoop.security.key.provider.path has it behind kms://"
    )
    method: str = login(AUTH_OPTIONS)
    user: str | None = login(AUTH_OPTIONS, "user")
    token_file: str | None = login(AUTH_OPTIONS, "token_file")
    name_prefix: str | None = text(pattern="[a-z0-9_-]{0,50}", allowed="up to 50 of a-z, 0-9, '_' and '-'")
    key_bits: int = choice(128, 192, 256, default=256)
    ca_bundle: str | None = certificates()
    timeout_seconds: float = number(10.0, 0.1, 600.0)


@dataclass(frozen=True, slots=True)
class HadoopCredential:
    """A credential for Hadoop KMS: a user's name (simple), a delegation token, or the location of a Kerberos ticket."""

    method: str
    secret: str = field(repr=False)


def read_credential(options: HadoopOptions, environ: Mapping[str, str] = os.environ) -> HadoopCredential:
    """Return the current credential; a token's file is read each time, since renewal replaces it.

    Raises:
        ConfigError: the method is ``token``, and there is no token for a KMS.
    """
    if options.method == "simple":
        return HadoopCredential("simple", options.user or environ.get("HADOOP_USER_NAME") or getpass.getuser())
    if options.method == "token":
        path = options.token_file or environ.get(TOKENS_VARIABLE)
        if not path:
            raise ConfigError(
                f"Hadoop KMS needs a delegation token and there is none; name a credentials file by auth.token_file, "
                f"or launch where {TOKENS_VARIABLE} names one, as YARN does for its containers"
            )
        return HadoopCredential("token", read_kms_token(path, options.address))
    return HadoopCredential("kerberos", environ.get("KRB5CCNAME", ""))

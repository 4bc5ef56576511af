"""Options and credentials of a Hadoop KMS key service, and the key names there for key ids."""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from sparkcrypt.errors import ConfigError
from sparkcrypt.keys.address_checks import auth_option, check_address, file_option, number_option, text_option
from sparkcrypt.keys.hadoop.tokens import TOKENS_VARIABLE, read_kms_token
from sparkcrypt.keys.ids import NameRule
from sparkcrypt.keys.service import check_options
from sparkcrypt.policy.key_service import ENDURANCE_OPTIONS, KEY_SERVICE_OPTIONS, KeyServiceConfig

KIND = "hadoop"
_TAKEN = {"type", "addresses", "max_retries", *ENDURANCE_OPTIONS}
OPTIONS = tuple(name for name in KEY_SERVICE_OPTIONS[KIND] if name not in _TAKEN)
AUTH_OPTIONS: dict[str, tuple[str, ...]] = {
    "simple": ("method", "user"),
    "token": ("method", "token_file"),
    "kerberos": ("method",),
}
_PREFIX = re.compile(r"[a-z0-9_-]{0,50}", re.ASCII)
NAMES = NameRule("a-z0-9-", "_", 200, "Hadoop KMS")
"""Java's key stores ignore case in names, so capital letters are escaped."""


@dataclass(frozen=True, slots=True)
class HadoopOptions:
    """The checked options."""

    address: str
    method: str
    user: str | None
    token_file: str | None
    name_prefix: str
    key_bits: int
    ca_bundle: str | None
    timeout_seconds: float


@dataclass(frozen=True, slots=True)
class HadoopCredential:
    """A credential for Hadoop KMS: a user's name (simple), a delegation token, or the location of a Kerberos ticket."""

    method: str
    secret: str = field(repr=False)


def hadoop_options(config: KeyServiceConfig) -> HadoopOptions:
    """Check the options of a configuration.

    Raises:
        ConfigError: an option is not known, is missing, or has a value that is not allowed.
    """
    options = check_options(config, OPTIONS)
    if "address" not in options:
        raise ConfigError(
            "key_service of type 'hadoop': address is missing; allowed: https://host:9600/kms, as "
            "hadoop.security.key.provider.path has it behind kms://"
        )
    auth = auth_option(options.get("auth", {}), AUTH_OPTIONS, "kerberos", KIND)
    key_bits = int(number_option(options, "key_bits", 256, KIND, least=128, most=256))
    if key_bits not in {128, 192, 256}:
        raise ConfigError(f"key_service of type 'hadoop': key_bits is {key_bits}; allowed: 128, 192, 256")
    prefix = text_option(options, "name_prefix", "", KIND)
    if not _PREFIX.fullmatch(prefix):
        raise ConfigError(
            f"key_service of type 'hadoop': name_prefix is {prefix!r}; allowed: up to 50 of a-z, 0-9, '_' and '-'"
        )
    return HadoopOptions(
        address=check_address(options["address"], KIND, example="https://host:9600/kms"),
        method=auth["method"],
        user=auth.get("user"),
        token_file=auth.get("token_file"),
        name_prefix=prefix,
        key_bits=key_bits,
        ca_bundle=file_option(text_option(options, "ca_bundle", "", KIND) or None, "ca_bundle", KIND),
        timeout_seconds=number_option(options, "timeout_seconds", 10.0, KIND, least=0.1, most=600.0),
    )


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

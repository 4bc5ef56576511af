"""Options and credentials of a Vault key service, and the transit key names for key ids."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sparkcrypt.errors import ConfigError
from sparkcrypt.keys.ids import check_key_id
from sparkcrypt.keys.provider_options import (
    OptionSource,
    address,
    certificates,
    number,
    option,
    read_login,
    read_options,
    text,
)
from sparkcrypt.policy.key_service import MAX_RETRIES, KeyServiceConfig

AUTH_OPTIONS: dict[str, tuple[str, ...]] = {
    "token": ("method", "token_file"),
    "approle": ("method", "mount_point", "role_id_file", "secret_id_file"),
    "kubernetes": ("method", "mount_point", "role", "jwt_path"),
}
KUBERNETES_JWT = "/var/run/secrets/kubernetes.io/serviceaccount/token"
MAX_NAME_CHARACTERS = 1024
_LITERAL = re.compile(r"[A-Za-z0-9]|(?<=[A-Za-z0-9])[.-](?=[A-Za-z0-9])", re.ASCII)
_VISIBLE = re.compile(r"[!-~]+")
_NAME = re.compile(rb"_([0-9a-f]{2})|([A-Za-z0-9.-])")


@dataclass(frozen=True, slots=True)
class VaultAuth:
    """How to get a token: the method, where it is mounted, and the files and role that it needs."""

    method: str
    mount_point: str
    role: str | None = None
    files: tuple[tuple[str, str], ...] = ()

    def file(self, name: str) -> str | None:
        """Return the path that an option names."""
        return dict(self.files).get(name)


def _read_namespace(source: OptionSource, name: str) -> str | None:
    value = source.text(name, variable="VAULT_NAMESPACE")
    if value and not _VISIBLE.fullmatch(value):
        raise source.error(
            f"{name} (or VAULT_NAMESPACE)",
            f"is {value!r}, which no HTTP header carries; allowed: ASCII without spaces and control characters",
        )
    return value or None


def _read_auth(source: OptionSource, _name: str) -> VaultAuth:
    texts = read_login(source, AUTH_OPTIONS)
    method = texts["method"]
    if method == "kubernetes" and not texts.get("role"):
        raise source.error("auth:", "role is missing; allowed: the name of the role that this service account may take")
    files = tuple((name, path) for name, path in sorted(texts.items()) if name.endswith(("_file", "_path")))
    return VaultAuth(method, (texts.get("mount_point") or method).strip("/"), texts.get("role"), files)


@dataclass(frozen=True, slots=True)
class VaultOptions:
    """The checked options."""

    address: str = address(missing="set it, or VAULT_ADDR, to https://host:port", variable="VAULT_ADDR")
    mount_point: str = text("transit", stripped="/", pattern=r"[\s\S]+", allowed="the path of a transit mount")
    namespace: str | None = option(_read_namespace)
    auth: VaultAuth = option(_read_auth)  # noqa: RUF009  # it makes a field
    ca_bundle: str | None = certificates("VAULT_CACERT")
    timeout_seconds: float = number(10.0, 0.1, 600.0)
    max_retries: int = number(3, 0, MAX_RETRIES)


@dataclass(frozen=True, slots=True)
class VaultCredential:
    """A credential for Vault: a token, or the secrets that a login sends."""

    method: str
    secrets: tuple[str, ...] = field(repr=False)


def vault_options(config: KeyServiceConfig, environ: Mapping[str, str] = os.environ) -> VaultOptions:
    """Check the options of a configuration; the environment has what they leave out.

    Raises:
        ConfigError: an option is not known, is missing, or has a value that is not allowed.
    """
    return read_options(VaultOptions, config, environ)


def read_credential(auth: VaultAuth, environ: Mapping[str, str] = os.environ) -> VaultCredential:
    """Read the credential from the files that the options name or from the environment; a file takes precedence.

    Raises:
        ConfigError: there is none; the message names the places.
    """
    if auth.method == "token":
        return VaultCredential("token", (_token(auth, environ),))
    if auth.method == "approle":
        return VaultCredential(
            "approle",
            (
                _secret(auth, "role_id_file", "VAULT_ROLE_ID", environ),
                _secret(auth, "secret_id_file", "VAULT_SECRET_ID", environ),
            ),
        )
    return VaultCredential("kubernetes", (auth.role or "", _read(auth.file("jwt_path") or KUBERNETES_JWT, "jwt_path")))


def encode_key_name(key_id: str) -> str:
    r"""Return the transit key name of a key id; different key ids have different names.

    Transit accepts ``\w([\w.-]*\w)?``, and its storage refuses ``..``.  ASCII letters and digits stay, and so do ``-``
    and ``.`` between two of them; every other UTF-8 byte, ``_`` included, becomes ``_`` and two hex digits.

    Raises:
        ConfigError: the key id is empty, is not Unicode, or its name is longer than 1,024 characters.
    """
    check_key_id(key_id)
    literal = {match.start() for match in _LITERAL.finditer(key_id)}
    name = "".join(
        character if index in literal else "".join(f"_{byte:02x}" for byte in character.encode())
        for index, character in enumerate(key_id)
    )
    if len(name) > MAX_NAME_CHARACTERS:
        raise ConfigError(
            f"key id {key_id[:40]!r}… has a Vault key name of {len(name)} characters; allowed: {MAX_NAME_CHARACTERS}"
        )
    return name


def decode_key_name(name: str) -> str | None:
    """Return the key id of a transit key name, None for a name that no key id has."""
    data, end = bytearray(), 0
    for match in _NAME.finditer(name.encode("utf-8", "replace")):
        if match.start() != end:
            return None
        data += bytes.fromhex(match[1].decode()) if match[1] else match[2]
        end = match.end()
    try:
        key_id = data.decode()
        return key_id if encode_key_name(key_id) == name else None
    except (UnicodeDecodeError, ConfigError):
        return None


def _token(auth: VaultAuth, environ: Mapping[str, str]) -> str:
    named = auth.file("token_file")
    if named is not None:
        return _header_token(_read(named, "token_file"), f"the credential file {named!r} (auth.token_file)")
    if environ.get("VAULT_TOKEN"):
        return _header_token(environ["VAULT_TOKEN"].strip(), "VAULT_TOKEN")
    default = Path("~/.vault-token").expanduser()
    if default.exists():
        return _header_token(_read(str(default), "token_file"), f"the credential file '{default}'")
    raise ConfigError(
        "Vault needs a token and there is none; set VAULT_TOKEN in the environment of this process, name a file by "
        "auth.token_file, or log in with `vault login`, which writes ~/.vault-token"
    )


def _header_token(token: str, where: str) -> str:
    """Return a token that a header can carry; for another one, the HTTP library would quote it in its error."""
    if not _VISIBLE.fullmatch(token):
        raise ConfigError(
            f"{where} is no token: it is empty, or holds white space or what is not ASCII; write the token alone there"
        )
    return token


def _secret(auth: VaultAuth, option: str, variable: str, environ: Mapping[str, str]) -> str:
    named = auth.file(option)
    if named is not None:
        return _read(named, option)
    if not environ.get(variable):
        raise ConfigError(
            f"Vault AppRole needs {variable} and there is none; set it in the environment of this process, or name a "
            f"file by auth.{option}"
        )
    return environ[variable].strip()


def _read(path: str, option: str) -> str:
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"the credential file {path!r} (auth.{option}) cannot be read: {error.strerror}; mend it or its mode"
        ) from error
    # A decoding error would contain the content, so bytes that are not text are found without one.
    text = content.decode("ascii", "replace").strip()
    if not text or not text.isascii():
        what = "is not ASCII text" if text else "is empty"
        raise ConfigError(f"the credential file {path!r} (auth.{option}) {what}; write the credential into it")
    return text

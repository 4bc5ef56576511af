"""Backups of a local key service: its master keys in one file that only the holder of a recovery key can open.

The file has the age format (age-encryption.org/v1), so the tools of that format can open it without this package.
Inside is JSON: ``{"format": "sparkcrypt master keys", "version": 1, "keys": [<key file>, …]}``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import ModuleType

from sparkcrypt.errors import ConfigError, KeyServiceError
from sparkcrypt.keys.local.keystore import MasterKey, decode_key, encode_key

FORMAT = "sparkcrypt master keys"
VERSION = 1


def encrypt_backup(keys: Sequence[MasterKey], recipients: Sequence[str]) -> bytes:
    """Return a backup of master keys.

    Args:
        keys: the master keys, with all their versions.
        recipients: the public halves of recovery keys (``age1…``); the holder of any one can open it.

    Raises:
        ConfigError: there is no recipient, one is not a public key of age, or pyrage is not installed.
    """
    pyrage = _import_pyrage()
    if not recipients:
        raise ConfigError("a backup of keys needs a recipient (age1…): the public half of a recovery key")
    parsed = []
    for text in recipients:
        try:
            parsed.append(pyrage.x25519.Recipient.from_str(text))
        except pyrage.RecipientError as error:
            raise ConfigError(
                f"recipient {text!r} is not a public key of age; allowed: age1… as age-keygen prints it"
            ) from error
    document = {"format": FORMAT, "version": VERSION, "keys": [encode_key(key) for key in keys]}
    return bytes(pyrage.encrypt(json.dumps(document).encode(), parsed))


def decrypt_backup(content: bytes, identities: str) -> tuple[MasterKey, ...]:
    """Return the master keys of a backup.

    Args:
        content: the content of the backup's file.
        identities: the text of an identity file: lines of ``AGE-SECRET-KEY-1…``, comments after ``#``, empty ones.

    Raises:
        ConfigError: the text contains no identity of age, or pyrage is not installed.
        KeyServiceError: no identity opens the backup, it is damaged, or it is not a backup of keys.
    """
    pyrage = _import_pyrage()
    parsed = _parse_identities(pyrage, identities)
    try:
        document = pyrage.decrypt(content, parsed)
    except pyrage.DecryptError as error:
        raise KeyServiceError(
            f"the backup was not opened ({error}): it is damaged, no file of age, or was made for another recovery key"
        ) from error
    keys = _parse_document(document)
    if keys is None:
        raise KeyServiceError(
            f"the file was opened, and holds no {FORMAT} of version {VERSION}; was it written by `sparkcrypt keys "
            "export`, or by a later release?"
        )
    return keys


def _parse_identities(pyrage: ModuleType, text: str) -> list[object]:
    lines = [line.strip() for line in text.splitlines()]
    found = []
    for number, line in enumerate(lines, 1):
        if not line or line.startswith("#"):
            continue
        try:
            found.append(pyrage.x25519.Identity.from_str(line))
        except pyrage.IdentityError:  # whose message may quote the line
            raise ConfigError(
                f"line {number} of the identity file is no secret key of age; allowed: AGE-SECRET-KEY-1…, comments "
                "after #, and empty lines"
            ) from None
    if not found:
        raise ConfigError("the identity file holds no secret key of age (AGE-SECRET-KEY-1…)")
    return found


def _parse_document(content: bytes) -> tuple[MasterKey, ...] | None:
    try:
        document = json.loads(content)
        if (document["format"], document["version"]) != (FORMAT, VERSION):
            return None
        return tuple(decode_key(key) for key in document["keys"])
    except (ValueError, KeyError, TypeError):
        return None


def _import_pyrage() -> ModuleType:
    try:
        import pyrage
    except ModuleNotFoundError as error:
        raise ConfigError("backups of keys need pyrage; pip install 'sparkcrypt[recovery]'") from error
    module: ModuleType = pyrage
    return module

"""A fake of Azure Key Vault, written from the public description of its REST API, since there is no emulator of it.

It keeps RSA keys (and the AES keys of a Managed HSM) with versions, wraps and unwraps by RSA-OAEP-256 and A256KW,
deletes softly, and requires a token as Microsoft Entra issues it, for a client secret or a federated token.
Not implemented: access policies and roles (``denied`` replaces them), network rules, backups, imports.
"""

from __future__ import annotations

import base64
import itertools
import os
import re
import secrets
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap, aes_key_wrap

from tests.services.fake_cloud import Answer, Asked, FakeCloud

TENANT, CLIENT, SECRET = "11111111-0000-4000-8000-000000000001", "22222222-0000-4000-8000-000000000002", "CANARY-secret"
SCOPE = "https://vault.azure.net/.default"
_PATH = re.compile(r"/keys/([A-Za-z0-9-]{1,127})(?:/([0-9a-z]*))?(?:/([a-z]+))?")
OAEP = padding.OAEP(padding.MGF1(hashes.SHA256()), hashes.SHA256(), None)
_PAGE = 3
_POOL: list[rsa.RSAPrivateKey] = []
_NUMBERS = itertools.count()
_MOST_KEYS = 12


class RefusedError(Exception):
    """An error in the form of the service."""

    def __init__(self, http: int, code: str, message: str, inner: str = "") -> None:
        super().__init__(message)
        innererror = {"innererror": {"code": inner}} if inner else {}
        self.answer = Answer(http, {"error": {"code": code, "message": message, **innererror}})


@dataclass
class Version:
    """A version of a key: its material, and whether it is enabled."""

    name: str
    material: rsa.RSAPrivateKey | bytes
    created: int
    enabled: bool = True


@dataclass
class VaultKey:
    """A key: its kind, its tags, its versions in order, and when it was deleted."""

    name: str
    kind: str
    tags: dict[str, str]
    versions: list[Version] = field(default_factory=list)
    deleted: int | None = None


class FakeKeyVault(FakeCloud):
    """The vault and the token endpoint on one server.

    Attributes:
        keys: by their names in lower case.
        denied: operations that are refused to every client, such as ``wrapkey``, ``list`` or ``create``.
        recovery_level: the recovery level of deleted keys; if empty, keys are deleted permanently.
        tokens: the valid tokens.
    """

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        super().__init__(context)
        self.keys: dict[str, VaultKey] = {}
        self.denied: set[str] = set()
        self.recovery_level = "Recoverable+Purgeable"
        self.tokens: set[str] = set()

    def serve(self, asked: Asked) -> Answer:
        """Carry out a request."""
        try:
            if asked.path.startswith(f"/{TENANT}/"):
                return self._give_token(asked)
            if asked.headers.get("authorization", "").removeprefix("Bearer ") not in self.tokens:
                raise RefusedError(401, "Unauthorized", "AKV10000: Request is missing a Bearer or PoP token.")
            return Answer(200, self._work(asked))
        except RefusedError as refused:
            return refused.answer

    def clear(self) -> None:
        """Reset the server to an empty vault."""
        with self.one_at_a_time:
            self.keys.clear()
            self.denied.clear()
            self.meddle, self.recovery_level = None, "Recoverable+Purgeable"

    def _give_token(self, asked: Asked) -> Answer:
        if asked.path.endswith("/.well-known/openid-configuration"):
            here = f"{self.address}/{TENANT}"
            return Answer(
                200,
                {
                    "issuer": f"{here}/v2.0",
                    "authorization_endpoint": f"{here}/oauth2/v2.0/authorize",
                    "token_endpoint": f"{here}/oauth2/v2.0/token",
                },
            )
        known = asked.body.get("client_secret") == SECRET or asked.body.get("client_assertion") == SECRET
        if not known or asked.body.get("client_id") != CLIENT or asked.body.get("scope") != SCOPE:
            message = "AADSTS7000215: Invalid client secret provided."
            return Answer(401, {"error": "invalid_client", "error_description": message})
        token = secrets.token_urlsafe(24)
        self.tokens.add(token)
        return Answer(200, {"access_token": token, "expires_in": 3600, "token_type": "Bearer"})

    def _work(self, asked: Asked) -> dict[str, Any]:
        if not asked.query.get("api-version"):
            raise RefusedError(400, "BadParameter", "api-version must be specified")
        if asked.path == "/keys":
            return self._page(asked, "list", [self._item(key) for key in self._live()])
        if asked.path.startswith("/deletedkeys/"):
            self._allow("get")
            return self._deleted(self._find(asked.path.rpartition("/")[2], deleted=True))
        found = _PATH.fullmatch(asked.path)
        if found is None:
            raise RefusedError(400, "BadParameter", f"no such resource: {asked.path}")
        name, version, verb = found[1], found[2] or "", found[3]
        if version == "create":
            return self._create(name, asked)
        key = self._find(name)
        if asked.method == "DELETE":
            return self._delete(key)
        if version == "versions":
            return self._page(asked, "list", [self._item(key, made) for made in key.versions])
        if version == "rotate":
            self._allow("rotate")
            return self._add(key, 3072)
        return self._use(key, version, verb, asked)

    def _use(self, key: VaultKey, name: str, verb: str | None, asked: Asked) -> dict[str, Any]:
        found = [version for version in key.versions if name in ("", version.name)]
        if not found:
            raise _absent(f"{key.name}/{name}")
        operation, version = verb or "get", found[-1]
        self._allow(operation)
        if not version.enabled:
            message = f"Operation {operation} is not allowed on a disabled key."
            raise RefusedError(403, "Forbidden", message, "KeyDisabled")
        return self._bundle(key, version) if verb is None else self._wrap(verb, key, version, asked)

    def _delete(self, key: VaultKey) -> dict[str, Any]:
        self._allow("delete")
        if not self.recovery_level:
            del self.keys[key.name.lower()]
            return self._bundle(key, key.versions[-1])
        key.deleted = int(time.time())
        return self._deleted(key)

    def _allow(self, operation: str) -> None:
        if operation in self.denied:
            message = f"Caller is not authorized to perform action on resource: {operation}"
            raise RefusedError(403, "Forbidden", message, "ForbiddenByRbac")

    def _live(self) -> Iterator[VaultKey]:
        return (key for _, key in sorted(self.keys.items()) if key.deleted is None)

    def _find(self, name: str, *, deleted: bool = False) -> VaultKey:
        key = self.keys.get(name.lower())
        if key is None or (key.deleted is not None) != deleted:
            raise _absent(name)
        return key

    def _create(self, name: str, asked: Asked) -> dict[str, Any]:
        self._allow("create")
        key = self.keys.get(name.lower())
        if key is not None and key.deleted is not None:
            message = f"Key {name} is currently in a deleted but recoverable state, and its name cannot be reused."
            raise RefusedError(409, "Conflict", message, "ObjectIsDeletedButRecoverable")
        if key is None:
            key = VaultKey(name, str(asked.body["kty"]), dict(asked.body.get("tags") or {}))
            self.keys[name.lower()] = key
        return self._add(key, int(asked.body["key_size"]))

    def _add(self, key: VaultKey, size: int) -> dict[str, Any]:
        material: rsa.RSAPrivateKey | bytes = os.urandom(32) if key.kind == "oct-HSM" else _rsa_key(size)
        key.versions.append(Version(secrets.token_hex(16), material, int(time.time())))
        return self._bundle(key, key.versions[-1])

    def _page(self, asked: Asked, operation: str, items: list[dict[str, Any]]) -> dict[str, Any]:
        self._allow(operation)
        start = int(asked.query.get("$skiptoken") or 0)
        rest = start + _PAGE
        link = f"{self.address}{asked.path}?api-version={asked.query['api-version']}&$skiptoken={rest}"
        return {"value": items[start:rest], "nextLink": link if rest < len(items) else None}

    def _item(self, key: VaultKey, version: Version | None = None) -> dict[str, Any]:
        kid = f"{self.address}/keys/{key.name}" + (f"/{version.name}" if version else "")
        made = version or key.versions[0]
        return {"kid": kid, "attributes": {"enabled": made.enabled, "created": made.created}, "tags": key.tags}

    def _bundle(self, key: VaultKey, version: Version) -> dict[str, Any]:
        told = self._item(key, version)
        described = {"kid": told["kid"], "kty": key.kind, "key_ops": ["wrapKey", "unwrapKey"]}
        level = {"recoveryLevel": self.recovery_level or "Purgeable"}
        return {"key": described, "attributes": {**told["attributes"], **level}, "tags": key.tags}

    def _deleted(self, key: VaultKey) -> dict[str, Any]:
        when = key.deleted or 0
        recovery = {
            "recoveryId": f"{self.address}/deletedkeys/{key.name}",
            "deletedDate": when,
            "scheduledPurgeDate": when + 90 * 86_400,
        }
        return {**self._bundle(key, key.versions[-1]), **recovery}

    def _wrap(self, verb: str, key: VaultKey, version: Version, asked: Asked) -> dict[str, Any]:
        value = _from_url(str(asked.body["value"]))
        wanted = "A256KW" if isinstance(version.material, bytes) else "RSA-OAEP-256"
        if asked.body["alg"] != wanted:
            raise RefusedError(400, "BadParameter", f"Key and signing algorithm are incompatible: {asked.body['alg']}")
        try:
            if isinstance(version.material, bytes):
                done = (aes_key_wrap if verb == "wrapkey" else aes_key_unwrap)(version.material, value)
            elif verb == "wrapkey":
                done = version.material.public_key().encrypt(value, OAEP)
            else:
                done = version.material.decrypt(value, OAEP)
        except (ValueError, InvalidUnwrap) as error:
            raise RefusedError(400, "BadParameter", "The parameter is incorrect.") from error
        return {"kid": f"{self.address}/keys/{key.name}/{version.name}", "value": _to_url(done)}


def _absent(name: str) -> RefusedError:
    return RefusedError(404, "KeyNotFound", f"A key with (name/id) {name} was not found in this key vault.")


def _rsa_key(size: int) -> rsa.RSAPrivateKey:
    """Return one of a few keys that are generated once, since that is slow; it has fewer bits than requested."""
    assert size >= 2048
    if len(_POOL) < _MOST_KEYS:
        _POOL.append(rsa.generate_private_key(65537, 2048))
        return _POOL[-1]
    return _POOL[next(_NUMBERS) % _MOST_KEYS]


def _to_url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _from_url(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))

"""A fake of Google Cloud KMS, written from the public description of its REST API, since there is no emulator.

It keeps keys with versions, encrypts by AES-GCM with the additional authenticated data, checks and returns CRC-32C,
and requires a token as Google does: from a service account's signed assertion, or from the metadata address.
Not implemented: quotas, IAM policies of key rings and keys (``denied`` replaces them), imports, autokey.
"""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.services.fake_cloud import Answer, Asked, FakeCloud

PROJECT = "acme-data"
SCOPE = "https://www.googleapis.com/auth/cloudkms"
AUDIENCE = "https://oauth2.googleapis.com/token"
"""The audience that google-auth signs for, whatever token address a key file names."""
_KEY = re.compile(r"/v1/(projects/[^/]+/locations/[^/]+/keyRings/[^/]+)/cryptoKeys/([^/:]+)(.*)")
_RING = re.compile(r"/v1/(projects/[^/]+/locations/[^/]+/keyRings/[^/]+)/cryptoKeys")
_PAGE = 3


class RefusedError(Exception):
    """An error in the form of Google's services."""

    def __init__(self, http: int, status: str, message: str, details: Any = None) -> None:
        super().__init__(message)
        error = {"code": http, "message": message, "status": status, "details": details or []}
        self.answer = Answer(http, {"error": error})


@dataclass
class Version:
    """A version of a key: its material and its state."""

    material: bytes = field(default_factory=lambda: os.urandom(32))
    state: str = "ENABLED"


@dataclass
class CryptoKey:
    """A key: its versions by number from 1, and the number of the primary version."""

    name: str
    document: Mapping[str, Any]
    versions: list[Version]
    created: str
    primary: int = 1

    def told(self) -> dict[str, Any]:
        """Return the key as the service describes it."""
        version = {"name": f"{self.name}/cryptoKeyVersions/{self.primary}", "createTime": self.created}
        state = {"state": self.versions[self.primary - 1].state}
        labels = self.document.get("labels") or {}
        told = {"name": self.name, "purpose": self.document["purpose"], "createTime": self.created, "labels": labels}
        return {**told, "primary": {**version, **state}} if told["purpose"] == "ENCRYPT_DECRYPT" else told


class FakeGcpKms(FakeCloud):
    """The service, the token endpoint and the metadata address on one server.

    Attributes:
        keys: by resource name.
        rings: resource names of the existing key rings.
        denied: permissions that no account has.
        lifetime_seconds: lifetime of tokens.
    """

    def __init__(self) -> None:
        super().__init__()
        self.keys: dict[str, CryptoKey] = {}
        self.rings: set[str] = set()
        self.denied: set[str] = set()
        self.lifetime_seconds = 3600
        self._accounts: dict[str, rsa.RSAPublicKey] = {}
        self.tokens: dict[str, str] = {}

    def make_ring(self) -> str:
        """Create a key ring and return its resource name."""
        ring = f"projects/{PROJECT}/locations/europe-west1/keyRings/ring-{secrets.token_hex(6)}"
        self.rings.add(ring)
        return ring

    def make_account(self, name: str, file: Path) -> Path:
        """Create a service account, and write its key file as Google's console does."""
        key = rsa.generate_private_key(65537, 2048)
        email = f"{name}@{PROJECT}.iam.gserviceaccount.com"
        self._accounts[email] = key.public_key()
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        document = {
            "type": "service_account",
            "project_id": PROJECT,
            "private_key_id": secrets.token_hex(20),
            "private_key": private.decode(),
            "client_email": email,
            "client_id": "1",
            "token_uri": f"{self.address}/token",
        }
        file.write_text(json.dumps(document))
        return file

    def serve(self, asked: Asked) -> Answer:
        """Carry out a request."""
        try:
            if asked.path == "/token":
                return self._give_token(asked)
            if asked.path.startswith("/computeMetadata/v1/"):
                return self._metadata(asked)
            if asked.headers.get("authorization", "").removeprefix("Bearer ") not in self.tokens:
                raise RefusedError(401, "UNAUTHENTICATED", "Request had invalid authentication credentials.")
            return Answer(200, self._work(asked))
        except RefusedError as refused:
            return refused.answer

    def set_state(self, name: str, number: int, state: str) -> None:
        """Disable, enable or destroy a version, as an owner does in the console."""
        with self.one_at_a_time:
            self.keys[name].versions[number - 1].state = state

    def _give_token(self, asked: Asked) -> Answer:
        head, claims, signature = str(asked.body["assertion"]).split(".")
        told = json.loads(_url_bytes(claims))
        try:
            self._accounts[told["iss"]].verify(
                _url_bytes(signature), f"{head}.{claims}".encode(), padding.PKCS1v15(), hashes.SHA256()
            )
        except (KeyError, InvalidSignature):
            return Answer(400, {"error": "invalid_grant", "error_description": "Invalid JWT Signature."})
        if told["aud"] != AUDIENCE or told["scope"] != SCOPE or told["exp"] < time.time():
            return Answer(400, {"error": "invalid_grant", "error_description": "Invalid JWT."})
        return self._token_of(told["iss"])

    def _metadata(self, asked: Asked) -> Answer:
        if asked.headers.get("metadata-flavor") != "Google":
            return Answer(403, "Missing Metadata-Flavor:Google header.")
        flavor = {"Metadata-Flavor": "Google"}
        if asked.path.endswith("/token"):
            answer = self._token_of("metadata")
            return Answer(200, answer.content, flavor)
        return Answer(200, {"email": f"node@{PROJECT}.iam.gserviceaccount.com", "scopes": [SCOPE]}, flavor)

    def _token_of(self, account: str) -> Answer:
        token = f"ya29.{secrets.token_urlsafe(24)}"
        self.tokens[token] = account
        return Answer(
            200, {"access_token": token, "expires_in": self.lifetime_seconds, "token_type": "Bearer", "scope": SCOPE}
        )

    def _work(self, asked: Asked) -> dict[str, Any]:
        ring = _RING.fullmatch(asked.path)
        if ring is not None:
            return self._create(asked, ring[1]) if asked.method == "POST" else self._list(asked, ring[1])
        found = _KEY.fullmatch(asked.path)
        if found is None:
            raise RefusedError(404, "NOT_FOUND", f"{asked.path} not found.")
        verbs: dict[tuple[str, str], Callable[[Asked, CryptoKey], dict[str, Any]]] = {
            ("GET", ""): self._get,
            ("POST", ":encrypt"): self._encrypt,
            ("POST", ":decrypt"): self._decrypt,
            ("POST", "/cryptoKeyVersions"): self._add_version,
            ("POST", ":updatePrimaryVersion"): self._set_primary,
        }
        name = f"{found[1]}/cryptoKeys/{found[2]}"
        verb = verbs.get((asked.method, found[3]))
        if verb is None:
            raise RefusedError(404, "NOT_FOUND", f"{asked.path} not found.")
        self._allow(verb.__name__, name)
        if name not in self.keys:
            raise RefusedError(404, "NOT_FOUND", f"CryptoKey {name} not found.")
        return verb(asked, self.keys[name])

    def _allow(self, verb: str, name: str) -> None:
        permission = {
            "_get": "cloudkms.cryptoKeys.get",
            "_encrypt": "cloudkms.cryptoKeyVersions.useToEncrypt",
            "_decrypt": "cloudkms.cryptoKeyVersions.useToDecrypt",
            "_add_version": "cloudkms.cryptoKeyVersions.create",
            "_set_primary": "cloudkms.cryptoKeys.update",
            "_create": "cloudkms.cryptoKeys.create",
            "_list": "cloudkms.cryptoKeys.list",
        }[verb]
        if permission in self.denied:
            raise RefusedError(
                403,
                "PERMISSION_DENIED",
                f"Permission '{permission}' denied on resource '{name}' (or it may not exist).",
            )

    def _create(self, asked: Asked, ring: str) -> dict[str, Any]:
        self._allow("_create", ring)
        number = asked.query["cryptoKeyId"]
        name = f"{ring}/cryptoKeys/{number}"
        if ring not in self.rings:
            raise RefusedError(404, "NOT_FOUND", f"KeyRing {ring} not found.")
        if not re.fullmatch(r"[a-zA-Z0-9_-]{1,63}", number):
            raise RefusedError(400, "INVALID_ARGUMENT", f"Invalid CryptoKey id '{number}'.")
        for label, value in (asked.body.get("labels") or {}).items():
            if not re.fullmatch(r"[a-z][a-z0-9_-]{0,62}", label) or not re.fullmatch(r"[a-z0-9_-]{0,63}", value):
                raise RefusedError(400, "INVALID_ARGUMENT", f"Invalid label {label!r}.")
        if name in self.keys:
            raise RefusedError(409, "ALREADY_EXISTS", f"CryptoKey {name} already exists.")
        moment = time.strftime("%Y-%m-%dT%H:%M:%S.123456789Z", time.gmtime())
        self.keys[name] = CryptoKey(name, asked.body, [Version()], moment)
        return self.keys[name].told()

    def _list(self, asked: Asked, ring: str) -> dict[str, Any]:
        self._allow("_list", ring)
        found = sorted(name for name in self.keys if name.startswith(f"{ring}/"))
        start = int(asked.query.get("pageToken") or 0)
        told: dict[str, Any] = {"cryptoKeys": [self.keys[name].told() for name in found[start : start + _PAGE]]}
        if not found:
            return {}
        return {**told, "nextPageToken": str(start + _PAGE)} if start + _PAGE < len(found) else told

    def _get(self, asked: Asked, key: CryptoKey) -> dict[str, Any]:
        return key.told()

    def _add_version(self, asked: Asked, key: CryptoKey) -> dict[str, Any]:
        key.versions.append(Version())
        return {"name": f"{key.name}/cryptoKeyVersions/{len(key.versions)}", "state": "ENABLED"}

    def _set_primary(self, asked: Asked, key: CryptoKey) -> dict[str, Any]:
        key.primary = int(asked.body["cryptoKeyVersionId"])
        return key.told()

    def _encrypt(self, asked: Asked, key: CryptoKey) -> dict[str, Any]:
        plaintext, aad = _field(asked, "plaintext"), _field(asked, "additionalAuthenticatedData")
        version, nonce = _usable(key, key.primary), os.urandom(12)
        sealed = struct.pack(">I", key.primary) + nonce + AESGCM(version.material).encrypt(nonce, plaintext, aad)
        return {
            "name": f"{key.name}/cryptoKeyVersions/{key.primary}",
            "ciphertext": base64.b64encode(sealed).decode(),
            "ciphertextCrc32c": str(checksum(sealed)),
            "verifiedPlaintextCrc32c": "plaintextCrc32c" in asked.body,
            "verifiedAdditionalAuthenticatedDataCrc32c": "additionalAuthenticatedDataCrc32c" in asked.body,
            "protectionLevel": "SOFTWARE",
        }

    def _decrypt(self, asked: Asked, key: CryptoKey) -> dict[str, Any]:
        sealed, aad = _field(asked, "ciphertext"), _field(asked, "additionalAuthenticatedData")
        foreign = RefusedError(
            400, "INVALID_ARGUMENT", "Decryption failed: verify that 'name' refers to the correct CryptoKey."
        )
        number = struct.unpack(">I", sealed[:4])[0] if len(sealed) > 32 else 0
        if not 1 <= number <= len(key.versions):
            raise foreign
        try:
            plaintext = AESGCM(_usable(key, number).material).decrypt(sealed[4:16], sealed[16:], aad)
        except InvalidTag:
            raise foreign from None
        return {
            "plaintext": base64.b64encode(plaintext).decode(),
            "plaintextCrc32c": str(checksum(plaintext)),
            "usedPrimary": number == key.primary,
        }


def checksum(data: bytes) -> int:
    """Return CRC-32C, computed bit by bit as in RFC 3720 and not by the tested code."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def _usable(key: CryptoKey, number: int) -> Version:
    version, name = key.versions[number - 1], f"{key.name}/cryptoKeyVersions/{number}"
    if version.state != "ENABLED":
        violation = {"type": f"KEY_{version.state}", "subject": name}
        raise RefusedError(
            400,
            "FAILED_PRECONDITION",
            f"{name} is not enabled, current state is: {version.state}.",
            [{"@type": "type.googleapis.com/google.rpc.PreconditionFailure", "violations": [violation]}],
        )
    return version


def _field(asked: Asked, name: str) -> bytes:
    data = base64.b64decode(asked.body.get(name) or "", validate=True)
    told = asked.body.get(f"{name}Crc32c")
    if told is not None and int(told) != checksum(data):
        snake = re.sub("([A-Z])", lambda match: f"_{match[1].lower()}", name)
        raise RefusedError(
            400, "INVALID_ARGUMENT", f"The checksum in field {snake}_crc32c did not match the data in field {snake}."
        )
    return data


def _url_bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))

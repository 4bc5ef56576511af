"""The key service over the transit engine of HashiCorp Vault or OpenBao; the one module that talks to either.

Transit makes a key that is not there when it is asked to encrypt with it, if the token may create.  So a wrap first
asks whether the key is there.  A policy that gives ``update`` alone on ``transit/encrypt/<name>`` closes the rest of
that hole in Vault itself; with it, ``read`` on ``transit/keys/<name>`` is not needed.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import hvac
import requests
from hvac.exceptions import Forbidden, InvalidPath, InvalidRequest, RateLimitExceeded, Unauthorized, VaultError
from urllib3.exceptions import ReadTimeoutError

from sparkcrypt.errors import (
    KeyAccessDeniedError,
    KeyNotFoundError,
    KeyServiceError,
    KeyServiceUnavailableError,
)
from sparkcrypt.keys.service import KeyDescription
from sparkcrypt.keys.vault_answers import data_of, description_of, key_of, text_of
from sparkcrypt.keys.vault_http import certificate_fault, vault_http
from sparkcrypt.keys.vault_options import (
    VaultCredential,
    VaultOptions,
    decode_key_name,
    encode_key_name,
    vault_options,
)
from sparkcrypt.keys.vault_session import VaultSession
from sparkcrypt.policy.key_service import KeyServiceConfig

KEY_TYPE = "aes256-gcm96"
_CREATING = {"create", "sudo", "root"}
_REASON_CHARACTERS = 200


class VaultKeyService:
    """Wraps and unwraps by transit; safe for many threads.

    Options: ``address`` (else VAULT_ADDR), ``mount_point`` (``transit``), ``namespace``, ``ca_bundle``,
        ``timeout_seconds``
    (10, per try), ``max_retries`` (3), and ``auth``:

    - ``{method: token, token_file: …}``: the file, else VAULT_TOKEN, else ``~/.vault-token``;
    - ``{method: approle, mount_point: …, role_id_file: …, secret_id_file: …}``: the files, else VAULT_ROLE_ID and
      VAULT_SECRET_ID;
    - ``{method: kubernetes, mount_point: …, role: …, jwt_path: …}``: the pod's service account.

    Raises:
        ConfigError: an option is not right.
    """

    def __init__(self, config: KeyServiceConfig) -> None:
        self._options = vault_options(config)
        self._session = VaultSession(self._options.auth, _HvacLogin(self._options))

    def __repr__(self) -> str:
        return f"VaultKeyService({self._options.address!r}, mount_point={self._options.mount_point!r})"

    def wrap(self, key_id: str, key: bytes) -> str:
        """Return Vault's ciphertext, ``vault:v<version>:<base64>``; a key that is not there is not made.

        Raises:
            KeyNotFoundError: there is no such key.
            KeyAccessDeniedError: the token may not encrypt with it; or may create keys but not look whether it is
                there.
            KeyServiceError: another refusal.
        """
        name = encode_key_name(key_id)
        self._check_present(key_id, name)
        plaintext = base64.b64encode(key).decode()
        answer = self._call(
            key_id, "wrap with", lambda transit: transit.encrypt_data(name, plaintext, mount_point=self._mount)
        )
        return text_of(answer, "ciphertext", key_id)

    def unwrap(self, key_id: str, wrapped: str) -> bytes:
        """Return the key inside a ciphertext.

        Raises:
            KeyNotFoundError: there is no such key.
            KeyAccessDeniedError: the token may not decrypt with it.
            KeyServiceError: the ciphertext is not one of this key's, or another refusal.
        """
        name = encode_key_name(key_id)
        answer = self._call(
            key_id, "unwrap with", lambda transit: transit.decrypt_data(name, wrapped, mount_point=self._mount)
        )
        return key_of(answer, key_id)

    def describe(self, key_id: str) -> KeyDescription:
        """Describe a key.

        Raises:
            KeyNotFoundError: there is no such key.
            KeyAccessDeniedError: the token may not read it.
        """
        name = encode_key_name(key_id)
        answer = self._call(key_id, "read", lambda transit: transit.read_key(name, mount_point=self._mount))
        return description_of(answer, key_id)

    def create(self, key_id: str) -> KeyDescription:
        """Make an ``aes256-gcm96`` key; one that is there already is left as it is.

        Raises:
            KeyAccessDeniedError: the token may not create it.
        """
        name = encode_key_name(key_id)
        with suppress(KeyNotFoundError, KeyAccessDeniedError):
            return self.describe(key_id)
        self._call(
            key_id, "create", lambda transit: transit.create_key(name, key_type=KEY_TYPE, mount_point=self._mount)
        )
        return self.describe(key_id)

    def list_keys(self) -> tuple[KeyDescription, ...]:
        """Describe every key whose name stands for a key id; names that none stands for cannot be used here.

        Raises:
            KeyAccessDeniedError: the token may not list, or not read one of the keys.
        """
        try:
            answer = self._call("*", "list", lambda transit: transit.list_keys(mount_point=self._mount))
        except KeyNotFoundError:
            return ()
        names = answer.get("keys", [])
        return tuple(self.describe(key_id) for key_id in sorted(filter(None, map(decode_key_name, names))))

    def credential_identity(self) -> bytes:
        """Return a digest of the credential that is in use now."""
        return self._session.credential_identity()

    @property
    def _mount(self) -> str:
        return self._options.mount_point

    def _check_present(self, key_id: str, name: str) -> None:
        try:
            self.describe(key_id)
        except KeyAccessDeniedError as denied:
            if not self._session.logged_in:
                raise
            if self._may_create(f"{self._mount}/encrypt/{name}"):
                raise KeyAccessDeniedError(
                    f"{denied}; this token may create the key by encrypting with it, so its absence must be seen: "
                    f"allow 'read' on {self._mount}/keys/{name}, or take 'create' from {self._mount}/encrypt/{name}"
                ) from denied

    def _may_create(self, path: str) -> bool:
        """Say whether an encryption at that path may make the key; a token that may not even ask is taken to."""
        try:
            answer = self._use(lambda client: client.sys.get_capabilities([path]))
        except VaultError:
            return True
        except OSError as error:
            raise self._unreachable(error) from error
        capabilities = data_of(answer).get(path, ["create"])
        return bool(_CREATING & set(capabilities))

    def _call(self, key_id: str, doing: str, call: Callable[[Any], Any]) -> dict[str, Any]:
        """Call the transit engine and return the ``data`` of its answer; every error of the libraries ends here."""
        try:
            answer = self._use(lambda client: call(client.secrets.transit))
        except VaultError as error:
            raise self._translated(error, key_id, doing) from error
        except OSError as error:  # requests' own errors are such, and so is what it raises for a bundle that has gone
            raise self._unreachable(error) from error
        return data_of(answer)

    def _use(self, use: Callable[[Any], Any]) -> Any:
        """Use the client; on a refusal once more, if its token was the reason and there is another."""
        client = self._session.client()
        try:
            return use(client)
        except (Forbidden, Unauthorized):
            another = self._session.after_refusal(client)
            if another is None:
                raise
        return use(another)

    def _translated(self, error: VaultError, key_id: str, doing: str) -> KeyServiceError:
        what = f"Vault at {self._options.address}, mount {self._mount!r}: cannot {doing} key {key_id!r}"
        if isinstance(error, Forbidden | Unauthorized):
            return KeyAccessDeniedError(
                f"{what}: permission denied to the {self._options.auth.method} credential of this process; it "
                "lacks a policy for this path, or has expired"
            )
        reason = self._reason(error)
        if isinstance(error, InvalidPath) or "key not found" in reason:
            name = "" if key_id == "*" else f" under the name {encode_key_name(key_id)!r}"
            return KeyNotFoundError(
                f"{what}: it is not there{name}; make it with `sparkcrypt keys create`, correct the policy's key id, "
                "or check mount_point and namespace"
            )
        if isinstance(error, InvalidRequest):
            return KeyServiceError(f"{what}: {reason}")
        if isinstance(error, RateLimitExceeded):
            return KeyServiceUnavailableError(
                f"{what}: too many requests, also after {self._options.max_retries} retries"
            )
        return KeyServiceUnavailableError(
            f"{what}: it cannot serve now ({type(error).__name__}), also after {self._options.max_retries} retries; "
            "is it sealed or starting?"
        )

    def _reason(self, error: VaultError) -> str:
        """Return Vault's own words, shortened; only from the JSON of a refusal, and less any secret of ours."""
        return _words(error, self._session.secrets())

    def _unreachable(self, error: OSError) -> KeyServiceError:
        what = f"Vault at {self._options.address}"
        if not isinstance(error, requests.RequestException):
            return KeyServiceUnavailableError(
                f"{what}: the certificates of ca_bundle or VAULT_CACERT, {self._options.ca_bundle!r}, cannot be read; "
                "are they still on this machine?"
            )
        if isinstance(error, requests.exceptions.SSLError):
            return KeyServiceUnavailableError(f"{what}: {_tls_refusal(error)}")
        if isinstance(error, requests.Timeout) or _timed_out(error):
            return KeyServiceUnavailableError(
                f"{what} did not answer within {self._options.timeout_seconds:g} s, {self._options.max_retries + 1} "
                "times"
            )
        return KeyServiceUnavailableError(
            f"{what} cannot be reached ({type(error).__name__}); check the address and that it runs"
        )


def _words(error: Exception, secrets: Iterable[str]) -> str:
    words = " ".join(", ".join(map(str, getattr(error, "errors", None) or ())).split())
    for secret in filter(None, secrets):
        words = words.replace(secret, "[redacted]")
    return words[:_REASON_CHARACTERS] or "no reason given"


def _tls_refusal(error: requests.exceptions.SSLError) -> str:
    fault = certificate_fault(error)
    if fault is None:
        return (
            "no TLS connection was made; check that the address speaks TLS, and that ca_bundle or VAULT_CACERT, where "
            "one is given, holds certificates in PEM"
        )
    return (
        f"its certificate was not accepted ({fault}); name its CA by ca_bundle or VAULT_CACERT, and use an address "
        "that is in the certificate"
    )


def _timed_out(error: requests.RequestException) -> bool:
    """Say whether the last retry ended by a timeout, which requests calls a connection error."""
    return isinstance(getattr(next(iter(error.args), None), "reason", None), ReadTimeoutError)


class _HvacLogin:
    """Logs in, renews and asks after tokens by hvac."""

    def __init__(self, options: VaultOptions) -> None:
        self._options = options

    def log_in(self, credential: VaultCredential) -> tuple[Any, float]:
        # A redirect would carry the token to another host.
        client = hvac.Client(
            url=self._options.address,
            token=credential.secrets[0] if credential.method == "token" else "",
            namespace=self._options.namespace,
            timeout=self._options.timeout_seconds,
            session=vault_http(self._options.ca_bundle, self._options.max_retries),
            allow_redirects=False,
        )
        return client, self._lifetime(client) if credential.method == "token" else self._exchange(client, credential)

    def renew(self, client: Any) -> float | None:
        try:
            return float(client.auth.token.renew_self()["auth"]["lease_duration"])
        except (VaultError, requests.RequestException, KeyError, TypeError):
            return None

    def is_alive(self, client: Any) -> bool:
        try:
            client.auth.token.lookup_self()
        except (Forbidden, Unauthorized):
            return False
        return True

    def _exchange(self, client: Any, credential: VaultCredential) -> float:
        mount = self._options.auth.mount_point
        first, second = credential.secrets
        try:
            if credential.method == "approle":
                answer = client.auth.approle.login(first, second, mount_point=mount)
            else:
                answer = client.auth.kubernetes.login(role=first, jwt=second, mount_point=mount)
            return float(answer["auth"]["lease_duration"])
        except (Forbidden, Unauthorized, InvalidRequest, InvalidPath, KeyError, TypeError) as error:
            raise KeyAccessDeniedError(
                f"Vault at {self._options.address} refused the {credential.method} login at auth/{mount} "
                f"({_words(error, credential.secrets)}); check the credential, the role and that the method is there"
            ) from error

    def _lifetime(self, client: Any) -> float:
        """Return the seconds that a given token lives; 0 when it does not expire, or cannot be renewed or seen."""
        try:
            data = client.auth.token.lookup_self()["data"]
            return float(data["ttl"]) if data["renewable"] else 0.0
        except (VaultError, KeyError, TypeError):
            return 0.0

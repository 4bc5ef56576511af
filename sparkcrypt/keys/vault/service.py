"""The key service over the transit engine of HashiCorp Vault or OpenBao.

Transit creates a missing key when it is asked to encrypt with it, if the token may create keys.  So a wrap first
checks that the key exists.  A Vault policy that grants only ``update`` on ``transit/encrypt/<name>`` closes the
remaining gap in Vault itself; then ``read`` on ``transit/keys/<name>`` is not needed.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from typing import Any

from hvac.exceptions import Forbidden, InvalidRequest, Unauthorized, VaultError

from sparkcrypt.errors import (
    KeyAccessDeniedError,
    KeyNotFoundError,
    KeyRetiredError,
    KeyServiceError,
    KeyServiceUnavailableError,
)
from sparkcrypt.keys.access_decisions import decision_of
from sparkcrypt.keys.material import version_of
from sparkcrypt.keys.provider import read_options
from sparkcrypt.keys.service import Decision, KeyDeletion, KeyDescription, KeyService, make_retired_error
from sparkcrypt.keys.vault.session import (
    HvacLogin,
    VaultOptions,
    VaultSession,
    decode_key_name,
    encode_key_name,
    translate_refusal,
    translate_silence,
)
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.text import utc_text

KEY_TYPE = "aes256-gcm96"
_CREATING = {"create", "sudo", "root"}
_NO_CIPHERTEXT = "sparkcrypt asks whether it may decrypt"


class VaultKeyService(KeyService):
    """A key service that wraps and unwraps by transit; safe for many threads.

    Options: ``address`` (else VAULT_ADDR), ``mount_point`` (``transit``), ``namespace``, ``ca_bundle``,
        ``timeout_seconds`` (10, per try), ``max_retries`` (3), and ``auth``:

    - ``{method: token, token_file: …}``: the file, else VAULT_TOKEN, else ``~/.vault-token``;
    - ``{method: approle, mount_point: …, role_id_file: …, secret_id_file: …}``: the files, else VAULT_ROLE_ID and
      VAULT_SECRET_ID;
    - ``{method: kubernetes, mount_point: …, role: …, jwt_path: …}``: the pod's service account.

    Raises:
        ConfigError: an option is not right.
    """

    retries_itself = True

    def __init__(self, config: KeyServiceConfig) -> None:
        self._options = read_options(VaultOptions, config)
        self._session = VaultSession(self._options.auth, HvacLogin(self._options))

    def __repr__(self) -> str:
        return f"VaultKeyService({self._options.address!r}, mount_point={self._options.mount_point!r})"

    def wrap(self, key_id: str, key: bytes) -> str:
        """Return Vault's ciphertext, ``vault:v<version>:<base64>``; a missing key is not created.

        Raises:
            KeyNotFoundError: there is no such key.
            KeyAccessDeniedError: the token may not encrypt with it, or may create keys but not check whether it exists.
            KeyServiceError: another refusal.
        """
        name = encode_key_name(key_id)
        self._check_present(key_id, name)
        plaintext = base64.b64encode(key).decode()
        return text_of(self._call(key_id, "wrap with", "encrypt_data", plaintext), "ciphertext", key_id)

    def unwrap(self, key_id: str, wrapped: str) -> bytes:
        """Return the key inside a ciphertext.

        Raises:
            KeyNotFoundError: there is no such key.
            KeyAccessDeniedError: the token may not decrypt with it.
            KeyRetiredError: the version that wrapped it is set aside.
            KeyServiceError: the ciphertext is not one of this key's, or another refusal.
        """
        with self._named_version(key_id, wrapped):
            return key_of(self._call(key_id, "unwrap with", "decrypt_data", wrapped), key_id)

    def rewrap(self, key_id: str, wrapped: str) -> str:
        """Have Vault rewrap a ciphertext with the newest version; the key inside never leaves Vault.

        Raises:
            KeyNotFoundError: there is no such key.
            KeyAccessDeniedError: the token may not rewrap with it (``update`` on ``<mount>/rewrap/<name>``).
            KeyRetiredError: the version that wrapped it is set aside.
            KeyServiceError: the ciphertext is not one of this key's, or another refusal.
        """
        with self._named_version(key_id, wrapped):
            return text_of(self._call(key_id, "rewrap with", "rewrap_data", wrapped), "ciphertext", key_id)

    def describe(self, key_id: str) -> KeyDescription:
        """Describe a key.

        Raises:
            KeyNotFoundError: there is no such key.
            KeyAccessDeniedError: the token may not read it.
        """
        return description_of(self._call(key_id, "read", "read_key"), key_id)

    def create(self, key_id: str) -> KeyDescription:
        """Create an ``aes256-gcm96`` key; an existing one is left unchanged.

        Raises:
            KeyAccessDeniedError: the token may not create it.
        """
        with suppress(KeyNotFoundError, KeyAccessDeniedError):
            return self.describe(key_id)
        self._call(key_id, "create", "create_key", key_type=KEY_TYPE)
        return self.describe(key_id)

    def rotate(self, key_id: str) -> KeyDescription:
        """Add a version, which wraps from now on; earlier versions still unwrap.

        Raises:
            KeyNotFoundError: there is no such key; for a rotation of it Vault itself would return another error.
            KeyAccessDeniedError: the token may not rotate it, or not read it.
        """
        self.describe(key_id)
        self._call(key_id, "rotate", "rotate_key")
        return self.describe(key_id)

    def set_aside(self, key_id: str, below: int) -> KeyDescription:
        """Stop Vault from decrypting with versions below a number (``min_decryption_version``), until that is lowered.

        Raises:
            KeyNotFoundError: there is no such key.
            KeyAccessDeniedError: the token may not configure it, or not read it.
            KeyServiceError: there is no such version.
        """
        if below > self.describe(key_id).first_usable:
            # Vault accepts no lower min_encryption_version, which an earlier destruction set; hvac takes no equal pair.
            self._configure(key_id, min_encryption_version=below)
            self._configure(key_id, min_decryption_version=below)
        return self.describe(key_id)

    def bring_back(self, key_id: str) -> KeyDescription:
        """Let Vault decrypt with all versions that it has.

        Raises:
            KeyNotFoundError: there is no such key.
            KeyAccessDeniedError: the token may not configure it, or not read it.
        """
        self._configure(key_id, min_decryption_version=max(1, self._first_kept(key_id)))
        return self.describe(key_id)

    def destroy_versions(self, key_id: str, below: int) -> KeyDescription:
        """Have Vault delete versions that are set aside (``trim``).

        Raises:
            KeyNotFoundError: there is no such key.
            KeyAccessDeniedError: the token may not configure it, trim it or read it.
            KeyServiceError: a version below that number is not set aside.
        """
        described = self.describe(key_id)
        if self._first_kept(key_id) >= below:
            return described
        if described.first_usable < below:
            raise KeyServiceError(f"key {key_id!r}: versions below {below} are not set aside; retire them first")
        self._configure(key_id, min_encryption_version=below)  # Vault trims no version that may encrypt
        self._call(key_id, "trim", "trim_key", below)
        return self.describe(key_id)

    def delete_key(self, key_id: str) -> KeyDeletion:
        """Allow the key's deletion (``deletion_allowed``), and delete it with every version.

        Raises:
            KeyNotFoundError: there is no such key.
            KeyAccessDeniedError: the token may not configure, delete or read it.
        """
        self.describe(key_id)
        self._configure(key_id, deletion_allowed=True)
        self._call(key_id, "delete", "delete_key")
        return KeyDeletion(
            key_id,
            None,
            f"Vault at {self._options.address} deleted it with every version; its snapshots and backups, and replicas "
            "that lag behind, may still hold it",
        )

    def list_keys(self) -> tuple[KeyDescription, ...]:
        """Describe every key whose name stands for a key id; keys with other names cannot be used here.

        Raises:
            KeyAccessDeniedError: the token may not list keys, or not read one of them.
        """
        try:
            answer = self._call(None, "list", "list_keys")
        except KeyNotFoundError:
            return ()
        names = answer.get("keys", [])
        return tuple(self.describe(key_id) for key_id in sorted(filter(None, map(decode_key_name, names))))

    def may(self, key_ids: Collection[str]) -> Mapping[str, Decision]:
        """Return for each key whether this credential may decrypt with it, by one call each.

        The call sends an invalid ciphertext.  Vault reports that only to a caller that may decrypt, and only for a key
        that exists (path_decrypt.go of its transit engine).
        """
        return {key_id: self._decision(key_id) for key_id in key_ids}

    def _decision(self, key_id: str) -> Decision:
        try:
            self.unwrap(key_id, _NO_CIPHERTEXT)
        except (KeyAccessDeniedError, KeyNotFoundError, KeyServiceUnavailableError) as error:
            return decision_of(error)
        except KeyServiceError as error:
            if isinstance(error.__cause__, InvalidRequest):
                return "allowed"
            raise
        return "allowed"

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
            capabilities = self._capabilities(f"{self._mount}/encrypt/{name}") if self._session.logged_in else None
            if capabilities is None:
                raise
            if _CREATING & capabilities:
                raise KeyAccessDeniedError(
                    f"{denied}; this token may create the key by encrypting with it, so its absence must be seen: "
                    f"allow 'read' on {self._mount}/keys/{name}, or take 'create' from {self._mount}/encrypt/{name}"
                ) from denied

    def _capabilities(self, path: str) -> set[str] | None:
        """Return what the token may do at a path; None if it may not ask that, as one that has expired."""
        try:
            answer = self._use(lambda client: client.sys.get_capabilities([path]))
        except VaultError:
            return None
        except OSError as error:
            raise translate_silence(error, self._options) from error
        return set(data_of(answer).get(path, ["create"]))

    def _configure(self, key_id: str, **settings: Any) -> None:
        self._call(key_id, "configure", "update_key_configuration", **settings)

    def _first_kept(self, key_id: str) -> int:
        """Return the lowest version that was not deleted; 0 if none was."""
        answer = self._call(key_id, "read", "read_key")
        return int(answer.get("min_available_version") or 0)

    @contextmanager
    def _named_version(self, key_id: str, wrapped: str) -> Iterator[None]:
        """Name the version in the error for a text that a version that is set aside wrapped."""
        try:
            yield
        except KeyRetiredError as error:
            where = f"Vault at {self._options.address}"
            raise make_retired_error(key_id, version_of(wrapped), where) from error

    def _call(
        self, key_id: str | None, doing: str, verb: str, *arguments: object, **settings: object
    ) -> dict[str, Any]:
        """Call the transit engine and return the ``data`` of its answer; translate every error of the libraries.

        Args:
            key_id: the key, which is the call's first argument; None for a call that names none.
            doing: the operation, for messages.
            verb: hvac's method.
            *arguments: its further arguments.
            **settings: its named arguments, besides the mount.
        """
        named = arguments if key_id is None else (encode_key_name(key_id), *arguments)
        settings["mount_point"] = self._mount
        try:
            answer = self._use(lambda client: getattr(client.secrets.transit, verb)(*named, **settings))
        except VaultError as error:
            raise translate_refusal(error, self._options, key_id or "*", doing, self._session.secrets()) from error
        except OSError as error:  # also the base of requests' errors, and what it raises for a missing bundle
            raise translate_silence(error, self._options) from error
        return data_of(answer)

    def _use(self, use: Callable[[Any], Any]) -> Any:
        """Use the client; after a refusal, use it once more if its token was the reason and there is another token."""
        client = self._session.client()
        try:
            return use(client)
        except (Forbidden, Unauthorized):
            another = self._session.after_refusal(client)
            if another is None:
                raise
        return use(another)


def data_of(answer: Any) -> dict[str, Any]:
    """Return the ``data`` of an answer; empty for one that has none, such as 204."""
    data = answer.get("data") if isinstance(answer, dict) else None
    return data if isinstance(data, dict) else {}


def text_of(data: dict[str, Any], name: str, key_id: str) -> str:
    """Return a field that contains text.

    Raises:
        KeyServiceUnavailableError: the field is missing or is not text.
    """
    value = data.get(name)
    if not isinstance(value, str) or not value:
        raise _not_transit(key_id)
    return value


def key_of(data: dict[str, Any], key_id: str) -> bytes:
    """Return the bytes of a ``plaintext`` field.

    Raises:
        KeyServiceUnavailableError: the field does not contain base64.
    """
    try:
        return base64.b64decode(text_of(data, "plaintext", key_id), validate=True)
    except binascii.Error:
        raise _not_transit(key_id) from None


def description_of(data: dict[str, Any], key_id: str) -> KeyDescription:
    """Return the description in an answer of ``GET <mount>/keys/<name>``.

    Raises:
        KeyServiceUnavailableError: the answer contains none.
    """
    try:
        times = [data["keys"][number] for number in sorted(data["keys"], key=int)]
        # A symmetric key's version is a Unix time, an asymmetric one's an object.
        created, rotated = (_utc(moment) if isinstance(moment, int) else None for moment in (times[0], times[-1]))
        usable = max(int(data.get("min_decryption_version") or 1), int(data.get("min_available_version") or 1))
        return KeyDescription(key_id, int(data["latest_version"]), created, rotated, usable)
    except (LookupError, TypeError, ValueError) as error:
        raise _not_transit(key_id) from error


def _utc(seconds: int) -> str:
    return utc_text(datetime.fromtimestamp(seconds, timezone.utc))


def _not_transit(key_id: str) -> KeyServiceUnavailableError:
    return KeyServiceUnavailableError(
        f"what answered for key {key_id!r} is not Vault's transit engine; check that address leads to an active "
        "Vault (redirects are not followed) and that mount_point is a transit mount"
    )

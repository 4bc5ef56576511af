"""The key service over AWS KMS, through boto3: its options, the names of keys there, and the meaning of refusals."""

from __future__ import annotations

import base64
import hashlib
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import boto3
from botocore.config import Config
from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials, RefreshableCredentials
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    HTTPClientError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    ProfileNotFound,
)
from botocore.session import Session as CoreSession

from sparkcrypt.errors import (
    ConfigError,
    KeyAccessDeniedError,
    KeyNotFoundError,
    KeyServiceError,
    KeyServiceUnavailableError,
    SparkcryptError,
)
from sparkcrypt.keys.ids import NameRule, check_key_id, encode_key_id
from sparkcrypt.keys.provider import (
    NetworkOptions,
    OptionSource,
    ProviderKeyService,
    address,
    option,
    read_options,
    shorten_reason,
    text,
)
from sparkcrypt.keys.service import ABSENT_ADVICE, KeyDeletion, KeyDescription, read_wrapped
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.text import utc_text

_LONGEST_ALIAS = 256
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_OWN_NAME = re.compile(
    rf"(?:arn:aws[a-z-]*:kms:(?P<region>[a-z0-9-]+):\d{{12}}:)?"
    rf"(?:alias/[A-Za-z0-9/_-]+|(?(region)key/){_UUID}|(?(region)key/)(?P<multi>mrk-[0-9a-f-]{{32,36}}))",
    re.ASCII,
)
_DENIED = {
    "AccessDenied",
    "AccessDeniedException",
    "DisabledException",
    "ExpiredToken",
    "ExpiredTokenException",
    "IncompleteSignature",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "MissingAuthenticationToken",
    "MissingAuthenticationTokenException",
    "NotAuthorized",
    "OptInRequired",
    "RequestExpired",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
}
_PASSING = {
    "DependencyTimeoutException",
    "KMSInternalException",
    "KeyUnavailableException",
    "LimitExceededException",
    "RequestLimitExceeded",
    "ServiceUnavailable",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
}
_SERVER_FAULT = 500
_PREFIX = "aws:v1:"
_KEY_ID = "sparkcrypt:key_id"
_CONNECTIONS = 32
_WAITING_DAYS = 30
_GONE = {"PendingDeletion", "PendingReplicaDeletion"}
_UNTOLD = {"AccessDenied", "AccessDeniedException", "KMSInvalidStateException", "UnsupportedOperationException"}
"""Refusals to list rotations: no right to, no key material yet, or a kind of key that has none."""


def _read_context(source: OptionSource, name: str) -> tuple[tuple[str, str], ...]:
    value = source.options.get(name, {})
    if not isinstance(value, Mapping) or not all(isinstance(entry, str) for pair in value.items() for entry in pair):
        raise source.error(name, "is not a mapping of names to texts; allowed: such as {department: sales}")
    return tuple(sorted(value.items()))


@dataclass(frozen=True, slots=True)
class AwsOptions(NetworkOptions):
    """The checked options."""

    region: str | None = text()
    endpoint: str | None = address()
    profile: str | None = text()
    role_arn: str | None = text()
    alias_prefix: str = text(
        "sparkcrypt/",
        pattern="(?!aws/)[A-Za-z0-9/_-]{1,100}",
        allowed="1 to 100 letters, digits, '/', '_' and '-', not beginning with aws/",
    )
    encryption_context: tuple[tuple[str, str], ...] = option(_read_context)


@dataclass(frozen=True, slots=True)
class KeyNames:
    """AWS's names for key ids in one account and region.

    A key id that is AWS's own name (a key's id, an ARN, ``alias/…``) is used unchanged; any other is the alias
    ``alias/<prefix><encoded id>``.
    """

    prefix: str
    region: str

    def of(self, key_id: str) -> str:
        """Return AWS's name of a key; the ARN of a multi-Region key is changed to this region's replica.

        Raises:
            ConfigError: the key id is empty or is not Unicode.
        """
        check_key_id(key_id)
        own = _OWN_NAME.fullmatch(key_id)
        if own is None:
            return f"alias/{self.prefix}{self._rule.encode(key_id)}"
        if own["region"] and own["multi"]:
            return key_id.replace(f":kms:{own['region']}:", f":kms:{self.region}:", 1)
        return key_id

    def is_own(self, key_id: str) -> bool:
        """Return whether AWS or its users gave this name, so that it has no alias with our prefix."""
        return _OWN_NAME.fullmatch(key_id) is not None

    def key_id(self, alias: str) -> str | None:
        """Return the key id that an alias stands for, or None if it stands for none."""
        if not alias.startswith(f"alias/{self.prefix}"):
            return None
        found = self._rule.decode(alias.removeprefix(f"alias/{self.prefix}"))
        return found if found is not None and not self.is_own(found) else None

    @property
    def _rule(self) -> NameRule:
        return NameRule("A-Za-z0-9-", "_", _LONGEST_ALIAS - len("alias/") - len(self.prefix), "AWS KMS")


def translate_error(error: BotoCoreError | ClientError | OSError, what: str, name: str) -> SparkcryptError:
    """Return the error of this package for one of boto3's, or for a file of credentials that boto3 could not read.

    Args:
        error: the error that boto3 raised.
        what: the service and the operation, for the message.
        name: AWS's name of the key.
    """
    if isinstance(error, ClientError):
        return _translate_refusal(error, what, name)
    if isinstance(error, NoCredentialsError | PartialCredentialsError | ProfileNotFound):
        return ConfigError(
            f"{what}: {error}; give them as AWS's own chain has them (environment, profile, the platform's role), or "
            "correct 'profile'"
        )
    if isinstance(error, OSError):  # botocore has its own errors for the network
        return ConfigError(
            f"{what}: a file of credentials cannot be read: {error.strerror}: {error.filename!r}; correct the variable "
            "or profile that names it (AWS_WEB_IDENTITY_TOKEN_FILE, AWS_CONFIG_FILE)"
        )
    if isinstance(error, NoRegionError):
        return ConfigError(f"{what}: no region is known; set 'region' in key_service, or AWS_REGION")
    if isinstance(error, HTTPClientError):
        return KeyServiceUnavailableError(
            f"{what}: no answer ({type(error).__name__}); check region, endpoint, ca_bundle and the network"
        )
    return KeyServiceUnavailableError(f"{what}: {type(error).__name__}; check credentials, region and endpoint")


def error_code(error: BaseException | None) -> str:
    """Return AWS's code of a refusal; empty for any other error."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


def _translate_refusal(error: ClientError, what: str, name: str) -> KeyServiceError:
    code = error_code(error)
    reason = shorten_reason(error.response.get("Error", {}).get("Message") or "")
    if code == "NotFoundException" or (code == "KMSInvalidStateException" and "pending deletion" in reason):
        return KeyNotFoundError(
            f"{what}: it is not there under the name {name!r}, or is to be deleted ({reason}); check region "
            f"and alias_prefix, {ABSENT_ADVICE}"
        )
    if code in _DENIED:
        return KeyAccessDeniedError(f"{what}: {code}{_advice(code, reason)}")
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if code in _PASSING or status >= _SERVER_FAULT:
        return KeyServiceUnavailableError(f"{what}: it cannot serve now ({code or status})")
    if code in {"InvalidCiphertextException", "IncorrectKeyException"}:
        return KeyServiceError(
            f"{what}: the wrapped key is not one that this key wrapped with this encryption_context ({code})"
        )
    return KeyServiceError(f"{what}: {code}: {reason}")


def _advice(code: str, reason: str) -> str:
    if (
        code in {"RequestExpired", "RequestTimeTooSkewed"}
        or "Signature expired" in reason
        or "not yet current" in reason
    ):
        return "; the clock of this machine differs from AWS's: set it, then try again"
    if code in {"ExpiredToken", "ExpiredTokenException"}:
        return "; the credentials of this process have expired: renew them, or use a role, which AWS renews"
    if code == "DisabledException":
        return "; the key is disabled: enable it in AWS"
    return "; allow kms:Encrypt, kms:Decrypt and kms:DescribeKey on it to this credential, by policy or grant"


class AwsKeyService(ProviderKeyService):
    """A key service that wraps by KMS ``Encrypt``, with the key id in the encryption context; safe for many threads.

    Options: ``region`` (else AWS's own chain) or ``regions``, ``endpoint``, ``profile``, ``role_arn``, ``alias_prefix``
        (``sparkcrypt/``), ``encryption_context``, ``ca_bundle``, ``timeout_seconds`` (10, per try), ``max_retries``
        (3).  Credentials are AWS's own chain.

    Raises:
        ConfigError: an option is not right.
    """

    product, form = "AWS KMS", "aws:v1:<base64>"
    own_names = "a name that AWS or its users give; make that key in AWS"

    def __init__(self, config: KeyServiceConfig) -> None:
        self._options = read_options(AwsOptions, config)
        self._lock = threading.Lock()
        self._session: CoreSession | None = None
        self._client: Any = None

    def __repr__(self) -> str:
        return f"AwsKeyService(region={self._options.region!r})"

    def wrap(self, key_id: str, key: bytes) -> str:
        """Return ``aws:v1:<base64 of the CiphertextBlob>``.

        Raises:
            KeyNotFoundError: there is no such key, or it waits for its deletion.
            KeyAccessDeniedError: these credentials may not encrypt with it.
        """
        answer = self._call(
            key_id,
            "wrap with",
            lambda kms, name: kms.encrypt(KeyId=name, Plaintext=key, EncryptionContext=self._context(key_id)),
        )
        return _PREFIX + base64.b64encode(answer["CiphertextBlob"]).decode()

    def unwrap(self, key_id: str, wrapped: str) -> bytes:
        """Return the key inside a wrapped text.

        Raises:
            KeyNotFoundError: there is no such key, or it waits for its deletion.
            KeyAccessDeniedError: these credentials may not decrypt with it.
            KeyServiceError: the text is not one that this key wrapped.
        """
        blob = read_wrapped(_PREFIX, wrapped)
        if not blob:
            raise self._make_form_error(key_id)
        answer = self._call(
            key_id,
            "unwrap with",
            lambda kms, name: kms.decrypt(KeyId=name, CiphertextBlob=blob, EncryptionContext=self._context(key_id)),
        )
        return bytes(answer["Plaintext"])

    def describe(self, key_id: str) -> KeyDescription:
        """Describe a key; one that waits for its deletion counts as missing."""
        data = self._metadata(key_id)
        if data.get("KeyState") in _GONE:
            raise KeyNotFoundError(
                f"AWS KMS key {key_id!r} is to be deleted on {data.get('DeletionDate')}; cancel that in AWS"
            )
        made, rotations = utc_text(data["CreationDate"]), self._rotations(key_id)
        if rotations is None:
            return KeyDescription(key_id, 0, made)
        return KeyDescription(key_id, 1 + len(rotations), made, max(rotations, default=None))

    def _make(self, key_id: str) -> None:
        """Create a symmetric key and its alias.

        If two processes create a key concurrently, one key remains: AWS gives an alias only once, and the other key is
        scheduled for deletion.
        """
        own_id = self._call(key_id, "create", lambda kms, _: kms.create_key(Description=key_id))["KeyMetadata"]["KeyId"]
        try:
            self._call(key_id, "name", lambda kms, name: kms.create_alias(AliasName=name, TargetKeyId=own_id))
        except KeyServiceError as error:
            self._call(key_id, "discard", lambda kms, _: kms.schedule_key_deletion(KeyId=own_id, PendingWindowInDays=7))
            if "AlreadyExists" not in str(error):
                raise

    def _is_own(self, key_id: str) -> bool:
        return self._names().is_own(key_id)

    def rotate(self, key_id: str) -> KeyDescription:
        """Have AWS create new key material, which wraps from now on."""
        self._call(key_id, "rotate", lambda kms, name: kms.rotate_key_on_demand(KeyId=self._find_own_id(kms, name)))
        return self.describe(key_id)

    def delete_key(self, key_id: str) -> KeyDeletion:
        """Have AWS delete a key after its longest waiting period, 30 days; from now on the key unwraps nothing.

        Until then, a user who may cancel key deletion can restore it.  The alias is deleted with the key.

        Raises:
            KeyNotFoundError: there is no such key.
            KeyAccessDeniedError: these credentials may not schedule its deletion.
        """
        data = self._metadata(key_id)
        if data.get("KeyState") not in _GONE:
            self._call(
                key_id,
                "delete",
                lambda kms, _: kms.schedule_key_deletion(KeyId=data["KeyId"], PendingWindowInDays=_WAITING_DAYS),
            )
            data = self._metadata(key_id)
        final = data.get("DeletionDate")
        return KeyDeletion(
            key_id,
            None if final is None else utc_text(final),
            f"AWS KMS uses {data['Arn']} for nothing from now on, and deletes it when its waiting period ends; until "
            "then whoever has kms:CancelKeyDeletion brings it back; replicas in other regions are keys of their own",
        )

    def list_keys(self) -> tuple[KeyDescription, ...]:
        """Describe every key that has an alias with our prefix; a key that is named by its ARN alone is not listed.

        Raises:
            KeyAccessDeniedError: these credentials may not list aliases, or not read one of the keys.
        """
        pages = self._call(None, "list", lambda kms, _: list(kms.get_paginator("list_aliases").paginate()))
        names = self._names()
        aliases = (alias["AliasName"] for page in pages for alias in page["Aliases"] if "TargetKeyId" in alias)
        return self._describe_all(map(names.key_id, aliases))

    def credential_identity(self) -> bytes:
        """Return a digest of the credential: its keys or, if AWS renews them, the role or profile behind them."""
        found = self._call(None, "find credentials for", lambda _, __: self._core().get_credentials())
        parts = [self._options.profile or "", self._options.role_arn or ""]
        if found is not None:
            parts.append(str(found.method))
            if not isinstance(found, RefreshableCredentials):
                parts += [found.access_key, found.secret_key, found.token or ""]
        return hashlib.sha256("\0".join(parts).encode()).digest()

    def _metadata(self, key_id: str) -> dict[str, Any]:
        """Return AWS's metadata of a key, even of one that waits for its deletion."""
        return dict(self._call(key_id, "read", lambda kms, name: kms.describe_key(KeyId=name))["KeyMetadata"])

    def _context(self, key_id: str) -> dict[str, str]:
        return {**dict(self._options.encryption_context), _KEY_ID: encode_key_id(key_id)}

    def _rotations(self, key_id: str) -> list[str] | None:
        """Return when a key was rotated; None if AWS does not tell these credentials, or not of this kind of key."""
        try:
            answer = self._call(
                key_id, "read", lambda kms, name: kms.list_key_rotations(KeyId=self._find_own_id(kms, name), Limit=1000)
            )
        except KeyServiceError as error:
            if error_code(error.__cause__) in _UNTOLD:
                return None
            raise
        return [utc_text(rotation["RotationDate"]) for rotation in answer.get("Rotations", ())]

    @staticmethod
    def _find_own_id(kms: Any, name: str) -> str:
        """Return a key's own id: calls that rotate a key or list its rotations accept no alias."""
        return str(kms.describe_key(KeyId=name)["KeyMetadata"]["KeyId"])

    def _names(self) -> KeyNames:
        kms = self._call(None, "reach", lambda kms, _: kms)
        return KeyNames(self._options.alias_prefix, str(kms.meta.region_name))

    def _call(self, key_id: str | None, doing: str, call: Callable[[Any, str], Any]) -> Any:
        """Call AWS KMS, for one key or for none; every error of boto3 is translated."""
        name, what = "", "keys" if key_id is None else f"key {key_id!r}"
        try:
            kms = self._open()
            if key_id is not None:
                name = KeyNames(self._options.alias_prefix, str(kms.meta.region_name)).of(key_id)
            return call(kms, name)
        except (BotoCoreError, ClientError, OSError) as error:
            where = self._options.endpoint or self._options.region or "its region"
            raise translate_error(error, f"AWS KMS at {where}: cannot {doing} {what}", name) from error

    def _open(self) -> Any:
        with self._lock:
            if self._client is None:
                self._client = boto3.Session(botocore_session=self._core()).client(
                    "kms",
                    region_name=self._options.region,
                    endpoint_url=self._options.endpoint,
                    verify=self._options.ca_bundle,
                    # sparkcrypt.keys.steady retries transient failures of every key service, within one budget.
                    config=Config(
                        connect_timeout=self._options.timeout_seconds,
                        read_timeout=self._options.timeout_seconds,
                        retries={"mode": "standard", "total_max_attempts": 1},
                        max_pool_connections=_CONNECTIONS,
                    ),
                )
            return self._client

    def _core(self) -> CoreSession:
        if self._session is None:
            self._session = _session(self._options)
        return self._session


def _session(options: AwsOptions) -> CoreSession:
    """Return a session with AWS's own chain of credentials, or with those of the role that they are to take."""
    session = CoreSession(profile=options.profile)
    if options.role_arn is None:
        return session
    source = session.get_credentials()
    if source is None:
        raise ConfigError(
            f"key_service of type 'aws': no credentials are there to take the role {options.role_arn!r} with; give "
            "them as AWS's own chain has them (environment, profile, the platform's role)"
        )
    fetcher = AssumeRoleCredentialFetcher(
        client_creator=partial(session.create_client, region_name=options.region),
        source_credentials=source,
        role_arn=options.role_arn,
        extra_args={"RoleSessionName": "sparkcrypt"},
    )
    taken = CoreSession(profile=options.profile)
    taken._credentials = DeferredRefreshableCredentials(method="assume-role", refresh_using=fetcher.fetch_credentials)
    return taken

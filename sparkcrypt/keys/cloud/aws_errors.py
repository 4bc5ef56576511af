"""Failures of boto3, translated: which are refusals, which are transient, and the message of each."""

from __future__ import annotations

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    HTTPClientError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    ProfileNotFound,
)

from sparkcrypt.errors import (
    ConfigError,
    KeyAccessDeniedError,
    KeyNotFoundError,
    KeyServiceError,
    KeyServiceUnavailableError,
    SparkcryptError,
)
from sparkcrypt.keys.service import ABSENT_ADVICE

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
_REASON_CHARACTERS = 200
_SERVER_FAULT = 500


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
    reason = " ".join(str(error.response.get("Error", {}).get("Message") or "").split())[:_REASON_CHARACTERS]
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

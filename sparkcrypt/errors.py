"""Every public error, one tree, each family with the exit code that the command line and the jobs end with.

    SparkcryptError                       1
    ├── ConfigError                      78   a policy, option or environment that cannot be used as it stands
    ├── PlanError                        65   tags, policy and schema do not make a plan
    │   └── PredicateError               64   --where is no condition on the partition columns of a table
    ├── KeyServiceError                  69   the key service did not do what was asked
    │   ├── KeyNotFoundError             69   it has no such key
    │   ├── KeyRetiredError              69   the version of the key that is needed was retired, and can be brought back
    │   ├── KeyServiceUnavailableError   69   it cannot be reached, or answered that it cannot serve now
    │   └── KeyAccessDeniedError         77   it refused these credentials
    ├── BridgeError                      70   the jar, its helper process or their interpreter is not there or broke
    ├── FormatError                      66   bytes that are not what their format's specification says
    │   └── UnsupportedFileError         66   a file that may be right, but cannot be rewritten page by page
    ├── StorageError                     71   a file cannot be reached where it is; it may be right
    ├── VerificationError                74   something was checked and is not as promised
    │   └── SourceChangedError           74   somebody wrote to what a run was rewriting; it can be tried again
    └── RunConflictError                 75   another run, or another policy, holds this table

Other usage errors of the command line end with 64 too, drift with 2.  A message says what happened, to which thing,
what is allowed and the next step.  It never holds key bytes, tokens or computed authentication tags.
"""

from __future__ import annotations

from typing import ClassVar

EXIT_OK = 0
EXIT_DRIFT = 2
EXIT_USAGE = 64


class SparkcryptError(Exception):
    """Base of every error that sparkcrypt raises on purpose."""

    exit_code: ClassVar[int] = 1


class ConfigError(SparkcryptError):
    """A policy file, option or environment cannot be used as it stands."""

    exit_code = 78


class PlanError(SparkcryptError):
    """Tags, policy and schema do not make a plan."""

    exit_code = 65


class PredicateError(PlanError):
    """``--where`` is no condition on the partition columns of a table."""

    exit_code = EXIT_USAGE


class KeyServiceError(SparkcryptError):
    """The key service did not do what was asked of it."""

    exit_code = 69


class KeyNotFoundError(KeyServiceError):
    """The key service has no key of that name."""


class KeyRetiredError(KeyServiceError):
    """The version of the key that is needed was retired, and can be brought back until it is destroyed."""


class KeyServiceUnavailableError(KeyServiceError):
    """The key service cannot be reached, or reports that it cannot serve now."""


class KeyAccessDeniedError(KeyServiceError):
    """The key service refused these credentials for this key."""

    exit_code = 77


class BridgeError(SparkcryptError):
    """The jar, its helper process or their interpreter is missing or broke."""

    exit_code = 70


class FormatError(SparkcryptError):
    """Bytes do not conform to the specification of Parquet or ORC."""

    exit_code = 66


class UnsupportedFileError(FormatError):
    """A file may be valid, but cannot be rewritten page by page; an engine that decodes it can rewrite it."""


WRITE_ORC_ANEW = "write its rows under the policy with Spark to a new table or folder, and put that in its place"
"""The advice for an ORC file that cannot be rewritten as it is: the engine of Spark rewrites Parquet alone."""


class StorageError(SparkcryptError):
    """A file cannot be reached: the storage does not answer or refuses access; the file itself may be intact."""

    exit_code = 71


class VerificationError(SparkcryptError):
    """Something was checked and is not as promised."""

    exit_code = 74


class SourceChangedError(VerificationError):
    """Another process wrote to what a run was rewriting, so the run left it unchanged; it can be tried again."""


class RunConflictError(SparkcryptError):
    """Another run, or one under another policy, holds this table, or what a saved plan was made from has changed."""

    exit_code = 75


def error_named(name: str) -> type[SparkcryptError]:
    """Return the error class of that name, or the base class if no class has it.

    The bridge carries errors between processes by class name.
    """
    pending: list[type[SparkcryptError]] = [SparkcryptError]
    while pending:
        candidate = pending.pop()
        if candidate.__name__ == name:
            return candidate
        pending.extend(candidate.__subclasses__())
    return SparkcryptError


def causes_of(error: BaseException) -> list[BaseException]:
    """Return an exception and the chain of its causes, each once."""
    found: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in found:
        found.append(current)
        current = current.__cause__ or current.__context__
    return found


def show(value: object) -> str:
    """Return the text form of a value for a message; a long one is cut and ends in ``…``."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"

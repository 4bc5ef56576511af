"""The identity of a file in its table: the AAD prefix, derived from the paths that writers and readers see.

ORC has no AAD: there the same bytes are in the key material of each local key, and its wrapping authenticates them.

The prefix is ``<table UUID or ->/<partition path or *>/<file name>`` and a 0x00 byte; an unpartitioned file has no
middle part.  Slashes do not occur in a partition's values (Hive escapes them), so the parts are unambiguous.  The 0x00
ends the prefix, which Parquet joins to the file-unique without a separator (spec 4.4.1).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sparkcrypt.errors import PlanError, VerificationError, show
from sparkcrypt.paths import Partition, Place, is_partition_folder, partition_values, trailing_partition
from sparkcrypt.policy.model import Policy

UNKNOWN_TABLE = "-"
UNKNOWN_PARTITION = "*"
TERMINATOR = b"\0"

_STAGING = re.compile(r"_temporary|\.spark-staging-.+|\.hive-staging.*|-ext-\d+|_tmp\..*|__magic.*")
_UUID_PREFIX = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}-")


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """A file's table UUID (None: not known), partition path (None: not known; empty: none) and final name."""

    table_uuid: str | None
    partition_path: str | None
    file_name: str

    def to_aad_prefix(self) -> bytes:
        """Return the AAD prefix, 0x00-terminated."""
        middle = UNKNOWN_PARTITION if self.partition_path is None else self.partition_path
        parts = [self.table_uuid or UNKNOWN_TABLE, *([middle] if middle else []), self.file_name]
        try:
            return "/".join(parts).encode() + TERMINATOR
        except UnicodeError as error:
            raise PlanError(f"{self.file_name!a}: its path holds half a character; rename the folder") from error

    @property
    def partition(self) -> Partition:
        """Partition column -> value, unescaped; empty if there is no partition or it is not known."""
        return partition_values(self.partition_path or "")


def identity_of_write(path: str, *, target: str | None, table_uuid: str | None, partition: str | None) -> FileIdentity:
    """Return the identity that a file will have, from the path that its writer has.

    Args:
        path: the temporary or final path at which the file is written.
        target: the final path, if the commit protocol has it.
        table_uuid: the table's UUID, if it is known.
        partition: the partition path, if the writer has it.

    Raises:
        PlanError: the path is not that of a file.
    """
    final = path if target is None else target
    *folders, name = final.split("/")
    if not name or TERMINATOR.decode() in name:
        raise PlanError(f"{show(final)} is no path of a file; write to a folder")
    if target is None and folders and folders[-1].startswith(".spark-staging-"):
        stripped = _UUID_PREFIX.sub("", name, count=1) if _UUID_PREFIX.match(name) else name
        if stripped not in ("", name):  # a custom partition location: the folder shows no partition
            return FileIdentity(table_uuid, partition, stripped)
    return FileIdentity(table_uuid, partition_of(folders) if partition is None else partition, name)


def partition_of(folders: list[str]) -> str:
    """Return the partition path of a folder, which may be a link to one that shows more of it."""
    shown, real = trailing_partition(folders), trailing_partition(_real_folders(folders))
    return real if f"/{real}".endswith(f"/{shown}") or not shown else shown


def _real_folders(folders: list[str]) -> list[str]:
    """Return the folders of a path without the links of a local file system."""
    return Place.of("/".join(folders)).without_links().path.split("/")


def table_location(path: str) -> str:
    """Return the folder in which a temporary path was created: the table's or partition's."""
    folders = path.split("/")
    for place, folder in enumerate(folders):
        if _STAGING.fullmatch(folder):
            return "/".join(folders[:place])
    return "/".join(folders[:-1])


def is_temporary(path: str) -> bool:
    """Return whether a file is written to a temporary path first."""
    return any(_STAGING.fullmatch(folder) for folder in path.split("/"))


def check_orc_identity(identity: bytes | None, path: str, *, table_uuid: str | None, strict: bool) -> str | None:
    """Check the identity to which an ORC file's local keys are bound against the path of the file.

    Args:
        identity: in the form of an AAD prefix; None if they are bound to nothing, which no writer here does.
        path: as `check_aad_prefix`, which also describes what is returned.
        table_uuid: as `check_aad_prefix`.
        strict: as `check_aad_prefix`.

    Raises:
        VerificationError: the file, or its local keys, were moved here from another table, partition or name, or
            nothing ties them to any.
    """
    if identity is None:
        raise VerificationError(f"{path}: nothing ties its local keys to this file; {_NEXT}")
    if _parse(identity) is None:
        raise VerificationError(f"{path}: what its local keys are bound to was not made by sparkcrypt; {_NEXT}")
    return check_aad_prefix(identity, path, table_uuid=table_uuid, strict=strict)


def check_aad_prefix(prefix: bytes | None, path: str, *, table_uuid: str | None, strict: bool) -> str | None:
    """Check the AAD prefix that a file stores against the path of the file.

    Args:
        prefix: the stored prefix, or None.
        path: where the file is.
        table_uuid: the UUID of the table that is read, or None if it is not known.
        strict: the table requires encryption: a file without a table's identity, or by another writer, is refused.

    Returns:
        How the file is bound more weakly than it could be, for a report, or None.

    Raises:
        VerificationError: the file was moved here from another table, partition or name.
    """
    if prefix is None:
        if strict:
            raise VerificationError(f"{path}: has no AAD prefix, so nothing ties it to this table; {_NEXT}")
        return "no AAD prefix"
    stored = _parse(prefix)
    if stored is None:
        if strict:
            raise VerificationError(
                f"{path}: its AAD prefix was not made by sparkcrypt, or was cut or extended; {_NEXT}"
            )
        return "AAD prefix by another writer"
    *folders, name = path.split("/")
    if stored.file_name != name:
        raise VerificationError(f"{path}: was written as {stored.file_name!r} and renamed or copied since; {_NEXT}")
    _check_table(stored, path, table_uuid, strict)
    return _check_partition(stored, path, folders)


def table_uuid_of(prefix: bytes | None) -> str | None:
    """Return the UUID of the table that an AAD prefix names; None if it names none."""
    stored = None if prefix is None else _parse(prefix)
    uuid = None if stored is None else stored.table_uuid
    return uuid if uuid is not None and _UUID_PREFIX.fullmatch(f"{uuid}-") else None


_NEXT = "restore the file from where it was written, or write it again; `sparkcrypt verify` lists all such files"


def _parse(prefix: bytes) -> FileIdentity | None:
    if not prefix.endswith(TERMINATOR) or prefix.count(TERMINATOR) != 1:
        return None
    try:
        first, *middle, name = prefix[:-1].decode().split("/")
    except (UnicodeDecodeError, ValueError):
        return None
    partition = None if middle == [UNKNOWN_PARTITION] else "/".join(middle)
    return FileIdentity(None if first == UNKNOWN_TABLE else first, partition, name)


def _check_table(stored: FileIdentity, path: str, table_uuid: str | None, strict: bool) -> None:
    if stored.table_uuid is None:
        if strict and table_uuid is not None:
            raise VerificationError(
                f"{path}: was written by path, with no table's identity, and this table requires one; {_NEXT}"
            )
    elif table_uuid is not None and stored.table_uuid != table_uuid:
        raise VerificationError(f"{path}: belongs to table {stored.table_uuid}, not to {table_uuid}; {_NEXT}")


def _check_partition(stored: FileIdentity, path: str, folders: list[str]) -> str | None:
    if stored.partition_path is None:
        return "partition not known to its writer"
    wanted = stored.partition_path.split("/") if stored.partition_path else []
    if not _ends_with(folders, wanted) and not _is_link_to(folders, wanted):
        raise VerificationError(
            f"{path}: was written for partition {stored.partition_path!r} and moved to another; {_NEXT}"
        )
    if not wanted and trailing_partition(folders):
        return "no partition in its AAD prefix"
    return None


def _ends_with(folders: list[str], wanted: list[str]) -> bool:
    return folders[len(folders) - len(wanted) :] == wanted


def _is_link_to(folders: list[str], wanted: list[str]) -> bool:
    """Return whether a path leads to a partition by links, and shows none that its real place does not have."""
    real = _real_folders(folders)
    return _ends_with(real, wanted) and all(name in real for name in folders if is_partition_folder(name))


def check_claims(
    policy: Policy,
    path: str,
    prefix: bytes | None,
    algorithm: str | None,
    *,
    place: str | None = None,
    table_uuid: str | None = None,
) -> str | None:
    """Check an encrypted file's AAD prefix and algorithm, which nothing in the file authenticates.

    Args:
        policy: its algorithms are allowed.
        path: the file's path, as the user gave it.
        prefix: its AAD prefix.
        algorithm: its algorithm.
        place: its whole path, whose folders show its partition; ``path`` by default.
        table_uuid: UUID of the table that it must belong to; None accepts any table.

    Returns:
        How it is bound to its path more weakly than it could be, or None.

    Raises:
        VerificationError: its algorithm was never the policy's, it is another table's, or it was moved since it was
            written.
    """
    weak = check_aad_prefix(prefix, place or path, table_uuid=table_uuid, strict=False)
    allowed = policy.readable_algorithms
    if algorithm not in allowed:
        raise VerificationError(
            f"{path}: its algorithm is {algorithm}; allowed by the policy: {', '.join(allowed)}; name it under "
            "algorithm_history if it was the policy's once, else the file was altered"
        )
    return weak

"""The status and the access rights of a file or folder, as values."""

from __future__ import annotations

import grp
import pwd
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparkcrypt.errors import StorageError


@dataclass(frozen=True, slots=True)
class FileStatus:
    """One file or folder: its URI, length in bytes, modification time in milliseconds, owner, group, octal mode."""

    path: str
    length: int
    modified_ms: int
    is_folder: bool
    owner: str
    group: str
    mode: str

    @property
    def name(self) -> str:
        """The last component of the path."""
        return self.path.rstrip("/").rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Access:
    """Owner, group, octal mode and ACL of a file or folder; ``entries`` are Hadoop's own objects of the ACL."""

    owner: str
    group: str
    mode: str
    acl: str
    entries: Any = field(default=None, compare=False, repr=False)

    def differences(self, other: Access) -> Iterator[str]:
        """Yield a text for each attribute that differs from another's."""
        for what in ("owner", "group", "mode", "acl"):
            was, now = getattr(self, what), getattr(other, what)
            if was != now:
                yield f"{what} {was or 'none'} became {now or 'none'}"


def read_local_access(path: str) -> Access:
    """Return the access rights of a local file or folder, given its local path."""
    try:
        status = Path(path).stat()
    except OSError as error:
        raise StorageError(f"cannot look at {path}: {error.strerror}") from error
    try:
        owner = pwd.getpwuid(status.st_uid).pw_name
    except KeyError:
        owner = str(status.st_uid)
    try:
        group = grp.getgrgid(status.st_gid).gr_name
    except KeyError:
        group = str(status.st_gid)
    return Access(owner, group, format(stat.S_IMODE(status.st_mode) & 0o1777, "04o"), "")

"""Copies the owner, group, mode and ACL of a local file or folder to what is made from it, and never grants more."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700
_PERMISSIONS = 0o777
_NOT_OF_GROUP = 0o707
_KEEP = -1
_ACL = "system.posix_acl_access"


@dataclass(frozen=True, slots=True)
class FileAccess:
    """The access rights of a file or folder; ``owner`` and ``group`` are None if unknown or without a meaning.

    ``acl`` is the value in which Linux stores a POSIX ACL; with an ACL the group's bits of ``mode`` are its mask.
    """

    mode: int
    owner: int | None = None
    group: int | None = None
    acl: bytes | None = None


PRIVATE = FileAccess(PRIVATE_FILE)
"""The access rights of a file whose source has no known ones."""


def access_of(descriptor: int) -> FileAccess:
    """Return the access rights of an open file or folder."""
    status = os.fstat(descriptor)
    acl = None
    with suppress(OSError, AttributeError):  # the file system, or the platform, has no ACLs
        acl = os.getxattr(descriptor, _ACL)
    return FileAccess(status.st_mode & _PERMISSIONS, status.st_uid, status.st_gid, acl)


def give_access(descriptor: int, wanted: FileAccess) -> None:
    """Set the access rights of an open file or folder as far as this user is permitted to.

    Args:
        descriptor: of a file or folder that no other user can open yet.
        wanted: the access rights; if its group or its ACL cannot be set, the group's bits of the mode are left out.
    """
    mode, now = wanted.mode, os.fstat(descriptor)
    owner = _KEEP if wanted.owner is None or wanted.owner == now.st_uid else wanted.owner
    group = _KEEP if wanted.group is None or wanted.group == now.st_gid else wanted.group
    if (owner, group) != (_KEEP, _KEEP):
        try:
            os.fchown(descriptor, owner, group)
        except PermissionError:
            try:
                os.fchown(descriptor, _KEEP, group)
            except PermissionError:
                mode &= _NOT_OF_GROUP
    if wanted.acl is not None:
        try:
            os.setxattr(descriptor, _ACL, wanted.acl)
        except OSError:
            mode &= _NOT_OF_GROUP
    os.fchmod(descriptor, mode)


def open_private(path: str, flags: int) -> int:
    """Open a file for ``open(…, opener=…)``; only its owner can access a new file until `give_access`."""
    return os.open(path, flags, PRIVATE_FILE)


def make_folders(folder: str, like: str | None) -> None:
    """Make a folder and its missing parents, with no more access rights than those of the folder they are made for.

    Args:
        folder: the folder to make.
        like: the folder whose access rights it gets.  Its missing parents get those of the parents of ``like`` as long
            as the names are equal, and above that those of the last such folder.  None makes private folders.
    """
    if not folder or os.path.isdir(folder):  # noqa: PTH112 - pathlib costs as much as a small file
        return
    above, name = os.path.split(folder)
    likes_above, likes_name = os.path.split(like or "")
    make_folders(above, likes_above if like and name == likes_name else like)
    try:
        os.mkdir(folder, PRIVATE_FOLDER)  # noqa: PTH102
    except FileExistsError:  # a concurrent task made it, and sets its access rights
        return
    if like is not None:
        with _open_folder(like) as source, _open_folder(folder) as target:
            give_access(target, access_of(source))


@contextmanager
def _open_folder(folder: str) -> Iterator[int]:
    descriptor = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)

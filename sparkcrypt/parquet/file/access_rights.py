"""Gives what is made of a local file or folder that one's owner, group, mode and ACL, and never more than these."""

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
    """Who may do what with a file or folder; ``owner`` and ``group`` are None where they are not known or mean nothing.

    ``acl`` is what Linux keeps of a POSIX ACL; with one the group's bits of ``mode`` are its mask.
    """

    mode: int
    owner: int | None = None
    group: int | None = None
    acl: bytes | None = None


PRIVATE = FileAccess(PRIVATE_FILE)
"""What is given where a source cannot tell its own."""


def access_of(descriptor: int) -> FileAccess:
    """Return the access of an open file or folder."""
    status = os.fstat(descriptor)
    acl = None
    with suppress(OSError, AttributeError):  # a file system, or a machine, that has none
        acl = os.getxattr(descriptor, _ACL)
    return FileAccess(status.st_mode & _PERMISSIONS, status.st_uid, status.st_gid, acl)


def give_access(descriptor: int, wanted: FileAccess) -> None:
    """Give an open file or folder an access, as far as this user may; what he may not give is taken from its mode.

    Args:
        descriptor: of what nobody else can open yet.
        wanted: whose group must be kept for the group's bits of the mode to be given.
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
    """Open a file for ``open(…, opener=…)``; one that is made so is its owner's alone until `give_access`."""
    return os.open(path, flags, PRIVATE_FILE)


def make_folders(folder: str, like: str | None) -> None:
    """Make a folder and those above it that are missing, none wider than what it is made for.

    Args:
        folder: that shall be there.
        like: the folder whose access it gets; those above it get that of its parents as far as names are the same, and
            then that of the last.  None makes folders of their owner's alone.
    """
    if not folder or os.path.isdir(folder):  # noqa: PTH112 - pathlib costs as much as a small file
        return
    above, name = os.path.split(folder)
    likes_above, likes_name = os.path.split(like or "")
    make_folders(above, likes_above if like and name == likes_name else like)
    try:
        os.mkdir(folder, PRIVATE_FOLDER)  # noqa: PTH102
    except FileExistsError:  # another task was faster, and gives it its access
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

"""Copies the access rights of a folder and its files to the new files that replace them."""

from __future__ import annotations

from sparkcrypt.errors import VerificationError
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.files.listing import data_files
from sparkcrypt.spark.files.status import Access


def access_to_give(files: HadoopFiles, source: str, target: str) -> dict[str, Access]:
    """Return the access that each folder and data file of a copy must have: path -> access.

    A folder gets the access of the source folder of the same name.  A file gets the access of the files of that source
    folder, which must therefore have one group, mode and ACL; if their owners differ, the file gets the folder's owner.

    Args:
        files: the file system of both folders.
        source: the folder that is copied.
        target: the copy, which may have other files in the same folders.

    Raises:
        VerificationError: files of one folder differ in group, mode or ACL, so the access of new files is undefined.
    """
    source, target = (files.qualify(path).rstrip("/") for path in (source, target))
    access_by_path = {target: files.access(source)}
    of_files: dict[str, Access] = {}
    for file in data_files(files, target):
        folder = file.path[len(target) :].rpartition("/")[0]
        if folder not in of_files:
            of_files[folder] = _of_files(files, source + folder)
            parts = folder.split("/")
            for depth in range(2, len(parts) + 1):
                below = "/".join(parts[:depth])
                access_by_path.setdefault(target + below, files.access(source + below))
        access_by_path[file.path] = of_files[folder]
    return access_by_path


def find_access_differences(files: HadoopFiles, source: str, target: str) -> tuple[str, ...]:
    """Return the differences between a folder and its copy in owner, group, mode and ACL, down to files."""
    access_by_path = access_to_give(files, source, target)
    return tuple(
        f"{path}: {text}" for path, wanted in access_by_path.items() for text in wanted.differences(files.access(path))
    )


def copy_access(files: HadoopFiles, source: str, target: str) -> None:
    """Give a copy of a folder the owner, group, mode and ACL of the folder, down to files; see ``access_to_give``.

    Raises:
        SparkcryptError: this user may not set them, or the file system cannot.
    """
    access_by_path = access_to_give(files, source, target)
    for path in sorted(
        access_by_path, reverse=True
    ):  # children first: this user may lose access to a folder afterwards
        files.set_access(path, access_by_path[path])


def _of_files(files: HadoopFiles, folder: str) -> Access:
    found = [files.access(file.path) for file in data_files(files, folder) if file.path.rpartition("/")[0] == folder]
    of_folder = files.access(folder)
    if not found:
        return of_folder
    first = found[0]
    for other in found[1:]:
        if (first.group, first.mode, first.acl) != (other.group, other.mode, other.acl):
            raise VerificationError(
                f"{folder}: its files differ in who may read them ({first.group} {first.mode} {first.acl or 'no ACL'}; "
                f"{other.group} {other.mode} {other.acl or 'no ACL'}), so there is no telling what new ones must have; "
                "give them one group, mode and ACL first"
            )
    same_owner = len({access.owner for access in found}) == 1
    return first if same_owner else Access(of_folder.owner, first.group, first.mode, first.acl, first.entries)

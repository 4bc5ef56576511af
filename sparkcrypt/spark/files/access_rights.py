"""Copies access rights, and HDFS's policies, of a folder and its files to the new files that replace them.

New files inherit storage policy, erasure coding policy and encryption zone from the folder in which they are made, so
the files of a copy beside a table may be stored differently from the table's: on fast disks instead of archive media,
or outside the table's encryption zone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from sparkcrypt.errors import VerificationError
from sparkcrypt.paths import hadoop_local_path
from sparkcrypt.spark.files.hadoop import Access, HadoopFiles
from sparkcrypt.spark.files.listing import data_files


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
    return tuple(
        f"{path}: {text}"
        for path, (wanted, now) in _compare_access(files, source, target).items()
        for text in wanted.differences(now)
    )


def copy_access(files: HadoopFiles, source: str, target: str) -> None:
    """Give a copy of a folder the owner, group, mode and ACL of the folder, down to files; see ``access_to_give``.

    Raises:
        SparkcryptError: this user may not set them, or the file system cannot.
    """
    compared = _compare_access(files, source, target)
    for path in sorted(compared, reverse=True):  # children first: this user may lose access to a folder afterwards
        wanted, now = compared[path]
        if wanted != now:
            files.set_access(path, wanted)


def _compare_access(files: HadoopFiles, source: str, target: str) -> dict[str, tuple[Access, Access]]:
    """Return the access that each folder and data file of a copy must have, and the one that it has."""
    wanted = access_to_give(files, source, target)
    now: dict[str, Access] = {}
    for folder in {path.rpartition("/")[0] for path in wanted} & wanted.keys():
        now |= _access_in(files, folder)
    return {path: (access, now.get(path) or files.access(path)) for path, access in wanted.items()}


def _access_in(files: HadoopFiles, folder: str) -> dict[str, Access]:
    """Return the access of the data files in a folder, not below it."""
    if hadoop_local_path(folder) is None:
        return files.access_of_data(folder)
    return {
        file.path: files.access(file.path)
        for file in data_files(files, folder)
        if file.path.rpartition("/")[0] == folder
    }


def _of_files(files: HadoopFiles, folder: str) -> Access:
    found = [*_access_in(files, folder).values()]
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


_HDFS = "org.apache.hadoop.hdfs.DistributedFileSystem"
_REPLICATION = "REPLICATION"
"""The policy that replicates a folder though a folder above is erasure-coded (SystemErasureCodingPolicies)."""


@dataclass(frozen=True, slots=True)
class Storage:
    """The storage settings in effect in a folder, its own or inherited; empty if unset or if it is not on HDFS.

    Attributes:
        policy: name of the storage policy, such as ``COLD``.
        erasure_coding: name of the erasure coding policy.
        zone: the folder that is the encryption zone.
    """

    policy: str = ""
    erasure_coding: str = ""
    zone: str = ""


def storage_of(files: HadoopFiles, path: str) -> Storage:
    """Return the storage settings of new files in a folder, which need not exist yet."""
    system, where = _on_hdfs(files, path)
    if system is None:
        return Storage()
    policy = files.call("tell the storage policy of", path, lambda: system.getStoragePolicy(where))
    erasure = files.call("tell the erasure coding policy of", path, lambda: system.getErasureCodingPolicy(where))
    zone = files.call("tell the encryption zone of", path, lambda: system.getEZForPath(where))
    return Storage(
        str(policy.getName()),
        "" if erasure is None else str(erasure.getName()),
        "" if zone is None else str(zone.getPath()),
    )


def keep_storage(files: HadoopFiles, source: str, target: str) -> None:
    """Give a folder the storage settings of another one; create it if its settings would differ.

    Args:
        files: the file system of both folders.
        source: the folder whose settings are copied.
        target: a folder that is empty or does not exist.

    Raises:
        VerificationError: they are in different encryption zones, or still differ after the settings were set.
        SparkcryptError: this user may not set them.
    """
    wanted, found = storage_of(files, source), storage_of(files, target)
    if wanted.zone != found.zone:
        raise VerificationError(
            f"{source}: lies in {_zone(wanted)}, and {target}, where its new files are made, in {_zone(found)}, so "
            "what the zone protects would leave it, and no rename leads across; make a zone of the folder above the "
            "table instead"
        )
    if wanted == found:
        return
    files.make_folder(target)
    system, where = _on_hdfs(files, target)
    if wanted.policy != found.policy:
        files.call("set the storage policy of", target, lambda: system.setStoragePolicy(where, wanted.policy))
    if wanted.erasure_coding != found.erasure_coding:
        name = wanted.erasure_coding or _REPLICATION
        files.call("set the erasure coding policy of", target, lambda: system.setErasureCodingPolicy(where, name))
    found = storage_of(files, target)
    if wanted != found:
        raise VerificationError(
            f"{target}: is kept as {found}, and {source} as {wanted}; give both one policy, then run again"
        )


def _zone(storage: Storage) -> str:
    return f"the encryption zone {storage.zone}" if storage.zone else "no encryption zone"


def _on_hdfs(files: HadoopFiles, path: str) -> tuple[Any, Any]:
    """Return HDFS's file system and the path of the nearest existing folder; None, None on other file systems."""
    if hadoop_local_path(path) is not None:
        return None, None
    system, where = files.locate(path)
    while not files.call("look for", path, partial(system.exists, where)):
        where = where.getParent()
    behind = files.call("resolve", path, lambda: system.resolvePath(where))  # for example through a mount table
    system, where = files.locate(str(behind.toString()))
    return (system, where) if files.is_a(system, _HDFS) else (None, None)

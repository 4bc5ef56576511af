"""How HDFS keeps what is in a folder: on which media, replicated or erasure-coded, and in which encryption zone.

New files take all of it from the folder in which they are made, so a copy beside a table may lie otherwise than the
table does: on fast disks what belongs to the archive, or outside of the encryption zone what must not leave it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from sparkcrypt.errors import VerificationError
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.files.status import local_path

_HDFS = "org.apache.hadoop.hdfs.DistributedFileSystem"
_REPLICATION = "REPLICATION"
"""What HDFS calls the policy of a folder that has none, though one above it has (SystemErasureCodingPolicies)."""


@dataclass(frozen=True, slots=True)
class Storage:
    """In effect in a folder, its own or inherited; empty on file systems other than HDFS, or where there is none.

    Attributes:
        policy: name of the storage policy, such as ``COLD``.
        erasure_coding: name of the erasure coding policy.
        zone: the folder that is the encryption zone.
    """

    policy: str = ""
    erasure_coding: str = ""
    zone: str = ""


def storage_of(files: HadoopFiles, path: str) -> Storage:
    """Return how files are kept that are made in a folder, which need not be there yet."""
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
    """See that files which are made in one folder will be kept as those of another; it is made where it must differ.

    Args:
        files: of both.
        source: a folder.
        target: a folder that is empty or not there.

    Raises:
        VerificationError: they lie in different encryption zones, or this user may not set what they differ in.
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
    """Return HDFS's own file system and path behind the nearest folder that is there; None, None on other systems."""
    if local_path(path) is not None:
        return None, None
    system, where = files.locate(path)
    while not files.call("look for", path, partial(system.exists, where)):
        where = where.getParent()
    behind = files.call("resolve", path, lambda: system.resolvePath(where))  # of a mount table, for one
    system, where = files.locate(str(behind.toString()))
    return (system, where) if files.is_a(system, _HDFS) else (None, None)

"""Stores whose table no longer exists: folders below the policy's folder of stores, named by a UUID of no table."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from sparkcrypt.paths import is_within, split_path
from sparkcrypt.policy.model import Policy
from sparkcrypt.skipping.trusted.sidecar import SIDECAR
from sparkcrypt.spark.files.hadoop import HadoopFiles

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def find_gone_stores(files: HadoopFiles, policy: Policy, uuids: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the folder of each store whose table no longer exists, and why it is listed.

    Args:
        files: the file system.
        policy: has the folder of stores.
        uuids: the UUIDs of all tables of the metastore.
    """
    place = policy.index_location
    if place is None:
        return
    place = place if split_path(place)[0] else f"file://{place}"
    for child in files.children(place) if files.exists(place) else ():
        if child.name not in uuids and _UUID.fullmatch(child.name) and files.exists(f"{child.path}/{SIDECAR}"):
            yield (
                child.path,
                f"a store for data skipping, and no table of this metastore has the UUID {child.name}; once no other "
                f"metastore has it either: `sparkcrypt index drop --uuid {child.name}`",
            )


def holds_stores(policy: Policy, folder: str) -> bool:
    """Return whether a folder is the policy's folder of stores, inside it or above it."""
    place = policy.index_location
    return place is not None and (is_within(folder, place) or is_within(place, folder))

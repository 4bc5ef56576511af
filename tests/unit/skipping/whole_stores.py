"""Writes and opens whole stores at once, as tests of small ones do."""

from __future__ import annotations

from collections.abc import Mapping

from sparkcrypt.files.parquet.file.modules import RetrieveKey
from sparkcrypt.skipping.format.store import Store
from sparkcrypt.skipping.format.values import Budget
from sparkcrypt.skipping.trusted.folder import StoreFolder
from sparkcrypt.skipping.trusted.sidecar import ObjectFacts, Sidecar, StoreIdentity, StoreKeys, new_digest_key
from sparkcrypt.skipping.trusted.trust import Expected, TrustedStore, open_manifest, read_store
from sparkcrypt.skipping.trusted.write import open_writer


def open_store(
    folder: StoreFolder, retrieve_key: RetrieveKey, expected: Expected, *, budget: Budget | None = None
) -> TrustedStore:
    """Open a store and read it as a whole."""
    return read_store(folder, open_manifest(folder, retrieve_key, expected), retrieve_key, expected, budget or Budget())


def write_store(
    folder: StoreFolder, store: Store, objects: Mapping[str, ObjectFacts], keys: StoreKeys, identity: StoreIdentity
) -> Sidecar:
    """Write a store that is in memory, in place of the existing one."""
    with open_writer(folder, store, keys, identity) as writer:
        writer.carry((store,), {name: (name, facts) for name, facts in objects.items()})
        return writer.finish(digest_key=new_digest_key(), fixed_values={})

"""Moves a store's entries to new files that were proven to contain the rows of indexed ones, without reading a row.

The entries of an old file become those of the new one.  The whole store is written under the next generation, with each
index under its column's current key, so that no index stays under a key that its column no longer has.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sparkcrypt.skipping.indexes.refresh import refuse_denied_indexes
from sparkcrypt.skipping.trusted.folder import StoreFolder
from sparkcrypt.skipping.trusted.sidecar import ObjectFacts, Sidecar
from sparkcrypt.skipping.trusted.store_keys import StoreIdentity, StoreKeys
from sparkcrypt.skipping.trusted.trust import TrustedStore
from sparkcrypt.skipping.trusted.write import open_writer


@dataclass(frozen=True, slots=True)
class NewObject:
    """A file that contains the rows of an indexed one: its name in the store, and its facts."""

    name: str
    facts: ObjectFacts


def carry_store(
    folder: StoreFolder,
    opened: TrustedStore,
    renamed: Mapping[str, NewObject],
    removed: Collection[str],
    keys: StoreKeys,
    *,
    generation: int = 0,
) -> Sidecar:
    """Write the next generation of a store with the new names of its objects.

    Args:
        folder: the store's folder.
        opened: the store, with all its indexes.
        renamed: object -> the file that was proven to contain its rows.
        removed: objects whose entries are dropped.
        keys: the keys to encrypt with; indexes of columns that it does not name are under the footer's key.
        generation: the last generation recorded elsewhere; the new store's is later.

    Returns:
        The new sidecar.

    Raises:
        KeyAccessDeniedError: the key of an index is denied, so its entries cannot be copied.
        As `open_writer`, and as reading a part.
    """
    refuse_denied_indexes(opened)
    sidecar = opened.sidecar
    identity = StoreIdentity(sidecar.table_uuid, max(generation, sidecar.generation) + 1)
    with open_writer(folder, opened.store, keys, identity) as writer:
        now = {name: renamed.get(name) or NewObject(name, facts) for name, facts in sidecar.objects.items()}
        kept = {name: (new.name, new.facts) for name, new in now.items() if name not in removed}
        writer.carry(opened.parts(), kept)
        return writer.finish(digest_key=sidecar.digest_key, fixed_values=sidecar.given)

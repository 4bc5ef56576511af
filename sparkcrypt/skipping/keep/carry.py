"""Carries a store over to the new names of files that were proven to hold the rows of old ones; no row is read.

What the store says of an old file is said of the new one.  The store is written whole, under the next generation, and
each index under the key that its column has now, so that none stays under a key that was taken from its column.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from sparkcrypt.skipping.format.merge import Store
from sparkcrypt.skipping.keep.refresh import refuse_denied_indexes
from sparkcrypt.skipping.trusted.folder import StoreFolder
from sparkcrypt.skipping.trusted.sidecar import ObjectFacts, Sidecar
from sparkcrypt.skipping.trusted.trust import TrustedStore
from sparkcrypt.skipping.trusted.write import StoreIdentity, StoreKeys, write_store


@dataclass(frozen=True, slots=True)
class NewObject:
    """A file that holds the rows of one that was indexed: its name in the store, and what it is."""

    name: str
    facts: ObjectFacts


def carry_store(
    folder: StoreFolder,
    opened: TrustedStore,
    renamed: Mapping[str, NewObject],
    gone: Collection[str],
    keys: StoreKeys,
    *,
    generation: int = 0,
) -> Sidecar:
    """Write a store anew, with the new names of its objects.

    Args:
        folder: of the store.
        opened: the store, with all its indexes.
        renamed: object -> the file that was proven to hold its rows.
        gone: objects that nothing is known of any more.
        keys: to encrypt with; a column that it does not name has its indexes under the footer's key.
        generation: the last one that is known elsewhere; the new store's is later.

    Returns:
        The sidecar, as it was written.

    Raises:
        KeyAccessDeniedError: an index cannot be carried over without its key.
        As `write_store`.
    """
    refuse_denied_indexes(opened)
    sidecar = opened.sidecar
    objects = {
        renamed[name].name if name in renamed else name: renamed[name].facts if name in renamed else facts
        for name, facts in sidecar.objects.items()
        if name not in gone
    }
    return write_store(
        folder,
        _rename_objects(opened.store, renamed, gone),
        objects,
        keys,
        StoreIdentity(sidecar.table_uuid, max(generation, sidecar.generation) + 1),
        digest_key=sidecar.digest_key,
        given=sidecar.given,
    )


def _rename_objects(store: Store, renamed: Mapping[str, NewObject], gone: Collection[str]) -> Store:
    kept = [row for row, name in enumerate(store.objects) if name not in gone]
    names = [store.objects[row] for row in kept]
    return replace(
        store,
        objects=tuple([renamed[name].name if name in renamed else name for name in names]),
        partitions=tuple((column, tuple([values[row] for row in kept])) for column, values in store.partitions),
        indexes=tuple(replace(held, entries=tuple([held.entries[row] for row in kept])) for held in store.indexes),
    )

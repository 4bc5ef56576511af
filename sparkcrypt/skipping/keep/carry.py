"""Carries a store over to the new names of files that were proven to hold the rows of old ones; no row is read.

What the store says of an old file is said of the new one.  The store is written whole, under the next generation, and
each index under the key that its column has now, so that none stays under a key that was taken from its column.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sparkcrypt.skipping.keep.refresh import refuse_denied_indexes
from sparkcrypt.skipping.trusted.folder import StoreFolder
from sparkcrypt.skipping.trusted.sidecar import ObjectFacts, Sidecar
from sparkcrypt.skipping.trusted.store_keys import StoreIdentity, StoreKeys
from sparkcrypt.skipping.trusted.trust import TrustedStore
from sparkcrypt.skipping.trusted.write import open_writer


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
        As `open_writer`, and what reading a part raises.
    """
    refuse_denied_indexes(opened)
    sidecar = opened.sidecar
    identity = StoreIdentity(sidecar.table_uuid, max(generation, sidecar.generation) + 1)
    with open_writer(folder, opened.store, keys, identity) as writer:
        now = {name: renamed.get(name) or NewObject(name, facts) for name, facts in sidecar.objects.items()}
        kept = {name: (new.name, new.facts) for name, new in now.items() if name not in gone}
        writer.carry(opened.parts(), kept)
        return writer.finish(digest_key=sidecar.digest_key, given=sidecar.given)

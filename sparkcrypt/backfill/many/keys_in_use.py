"""The master keys that tables of a state directory use, by the footers that runs last read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from sparkcrypt.backfill.drift.cache import FooterCache
from sparkcrypt.backfill.journal.journal import Journal
from sparkcrypt.backfill.report.amount import Amount
from sparkcrypt.backfill.state.store import StateStore
from sparkcrypt.errors import ConfigError, VerificationError
from sparkcrypt.keys.material import Wrapping
from sparkcrypt.native.footers import FooterFacts


@dataclass(slots=True)
class KeyUse:
    """The use of one master key by one table.

    Attributes:
        amount: the files with a data key under it.
        by_kinds: types of key services -> files whose data keys are wrapped in the form of each of these; a type is
            empty if it is not known.
        by_versions: versions -> files with data keys under each of these; a version is 0 if it is not known.
        wrappings: the texts that it wrapped for these files; a reader makes one call for each.
    """

    amount: Amount = field(default_factory=Amount)
    by_kinds: dict[frozenset[str], Amount] = field(default_factory=dict)
    by_versions: dict[frozenset[int], Amount] = field(default_factory=dict)
    wrappings: set[Wrapping] = field(default_factory=set)

    @property
    def versions(self) -> frozenset[int]:
        """The versions under which files have a data key; 0 stands for those that are not known."""
        return frozenset().union(*self.by_versions)

    def older_than(self, version: int) -> Amount:
        """Return the files with a data key under a version that is known to be lower."""
        return sum(
            (found for used, found in self.by_versions.items() if any(0 < known < version for known in used)), Amount()
        )

    def of_version(self, version: int) -> Amount:
        """Return the files with a data key under a version; 0 stands for those that are not known."""
        return sum((found for versions, found in self.by_versions.items() if version in versions), Amount())

    def of_kinds(self, kinds: Collection[str]) -> Amount:
        """Return the files with a data key that is wrapped in the form of one of these types of key services."""
        return sum((found for forms, found in self.by_kinds.items() if not forms.isdisjoint(kinds)), Amount())


@dataclass(frozen=True, slots=True)
class TableUse:
    """The master keys of one table.

    Attributes:
        table_id: its id in the state directory.
        table: its name, or the folder, in its last readable journal; None if there is none.
        keys: master key id -> its use.
        kept: the `key_digest` of each master key under which the state directory stores a KEK for the table.
    """

    table_id: str
    table: str | None
    keys: Mapping[str, KeyUse]
    kept: frozenset[str]

    @property
    def name(self) -> str:
        """The table's name for messages."""
        return self.table or self.table_id


def list_key_uses(store: StateStore) -> Iterator[TableUse]:
    """Yield the tables of a state directory, which runs have rewritten or surveyed, in the order of their ids."""
    ids = {name.split("/")[1] for kind in ("footers/", "keks/", "runs/", "archive/") for name in store.list(kind)}
    for table_id in sorted(ids):
        yield read_key_use(store, table_id)


def read_key_use(store: StateStore, table_id: str) -> TableUse:
    """Return the use of master keys by one table, from the state directory."""
    keys: dict[str, KeyUse] = {}
    for _, lengths, facts in FooterCache(store, table_id, keeps=False).read_all():
        for path, known in facts.items():
            _count(keys, known, lengths[path])
    return TableUse(table_id, _find_name(store, table_id), keys, _list_kept(store, table_id))


def _count(keys: dict[str, KeyUse], known: FooterFacts, length: int) -> None:
    amount = Amount(1, length)
    for key_id in {wrapping.key_id for wrapping in known.summary.wrappings}:
        use = keys.setdefault(key_id, KeyUse())
        own = [wrapping for wrapping in known.summary.wrappings if wrapping.key_id == key_id]
        use.amount += amount
        use.wrappings.update(own)
        kinds, versions = frozenset(wrapping.kind for wrapping in own), frozenset(wrapping.version for wrapping in own)
        use.by_kinds[kinds] = use.by_kinds.get(kinds, Amount()) + amount
        use.by_versions[versions] = use.by_versions.get(versions, Amount()) + amount


def _list_kept(store: StateStore, table_id: str) -> frozenset[str]:
    """Return the digests of the master keys under which KEKs are stored for a table."""
    names = store.list(f"keks/{table_id}/")
    return frozenset(name.split("/")[2].partition("-")[0] for name in names)


def _find_name(store: StateStore, table_id: str) -> str | None:
    for run_id in reversed(Journal.runs(store, table_id)):
        try:
            return Journal.open(store, table_id, run_id).run.table
        except (ConfigError, VerificationError):
            continue  # commands that act on the journal report the error
    return None

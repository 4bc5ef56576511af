"""Which master keys the tables of a state directory hold, by what their footers said when they were read last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sparkcrypt.backfill.drift.cache import FooterCache
from sparkcrypt.backfill.journal.journal import Journal
from sparkcrypt.backfill.report.amount import Amount
from sparkcrypt.backfill.state.store import StateStore
from sparkcrypt.errors import VerificationError
from sparkcrypt.keys.material import Wrapping
from sparkcrypt.native.footers import FooterFacts


@dataclass(slots=True)
class KeyUse:
    """What of one table is under one master key.

    Attributes:
        amount: files of which a data key is under it.
        by_kind: type of key service -> files of which a data key has the form of it; empty where nobody can tell.
        by_version: version -> files of which a data key is under that version; 0 where nobody can tell.
        wrappings: what it wrapped for these files: a reader makes a call for each.
    """

    amount: Amount = field(default_factory=Amount)
    by_kind: dict[str, Amount] = field(default_factory=dict)
    by_version: dict[int, Amount] = field(default_factory=dict)
    wrappings: set[Wrapping] = field(default_factory=set)

    def older_than(self, version: int) -> Amount:
        """Return the files under versions that are known to be older."""
        return sum((amount for told, amount in self.by_version.items() if 0 < told < version), Amount())


@dataclass(frozen=True, slots=True)
class TableUse:
    """The master keys of one table.

    Attributes:
        table_id: as the state directory calls it.
        table: its name when its last run was made, or the folder; None where no journal tells.
        keys: master key id -> what is under it.
        kept: of which master keys the state directory keeps a KEK for the table, as `key_digest` calls them.
    """

    table_id: str
    table: str | None
    keys: Mapping[str, KeyUse]
    kept: frozenset[str]

    @property
    def name(self) -> str:
        """What people are told of it."""
        return self.table or self.table_id


def list_key_uses(store: StateStore) -> Iterator[TableUse]:
    """Yield the tables that the state directory knows: on which runs worked, or looked; in order of their ids."""
    ids = {name.split("/")[1] for kind in ("footers/", "keks/", "runs/", "archive/") for name in store.list(kind)}
    for table_id in sorted(ids):
        yield read_key_use(store, table_id)


def read_key_use(store: StateStore, table_id: str) -> TableUse:
    """Return what the state directory knows of the keys of one table."""
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
        for kind in {wrapping.kind for wrapping in own}:
            use.by_kind[kind] = use.by_kind.get(kind, Amount()) + amount
        for version in {wrapping.version for wrapping in own}:
            use.by_version[version] = use.by_version.get(version, Amount()) + amount


def _list_kept(store: StateStore, table_id: str) -> frozenset[str]:
    """Return the digests of master keys for which KEKs are kept."""
    names = store.list(f"keks/{table_id}/")
    return frozenset(name.split("/")[2].partition("-")[0] for name in names)


def _find_name(store: StateStore, table_id: str) -> str | None:
    for run_id in reversed(Journal.runs(store, table_id)):
        try:
            return Journal.open(store, table_id, run_id).run.table
        except VerificationError:
            continue  # whoever acts on its records says so
    return None

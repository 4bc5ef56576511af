"""The master keys that tables use, by facts of footers: of those that a state directory has, or of others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkcrypt.errors import ConfigError, VerificationError
from sparkcrypt.files.footers import FooterFacts
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.keys.ids import key_digest
from sparkcrypt.keys.material import Wrapping
from sparkcrypt.ledger.journal.journal import Journal
from sparkcrypt.ledger.log import TableLog
from sparkcrypt.ledger.state.mac import is_mac_key
from sparkcrypt.ledger.state.store import StateStore, decode_record
from sparkcrypt.runs.table.amount import Amount
from sparkcrypt.runs.table.cache import FooterCache
from sparkcrypt.text import count_of


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

    def count_below(self, version: int) -> Amount:
        """Return the files with a data key under a lower version, or under one that is not known."""
        return sum((found for used, found in self.by_versions.items() if min(used) < version), Amount())

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
        sources: the tables and folders from which its columns were derived, by the lineage in its files.
    """

    table_id: str
    table: str | None
    keys: Mapping[str, KeyUse]
    kept: frozenset[str]
    sources: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """The table's name for messages."""
        return self.table or self.table_id

    def holds(self, key_id: str) -> bool:
        """Tell whether a file has a key under a master key, or the state directory stores a KEK under it."""
        return key_id in self.keys or key_digest(key_id) in self.kept


def list_table_ids(store: StateStore) -> tuple[str, ...]:
    """Return the ids of the tables and folders that a state directory knows, sorted."""
    kinds = ("cache/footers/", "keys/keks/")
    return tuple(sorted({name.removeprefix(kind).partition("/")[0] for kind in kinds for name in store.list(kind)}))


def list_key_uses(store: StateStore) -> Iterator[TableUse]:
    """Yield the tables of a state directory, as it last knew them, in the order of their ids."""
    for table_id in list_table_ids(store):
        yield read_key_use(store, table_id)


def read_key_use(store: StateStore, table_id: str) -> TableUse:
    """Return the use of master keys by one table, from the state directory."""
    cache = FooterCache(store, table_id, keeps=False)
    found = ((facts[path], lengths[path]) for _, lengths, facts in cache.read_all() for path in facts)
    return count_uses(store, table_id, _find_name(store, table_id), found)


def has_key_records(store: StateStore) -> bool:
    """Return whether a state directory knows anything that is under a master key."""
    return bool(list_table_ids(store) or _list_mac_keys(store))


def find_uses_of_keys(store: StateStore, key_ids: Collection[str]) -> dict[str, str]:
    """Return for master keys what the state directory knows under each, as text for messages; others are left out.

    Raises:
        VerificationError: the record of a MAC key is damaged.
    """
    found, by_digest = dict[str, str](), {key_digest(key_id): key_id for key_id in key_ids}
    wanted = frozenset(key_ids)
    for use in list_key_uses(store):
        held = {*(use.keys.keys() & wanted), *(by_digest[digest] for digest in use.kept & by_digest.keys())}
        found |= dict.fromkeys(held, f"table {use.name} uses it")
    for name in _list_mac_keys(store):
        wrapping = str(decode_record(name, store.read(name) or b"").get("key_id"))
        if wrapping in key_ids:
            found.setdefault(wrapping, f"{name} is under it, without which that audit cannot be verified")
    return {key_id: found[key_id] for key_id in key_ids if key_id in found}


def _list_mac_keys(store: StateStore) -> tuple[str, ...]:
    return tuple(name for name in store.list("keys/macs/") if is_mac_key(name.rpartition("/")[2]))


def count_uses(
    store: StateStore, table_id: str, name: str | None, found: Iterable[tuple[FooterFacts, int]]
) -> TableUse:
    """Return the use of master keys by one table.

    Args:
        store: the state directory, which stores KEKs.
        table_id: the id of the table.
        name: its name; None if it is not known.
        found: the facts of each file's footer, and the file's length.
    """
    keys: dict[str, KeyUse] = {}
    sources: set[str] = set()
    for facts, length in found:
        _count(keys, facts, length)
        sources.update(table for note in facts.lineage for table, _ in note.sources)
    return TableUse(table_id, name, keys, _list_kept(store, table_id), frozenset(sources))


def _count(keys: dict[str, KeyUse], known: FooterFacts, length: int) -> None:
    amount = Amount(1, length)
    by_key: dict[str, list[Wrapping]] = {}
    for wrapping in known.summary.wrappings:
        by_key.setdefault(wrapping.key_id, []).append(wrapping)
    for key_id, own in by_key.items():
        use = keys.setdefault(key_id, KeyUse())
        use.amount += amount
        use.wrappings.update(own)
        kinds, versions = frozenset(wrapping.kind for wrapping in own), frozenset(wrapping.version for wrapping in own)
        use.by_kinds[kinds] = use.by_kinds.get(kinds, Amount()) + amount
        use.by_versions[versions] = use.by_versions.get(versions, Amount()) + amount


def _list_kept(store: StateStore, table_id: str) -> frozenset[str]:
    """Return the digests of the master keys under which KEKs are stored for a table."""
    names = store.list(f"keys/keks/{table_id}/")
    return frozenset(name.split("/")[3].partition("-")[0] for name in names)


def _find_name(store: StateStore, table_id: str) -> str | None:
    log = TableLog.open(store, table_id, None)
    for run_id in reversed(Journal.runs(log)):
        try:
            return Journal.open(log, run_id).run.table
        except (ConfigError, VerificationError):
            continue  # commands that act on the journal report the error
    return FooterCache(store, table_id, keeps=False).find_name()


@dataclass(frozen=True, slots=True)
class RecordedPlace(JsonObject):
    """A table or folder that only a record names, such as a table that was dropped: nobody can tell its keys now.

    Attributes:
        name: the table or the folder.
        reason: the record that names it.
        key_ids: the master keys that it may use.
    """

    name: str
    reason: str
    key_ids: frozenset[str]

    def to_text(self) -> str:
        """Return it as a sentence."""
        return f"{self.name}: {self.reason}; it is no table of this catalog, and was not looked at"


@dataclass(slots=True)
class Coverage:
    """What a search for keys in use has looked at, and what it has not.

    Attributes:
        tables: the number of tables and folders of which every footer was read.
        files: the number of their files.
        not_looked_at: table or folder -> why nobody can tell all of its keys.
        passed_over: view, or table of another format -> the reason.
        left_out: the tables that the operator left out.
        by_record: what only records name.
    """

    tables: int = 0
    files: int = 0
    not_looked_at: dict[str, str] = field(default_factory=dict)
    passed_over: dict[str, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    by_record: list[RecordedPlace] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "tables": self.tables,
            "files": self.files,
            "not_looked_at": [{"table": table, "reason": reason} for table, reason in self.not_looked_at.items()],
            "passed_over": [{"table": table, "reason": reason} for table, reason in self.passed_over.items()],
            "left_out": self.left_out,
            "by_record": [place.to_dict() for place in self.by_record],
        }

    def to_lines(self) -> list[str]:
        """Return the sums as a line for people, and a line for each table that was not looked at."""
        away = f"; skipped: {count_of(len(self.passed_over), 'other')} (views and other formats)"
        sums = f"looked at {count_of(self.tables, 'table')} of the catalog, {count_of(self.files, 'file')}"
        left = f"; left out: {', '.join(self.left_out)}" if self.left_out else ""
        named = [f"NOT looked at: {table}: {reason}" for table, reason in self.not_looked_at.items()]
        return [f"{sums}{away if self.passed_over else ''}{left}", *named]

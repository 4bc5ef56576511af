"""The cache of footers in the state directory, so that a later pass reads only those of new and changed files.

    cache/footers/<table id>/records/00000003.json     version, table, units: name -> stamps, packed
    cache/footers/<table id>/index/00000001.json       version, last, units: number of a record -> names

A record contains the facts of the files of the units that were read together, with their lengths and modification
times; for a unit, the newest record that names it counts.  The index says which that is, up to its last record; later
ones are read where the cache is opened, until there are so many that a new index is worth its bytes.  Then records
without a unit of their own are deleted.  Where units that are read together are in many records, all of them are
written into a new one.

The cache is trusted only for planning: before a unit is rewritten its footers are read again, since anyone who can
replace a file can also give it the old length and time.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from sparkcrypt.files.footers import FooterFacts, Found, pack, unpack
from sparkcrypt.ledger.state.store import LatestRecord, StateStore
from sparkcrypt.ledger.unit import Unit
from sparkcrypt.spark.files.listing import SourceFile

VERSION = 8
RECORD_BYTES = 8 * 1024 * 1024
"""A record is ended when it is as large."""
MOST_RECORDS = 16
"""From how many records units that are read together may come, and how many may be later than a small index."""


class FooterCache:
    """The cached facts of one table; for one thread at a time.

    Args:
        store: the state directory.
        table_id: the table's id.
        name: the table's name, or the folder, which is kept with the facts for messages.
        keeps: whether new facts are stored; False for commands that change nothing.
    """

    def __init__(self, store: StateStore, table_id: str, *, name: str | None = None, keeps: bool = True) -> None:
        self._store, self._name, self._keeps = store, name, keeps
        self._folder = f"cache/footers/{table_id}/records/"
        self._index = LatestRecord(store, f"cache/footers/{table_id}/index/")
        self._records: dict[str, int] | None = None
        self._last = self._indexed = self._live = 0

    def find_known(self, units: Sequence[Unit]) -> dict[str, dict[str, Found]]:
        """Return, by the names of units, the facts of those of their files that have not changed since they were read.

        A file with external key material is read again, since that may have changed without the file.
        """
        sources = {unit.name: unit.files for unit in units}
        return {
            name: {
                source.path: facts[source.path]
                for source in sources[name]
                if source.path in facts
                and stamps.get(source.path) == [source.length, source.modified_ms]
                and not _is_external(facts[source.path])
            }
            for name, stamps, facts in self._read(sources)
        }

    def read_all(self) -> Iterator[tuple[str, Mapping[str, int], Mapping[str, FooterFacts]]]:
        """Yield each cached unit: its name, and the lengths and the facts of its files.

        The unit and the files may no longer exist.
        """
        for unit, stamps, facts in self._read(self._open()):
            footers = {
                path: found for path, found in facts.items() if isinstance(found, FooterFacts) and path in stamps
            }
            yield unit, {path: int(stamps[path][0]) for path in footers}, footers

    def keep(self, units: Sequence[Unit], found: Mapping[str, Mapping[str, Found]], new: Collection[str]) -> None:
        """Store the facts of units' files; files that could not be read are read again the next time.

        Args:
            units: the units that were read together.
            found: name of a unit -> path -> the facts or the error of each of its files.
            new: the names of the units of which files were read anew.
        """
        if not self._keeps:
            return
        records = self._open()
        is_scattered = len({records[unit.name] for unit in units if unit.name in records}) > MOST_RECORDS
        described, size = dict[str, Any](), 0
        for unit in units:
            if unit.name in new or is_scattered:
                described[unit.name] = _describe(unit.files, found[unit.name])
                size += len(described[unit.name]["packed"])
                if size > RECORD_BYTES:
                    self._write(described)
                    described, size = {}, 0
        if described:
            self._write(described)

    def find_name(self) -> str | None:
        """Return the name that was kept with the facts of some unit; None if there is none."""
        for record in self._store.list(self._folder):
            with contextlib.suppress(ValueError, AttributeError):
                name = json.loads(self._store.read(record) or b"{}").get("table")
                if isinstance(name, str):
                    return name
        return None

    def _read(self, names: Iterable[str]) -> Iterator[tuple[str, Mapping[str, Sequence[int]], Mapping[str, Found]]]:
        """Yield what is kept of units: name, stamps and facts; each record is read once."""
        records, wanted = self._open(), dict[int, list[str]]()
        for name in names:
            if name in records:
                wanted.setdefault(records[name], []).append(name)
        for number, of_record in wanted.items():
            kept = self._read_units(number)
            for name in of_record:
                with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError):
                    stamps, packed = kept[name]["stamps"], kept[name]["packed"]
                    yield name, dict(stamps), unpack(packed)

    def _open(self) -> dict[str, int]:
        """Return name of a unit -> number of the record that counts for it."""
        if self._records is None:
            self._indexed, self._records = self._read_index()
            self._last, self._live = self._indexed, len(set(self._records.values()))
            for number in self._list_numbers():
                if number > self._indexed:
                    self._take(number, self._read_units(number))
        return self._records

    def _take(self, number: int, units: Iterable[str]) -> None:
        self._open().update(dict.fromkeys(units, number))
        self._last = number

    def _read_index(self) -> tuple[int, dict[str, int]]:
        for content in self._index.read():
            with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError):
                members = _parse(content)
                units = {str(unit): int(number) for number, named in members["units"].items() for unit in named}
                return int(members["last"]), units
        return 0, {}

    def _read_units(self, number: int) -> Mapping[str, Any]:
        """Return name of a unit -> what is kept of it; nothing if a record is damaged: its files are read again."""
        with contextlib.suppress(ValueError, LookupError, TypeError):
            units = _parse(self._store.read(self._name_of(number)) or b"")["units"]
            return units if isinstance(units, dict) else {}
        return {}

    def _list_numbers(self) -> list[int]:
        names = (name.removeprefix(self._folder).removesuffix(".json") for name in self._store.list(self._folder))
        return sorted(int(name) for name in names if name.isdecimal())  # what is no record, such as a copy, is left

    def _name_of(self, number: int) -> str:
        return f"{self._folder}{number:08d}.json"

    def _write(self, described: Mapping[str, Any]) -> None:
        content = json.dumps({"version": VERSION, "table": self._name, "units": described}).encode()
        records = self._open()
        while not self._store.create(self._name_of(self._last + 1), content):
            self._take(self._last + 1, self._read_units(self._last + 1))  # another driver was first
        self._take(self._last + 1, described)
        if self._last - self._indexed >= max(MOST_RECORDS, self._live // 4):
            self._write_index(records)

    def _write_index(self, records: Mapping[str, int]) -> None:
        """Write a new index, and delete the records that no longer count for a unit."""
        units = dict[int, list[str]]()
        for unit, number in records.items():
            units.setdefault(number, []).append(unit)
        self._index.replace(json.dumps({"version": VERSION, "last": self._last, "units": units}).encode())
        self._indexed, self._live = self._last, len(units)
        for number in self._list_numbers():
            if number <= self._last and number not in units:
                self._store.delete(self._name_of(number))


def _is_external(found: Found) -> bool:
    return isinstance(found, FooterFacts) and found.summary.external_material


def _describe(sources: Sequence[SourceFile], found: Mapping[str, Found]) -> dict[str, Any]:
    facts = {source.path: found[source.path] for source in sources if isinstance(found.get(source.path), FooterFacts)}
    stamps = {source.path: [source.length, source.modified_ms] for source in sources if source.path in facts}
    return {"stamps": stamps, "packed": pack(facts)}


def _parse(content: bytes) -> dict[str, Any]:
    """Return the members of a record or an index.

    Raises:
        ValueError: it is damaged, or of another version.
    """
    members = json.loads(content)
    if not isinstance(members, dict) or members.get("version") != VERSION:
        raise ValueError
    return members

"""The cache of footers in the state directory, so that a later pass reads only those of new and changed files.

    cache/footers/<table id>/<digest of the unit's name>/00000003.json

A record contains the facts of one unit's files with their length and modification time; a newer one replaces it.  It is
trusted only for planning: before a unit is rewritten its footers are read again, since anyone who can replace a file
can also give it the old length and time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence

from sparkcrypt.files.footers import FooterFacts, Found, pack, unpack
from sparkcrypt.ledger.state.store import LatestRecord, StateStore
from sparkcrypt.spark.files.listing import SourceFile

VERSION = 7


class FooterCache:
    """The cached facts of one table.

    Args:
        store: the state directory.
        table_id: the table's id.
        name: the table's name, or the folder, which is kept with the facts for messages.
        keeps: whether new facts are stored; False for commands that change nothing.
    """

    def __init__(self, store: StateStore, table_id: str, *, name: str | None = None, keeps: bool = True) -> None:
        self._store, self._folder, self._name, self._keeps = store, f"cache/footers/{table_id}", name, keeps

    def find_known(self, unit: str, sources: Sequence[SourceFile]) -> dict[str, Found]:
        """Return the facts of those files of a unit that have not changed since they were read.

        A file with external key material is read again, since that may have changed without the file.
        """
        kept = self._read_newest(unit)
        if kept is None:
            return {}
        stamps, facts = kept
        return {
            source.path: facts[source.path]
            for source in sources
            if source.path in facts
            and stamps.get(source.path) == [source.length, source.modified_ms]
            and not _is_external(facts[source.path])
        }

    def read_all(self) -> Iterator[tuple[str, Mapping[str, int], Mapping[str, FooterFacts]]]:
        """Yield each cached unit: its name, and the lengths and the facts of its files.

        The unit and the files may no longer exist.
        """
        folders = {name.rpartition("/")[0] for name in self._store.list(f"{self._folder}/")}
        for folder in sorted(folders):
            for content in LatestRecord(self._store, f"{folder}/").read():
                kept = _parse_record(content)
                if kept is not None:
                    unit, stamps, facts = kept
                    footers = {
                        path: found
                        for path, found in facts.items()
                        if isinstance(found, FooterFacts) and path in stamps
                    }
                    yield unit, {path: int(stamps[path][0]) for path in footers}, footers
                    break

    def keep(self, unit: str, sources: Sequence[SourceFile], found: Mapping[str, Found]) -> None:
        """Store the facts of a unit's files; files that could not be read are read again the next time."""
        if not self._keeps:
            return
        facts = {
            source.path: found[source.path] for source in sources if isinstance(found.get(source.path), FooterFacts)
        }
        stamps = {source.path: [source.length, source.modified_ms] for source in sources if source.path in facts}
        record = {"version": VERSION, "table": self._name, "unit": unit, "stamps": stamps, "packed": pack(facts)}
        self._record(unit).replace(json.dumps(record).encode())

    def find_name(self) -> str | None:
        """Return the name that was kept with the facts of some unit; None if there is none."""
        for record in self._store.list(f"{self._folder}/"):
            with contextlib.suppress(ValueError, AttributeError):
                name = json.loads(self._store.read(record) or b"{}").get("table")
                if isinstance(name, str):
                    return name
        return None

    def _read_newest(self, unit: str) -> tuple[dict[str, list[int]], dict[str, Found]] | None:
        for content in self._record(unit).read():
            kept = _parse_record(content)
            if kept is not None and kept[0] == unit:
                return kept[1], kept[2]
        return None

    def _record(self, unit: str) -> LatestRecord:
        return LatestRecord(self._store, f"{self._folder}/{hashlib.sha256(unit.encode()).hexdigest()[:32]}/")


def _is_external(found: Found) -> bool:
    return isinstance(found, FooterFacts) and found.summary.external_material


def _parse_record(content: bytes) -> tuple[str, dict[str, list[int]], dict[str, Found]] | None:
    """Return the contents of a record; None if it is damaged or of another version: its files are then read again."""
    with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError):
        record = json.loads(content)
        if record["version"] == VERSION:
            return str(record["unit"]), record["stamps"], unpack(record["packed"])
    return None

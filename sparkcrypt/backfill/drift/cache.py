"""What footers said when they were read last, so that a later pass reads only those of files that are new or changed.

    footers/<table id>/<digest of the unit's name>/00000003.json

A record holds the facts of one unit's files with their length and modification time; a newer one replaces it.  It is
trusted for plans alone: before a unit is rewritten its footers are read again, since whoever can replace a file can
also give it the old length and time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence

from sparkcrypt.backfill.state.latest_record import LatestRecord
from sparkcrypt.backfill.state.store import StateStore
from sparkcrypt.backfill.target.unit import SourceFile
from sparkcrypt.native.footers import FooterFacts, Found, pack, unpack

VERSION = 6


class FooterCache:
    """The cached facts of one table.

    Args:
        store: the state directory.
        table_id: which table.
        keeps: facts that are read anew are kept; False for whoever changes nothing.
    """

    def __init__(self, store: StateStore, table_id: str, *, keeps: bool = True) -> None:
        self._store, self._folder, self._keeps = store, f"footers/{table_id}", keeps

    def find_known(self, unit: str, sources: Sequence[SourceFile]) -> dict[str, Found]:
        """Return the facts of those files of a unit that have not changed since they were read.

        A file whose key material stands beside it is read again: that may have changed without it.
        """
        kept = self._newest(unit)
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
        """Yield each unit that was read before: its name, and of its files then the lengths and the facts.

        Nobody has looked whether unit and files are still there.
        """
        folders = {name.rpartition("/")[0] for name in self._store.list(f"{self._folder}/")}
        for folder in sorted(folders):
            for content in LatestRecord(self._store, f"{folder}/").read():
                kept = _understood(content)
                if kept is not None:
                    unit, stamps, facts = kept
                    known = {
                        path: found
                        for path, found in facts.items()
                        if isinstance(found, FooterFacts) and path in stamps
                    }
                    yield unit, {path: int(stamps[path][0]) for path in known}, known
                    break

    def keep(self, unit: str, sources: Sequence[SourceFile], found: Mapping[str, Found]) -> None:
        """Keep the facts of a unit's files; what could not be read is read again the next time."""
        if not self._keeps:
            return
        facts = {
            source.path: found[source.path] for source in sources if isinstance(found.get(source.path), FooterFacts)
        }
        stamps = {source.path: [source.length, source.modified_ms] for source in sources if source.path in facts}
        record = {"version": VERSION, "unit": unit, "stamps": stamps, "packed": pack(facts)}
        self._record(unit).replace(json.dumps(record).encode())

    def _newest(self, unit: str) -> tuple[dict[str, list[int]], dict[str, Found]] | None:
        for content in self._record(unit).read():
            kept = _understood(content)
            if kept is not None and kept[0] == unit:
                return kept[1], kept[2]
        return None

    def _record(self, unit: str) -> LatestRecord:
        return LatestRecord(self._store, f"{self._folder}/{hashlib.sha256(unit.encode()).hexdigest()[:32]}/")


def _is_external(found: Found) -> bool:
    return isinstance(found, FooterFacts) and found.summary.external_material


def _understood(content: bytes) -> tuple[str, dict[str, list[int]], dict[str, Found]] | None:
    """Return what a record holds; None for one that cannot be understood, so that its files are read anew."""
    with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError):
        record = json.loads(content)
        if record["version"] == VERSION:
            return str(record["unit"]), record["stamps"], unpack(record["packed"])
    return None

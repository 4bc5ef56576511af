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
from collections.abc import Mapping, Sequence

from sparkcrypt.backfill.store import StateStore
from sparkcrypt.backfill.units import SourceFile
from sparkcrypt.native.footers import FooterFacts, Found, pack, unpack

VERSION = 1


class FooterCache:
    """The cached facts of one table.

    Args:
        store: the state directory.
        table_id: which table.
        keeps: facts that are read anew are kept; False for whoever changes nothing.
    """

    def __init__(self, store: StateStore, table_id: str, *, keeps: bool = True) -> None:
        self._store, self._folder, self._keeps = store, f"footers/{table_id}", keeps

    def known(self, unit: str, sources: Sequence[SourceFile]) -> dict[str, Found]:
        """Return the facts of those files of a unit that have not changed since they were read."""
        kept = self._newest(unit)
        if kept is None:
            return {}
        stamps, facts = kept
        return {
            source.path: facts[source.path]
            for source in sources
            if source.path in facts and stamps.get(source.path) == [source.length, source.modified_ms]
        }

    def keep(self, unit: str, sources: Sequence[SourceFile], found: Mapping[str, Found]) -> None:
        """Keep the facts of a unit's files; what could not be read is read again the next time."""
        if not self._keeps:
            return
        facts = {one.path: found[one.path] for one in sources if isinstance(found.get(one.path), FooterFacts)}
        stamps = {one.path: [one.length, one.modified_ms] for one in sources if one.path in facts}
        record = {"version": VERSION, "unit": unit, "stamps": stamps, "packed": pack(facts)}
        names = self._names(unit)
        number = int(names[-1].rpartition("/")[2].removesuffix(".json")) + 1 if names else 1
        if self._store.create(f"{self._of(unit)}{number:08d}.json", json.dumps(record).encode()):
            for name in names:
                self._store.delete(name)

    def _newest(self, unit: str) -> tuple[dict[str, list[int]], dict[str, Found]] | None:
        for name in reversed(self._names(unit)):
            # What cannot be understood is read anew.
            with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError):
                record = json.loads(self._store.read(name) or b"")
                if record["version"] == VERSION and record["unit"] == unit:
                    return record["stamps"], unpack(record["packed"])
        return None

    def _names(self, unit: str) -> tuple[str, ...]:
        return self._store.list(self._of(unit))

    def _of(self, unit: str) -> str:
        return f"{self._folder}/{hashlib.sha256(unit.encode()).hexdigest()[:32]}/"

"""Known exports of columns: copies of their values in other columns, and values that were declassified.

Both are told by what writers noted: the lineage in files of tables that are known, and the access log.  Neither says of
which bucket the values were, so an export of a column is one of each of its buckets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sparkcrypt.access.read import read_declassified
from sparkcrypt.backfill.shred.scan_tables import KeyPlace, TableScan
from sparkcrypt.errors import SparkcryptError
from sparkcrypt.paths import is_within
from sparkcrypt.policy.model import Policy, TagRule, normalized_table
from sparkcrypt.text import count_of

_Column = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Export:
    """Values of a column elsewhere.

    Attributes:
        kind: ``derived``, a column of a table; ``declassified``, values that a query handed on without their tags.
        source: the column that they are of, ``db.table.column``; for values of which no table is noted their tags.
        place: ``db.table.column`` that holds them; of declassified values who took the tags off, as the log has it.
        state: what protects them there, or why they were declassified.
        count: files, or uses.
    """

    kind: Literal["derived", "declassified"]
    source: str
    place: str
    state: str
    count: int

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "kind": self.kind,
            "source": self.source,
            "place": self.place,
            "state": self.state,
            "count": self.count,
        }

    def to_text(self) -> str:
        """Return it as people read it."""
        if self.kind == "derived":
            return f"{self.place} came from {self.source}: {self.state} in {count_of(self.count, 'file')}"
        return f"{self.place} declassified values of {self.source}: {self.state!r}, {count_of(self.count, 'use')}"


def find_derived(
    scans: Iterable[TableScan], rules: Collection[TagRule], places: Iterable[tuple[TableScan, KeyPlace]]
) -> Iterator[Export]:
    """Yield the columns of known tables whose values came from columns under a key, directly or not.

    Args:
        scans: the tables, looked at.
        rules: of the key's tags; a copy under a key that they give has a bucket, and a retention, of its own.
        places: what is under the key.
    """
    known = list(scans)
    waiting: list[tuple[TableScan, str]] = []
    for scan, place in places:
        waiting += [(scan, column) for column in sorted({name.partition(".")[0] for name in place.columns})]
    seen = {(scan.name, column) for scan, column in waiting}
    while waiting:
        source, column = waiting.pop(0)
        for scan in known:
            for (table, named), made in sorted(scan.derived.items()):
                if named.lower() != column.lower() or not _is_named(table, source):
                    continue
                for (derived, key), files in sorted(made.items(), key=str):
                    kept = key is not None and any(rule.template_of(key) is not None for rule in rules)
                    if not kept and (scan.name, derived) != (source.name, column):
                        state = "not encrypted" if key is None else f"under key {key!r}"
                        names = f"{source.name}.{column}", f"{scan.name}.{derived}"
                        yield Export("derived", *names, state, files)
                    if (scan.name, derived) not in seen:
                        seen.add((scan.name, derived))
                        waiting.append((scan, derived))


def find_declassified(
    policy: Policy, tags: Iterable[str], places: Iterable[tuple[TableScan, KeyPlace]], failed: list[str]
) -> Iterator[Export]:
    """Yield the uses of ``declassify`` on columns under a key, as the policy's access log has them.

    Args:
        policy: names the log; without one nothing is noted.
        tags: of the key, by which values count of which the log names no table.
        places: what is under the key.
        failed: gets the reason where the log cannot be read.
    """
    if policy.access_log is None:
        return
    columns = {f"{scan.name}.{column}" for scan, place in places for column in place.columns}
    try:
        uses = read_declassified(Path(policy.access_log.location.removeprefix("file://")), columns, frozenset(tags))
    except SparkcryptError as error:
        failed.append(f"values that were declassified are not known: {error}")
        return
    for (source, principal, reason), count in sorted(uses.items()):
        yield Export("declassified", source, principal, reason, count)


def _is_named(noted: str, scan: TableScan) -> bool:
    """Tell whether a lineage that names a table, or the folder that was read, means this table."""
    if "/" in noted:
        return is_within(noted, scan.target.base)
    return normalized_table(noted) == normalized_table(scan.name)

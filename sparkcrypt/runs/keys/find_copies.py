"""Known exports of columns: copies of their values in other columns, and values that were declassified.

They are found in the lineage that writers recorded in files of known tables, and in the access log.  Neither contains
the bucket of the values, so an export of a column counts for each of its buckets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sparkcrypt.decide.access.read import read_declassified
from sparkcrypt.errors import SparkcryptError
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.paths import is_within
from sparkcrypt.policy.model import Policy, TagRule, normalized_table
from sparkcrypt.runs.keys.scan_tables import KeyPlace, TableScan
from sparkcrypt.tags.lineage_note import is_same_leaf
from sparkcrypt.text import count_of


@dataclass(frozen=True, slots=True)
class Export(JsonObject):
    """Values of a column outside of it.

    Attributes:
        kind: ``derived``: in another column; ``declassified``: values that a query returned without their tags.
        source: the leaf of the values, ``db.table.column``; if the log names no table, the tags of the values.
        place: for derived values the leaf, ``db.table.column``; for declassified ones the principal in the log.
        state: for derived values their protection; for declassified ones the reason.
        count: the number of files, or of uses.
    """

    kind: Literal["derived", "declassified"]
    source: str
    place: str
    state: str
    count: int

    def to_text(self) -> str:
        """Return it as a sentence."""
        if self.kind == "derived":
            return f"{self.place} came from {self.source}: {self.state} in {count_of(self.count, 'file')}"
        return f"{self.place} declassified values of {self.source}: {self.state!r}, {count_of(self.count, 'use')}"


def find_derived(
    scans: Iterable[TableScan], rules: Collection[TagRule], places: Iterable[tuple[TableScan, KeyPlace]]
) -> Iterator[Export]:
    """Yield the leaves of known tables whose values were derived, directly or not, from leaves under a key.

    Args:
        scans: the scans of the tables.
        rules: the rules of the key's tags; copies under a key that they give are left out, since it has its own bucket
            and retention.
        places: the data under the key, with the scans of their tables.
    """
    table_names = list(scans)
    waiting: list[tuple[TableScan, str]] = []
    for scan, place in places:
        waiting += [(scan, leaf) for leaf in sorted(place.columns)]
    reached = {(scan.name, column) for scan, column in waiting}
    while waiting:
        source, column = waiting.pop(0)
        for scan in table_names:
            for (table, named), sources in sorted(scan.derived.items()):
                if not is_same_leaf(named, column) or not _is_named(table, source):
                    continue
                for (derived, key), files in sorted(sources.items(), key=str):
                    kept = key is not None and any(rule.template_of(key) is not None for rule in rules)
                    if not kept and (scan.name, derived) != (source.name, column):
                        state = "not encrypted" if key is None else f"under key {key!r}"
                        names = f"{source.name}.{column}", f"{scan.name}.{derived}"
                        yield Export("derived", *names, state, files)
                    if (scan.name, derived) not in reached:
                        reached.add((scan.name, derived))
                        waiting.append((scan, derived))


def find_declassified(
    policy: Policy, tags: Iterable[str], places: Iterable[tuple[TableScan, KeyPlace]], failed: list[str]
) -> Iterator[Export]:
    """Yield the uses of ``declassify`` on columns under a key, from the policy's access log.

    Args:
        policy: the policy that names the log; if it names none, nothing is yielded.
        tags: the tags of the key, by which values are found for which the log names no table.
        places: the data under the key, with the scans of their tables.
        failed: receives the reason if the log cannot be read.
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
    """Tell whether the table name or the folder in a lineage refers to a table."""
    if "/" in noted:
        return is_within(noted, scan.target.base)
    return normalized_table(noted) == normalized_table(scan.name)

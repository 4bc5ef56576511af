"""Scan of tables for the data under each master key, by the footers of their files, and for known exports of columns.

A repeated scan lists every file again but reads only the footers of new or changed files, so that it can be repeated
right before each deletion.

Exports are copies of values in other columns, and values that were declassified.  They are found in the lineage that
writers recorded in files of known tables, and in the access log.  Neither contains the bucket of the values, so an
export of a column counts for each of its buckets.
"""

from __future__ import annotations

import pathlib
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cache, partial
from typing import TypeAlias

from sparkcrypt.decide.access_log import DeclassifiedUses, read_declassified
from sparkcrypt.errors import PlanError, SparkcryptError
from sparkcrypt.files.footers import FooterFacts, Found
from sparkcrypt.files.parquet import FileSummary
from sparkcrypt.ledger.unit import Unit, partition_of
from sparkcrypt.paths import Place, PlaceIndex
from sparkcrypt.policy.key_retention import is_past_retention
from sparkcrypt.policy.model import Policy, TagRule, normalized_table
from sparkcrypt.runs.keys.shredding_plan import Export
from sparkcrypt.runs.table.amount import Amount
from sparkcrypt.runs.table.columns import ColumnMatcher
from sparkcrypt.runs.table.footers import FooterReader
from sparkcrypt.runs.table.scan import list_batches
from sparkcrypt.runs.table.target import CatalogTarget
from sparkcrypt.schema import Path, join_dotted
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.files.listing import SourceFile
from sparkcrypt.tags.field_metadata import ColumnLineage, walk_above

_Columns: TypeAlias = tuple[tuple[Path, bool | None, str | None], ...]


@dataclass(slots=True)
class KeyPlace:
    """The data of one table under one master key.

    Attributes:
        table: the table's name.
        partitions: the paths of the partitions; the table's name if it has none.
        columns: the dotted paths of the columns.
        amount: the files with a column under the key.
        rows: the number of rows in these files.
        out_of_bucket: descriptions of data under the key that do not belong to its bucket, as the keys of a dict.
        readable: description -> number of files, of data that belong to its bucket and are not under the key.
        late: key of late data -> number of files, of data that were written under it after this key was shredded.
    """

    table: str
    partitions: set[str] = field(default_factory=set)
    columns: set[str] = field(default_factory=set)
    amount: Amount = field(default_factory=Amount)
    rows: int = 0
    out_of_bucket: dict[str, None] = field(default_factory=dict)
    readable: dict[str, int] = field(default_factory=dict)
    late: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Shape:
    """The keys and the lineage in a footer; files of one job share one object."""

    footer_key: str | None
    columns: _Columns | None
    lineage: tuple[ColumnLineage, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether the columns are known, with the master key of every encrypted one."""
        return self.columns is not None and all(key_id for _, encrypted, key_id in self.columns if encrypted)


@dataclass(frozen=True, slots=True)
class _Seen:
    length: int
    modified_ms: int
    shape: _Shape
    rows: int


class TableScan:
    """A scan of one table's files, by their footers.

    Args:
        target: the table.
        policy: its templates tell to which bucket a key belongs.
        files: the file system.
        reader: reads footers.
        selected: whether the operator selected the table; others are scanned for further data under the same keys.

    Attributes:
        places: key id -> the data under it, or belonging to it by the plan, at the last `look`.
        unread: the number of files whose keys are not known, and the first of their errors.
        derived: source table or folder, and column as noted -> leaf of this table derived from it, and its key or None
            -> number of files.
        without_key: column -> partition with files -> why the plan gives the column no key there.
    """

    def __init__(
        self,
        target: CatalogTarget,
        policy: Policy,
        files: HadoopFiles,
        reader: FooterReader,
        *,
        selected: bool,
    ) -> None:
        self.target, self.selected, self._policy = target, selected, policy
        self._files, self._reader = files, reader
        self._seen: dict[str, _Seen] = {}
        self._shapes: dict[_Shape, _Shape] = {}
        self._with_lineage: dict[int, tuple[_Shape, int]] = {}
        self.places: dict[str, KeyPlace] = {}
        self.unread: tuple[int, str] = (0, "")
        self.derived: dict[tuple[str, str], dict[tuple[str, str | None], int]] = {}
        self.without_key: dict[str, dict[str, str]] = {}
        self._matcher = ColumnMatcher(target.plan)
        self._planned = {column.path: column for column in target.plan.columns}
        self._now = datetime.now(timezone.utc)

    @property
    def name(self) -> str:
        """The table's name."""
        return self.target.name

    @property
    def files(self) -> int:
        """The number of files of which the keys are known."""
        return len(self._seen)

    def look(self) -> None:
        """List every file, and read the footers of those that are new or changed.

        Raises:
            SparkcryptError: the table cannot be listed.
        """
        before, self._seen = self._seen, {}
        self.places, self.unread, self.derived, self.without_key = {}, (0, ""), {}, {}
        self._with_lineage = {}
        for batch in list_batches(self.target.units(None), self._files):
            self._take(batch, before)
        for shape, count in self._with_lineage.values():
            self._count_derived(shape, count)

    def _take(self, units: Sequence[Unit], before: Mapping[str, _Seen]) -> None:
        sources = [file for unit in units for file in unit.files]
        new = [file for file in sources if not _is_same(before.get(file.path), file)]
        found: Mapping[str, Found] = self._reader.read(new) if new else {}
        for unit in units:
            for folder in unit.folders:
                values, partition = partition_of(unit, folder), unit.partition_path or unit.name
                expected = self._expect(values, partition) if folder.files else {}
                belongs = cache(partial(self._belongs, values=values))
                for file in folder.files:
                    kept = self._update_seen(file, before, found)
                    if kept is not None:
                        self._count(partition, belongs, expected, file, kept)

    def _update_seen(self, file: SourceFile, before: Mapping[str, _Seen], found: Mapping[str, Found]) -> _Seen | None:
        facts = found.get(file.path)
        if isinstance(facts, FooterFacts):
            summary = facts.summary
            columns = self._list_columns(summary)
            shape = _Shape(summary.footer_key, columns, facts.lineage)
            shape = self._shapes.setdefault(shape, shape)
            self._seen[file.path] = _Seen(file.length, file.modified_ms, shape, summary.rows or 0)
        elif facts is None:
            self._seen[file.path] = before[file.path]
        kept = self._seen.get(file.path)
        if kept is None or not kept.shape.is_known:
            count, first = self.unread
            reason = str(facts) if isinstance(facts, SparkcryptError) else f"{file.path}: a column's key is not told"
            self.unread = (count + 1, first or reason)
            return None
        return kept

    def _list_columns(self, summary: FileSummary) -> _Columns | None:
        """Return each column, by its path in the plan if it has one: whether it is encrypted, and its key.

        None if the footer does not contain them, or the file's columns are nested differently from the table's.
        """
        if summary.columns is None:
            return None
        try:
            planned = self._matcher.match(summary).planned
        except PlanError:
            return None
        names = {path: column.path for path, column in planned.items()}
        return tuple((names.get(path, path), known.encrypted, known.key_id) for path, known in summary.columns.items())

    def _expect(self, values: Mapping[str, str], partition: str) -> dict[Path, str | None]:
        """Return the keys that the plan gives to the columns of a partition, without those that it cannot determine."""
        expected: dict[Path, str | None] = {}
        for column in self.target.plan.encrypted:
            try:
                expected[column.path] = column.key.render(values) if column.key else None
            except PlanError as error:
                self.without_key.setdefault(column.leaf.dotted, {})[partition] = str(error)
        return expected

    def _count(
        self,
        partition: str,
        belongs: Callable[[str], bool],
        expected: Mapping[Path, str | None],
        file: SourceFile,
        kept: _Seen,
    ) -> None:
        under: dict[str, list[Path]] = {}
        for path, encrypted, key_id in kept.shape.columns or ():
            wanted = expected.get(path)
            if key_id is not None and encrypted is not False:
                under.setdefault(key_id, []).append(path)
            if key_id is not None and self._is_late(path, key_id, wanted):
                late = self._place(wanted or "").late
                late[key_id] = late.get(key_id, 0) + 1
            elif wanted is not None and wanted != key_id and encrypted is not None:
                readable = self._place(wanted).readable
                state = f"under key {key_id!r}" if encrypted else "not encrypted"
                reason = f"column {join_dotted(path)} in {partition} is {state}"
                readable[reason] = readable.get(reason, 0) + 1
        for key_id, paths in under.items():
            place = self._place(key_id)
            place.partitions.add(partition)
            place.columns.update(map(join_dotted, paths))
            place.amount += Amount(1, file.length)
            place.rows += kept.rows
            if not belongs(key_id):
                columns = ", ".join(map(join_dotted, paths))
                place.out_of_bucket[f"column {columns} in {partition}, which is not of that bucket"] = None
        if kept.shape.lineage:
            _, files = self._with_lineage.get(id(kept.shape), (kept.shape, 0))
            self._with_lineage[id(kept.shape)] = kept.shape, files + 1
        if kept.shape.footer_key is not None:
            place = self._place(kept.shape.footer_key)
            place.out_of_bucket["footers of its files, without which no column can be read"] = None

    def _count_derived(self, shape: _Shape, files: int) -> None:
        """Note what the leaves of so many files of a shape were derived from."""
        by_column: dict[str, dict[str, str | None]] = {}
        for path, encrypted, key_id in shape.columns or ():
            if encrypted is not None:
                by_column.setdefault(path[0].lower(), {})[join_dotted(path)] = key_id if encrypted else None
        for note in shape.lineage:
            leaves = by_column.get(note.column.lower(), {})  # the note has the writer's case, the column the table's
            below: dict[str, list[str]] = {}
            for leaf in leaves:
                for above in walk_above(leaf):
                    below.setdefault(above, []).append(leaf)
            for place, sources in (*note.places, (join_dotted([note.column]), note.declassified)):
                chosen = below.get(place.lower()) or leaves  # all, if its names are others
                for source in sources:
                    made = self.derived.setdefault(source, {})
                    for leaf in chosen:
                        made[leaf, leaves[leaf]] = made.get((leaf, leaves[leaf]), 0) + files

    def _belongs(self, key_id: str, values: Mapping[str, str]) -> bool:
        """Tell whether a template of the policy gives a partition this key, for its bucket or for late data of it."""
        for rule in self._policy.rules_giving(key_id):
            if rule.key is None or not rule.key.columns:
                continue
            try:
                bucket_key = rule.key.render(values)
                if bucket_key == key_id:
                    return True
                if rule.late_data is not None and rule.late_data.matches(key_id):
                    return is_past_retention(rule.key, bucket_key, rule.retention_seconds, self._now)
            except PlanError:
                continue  # the table lacks the columns of this tag's template
        return False

    def _is_late(self, path: Path, key_id: str, wanted: str | None) -> bool:
        column = self._planned.get(path)
        return column is not None and column.takes_late(key_id, wanted, self._now)

    def _place(self, key_id: str) -> KeyPlace:
        return self.places.setdefault(key_id, KeyPlace(self.name))


def _is_same(kept: _Seen | None, file: SourceFile) -> bool:
    return kept is not None and (kept.length, kept.modified_ms) == (file.length, file.modified_ms)


def look_at_all(scans: Mapping[str, TableScan]) -> Iterator[tuple[str, str]]:
    """Scan every table; yield those that cannot be scanned, each with the reason."""
    for name, scan in scans.items():
        try:
            scan.look()
        except SparkcryptError as error:
            yield name, str(error)


@dataclass(frozen=True, slots=True)
class _Derived:
    number: int
    scan: TableScan
    leaves: Mapping[tuple[str, str | None], int]


class DerivedLeaves:
    """The leaves of known tables that were derived from leaves of others, found by those.

    Args:
        scans: the scans of all known tables.
    """

    def __init__(self, scans: Iterable[TableScan]) -> None:
        self._at: dict[tuple[str, str], list[_Derived]] = {}
        self._below: dict[tuple[str, str], list[_Derived]] = {}
        self._sources: dict[str, tuple[str, ...]] = {}
        folders: dict[str, None] = {}
        derived = ((scan, *entry) for scan in scans for entry in sorted(scan.derived.items()))
        for number, (scan, (table, named), leaves) in enumerate(derived):
            found, source = _Derived(number, scan, leaves), table if "/" in table else normalized_table(table)
            folders |= {table: None} if "/" in table else {}
            for name in {named, join_dotted([named])}:
                self._at.setdefault((source, name.lower()), []).append(found)
                for above in walk_above(name):
                    self._below.setdefault((source, above), []).append(found)
        self._folders = PlaceIndex((Place.of(folder), folder) for folder in folders)

    def find(self, source: TableScan, column: str) -> Iterator[_Derived]:
        """Yield what was derived from a leaf of a table, or from what it is in, or what is in it."""
        found: dict[int, _Derived] = {}
        for name in self._names_of(source):
            entries = [*self._below.get((name, column.lower()), ())]
            for above in walk_above(column):
                entries += self._at.get((name, above), ())
            found |= {entry.number: entry for entry in entries}
        yield from (entry for _, entry in sorted(found.items()))

    def _names_of(self, scan: TableScan) -> tuple[str, ...]:
        """Return the names and folders of a table in lineage."""
        if scan.name not in self._sources:
            base = Place.of(scan.target.base)
            folders = (folder for _, folder in (*self._folders.find_at(base), *self._folders.find_below(base)))
            self._sources[scan.name] = (normalized_table(scan.name), *folders)
        return self._sources[scan.name]


def find_derived(
    derived: DerivedLeaves, rules: Collection[TagRule], places: Iterable[tuple[TableScan, KeyPlace]]
) -> Iterator[Export]:
    """Yield the leaves of known tables whose values were derived, directly or not, from leaves under a key.

    Args:
        derived: the leaves of all known tables that were derived from others.
        rules: the rules of the key's tags; copies under a key that they give are left out, since it has its own bucket
            and retention.
        places: the data under the key, with the scans of their tables.
    """
    waiting = deque((scan, leaf) for scan, place in places for leaf in sorted(place.columns))
    reached = {(scan.name, column) for scan, column in waiting}
    while waiting:
        source, column = waiting.popleft()
        for found in derived.find(source, column):
            name = found.scan.name
            for (leaf, key), files in sorted(found.leaves.items(), key=str):
                kept = key is not None and any(rule.template_of(key) is not None for rule in rules)
                if not kept and (name, leaf) != (source.name, column):
                    state = "not encrypted" if key is None else f"under key {key!r}"
                    yield Export("derived", f"{source.name}.{column}", f"{name}.{leaf}", state, files)
                if (name, leaf) not in reached:
                    reached.add((name, leaf))
                    waiting.append((found.scan, leaf))


def read_log(policy: Policy, failed: list[str]) -> DeclassifiedUses:
    """Return the uses of ``declassify`` by the policy's access log; none if it names no log.

    Args:
        policy: the policy that names the log.
        failed: receives the reason if the log cannot be read.
    """
    if policy.access_log is None:
        return DeclassifiedUses()
    try:
        return read_declassified(pathlib.Path(policy.access_log.location.removeprefix("file://")))
    except SparkcryptError as error:
        failed.append(f"values that were declassified are not known: {error}")
        return DeclassifiedUses()


def find_declassified(
    uses: DeclassifiedUses, tags: Iterable[str], places: Iterable[tuple[TableScan, KeyPlace]]
) -> Iterator[Export]:
    """Yield the uses of ``declassify`` on columns under a key.

    Args:
        uses: all of them.
        tags: the tags of the key, by which values are found for which the log names no table.
        places: the data under the key, with the scans of their tables.
    """
    columns = {f"{scan.name}.{column}" for scan, place in places for column in place.columns}
    for (source, principal, reason), count in sorted(uses.of(columns, frozenset(tags)).items()):
        yield Export("declassified", source, principal, reason, count)

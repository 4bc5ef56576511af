"""Makes the store of a table: looks at all its footers first, then reads and writes what its indexes hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sparkcrypt.errors import ConfigError, VerificationError
from sparkcrypt.native.listing import ListedFile
from sparkcrypt.skipping.format.description import Index, PartitionColumn
from sparkcrypt.skipping.format.merge import Store
from sparkcrypt.skipping.format.naming import BLOOM, MINMAX, VALUES, VERSION, table_identifier
from sparkcrypt.skipping.format.rows import Row
from sparkcrypt.skipping.format.store import IndexEntries
from sparkcrypt.skipping.keep.columns import Column, look_at_columns
from sparkcrypt.skipping.keep.entries import make_index
from sparkcrypt.skipping.keep.files import (
    DataFolder,
    FileRow,
    Listing,
    RowReader,
    RowsWanted,
    changed_since,
    list_folder,
    read_rows,
)
from sparkcrypt.skipping.keep.gatherers import FILTER_SHARE, LIST_VALUES
from sparkcrypt.skipping.keep.partitions import folder_values, partition_columns, partition_value
from sparkcrypt.skipping.trusted.folder import StoreFolder
from sparkcrypt.skipping.trusted.sidecar import Sidecar, new_digest_key
from sparkcrypt.skipping.trusted.store_keys import StoreIdentity, StoreKeys
from sparkcrypt.skipping.trusted.write import StoreWriter, open_writer, standing_generation

KINDS = {"minmax": MINMAX, "values": VALUES, "bloom": BLOOM}
"""What people call kinds of indexes -> what stores call them."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a store is to hold.

    Attributes:
        columns: top-level columns that are to be indexed.
        types: partition column -> its type, where it is no string.
        given: partition column -> its value in every file, where no folder tells it.
        kinds: column -> the kinds of its indexes; columns that it does not have get bounds alone.
        most_values: how many distinct values of an object its lists have at most.
        false_positives: the share of values that a Bloom filter may take for its own.
    """

    columns: tuple[str, ...]
    types: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)
    kinds: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    most_values: int = LIST_VALUES
    false_positives: float = FILTER_SHARE


@dataclass(frozen=True, slots=True)
class Plan:
    """A store that can be made.

    Attributes:
        data: the files' folder.
        listing: the files.
        table_uuid: whose files they say that they are; None of a bare folder.
        columns: column -> its type and key.
        indexes: what is made of them.
        partitions: the partition columns.
        given: as `Wanted` has it.
    """

    data: DataFolder
    listing: Listing
    table_uuid: str | None
    columns: Mapping[str, Column]
    indexes: tuple[Index, ...]
    partitions: tuple[PartitionColumn, ...]
    given: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Built:
    """What was built.

    Attributes:
        sidecar: of the store.
        read: how many files were read for it.
        left_out: files that were changed a moment ago, or while they were read.
        unknown: column and kind of index -> why nothing is known -> of how many of the files that were read.
        written: False where nothing had changed, so that nothing was written.
    """

    sidecar: Sidecar
    read: int
    left_out: tuple[str, ...]
    unknown: Mapping[tuple[str, str], Mapping[str, int]]
    written: bool = True


def read_kinds(columns: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return column -> the kinds of its indexes, as stores call them; a column that is named twice has those of both.

    Args:
        columns: each ``COL`` or ``COL:KIND…``; two colons follow a name that ends as a kind.
    """
    found: dict[str, dict[str, None]] = {}
    for value in columns:
        column, kinds = value, dict[str, None]()
        while (parts := column.rpartition(":"))[0] and parts[2] in KINDS:
            column, kinds = parts[0], {KINDS[parts[2]]: None, **kinds}
        if kinds:
            column = column.removesuffix(":")  # which parts a name that ends as a kind from what follows it
        found.setdefault(column, {}).update(kinds or {MINMAX: None})
    return {column: tuple(kinds) for column, kinds in found.items()}


def plan_store(data: DataFolder, wanted: Wanted) -> Plan:
    """Look at every footer, and refuse what cannot be indexed before anything is written.

    Raises:
        ConfigError: there is no file, a column cannot be indexed so, or a partition is not understood.
        VerificationError: a file was moved, or is under an algorithm that was never the policy's.
        FormatError: a file is damaged.
        KeyServiceError: a key is denied or cannot be had.
    """
    listing = list_folder(data)
    if not listing.settled and not listing.too_young:
        raise ConfigError(f"{data.path}: holds no data files; name a folder of them")
    partitions = partition_columns([file.name for file in listing.settled], wanted.types, wanted.given)
    taken = {column.column.lower() for column in partitions}
    if twice := [column for column in wanted.columns if column.lower() in taken]:
        raise ConfigError(f"column {twice[0]!r}: is a partition column, which every store has; leave it out")
    uuid, columns = look_at_columns(data, listing.settled, wanted.columns)
    indexes = tuple(
        make_index(
            name,
            kind,
            column.kind,
            most_values=wanted.most_values,
            false_positives=wanted.false_positives,
        )
        for name, column in columns.items()
        for kind in wanted.kinds.get(name, (MINMAX,))
    )
    return Plan(data, listing, uuid, columns, indexes, partitions, dict(wanted.given))


def create_store(
    folder: StoreFolder, plan: Plan, keys: StoreKeys, *, generation: int = 0, read: RowReader = read_rows
) -> Built:
    """Write a store, in place of one that is there; what is read of files is written as it comes.

    Args:
        folder: of the store, not inside of the data's.
        plan: what to write.
        keys: to encrypt with; its columns are those of the plan.
        generation: the last one that is known elsewhere; the store's is later.
        read: reads the files.

    Raises:
        As `plan_store` and `open_writer`.
    """
    shape = Store(
        VERSION,
        table_identifier(plan.data.path),
        None,
        (),
        tuple([(column, ()) for column in plan.partitions]),
        tuple([IndexEntries(index) for index in plan.indexes]),
    )
    identity, digest_key = StoreIdentity(plan.table_uuid, next_generation(folder, generation)), new_digest_key()
    wanted = RowsWanted(plan.data, plan.indexes, digest_key)
    with open_writer(folder, shape, keys, identity) as writer:
        adding = AddedRows(writer, plan.data, shape, plan.given)
        adding.add_all(
            plan.listing.settled,
            (_check_table(plan, row) for row in read(wanted, plan.listing.settled)),
        )
        sidecar = writer.finish(digest_key=digest_key, given=plan.given)
    return Built(sidecar, adding.read, (*plan.listing.too_young, *adding.changed), adding.unknown)


class AddedRows:
    """Hands rows of files to a store's writer as they are read, and takes back those of files that changed meanwhile.

    Attributes:
        read: how many files were read.
        changed: the files that are gone, or were changed while they were read.
        unknown: as `Built` has it.
    """

    def __init__(self, writer: StoreWriter, data: DataFolder, shape: Store, given: Mapping[str, str]) -> None:
        self.read, self.changed = 0, tuple[str, ...]()
        self.unknown: dict[tuple[str, str], dict[str, int]] = {}
        self._writer, self._data, self._given = writer, data, given
        self._partitions = [column for column, _ in shape.partitions]
        self._indexes = [held.index for held in shape.indexes]

    def add_all(self, files: Sequence[ListedFile], rows: Iterable[FileRow]) -> None:
        """Add the rows of files.

        Args:
            files: as they were listed.
            rows: what is read of them.

        Raises:
            As `StoreWriter.add`, and whatever the reading raises.
        """
        for row in rows:
            self.read += 1
            self._count_unknown(row)
            self._writer.add(self._row(row), row.facts)
        changed = changed_since(self._data, files)
        self._writer.leave_out([self._data.object_of(file) for file in files if file.name in changed])
        self.changed = tuple([self._data.path_of(name) for name in sorted(changed)])

    def _row(self, row: FileRow) -> Row:
        texts = {**self._given, **folder_values(row.name)} if self._partitions else {}
        partitions = tuple([partition_value(texts[column.column], column.type) for column in self._partitions])
        return Row(row.object, partitions, tuple([row.entries[index] for index in self._indexes]))

    def _count_unknown(self, row: FileRow) -> None:
        for index, why in row.unknown.items():
            reasons = self.unknown.setdefault((index.columns[0], index.kind), {})
            reasons[why] = reasons.get(why, 0) + 1


def _check_table(plan: Plan, row: FileRow) -> FileRow:
    """Return a row; refuse a file of another table.

    Raises:
        VerificationError: with the file's name.
    """
    if row.table_uuid not in (None, plan.table_uuid):
        raise VerificationError(
            f"{plan.data.path_of(row.name)}: is a file of table {row.table_uuid}, and the index is that of "
            f"{plan.table_uuid or 'a bare folder'}; move the file to its table, then run again"
        )
    return row


def next_generation(folder: StoreFolder, known: int) -> int:
    """Return a generation after that of the store that is there and of the last one that is known elsewhere.

    Raises:
        ConfigError: the store's sidecar cannot be read.
    """
    try:
        return max(standing_generation(folder) or 0, known) + 1
    except OSError as error:
        raise ConfigError(
            f"{folder.uri}: its sidecar cannot be read ({error.strerror or error}); see that it may be read"
        ) from error

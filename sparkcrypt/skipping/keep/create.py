"""Makes the store of a table: looks at all its footers first, then reads and writes what its indexes hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sparkcrypt.errors import ConfigError, VerificationError
from sparkcrypt.skipping.format.description import Index, PartitionColumn
from sparkcrypt.skipping.format.merge import Store
from sparkcrypt.skipping.format.naming import BLOOM, MINMAX, VALUES, VERSION, table_identifier
from sparkcrypt.skipping.format.store import IndexEntries
from sparkcrypt.skipping.format.values import Budget
from sparkcrypt.skipping.keep.columns import Column, look_at_columns
from sparkcrypt.skipping.keep.entries import make_index
from sparkcrypt.skipping.keep.files import (
    DataFolder,
    FileRow,
    Listing,
    RowReader,
    changed_since,
    list_folder,
    read_rows,
)
from sparkcrypt.skipping.keep.gatherers import FILTER_SHARE, LIST_VALUES
from sparkcrypt.skipping.keep.partitions import folder_values, partition_columns, partition_value
from sparkcrypt.skipping.trusted.folder import StoreFolder
from sparkcrypt.skipping.trusted.sidecar import Sidecar, new_digest_key
from sparkcrypt.skipping.trusted.write import StoreIdentity, StoreKeys, standing_generation, write_store

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
    """Write a store, in place of one that is there.

    Args:
        folder: of the store, not inside of the data's.
        plan: what to write.
        keys: to encrypt with; its columns are those of the plan.
        generation: the last one that is known elsewhere; the store's is later.
        read: reads the files.

    Raises:
        As `plan_store` and `write_store`.
    """
    digest_key = new_digest_key()
    rows = list(read(plan.data, plan.listing.settled, plan.indexes, digest_key, Budget()))
    changed = changed_since(plan.data, plan.listing.settled)
    kept = [row for row in rows if row.name not in changed]
    _refuse_other_tables(plan, kept)
    store = Store(
        VERSION,
        table_identifier(plan.data.path),
        None,
        tuple(row.object for row in kept),
        tuple((column, partition_entries(column, kept, plan.given)) for column in plan.partitions),
        tuple(IndexEntries(index, tuple(row.entries[index] for row in kept)) for index in plan.indexes),
    )
    sidecar = write_store(
        folder,
        store,
        {row.object: row.facts for row in kept},
        keys,
        StoreIdentity(plan.table_uuid, next_generation(folder, generation)),
        digest_key=digest_key,
        given=plan.given,
    )
    left_out = (*plan.listing.too_young, *(plan.data.path_of(name) for name in sorted(changed)))
    return Built(sidecar, len(rows), left_out, count_unknown(kept))


def _refuse_other_tables(plan: Plan, rows: Sequence[FileRow]) -> None:
    """Refuse files of another table.

    Raises:
        VerificationError: with the file's name.
    """
    for row in rows:
        if row.table_uuid not in (None, plan.table_uuid):
            raise VerificationError(
                f"{plan.data.path_of(row.name)}: is a file of table {row.table_uuid}, and the index is that of "
                f"{plan.table_uuid or 'a bare folder'}; move the file to its table, then run again"
            )


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


def partition_entries(column: PartitionColumn, rows: Sequence[FileRow], given: Mapping[str, str]) -> tuple[object, ...]:
    """Return the values of a partition column in files."""
    texts = [{**given, **folder_values(row.name)}[column.column] for row in rows]
    return tuple(partition_value(text, column.type) for text in texts)


def count_unknown(rows: Sequence[FileRow]) -> dict[tuple[str, str], dict[str, int]]:
    """Return for each index why nothing is known, and of how many files."""
    counts: dict[tuple[str, str], dict[str, int]] = {}
    for row in rows:
        for index, why in row.unknown.items():
            reasons = counts.setdefault((index.columns[0], index.kind), {})
            reasons[why] = reasons.get(why, 0) + 1
    return counts

"""The index of a table of the catalog: folders, partitions and types are the metastore's, keys the plan's.

After a run it gets the new names of files by the run's proof and new keys by its plan, and no row is read.  New and old
files with the same rows form pairs, from the evidence of a run's units before their swap: only files that were
rewritten one by one.  Files that Spark's engine rewrote have the same rows only as a whole, and a file with a purged
column has other values than its old file.

A stale index never makes queries wrong: every query opens a file that is not in it.  Errors here therefore do not fail
the run; the report contains that the index is stale, and why.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from sparkcrypt.decide.identity import check_claims
from sparkcrypt.errors import ConfigError, FormatError, PlanError, SparkcryptError
from sparkcrypt.files.parquet import FileSummary, read_footer
from sparkcrypt.keys.opened import open_data_keys
from sparkcrypt.keys.service import KeyService
from sparkcrypt.ledger.audit.evidence import DigestSecret
from sparkcrypt.ledger.journal.unit_status import UnitStatus
from sparkcrypt.ledger.state.directory import open_state_directory
from sparkcrypt.ledger.state.store import StateStore
from sparkcrypt.ledger.unit import by_place, list_folders
from sparkcrypt.paths import is_hidden, is_within
from sparkcrypt.plan import ColumnPlan, EncryptionPlan
from sparkcrypt.policy.load import PolicySource, policy_of
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.table.folder_index import find_store, report_reading
from sparkcrypt.runs.table.in_use import locations_of_tables
from sparkcrypt.runs.table.progress import Progress
from sparkcrypt.runs.table.target import Target, refuse_kinds
from sparkcrypt.skipping.format.description import object_name
from sparkcrypt.skipping.format.store import Store
from sparkcrypt.skipping.indexes.build import IndexResult, Plan, Wanted, carry_store, read_kinds
from sparkcrypt.skipping.indexes.entries import FILTER_SHARE, LIST_VALUES
from sparkcrypt.skipping.indexes.files import SETTLED_SECONDS, TYPES, Column, DataFolder, list_folder, partition_columns
from sparkcrypt.skipping.indexes.indexed import Indexed, IndexStore, Source, find_table_at, list_locations
from sparkcrypt.skipping.trusted.folder import NO_LOCATION
from sparkcrypt.skipping.trusted.sidecar import ObjectFacts, keyed_digest
from sparkcrypt.skipping.trusted.write import standing_generation
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.files.listing import SourceFile
from sparkcrypt.spark.jvm.gateway import JVM_ERRORS, read_java_error
from sparkcrypt.spark.setup.session import configure
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.identity import refuse_shared_identity
from sparkcrypt.spark.tables.planning import plan_of
from sparkcrypt.spark.tables.table import Table
from sparkcrypt.spark.tasks.index_rows import rows_in_tasks
from sparkcrypt.spark.tasks.run import hadoop_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_CHAR, _COLLATIONS = "__CHAR_VARCHAR_TYPE_STRING", "__COLLATIONS"


def planned_keys(plan: EncryptionPlan, store: Store, current: Mapping[str, str]) -> dict[str, str]:
    """Return column -> the master key for its indexes in an existing store: the key that a plan gives the column.

    If that key is a template, which gives each partition another key, the index stays under its current key.

    Args:
        plan: the plan of the table's columns.
        store: the store.
        current: column -> the current key of its indexes.
    """
    planned = {column.leaf.logical[0]: column for column in plan.columns if len(column.leaf.logical) == 1}
    keys: dict[str, str] = {}
    for column in {entries.index.columns[0] for entries in store.indexes}:
        found = planned.get(column)
        key = None if found is None else found.key
        if key is not None and not key.columns:
            keys[column] = key.text
        elif (found is None or key is not None) and column in current:
            keys[column] = current[column]
    return keys


def open_table_index(spark: SparkSession, name: str, policy: Policy, progress: Progress | None = None) -> Indexed:
    """Return the index of a table, without reading it or a file.

    Args:
        spark: a classic session.
        name: ``db.table``.
        policy: has the folder of stores, and names the keys.
        progress: receives the number of files that are read.

    Raises:
        PlanError: there is no such table, it is not a Parquet table, its tags allow no plan, or its UUID is another's.
        ConfigError: the policy has no folder of stores, the table has no UUID, or the store's folder overlaps with the
            table's.
    """
    table = Catalog(spark).table(name)
    refuse_shared_identity(spark, table)
    data, plan = find_files(spark, table, policy), plan_of(spark, table, policy)
    store = find_store(policy, table.uuid, open_state_directory(spark, policy.run_state))
    if store is None:
        raise ConfigError(
            NO_LOCATION
            if policy.index_location is None
            else f"{table.full_name} has no UUID, by which its index would be found; tag a column of it, or run "
            "`encrypt_table`"
        )
    for folder in (table.location, *(data.partitions or {}).values()):
        if is_within(store.folder.uri, folder) or is_within(folder, store.folder.uri):
            raise ConfigError(
                f"{store.folder.uri}: is inside or above {folder}, where {table.full_name} has files; give indexes "
                "another place in the policy"
            )
    source = Source(
        table.full_name,
        data,
        report_reading(rows_in_tasks(spark, policy.key_service), table.full_name, progress),
        lambda: table.uuid,
        partial(_plan_store, table, plan, data),
        partial(planned_keys, plan),
        partial(_find_user, spark, policy),
    )
    return Indexed(source, lambda _: store)


def index_table(
    spark: SparkSession,
    table: str,
    policy: PolicySource,
    *,
    columns: Iterable[str] = (),
    most_values: int = LIST_VALUES,
    false_positives: float = FILTER_SHARE,
) -> IndexResult:
    """Create a table's store for data skipping; without columns, refresh the existing one.

    Args:
        spark: a classic session; it is configured with the policy.
        table: ``db.table``.
        policy: has the folder of stores (``index.location``), and names the keys; or the path of its file.
        columns: each ``COL`` or ``COL:KIND…`` with the kinds ``minmax`` (the default), ``values`` and ``bloom``.
        most_values: the maximum number of distinct values of a file in its list.
        false_positives: the false positive rate of Bloom filters.

    Raises:
        PlanError: there is no such table, or it is not a Parquet table.
        ConfigError: a column cannot be indexed, the policy has no folder of stores, or there is no store to refresh.
        VerificationError: a file or the store is not authentic, or is another table's.
        KeyServiceError: a key is denied or not available.
        RunConflictError: another process writes the store.
    """
    policy = policy_of(policy)
    configure(spark, policy)
    found = open_table_index(spark, table, policy)
    kinds = read_kinds(columns)
    if not kinds:
        return found.refresh()
    return found.create(Wanted(kinds, most_values=most_values, false_positives=false_positives))


def drop_index(spark: SparkSession, policy: Policy, uuid: str) -> tuple[str, tuple[str, ...]]:
    """Delete the store of a table, which may no longer exist; refuse if any table's location overlaps with its folder.

    Args:
        spark: a classic session, whose metastore is queried.
        policy: has the folder of stores.
        uuid: the UUID of the table.

    Returns:
        The store's folder, and the names of the files that were deleted.

    Raises:
        ConfigError: the policy has no folder of stores, there is no store, or there are other files.
        VerificationError: a table is at, in or above the folder; nothing was deleted.
        RunConflictError: another process is writing the store.
    """
    store = find_store(policy, uuid, open_state_directory(spark, policy.run_state))
    if store is None:
        raise ConfigError(NO_LOCATION)
    return store.folder.uri, store.drop(partial(_find_user, spark, policy))


def _find_user(spark: SparkSession, policy: Policy, folder: str) -> str | None:
    """Return which table uses a folder, by the policy or the metastore, or None."""
    by_metastore = ((name, place, "by the metastore") for name, place, _ in locations_of_tables(spark))
    return find_table_at((*list_locations(policy), *by_metastore), folder)


def find_files(spark: SparkSession, table: Table, policy: Policy) -> DataFolder:
    """Return the files of a table, each below the folder that the metastore names for its partition.

    Raises:
        PlanError: it is not a Parquet table, or its partitions cannot be listed.
    """
    refuse_kinds(table, policy)
    if table.format != "parquet":
        raise PlanError(
            f"{table.full_name} is a table in {str(table.format).upper()}; data-skipping indexes are of Parquet "
            "tables, so name one of those"
        )
    folders = {"": table.location}
    if table.partition_columns:
        folders = {partition.folder: partition.location for partition in Catalog(spark).partitions(table)}

    def check_file(path: str, summary: FileSummary) -> None:
        if summary.footer != "plaintext":
            check_claims(policy, path, summary.aad_prefix, summary.algorithm, table_uuid=table.uuid)

    return DataFolder(
        table.location,
        open_data_keys(policy.key_service),
        check_file,
        hadoop_settings(spark),
        folders,
        len(table.partition_columns),
    )


def _plan_store(table: Table, plan: EncryptionPlan, data: DataFolder, wanted: Wanted) -> Plan:
    """Return the plan of a store, with types from the catalog and keys from the table's plan.

    Raises:
        ConfigError: a column cannot be indexed; the message names it and the reason.
    """
    columns = choose_columns(table, plan, wanted.kinds)
    listing = list_folder(data)
    names = [file.name for file in listing.settled]
    partitions = partition_columns(names, partition_types(table) if names else {}, {})
    return Plan(listing, table.uuid, columns, wanted.make_indexes(columns), partitions, {})


def choose_columns(table: Table, plan: EncryptionPlan, wanted: Iterable[str]) -> dict[str, Column]:
    """Return the columns to index, with their types from the catalog, and their keys from the plan.

    Raises:
        ConfigError: a column does not exist, is a partition column, or cannot be indexed due to its type or tag; the
            message names it and the reason.
    """
    fields = {field["name"].lower(): field for field in json.loads(table.schema_json)["fields"]}
    planned = {column.leaf.logical[0].lower(): column for column in plan.columns}
    found: dict[str, Column] = {}
    for name in wanted:
        field = fields.get(name.lower())
        if field is None:
            raise ConfigError(f"column {name!r}: {table.full_name} has none of that name; allowed: {', '.join(fields)}")
        if name.lower() in {column.lower() for column in table.partition_columns}:
            raise ConfigError(f"column {name!r}: is a partition column, which every index has; leave it out")
        kind = _column_type(name, field)
        found[str(field["name"])] = Column(kind, _column_key(name, planned[name.lower()]))
    return found


def partition_types(table: Table) -> dict[str, str]:
    """Return the types of a table's partition columns whose values can be compared and are not strings."""
    columns = {name.lower() for name in table.partition_columns}
    fields = json.loads(table.schema_json)["fields"]
    return {
        str(field["name"]): str(field["type"])
        for field in fields
        if field["name"].lower() in columns and field["type"] in TYPES and field["type"] != "string"
    }


def _column_type(name: str, field: Mapping[str, Any]) -> str:
    kind, metadata = field["type"], field.get("metadata") or {}
    if not isinstance(kind, str):
        raise ConfigError(f"column {name!r}: cannot be indexed, since it is nested or repeated; leave it out")
    if str(metadata.get(_CHAR, "")).startswith("char") or kind.startswith("char"):
        raise ConfigError(f"column {name!r}: cannot be indexed, since it is CHAR, which Spark pads; leave it out")
    if _COLLATIONS in metadata or " collate " in kind:
        raise ConfigError(f"column {name!r}: cannot be indexed, since it has a collation; leave it out")
    return "string" if kind.startswith("varchar") else kind


def _column_key(name: str, planned: ColumnPlan) -> str | None:
    """Return the master key of a column's indexes; None for the footer's key."""
    if planned.key is None:
        return None
    if planned.key.columns:
        raise ConfigError(
            f"column {name!r}: cannot be indexed, since its tag {planned.tag!r} gives it a key for each "
            f"{', '.join(planned.key.columns)} ({planned.key.text}), and an index is under one key; leave it out"
        )
    return planned.key.text


_READERS = 4
_Placed: TypeAlias = "tuple[str, Mapping[str, Any]]"
"""A file's path below its unit, and its evidence in an audit."""


def carry_index(
    target: Target,
    policy: Policy,
    state_store: StateStore,
    files: HadoopFiles,
    units: Iterable[UnitStatus],
    *,
    back: bool,
) -> dict[str, Any] | None:
    """Update the store of a table for the files that a run, or its rollback, has put into use.

    Args:
        target: the table.
        policy: has the folder of stores, and names the keys.
        state_store: the state directory.
        files: the file system.
        units: the statuses of the units that were swapped, by the run's journal.
        back: whether they were rolled back since.

    Returns:
        ``state`` (``carried``, or ``stale``), ``reason`` (why it is stale, else None), ``store``, ``generation``, and
        ``known``: the number of the units' files in it.  None if the table has no store, or no unit was swapped.
    """
    swapped = tuple(units)
    if not swapped:
        return None
    where = f"{policy.index_location}/{target.uuid}"
    try:
        store = find_store(policy, target.uuid, state_store)
        if store is None:
            return None
        where = store.folder.uri
        if standing_generation(store.folder) is None:
            return None
        return _carry(store, target, files, list_replaced(files, store.service, swapped, back=back))
    except (SparkcryptError, OSError) as error:
        return _describe(where, None, 0, f"{type(error).__name__}: {error}")
    except JVM_ERRORS as error:
        return _describe(where, None, 0, ": ".join(read_java_error(error)))


def explain_stale(table: str, index: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return a warning for the report if a store is stale."""
    if index is None or index["reason"] is None:
        return ()
    return (
        f"{table}: its data-skipping index is stale: {index['reason']}; queries open every file that it does not "
        "know; `sparkcrypt index refresh` makes it known",
    )


def _carry(store: IndexStore, target: Target, files: HadoopFiles, replaced: Replaced) -> dict[str, Any]:
    last = store.record.read()
    opened = store.open(last)
    objects = opened.sidecar.objects
    there = [found for found in replaced.proven if found.before in objects]
    _wait_until_settled(there)
    renamed = read_objects(files, there, opened.sidecar.digest_key)
    removed = {name for name in replaced.gone if name in objects} - renamed.keys()
    current, generation = store.keys_of(opened), opened.sidecar.generation
    keys = store.make_keys(planned_keys(target.plan, opened.store, current))
    # what a killed writer left beside the store may be under a column's former key
    leftovers = {name for name in store.folder.names() if not is_hidden(name)} - opened.sidecar.files.keys()
    in_order = keys.columns == current and not leftovers
    if renamed or removed or not in_order:
        written = carry_store(store.folder, opened, renamed, removed, keys, generation=last)
        objects, generation = written.objects, written.generation
    store.record.keep(generation)
    names = [found.name for found in replaced.proven]
    count = sum(name in objects for name in names)
    unknown = len(names) + len(replaced.others) - count
    why = None
    if unknown:
        why = (
            f"it does not know {unknown:,} of {unknown + count:,} files: their old files were not in it, or no new "
            "file was proven to hold the rows of one old file alone"
        )
    return _describe(store.folder.uri, generation, count, why)


def _describe(where: str, generation: int | None, known: int, reason: str | None) -> dict[str, Any]:
    state = "carried" if reason is None else "stale"
    return {"state": state, "reason": reason, "store": where, "generation": generation, "known": known}


def _wait_until_settled(found: Iterable[ProvenFile]) -> None:
    """Wait until files are so old that a file that replaces one would have another modification time."""
    newest = max((proven.file.modified_ms for proven in found), default=0) / 1000
    time.sleep(min(SETTLED_SECONDS, max(0.0, newest + SETTLED_SECONDS - time.time())))


@dataclass(frozen=True, slots=True)
class ProvenFile:
    """A file that a swap or a rollback has put into use.

    Attributes:
        before: the name in a store of the file that had the same rows before.
        file: the file as listed now.
        digest: the digest of its length and footer when it was verified.
        secret: the secret key of that digest.
    """

    before: str
    file: SourceFile
    digest: str
    secret: DigestSecret = field(repr=False)

    @property
    def name(self) -> str:
        """The name of the file in a store."""
        return object_name(self.file.path, self.file.modified_ms)


@dataclass(frozen=True, slots=True)
class Replaced:
    """The replaced and the current files of some units.

    Attributes:
        proven: current files, each paired with the file that had the same rows before.
        gone: names in a store of the files that are no longer in use, including those paired in ``proven``.
        others: paths of current files without a pair.
    """

    proven: tuple[ProvenFile, ...]
    gone: frozenset[str]
    others: tuple[str, ...]


def list_replaced(files: HadoopFiles, service: KeyService, statuses: Iterable[UnitStatus], *, back: bool) -> Replaced:
    """List the current files of swapped units, each with the file that it replaced.

    Args:
        files: the file system.
        service: unwraps the secrets of digests.
        statuses: the statuses of units that were swapped.
        back: whether they were rolled back since, so that old files have replaced new ones.

    Raises:
        SparkcryptError: a folder cannot be listed.
        KeyServiceError: a secret cannot be unwrapped.
    """
    proven: list[ProvenFile] = []
    removed: set[str] = set()
    others: list[str] = []
    secrets: dict[str, DigestSecret] = {}
    for status in statuses:
        before, after = _places(status, back=back)
        there = by_place(after, list_folders(files, after))
        changes = status.evidence.get("changes", ())
        removed |= {
            object_name(f"{before.rstrip('/')}/{place}", int(file["modified_ms"]))
            for change in changes
            for place, file in _files(change, "targets" if back else "sources")
        }
        for (place, file), (old_place, old_file) in _pairs(changes, back=back):
            now = there.pop(place, None)
            if now is None:
                continue
            if (now.length, now.modified_ms) != (int(file["bytes"]), int(file["modified_ms"])):
                others.append(now.path)
                continue
            name = object_name(f"{before.rstrip('/')}/{old_place}", int(old_file["modified_ms"]))
            secret = _open_secret(status.evidence["digests"]["secret"], service, secrets)
            proven.append(ProvenFile(name, now, str(file["digest"]), secret))
        others += [file.path for file in there.values()]
    return Replaced(tuple(proven), frozenset(removed), tuple(others))


def read_objects(
    files: HadoopFiles, proven: Iterable[ProvenFile], digest_key: bytes
) -> dict[str, tuple[str, ObjectFacts]]:
    """Return name of the replaced file -> name and facts of the file that replaced it; one small read for each.

    A file that is not the verified one, or no longer exists, is left out.

    Args:
        files: the file system.
        proven: the files.
        digest_key: the store's key for digests of footers.

    Raises:
        SparkcryptError, OSError: a file cannot be reached.
    """

    def read_object(found: ProvenFile) -> tuple[str, ObjectFacts] | None:
        with suppress(FormatError, FileNotFoundError), files.open(found.file.path) as stream:
            if found.secret.of_file(stream) != found.digest:
                return None
            footer = read_footer(stream)
            stream.seek(footer.offset)
            digest = keyed_digest(digest_key, stream.read(footer.size - footer.offset))
            unique = None if footer.aad_file_unique is None else footer.aad_file_unique.hex()
            return found.name, ObjectFacts(footer.size, unique, digest)
        return None

    wanted = tuple(proven)
    with ThreadPoolExecutor(_READERS) as pool:
        objects = pool.map(read_object, wanted)
        return {found.before: made for found, made in zip(wanted, objects, strict=True) if made is not None}


def _places(status: UnitStatus, *, back: bool) -> tuple[str, str]:
    """Return the folder of a unit's replaced files, and that of the files in use."""
    return (status.new_location, status.location) if back else (status.location, status.new_location)


def _pairs(changes: Iterable[Mapping[str, Any]], *, back: bool) -> Iterator[tuple[_Placed, _Placed]]:
    """Yield each file in use, paired with the replaced file that has the same rows."""
    for change in changes:
        sources, targets = (tuple(_files(change, side)) for side in ("sources", "targets"))
        if "pages" in change and "purged_columns" not in change and len(sources) == len(targets) == 1:
            yield (sources[0], targets[0]) if back else (targets[0], sources[0])


def _files(change: Mapping[str, Any], side: str) -> Iterator[_Placed]:
    """Yield the files of one side of a change, each with its path below its unit."""
    for file in change[side]:
        yield f"{change['folder']}/{str(file['path']).rpartition('/')[2]}".lstrip("/"), file


def _open_secret(record: Mapping[str, str], service: KeyService, known: dict[str, DigestSecret]) -> DigestSecret:
    wrapped, key_id = record["wrapped"], record["key_id"]
    if wrapped not in known:
        known[wrapped] = DigestSecret(key_id, wrapped, service.unwrap(key_id, wrapped))
    return known[wrapped]

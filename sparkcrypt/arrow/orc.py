"""Opens an ORC file for pyarrow, pandas, polars and DuckDB: opens its keys, and reads its rows by row groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from sparkcrypt import names
from sparkcrypt.arrow.open import gather_properties
from sparkcrypt.arrow.reader import Reader, ReadEvents, ReadOptions, encode, refuse_unknown_options
from sparkcrypt.arrow.shape import columns_in
from sparkcrypt.decide.file import resolve_orc_read
from sparkcrypt.errors import (
    ConfigError,
    KeyAccessDeniedError,
    KeyNotFoundError,
    KeyServiceError,
    SourceChangedError,
    UnsupportedFileError,
    show,
)
from sparkcrypt.files.open_places import Place, place
from sparkcrypt.files.orc import Tail, check_key_name
from sparkcrypt.files.orc.file.encryption import LocalKeys, Variant
from sparkcrypt.files.orc.file.schema import Column, leaves
from sparkcrypt.files.orc.file.tail import tail_of
from sparkcrypt.files.orc.read.rows import GroupCount, RowsOrder, read_rows, variants_read
from sparkcrypt.files.orc.read.stripe_streams import ReadColumn, find_columns, read_type
from sparkcrypt.files.parquet import KeyRequest
from sparkcrypt.files.source import naming, open_source
from sparkcrypt.keys.material import parse_key_material
from sparkcrypt.keys.tombstones import reason_of_absence
from sparkcrypt.policy.load import PolicySource, policy_of
from sparkcrypt.schema import join_dotted

if TYPE_CHECKING:
    from typing_extensions import Unpack

_IN_PARQUET = {
    "list": {"_elem": ("list", "element")},
    "map": {"_key": ("key_value", "key"), "_value": ("key_value", "value")},
}


@dataclass(frozen=True, slots=True)
class GuardedOrc:
    """The rows of an ORC file that one reader may see; each read starts at the first row.

    Attributes:
        path: the file's path.
        schema: the schema of the rows.
        masked: column path -> reason why it is null; empty unless nulls were requested in place of denied columns.
        groups: how many row groups the reads so far considered, and how many of them they read.
    """

    path: str
    schema: pa.Schema
    masked: Mapping[str, str]
    where: Place = field(repr=False)
    tail: Tail = field(repr=False)
    keys: LocalKeys = field(repr=False)
    order: RowsOrder = field(repr=False)

    @property
    def groups(self) -> GroupCount:
        """How many row groups the reads so far considered, and how many of them they read."""
        return self.order.count

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches; each batch is decrypted and decoded when it is requested.

        Raises:
            FormatError: the file is damaged, or uses a feature that is not supported (`UnsupportedFileError`).
            SourceChangedError: the file was rewritten since it was opened.
            StorageError: the file cannot be accessed.
        """
        wanted = self.schema.names
        with open_source(self.where) as file, naming(self.path):
            if tail_of(file) != self.tail:
                raise SourceChangedError(f"{self.path}: was written again since it was opened; open it again")
            for batch in read_rows(file, self.tail, self.keys, self.order):
                rows = batch.select(wanted)
                yield pa.RecordBatch.from_arrays(rows.columns, schema=self.schema) if wanted else rows

    def scan(self) -> pa.RecordBatchReader:
        """Return a reader of the rows, which reads them lazily; errors as `to_batches`."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def to_table(self) -> pa.Table:
        """Return the rows as a table; errors as `to_batches`."""
        return pa.Table.from_batches(self.to_batches(), self.schema)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows as an Arrow stream, for ``pyarrow.table``, ``polars.from_arrow``, DuckDB and others."""
        return self.scan().__arrow_c_stream__(requested_schema)


def open_orc(
    path: str,
    policy: PolicySource,
    columns: Sequence[str] | None = None,
    filter: pc.Expression | None = None,
    **options: Unpack[ReadOptions],
) -> GuardedOrc:
    """Open an ORC file, encrypted or not: read its tail and open the keys of its columns, but read no rows.

    A read decrypts and decompresses only the chunks of row groups that the row index cannot rule out.

    Args:
        path: a local path, ``file:``, ``hdfs:``, ``s3a:`` or any other location that the native engine opens.
        policy: names the key service; or the path of its file.
        columns: names of top-level columns, in the order wanted; None for all.
        filter: rows for which it is null or false are left out; a masked column is null in it.
        options: ``table``, ``properties``, ``principal``, ``settings`` and ``lifetime_seconds``, as `ReadOptions`; and
            ``on_denied``, ``error`` (the default) or ``mask``.

    Raises:
        KeyAccessDeniedError, KeyNotFoundError: a column that is read or in the filter is denied; the message names
            column, table, key, principal and file.  Or a column that would be null is named, and the policy has
            ``strict_projection``.
        KeyServiceUnavailableError: the key service cannot be asked whether a key is denied.
        ConfigError: a column does not exist or is named twice, or an argument is invalid.
        VerificationError: Spark's readers would refuse the file, or a local key is wrapped by another master key than
            the file names.
        FormatError: the file is damaged, or uses a feature that is not supported (`UnsupportedFileError`).
        StorageError: the file cannot be accessed, or the policy's access_log is required and cannot be written.
    """
    refuse_unknown_options(ReadOptions, options)
    policy = policy_of(policy)
    on_denied, table = options.get("on_denied", "error"), options.get("table")
    if on_denied not in ("error", "mask"):
        raise ConfigError(f"on_denied is {show(on_denied)}; allowed: error, mask")
    where, reader = place(path, options.get("settings") or {}), Reader.of(policy, table, options)
    with open_source(where) as file, naming(path):
        tail = tail_of(file)
        wanted, filtered = _choose(tail, columns, filter)
    table_properties = gather_properties(table, {}, options.get("properties") or {})
    at = str(FilePath(where).absolute()) if isinstance(where, str) else path  # its folders name the partition
    resolve_orc_read(
        {"policy": policy.canonical(), "path": at, "properties": table_properties, "footer": _facts_of(tail)},
        reader.unwrap,
    )
    read = {column.number: column for column in (*wanted, *filtered)}
    events = reader.begin_events(str(PurePosixPath(path).parent))
    opening = _Opening(reader, path, events, masks=on_denied == "mask")
    keys = LocalKeys(path, opening.open)
    with naming(path):
        for variant in variants_read(tail, tuple(read.values())):
            opening.try_variant(tail, variant, keys)
    events.close()
    named = [column.path[0] for column in filtered] + ([] if columns is None else list(columns))
    reader.refuse_named(named, opening.masked)
    order = RowsOrder(
        columns=tuple(read.values()),
        hidden=frozenset(find_hidden(read.values(), {variant.root.number for variant in opening.denied})),
        condition=filter,
        counted=frozenset(column.number for column in filtered),
    )
    schema = pa.schema([_field(column, opening.masked) for column in wanted])
    return GuardedOrc(path, schema, opening.masked, where, tail, keys, order)


def _facts_of(tail: Tail) -> dict[str, Any]:
    """Return a tail's facts about encryption, one for each variant of a column, as ``resolve_orc_read`` takes them."""
    variants = () if tail.encryption is None else tail.encryption.variants
    facts: list[dict[str, Any]] = []
    for column in leaves(tail.columns):
        path = list(_parquet_path(tail, column))
        covering = [variant for variant in variants if variant.covers(column.number)]
        for variant in covering:
            fact = {"path": path, "encrypted": True, "key_name": variant.key.name}
            facts += [{**fact, "key_metadata": encode(key)} for key in tail.keys_of(variant)]
        facts += [] if covering else [{"path": path, "encrypted": False}]
    fields = _field_of(tail, tail.columns[0], "")["children"]
    return {"mode": "encrypted" if variants else "plaintext", "fields": fields, "columns": facts}


def _field_of(tail: Tail, column: Column, name: str) -> dict[str, Any]:
    """Return a column as the field that it would be in Parquet."""
    spelt, below = _IN_PARQUET.get(column.kind, {}), [tail.columns[child] for child in column.children]
    children = [_field_of(tail, child, spelt.get(child.path[-1], child.path)[-1]) for child in below]
    if spelt:
        (group,) = {names[0] for names in spelt.values()}
        children = [_make_field(group, "repeated", None, children)]
    return _make_field(name, "optional", column.kind.upper() if spelt else None, children)


def _make_field(name: str, repetition: str, annotation: str | None, children: list[dict[str, Any]]) -> dict[str, Any]:
    kind = "group" if children else "leaf"
    return {"name": name, "kind": kind, "annotation": annotation, "repetition": repetition, "children": children}


def _parquet_path(tail: Tail, column: Column) -> Iterator[str]:
    """Yield the names of a column's path as in Parquet."""
    above = tail.columns[0]
    for name in column.path:
        yield from _IN_PARQUET.get(above.kind, {}).get(name, (name,))
        of_name = {tail.columns[child].path[-1]: tail.columns[child] for child in above.children}
        above = of_name[name]


def _choose(
    tail: Tail, columns: Sequence[str] | None, condition: pc.Expression | None
) -> tuple[list[ReadColumn], list[ReadColumn]]:
    """Return the columns that are wanted, and those that the filter uses."""
    found = {column.path[0]: column for column in find_columns(tail)}
    named = list(found) if columns is None else list(columns)
    for name in named:
        if name not in found:
            raise ConfigError(f"column {name!r} is not in {tail.file}; allowed: {', '.join(found)}")
    if len(set(named)) < len(named):
        raise ConfigError(f"columns {', '.join(named)}: one is named twice; allowed: each once")
    wanted = [read_type(tail, found[name]) for name in named]
    if condition is None:
        return wanted, []
    columns_by_name: dict[str, ReadColumn] = {}
    for name, column in found.items():
        try:
            columns_by_name[name] = read_type(tail, column)
        except UnsupportedFileError:
            continue  # a filter cannot use it
    schema = pa.schema([pa.field(name, column.type) for name, column in columns_by_name.items()])
    try:
        filtered = columns_in(condition, schema)
    except (pa.ArrowInvalid, pa.ArrowKeyError, pa.ArrowNotImplementedError) as error:
        raise ConfigError(f"the filter {condition} does not fit {tail.file}: {error}; see its columns") from error
    return wanted, [columns_by_name[name] for name in filtered]


class _Opening:
    """Opens the local keys of one file, and records denied variants if nulls are requested for them."""

    def __init__(self, reader: Reader, path: str, events: ReadEvents, *, masks: bool) -> None:
        self._reader = reader
        self._path = path
        self._events = events
        self._masks = masks
        self.denied: list[Variant] = []
        self.masked: dict[str, str] = {}

    def open(self, request: KeyRequest) -> bytes:
        """Return a local key; a `RetrieveKey`."""
        material = parse_key_material(request.key_metadata or b"")
        column = join_dotted(request.column or ())
        key = self._reader.open(material, f"column {column}", self._path)
        self._events.note_opened(material.master_key_id, column)
        return key

    def try_variant(self, tail: Tail, variant: Variant, keys: LocalKeys) -> None:
        """Open the keys of a variant in all stripes, or record that the variant is null."""
        key_id, column = variant.key.key_id, join_dotted(variant.root.path)
        try:
            for wrapped in dict.fromkeys(stripe.local_keys[variant.number] for stripe in tail.stripes):
                check_key_name(variant, wrapped)
                keys.open(variant, wrapped)
        except KeyServiceError as error:
            is_denial = isinstance(error, (KeyAccessDeniedError, KeyNotFoundError))
            tags = [rule for rule in self._reader.policy.tags if rule.template_of(key_id) is not None]
            if not (self._masks and is_denial) or any(rule.on_denied == "error" for rule in tags):
                self._events.note_refused(key_id, column, error)
                raise
            denied = isinstance(error, KeyAccessDeniedError)
            why = "denied" if denied else reason_of_absence(self._reader.policy.run_state, key_id)
            self._events.note_masked(key_id, column, why)
            self.denied.append(variant)
            self.masked[column] = f"key {key_id}{f' of tag {tags[0].name}' if tags else ''} is {why}"


def find_hidden(columns: Iterable[ReadColumn], denied: set[int]) -> Iterator[int]:
    """Yield the ids of columns that are null: denied columns, and maps whose keys are denied.

    Args:
        columns: the columns that are read.
        denied: ids of the roots of denied variants.
    """
    pending = list(columns)
    while pending:
        column = pending.pop()
        if column.number in denied or (column.kind == "map" and column.children[0].number in denied):
            yield column.number
        pending.extend(column.children)


def _field(column: ReadColumn, masked: Mapping[str, str]) -> pa.Field:
    reason = masked.get(join_dotted(column.path))
    return pa.field(column.path[0], column.type, metadata=None if reason is None else {names.MASKED: reason})

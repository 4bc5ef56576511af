"""Reads the entries of data files in Spark tasks, and packs them as text for the driver, which writes the store."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

from sparkcrypt.errors import SparkcryptError, StorageError, error_named
from sparkcrypt.files.footers import FooterFacts, pack, unpack
from sparkcrypt.files.open_places import Settings, place
from sparkcrypt.keys.opened import open_data_keys
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.skipping.format.description import Index
from sparkcrypt.skipping.format.store import Bounds, Entry
from sparkcrypt.skipping.indexes.entries import ReadFile, read_file
from sparkcrypt.skipping.trusted.sidecar import ObjectFacts

if TYPE_CHECKING:
    from pyarrow import RecordBatch


def pack_file(path: str, found: ReadFile | SparkcryptError, indexes: Sequence[Index]) -> str:
    """Return a file's result or error as JSON, in which entries are in the order of the indexes."""
    if isinstance(found, SparkcryptError):
        return json.dumps({"path": path, "error": [type(found).__name__, str(found)]})
    facts = found.facts
    return json.dumps(
        {
            "path": path,
            "facts": [facts.length, facts.file_unique, facts.footer_digest],
            "summary": pack({path: FooterFacts(found.summary, {})}),
            "entries": [_pack_entry(found.entries.get(index)) for index in indexes],
            "unknown": [found.unknown.get(index) for index in indexes],
        }
    )


def unpack_file(packed: str, indexes: Sequence[Index]) -> tuple[str, ReadFile | SparkcryptError]:
    """Return a file's path, and the result or error that `pack_file` packed."""
    document = json.loads(packed)
    path = str(document["path"])
    if "error" in document:
        kind, message = document["error"]
        return path, error_named(kind)(message)
    facts = unpack(document["summary"])[path]
    if isinstance(facts, SparkcryptError):
        return path, facts
    entries = [_unpack_entry(entry) for entry in document["entries"]]
    unknown = {index: why for index, why in zip(indexes, document["unknown"], strict=True) if why is not None}
    read = ReadFile(ObjectFacts(*document["facts"]), facts.summary, dict(zip(indexes, entries, strict=True)), unknown)
    return path, read


def index_reader(
    chunks: Iterable[Iterable[str]],
    indexes: Sequence[Index],
    key_service: KeyServiceConfig,
    settings: Settings,
    digest_key: bytes,
) -> Callable[[Iterable[RecordBatch]], Iterator[RecordBatch]]:
    """Return a function for ``mapInArrow`` over a column ``id``, whose values are indices of chunks of paths."""
    paths = tuple(map(tuple, chunks))
    return partial(_run, paths, tuple(indexes), key_service.canonical(), dict(settings), digest_key)


def _run(
    chunks: tuple[tuple[str, ...], ...],
    indexes: tuple[Index, ...],
    key_service: str,
    settings: Settings,
    digest_key: bytes,
    batches: Iterable[RecordBatch],
) -> Iterator[RecordBatch]:
    import pyarrow as pa

    retrieve = open_data_keys(KeyServiceConfig.from_dict(json.loads(key_service)))

    def read(path: str) -> ReadFile:
        return read_file(place(path, settings), indexes, retrieve, digest_key)

    for batch in batches:
        for number in batch.column(0).to_pylist():
            for path in chunks[number]:
                yield pa.RecordBatch.from_pydict({"packed": [pack_file(path, _try_read(read, path), indexes)]})


def _try_read(read: Callable[[str], ReadFile], path: str) -> ReadFile | SparkcryptError:
    try:
        return read(path)
    except SparkcryptError as error:
        return error
    except OSError as error:
        return StorageError(f"{path}: {error}")


def _pack_entry(entry: Entry | None) -> Any:
    if entry is None:
        return None
    if isinstance(entry, bytes):
        return {"filter": base64.b64encode(entry).decode()}
    if isinstance(entry, frozenset):
        return {"values": [_pack_value(value) for value in entry]}
    return {"bounds": [_pack_value(entry.least), _pack_value(entry.greatest)]}


def _unpack_entry(packed: Any) -> Entry | None:
    if packed is None:
        return None
    if "filter" in packed:
        return base64.b64decode(packed["filter"])
    if "values" in packed:
        return frozenset(_unpack_value(value) for value in packed["values"])
    return Bounds(*map(_unpack_value, packed["bounds"]))


_NAN = float("nan")


def _pack_value(value: Any) -> Any:
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    return {"decimal": str(value)} if isinstance(value, Decimal) else value


def _unpack_value(packed: Any) -> Any:
    if not isinstance(packed, dict):
        return packed
    if "float" in packed:
        number = float.fromhex(packed["float"])
        return number if number == number else _NAN
    return base64.b64decode(packed["bytes"]) if "bytes" in packed else Decimal(packed["decimal"])

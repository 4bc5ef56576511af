"""Stores that Xskipper itself wrote, beside what is made here of the same rows."""

from __future__ import annotations

import datetime
import json
import math
import os
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkcrypt.errors import KeyAccessDeniedError
from sparkcrypt.files.parquet import KeyRequest
from sparkcrypt.keys.datakeys import DataKeyOpener
from sparkcrypt.keys.material import parse_key_material
from sparkcrypt.keys.wrapping import unseal_key
from sparkcrypt.names import SPARK_SCHEMA
from sparkcrypt.skipping.format.bloom import BloomFilter
from sparkcrypt.skipping.format.description import BLOOM, MINMAX, VALUES
from sparkcrypt.skipping.format.store import NO_KEY, Bounds, StorePart, merge_parts, read_part
from sparkcrypt.skipping.indexes.build import Wanted, create_store, plan_store
from sparkcrypt.skipping.indexes.files import DataFolder
from sparkcrypt.skipping.query.skipper import Listed, Skipper, read_predicate
from sparkcrypt.skipping.trusted.folder import LocalFolder
from sparkcrypt.skipping.trusted.sidecar import ObjectFacts, StoreKeys
from tests.unit.skipping.keys import Keys
from tests.unit.skipping.stores import must_open

FOLDER = Path(__file__).parent / "upstream_stores"
MASTER_KEYS = {"footer": bytes(range(16)), "pii": bytes(range(16, 32)), "other": bytes(range(32, 48))}
START = datetime.datetime(2024, 1, 1)
COLUMNS: dict[str, tuple[str, pa.DataType, Callable[[int], Any]]] = {
    "b": ("byte", pa.int8(), lambda k: k),
    "h": ("short", pa.int16(), lambda k: k * 10),
    "i": ("integer", pa.int32(), lambda k: k * 1000),
    "l": ("long", pa.int64(), lambda k: k * 10**12),
    "f": ("float", pa.float32(), lambda k: k / 2),
    "x": ("double", pa.float64(), lambda k: k * 1.25),
    "n": ("decimal(9,2)", pa.decimal128(9, 2), lambda k: Decimal(k) / 4),
    "w": ("decimal(30,4)", pa.decimal128(30, 4), lambda k: 10**20 + Decimal(k) / 8),
    "s": ("string", pa.string(), lambda k: f"wört{k:03}"),
    "v": ("binary", pa.binary(), lambda k: bytes([k, 255 - k])),
    "o": ("boolean", pa.bool_(), lambda k: k % 2 == 0),
    "d": ("date", pa.date32(), lambda k: (START + datetime.timedelta(k)).date()),
    "t": ("timestamp", pa.timestamp("us", tz="UTC"), lambda k: START + datetime.timedelta(hours=k)),
}
"""Column -> its Spark type, Arrow's, and its value in the k-th row."""
ODD = {"f": -0.0, "x": -0.0, "s": "", "v": b""}
NAN = {"f": math.nan, "x": math.nan}
FILES: dict[str, list[tuple[int | None, dict[str, Any]]]] = {
    "2024-02-28/a": [(k, {}) for k in range(5)],
    "2024-02-28/b": [*((k, {}) for k in range(5, 10)), (None, {})],
    "2024-02-29/c": [(0, ODD), (11, {})],
    "2024-02-29/e": [(None, {}), (None, {})],
    "2024-02-29/g": [(12, {}), (13, NAN)],
}
"""File -> its rows: number, None for a row of nulls, and the values that are others than the number's."""
SKIPPED: list[tuple[Any, str]] = [
    ([">", "i", 8000], "ae"),
    (["in", "i", [1000, 11000]], "beg"),
    (["<", "i", 0], "abceg"),
    (["=", "s", "wört003"], "bceg"),
    (["=", "l", 3000000000000], "bceg"),
    ([">=", "x", "16.0"], "abce"),
    (["=", "x", "0.0"], "beg"),
    ([">", "n", "2.60"], "abe"),
    ([">", "d", 19_732], "abe"),
    (["<", "t", 1_704_083_400_000_000], "beg"),
    (["or", [["=", "i", 3000], ["=", "s", "wört011"]]], "beg"),
    (["<", "w", "100000000000000000001.0000"], "eg"),
]
"""Predicate -> the files that Xskipper left out by its store."""


class MasterKeyUnwrapper:
    """Unwraps as the in-memory key service of parquet-mr does, less what it is told to deny."""

    def __init__(self, denied: tuple[str, ...] = ()) -> None:
        self._denied = denied

    def unwrap(self, key_id: str, wrapped: str) -> bytes:
        """Return a key."""
        if key_id in self._denied:
            raise KeyAccessDeniedError(key_id)
        return unseal_key(MASTER_KEYS[key_id], wrapped, key_id.encode())


def read_upstream(name: str, *denied: str) -> StorePart:
    """Read a store of Xskipper."""
    opener = DataKeyOpener(MasterKeyUnwrapper(denied))

    def retrieve(request: KeyRequest) -> bytes:
        return opener.open(parse_key_material(request.key_metadata or b""))

    path = FOLDER / f"{name}.parquet"
    return read_part(path.name, lambda: path.open("rb"), retrieve_key=retrieve)


def values_of(file: str, column: str) -> list[Any]:
    """Return a column of a file."""
    make = COLUMNS[column][2]
    return [None if k is None else other.get(column, make(k)) for k, other in FILES[file]]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> StorePart:
    """A store that is made here, of the same rows and with the same indexes."""
    root = tmp_path_factory.mktemp("own")
    for at, file in enumerate(FILES):
        path = root / "measures" / f"day={file}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({name: pa.array(values_of(file, name), of[1]) for name, of in COLUMNS.items()}), path)
        os.utime(path, (1_700_000_000 + at,) * 2)
    keys = Keys(root / "keys")
    kinds: dict[str, list[str]] = {}
    for entries in read_upstream("plain").indexes:
        kinds.setdefault(entries.index.columns[0], []).append(entries.index.kind)
    wanted = Wanted({name: tuple(found) for name, found in kinds.items()}, {"day": "date"})
    plan = plan_store(DataFolder(str(root / "measures"), keys, lambda *_: None), wanted)
    create_store(LocalFolder(root / "store"), plan, StoreKeys(keys.keys.maker, "footer", {}))
    (path,) = (root / "store").glob("*.parquet")
    return read_part(path.name, lambda: path.open("rb"), retrieve_key=keys)


def entries_of(part: StorePart, kind: str) -> dict[str, list[str]]:
    """Return what the indexes of a kind hold of each file, as text that is equal where NaN is."""
    order = sorted(range(len(part.objects)), key=lambda row: part.objects[row].rpartition("/")[2])
    return {
        found.index.columns[0]: [
            repr(sorted(map(repr, entry)) if isinstance(entry, frozenset) else entry)
            for entry in (found.entries[row] for row in order)
        ]
        for found in part.indexes
        if found.index.kind == kind
    }


def test_bounds_and_lists_are_those_that_are_made_here(own: StorePart) -> None:
    """Of the same rows both writers know the same; bounds of floats from Arrow's footers alone are wider here."""
    upstream = read_upstream("plain")
    assert upstream.description is not None
    assert upstream.description.version == 4
    assert list(upstream.objects) == [
        f"/warehouse/measures/day={file}.parquet#{1_700_000_000_000 + at * 1000}" for at, file in enumerate(FILES)
    ]
    assert upstream.partitions[0][1] == (19781, 19781, 19782, 19782, 19782)
    lists = entries_of(upstream, VALUES)
    assert lists.keys() == COLUMNS.keys()
    assert lists == entries_of(own, VALUES)
    bounds, ours = entries_of(upstream, MINMAX), entries_of(own, MINMAX)
    assert bounds.keys() == ours.keys() == COLUMNS.keys() - {"v"}
    for name in bounds.keys() - {"f", "x"}:
        assert bounds[name] == ours[name]
    assert bounds["x"][2:] == [repr(Bounds(0.0, 13.75)), "None", repr(Bounds(15.0, math.nan))]


def without_uids(data: bytes) -> bytes:
    """Return a filter's bytes with zeros for the serial version UIDs that differ between compilers and Sparks."""
    for name in (b".MetadataType", b".BloomFilterImpl"):
        at = data.index(name) + len(name)
        data = data[:at] + bytes(8) + data[at + 8 :]
    return data


def test_filters_are_written_here_byte_for_byte() -> None:
    """A filter that is made here of the same values for the same number of them has upstream's bytes."""
    filters = [found for found in read_upstream("plain").indexes if found.index.kind == BLOOM]
    assert [found.index.columns[0] for found in filters] == ["b", "h", "i", "l", "s"]
    for found in filters:
        for file, entry in zip(FILES, found.entries, strict=True):
            made = BloomFilter.for_values(20, 0.01)
            for value in values_of(file, found.index.columns[0]):
                if value is not None:
                    made.add(value)
            assert isinstance(entry, bytes)
            assert without_uids(entry) == without_uids(made.to_bytes())


@pytest.mark.parametrize(("name", "mode"), [("encrypted", "encrypted"), ("plain_footer", "plaintext_signed")])
def test_encrypted_stores_hold_what_the_plain_one_holds(name: str, mode: str) -> None:
    """Each index opens by its key; without one it is not used, and the others are."""
    found, plaintext = read_upstream(name), read_upstream("plain")
    assert found.footer.mode == mode
    assert found.description is not None and found.description.labels is not None
    assert found.description.labels.footer_key == "footer"
    held = {(entry.index.columns[0], entry.index.kind): repr(entry.entries) for entry in plaintext.indexes}
    keys = {(entry.index.columns[0], entry.index.kind): entry.index.key for entry in found.indexes}
    assert keys == {
        ("i", MINMAX): "pii",
        ("s", VALUES): "pii",
        ("l", BLOOM): "other",
        ("x", MINMAX): "footer",
        ("d", MINMAX): None,
    }
    for entry in found.indexes:
        if entry.index.kind != VALUES:  # the order of a set is its own
            assert repr(entry.entries) == held[entry.index.columns[0], entry.index.kind]
    assert entries_of(found, VALUES)["s"] == entries_of(plaintext, VALUES)["s"]
    poor = {entry.index.columns[0]: entry.unused for entry in read_upstream(name, "pii").indexes}
    assert poor == {"i": NO_KEY, "s": NO_KEY, "l": None, "x": None, "d": None}
    with pytest.raises(KeyAccessDeniedError, match="footer"):
        read_upstream(name, "footer")


def test_fields_have_the_names_and_types_that_upstream_gives_them(own: StorePart) -> None:
    """The schema that is written here says of each field and index what upstream's says."""
    schemas = []
    for part in (read_upstream("plain"), own):
        assert part.footer.metadata is not None
        (text,) = [pair.value for pair in part.footer.metadata.key_value_metadata or () if pair.key == SPARK_SCHEMA]
        fields = {field["name"]: field for field in json.loads(text or "")["fields"]}
        indexes = {name: field["metadata"].get("index", {}) for name, field in fields.items()}
        named = {name: (index.get("name"), index.get("cols")) for name, index in indexes.items()}
        schemas.append({name: (field["type"], *named[name]) for name, field in fields.items()})
    assert len(schemas[0]) == len(COLUMNS) * 2 - 1 + 5 + 2
    assert schemas[0] == schemas[1]


@pytest.mark.parametrize(("form", "skips"), SKIPPED)
def test_files_that_are_left_out_are_upstreams(form: Any, skips: str) -> None:
    """By its store the same files are left out here as by Xskipper, and none that has a row."""
    store = merge_parts([read_upstream("plain")])
    assert store is not None
    objects = {name: ObjectFacts(100) for name in store.objects}
    files = [Listed(name.partition("#")[0], int(name.partition("#")[2]), 100) for name in store.objects]
    types = {name: kind for name, (kind, _, _) in COLUMNS.items()}
    kept = must_open(Skipper(store, objects, types), files, read_predicate(form, types))
    skipped = [file.path[-len("a.parquet")] for file, keep in zip(files, kept, strict=True) if not keep]
    assert "".join(skipped) == skips

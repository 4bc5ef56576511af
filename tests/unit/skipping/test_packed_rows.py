"""What tasks read of files travels as text, and arrives as it was."""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparkcrypt.errors import ConfigError, FormatError, SparkcryptError
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.skipping.format.description import BLOOM, MINMAX, VALUES, Index
from sparkcrypt.skipping.format.store import Bounds, Entry
from sparkcrypt.skipping.indexes.entries import ReadFile, index_reader, make_index, pack_file, read_file, unpack_file
from tests.unit.skipping.keys import Keys
from tests.unit.skipping.tables import UUID, Table

LIMITS: dict[str, Any] = {"most_values": 100, "false_positives": 0.01}
INDEXES = (
    make_index("id", MINMAX, "long", **LIMITS),
    make_index("id", BLOOM, "long", **LIMITS),
    make_index("ssn", VALUES, "string", **LIMITS),
    make_index("gone", MINMAX, "long", **LIMITS),
)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """One file, its text under a key."""
    keys = Keys(tmp_path / "keys")
    made = Table(tmp_path, keys, keys)
    made.write("a.parquet", 1, 5, uuid=UUID, key="pii")
    return made


def test_what_a_file_holds_arrives_as_it_was(table: Table) -> None:
    """Bounds, lists, filters, the unknown with its reason, facts and summary."""
    path = str(table.root / "data" / "a.parquet")
    found = read_file(path, INDEXES, table.retrieve, b"k" * 32)
    assert found.entries[INDEXES[0]] == Bounds(1, 5)
    assert found.entries[INDEXES[2]] == frozenset({"001-secret", "005-secret"})
    assert "does not have the column" in found.unknown[INDEXES[3]]
    assert unpack_file(pack_file(path, found, INDEXES), INDEXES) == (path, found)


@pytest.mark.parametrize(
    "entry",
    [
        Bounds(None, None),
        Bounds(-0.5, math.inf),
        Bounds(b"\x00\xff", b"\xff"),
        Bounds(Decimal("-1.50"), Decimal("12345678901234567890.12")),
        Bounds(False, True),
        Bounds("", "\U0001f600\x00"),
        frozenset[Any](),
        frozenset({1.5, -2.5}),
        b"\x00filter",
        None,
    ],
)
def test_every_kind_of_value_arrives_in_its_type(table: Table, entry: Any) -> None:
    """Numbers are exact, bytes are bytes, and true is not 1."""
    path = str(table.root / "data" / "a.parquet")
    found = read_file(path, INDEXES[:1], table.retrieve, b"k" * 32)
    made = ReadFile(found.facts, found.summary, {INDEXES[0]: entry}, {})
    _, arrived = unpack_file(pack_file(path, made, INDEXES[:1]), INDEXES[:1])
    assert isinstance(arrived, ReadFile)
    got = arrived.entries[INDEXES[0]]
    assert repr(got) == repr(entry) if isinstance(entry, Bounds) else got == entry


def test_not_a_number_arrives_once(table: Table) -> None:
    """A list has one NaN, and bounds may end in one."""
    path = str(table.root / "data" / "a.parquet")
    found = read_file(path, INDEXES[:2], table.retrieve, b"k" * 32)
    entries: dict[Index, Entry | None] = {
        INDEXES[0]: Bounds(1.0, math.nan),
        INDEXES[1]: frozenset({math.nan, 1.0}),
    }
    packed = pack_file(path, ReadFile(found.facts, found.summary, entries, {}), INDEXES[:2])
    _, arrived = unpack_file(packed, INDEXES[:2])
    assert isinstance(arrived, ReadFile)
    assert repr(arrived.entries[INDEXES[0]]) == "Bounds(least=1.0, greatest=nan)"
    values = arrived.entries[INDEXES[1]]
    assert isinstance(values, frozenset)
    assert len(values) == 2


def test_error_arrives_in_its_class(table: Table) -> None:
    """What cannot be read is the file's outcome, with the class and words that the task met."""
    (table.root / "data" / "b.parquet").write_bytes(b"PAR1 no PAR1")
    chunks = [[str(table.root / "data" / name) for name in ("a.parquet", "b.parquet", "c.parquet")]]
    config = KeyServiceConfig.from_dict({"type": "local", "path": str(table.root / "keys")})
    read = index_reader(chunks, INDEXES[:1], config, {}, b"k" * 32)
    batches = read([pa.RecordBatch.from_pydict({"id": [0]})])
    found = dict(unpack_file(batch.column(0)[0].as_py(), INDEXES[:1]) for batch in batches)
    whole, torn, missing = found.values()
    assert isinstance(whole, ReadFile)
    assert whole.entries == {INDEXES[0]: Bounds(1, 5)}
    assert (type(torn), type(missing)) == (FormatError, FormatError)
    assert "b.parquet" in str(torn)
    error: SparkcryptError = ConfigError("column 'x': cannot be indexed")
    _, arrived = unpack_file(pack_file("p", error, ()), ())
    assert (type(arrived), str(arrived)) == (ConfigError, str(error))

"""Lists of values and Bloom filters of data files: from pages to what a store holds."""

from __future__ import annotations

import datetime
import io
import math
import random
import resource
import tracemalloc
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkcrypt.errors import ConfigError, FormatError, KeyAccessDeniedError, SparkcryptError, VerificationError
from sparkcrypt.files.parquet import DataKey, FileEncryption, KeyRequest, read_footer, rewrite_file
from sparkcrypt.files.parquet.thrift.compact import Struct, decode_struct, encode_struct
from sparkcrypt.files.parquet.thrift.metadata import DataPageHeader, DictionaryPageHeader, FileMetaData, PageHeader
from sparkcrypt.skipping.format.bloom import BloomFilter
from sparkcrypt.skipping.format.description import BLOOM, FALSE_POSITIVES, MINMAX, MOST_VALUES, VALUES, Index
from sparkcrypt.skipping.indexes import build, data_file, entries
from sparkcrypt.skipping.indexes.entries import FILTER_TYPES, make_index
from tests.fuzz.attempt import deadline
from tests.fuzz.mutate import mutate_bytes
from tests.unit.skipping.footers import entry_of, file_of, index_of
from tests.unit.skipping.keys import Keys
from tests.unit.skipping.tables import UUID, Table

NOON = datetime.datetime(2020, 2, 29, 12, 0, 0, 5)
NOON_MICROS = 1_582_977_600_000_005
WRITERS: list[dict[str, Any]] = [
    {},
    {"row_group_size": 1, "compression": "gzip"},
    {"use_dictionary": False, "compression": "zstd"},
    {"use_dictionary": False, "compression": "none", "data_page_size": 1, "write_batch_size": 1},
    {"data_page_version": "2.0", "compression": "snappy"},
    {"data_page_version": "2.0", "compression": "lz4", "store_decimal_as_integer": True},
]
TYPES: dict[str, tuple[pa.DataType, list[Any], set[Any]]] = {
    "byte": (pa.int8(), [-5, 5, -5], {-5, 5}),
    "short": (pa.int16(), [-300, 5], {-300, 5}),
    "integer": (pa.int32(), [-(2**31), 0, 0], {-(2**31), 0}),
    "long": (pa.int64(), [2**62, -1], {2**62, -1}),
    "float": (pa.float32(), [-0.0, 0.5, 0.0], {0.0, 0.5}),
    "double": (pa.float64(), [0.1, math.inf, 0.1], {0.1, math.inf}),
    "boolean": (pa.bool_(), [True, True], {True}),
    "string": (pa.string(), ["é", "z", "", "z", "\U0001f600"], {"é", "z", "", "\U0001f600"}),
    "binary": (pa.binary(), [b"\xff", b"\x00", b""], {b"\xff", b"\x00", b""}),
    "date": (pa.date32(), [datetime.date(1500, 1, 1), datetime.date(1970, 1, 2)], {-171_664, 1}),
    "timestamp": (pa.timestamp("us", tz="UTC"), [NOON, NOON], {NOON_MICROS}),
    "timestamp_ntz": (pa.timestamp("ms"), [NOON.replace(microsecond=0)], {NOON_MICROS - 5}),
    "decimal(9,2)": (pa.decimal128(9, 2), [Decimal("-1.05"), Decimal("1.00")], {Decimal("-1.05"), Decimal(1)}),
    "decimal(38,3)": (pa.decimal128(38, 3), [Decimal("-1e30"), Decimal("0.001")], {Decimal("-1e30"), Decimal("0.001")}),
}
FOOTER, OWN = DataKey(b"f" * 16, b"footer"), DataKey(b"o" * 16, b"own")


def retrieve(request: KeyRequest) -> bytes:
    """Return a key of the files here."""
    return FOOTER.key if request.key_metadata == b"footer" else OWN.key


def sealed(data: bytes, path: Path, **how: Any) -> Path:
    """Encrypt a file, its column ``c`` under a key of its own."""
    path.unlink(missing_ok=True)
    rewrite_file(data, path, encryption=FileEncryption(FOOTER, columns={("c",): OWN}, **how))
    return path


def filter_with(values: set[Any], share: float = 0.01) -> bytes:
    """Return the filter that has these values and is sized by them."""
    made = BloomFilter.for_values(max(1, len(values)), share)
    for value in values:
        made.add(value)
    return made.to_bytes()


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("writer", range(len(WRITERS)))
def test_every_value_of_every_type_is_held(tmp_path: Path, kind: str, writer: int) -> None:
    """Lists and filters hold the distinct values but null, of files in clear and encrypted, in any form."""
    of, values, distinct = TYPES[kind]
    data = file_of(pa.array([None, *values, None], of), **WRITERS[writer])
    path = sealed(data, tmp_path / "f.parquet")
    for source, named in ((data, {}), (path, {"retrieve_key": retrieve})):
        assert entry_of(source, index_of(VALUES, kind), **named) == distinct
        if kind in FILTER_TYPES:
            assert entry_of(source, index_of(BLOOM, kind), **named) == filter_with(distinct)


def test_the_kinds_and_types_are_all_named() -> None:
    """The types of lists are those above; of filters, integers and text alone."""
    assert {kind for kind in TYPES if kind in FILTER_TYPES} == {"byte", "short", "integer", "long", "string"}
    for kind in set(TYPES) - set(FILTER_TYPES):
        with pytest.raises(ConfigError, match=r"column 'c': has no Bloom filter, .* of type .*; allowed: byte"):
            index_of(BLOOM, kind)


def test_a_file_under_the_other_algorithm_is_read(tmp_path: Path) -> None:
    """Pages under AES_GCM_CTR_V1 hold the same values."""
    path = sealed(file_of(pa.array(["a", "b"])), tmp_path / "f.parquet", algorithm="AES_GCM_CTR_V1")
    assert entry_of(path, index_of(VALUES, "string"), retrieve_key=retrieve) == {"a", "b"}


def test_a_required_column_is_read() -> None:
    """A column that cannot be null has no levels in its pages."""
    out = io.BytesIO()
    pq.write_table(pa.table([pa.array([1, 2, 2])], schema=pa.schema([pa.field("c", pa.int64(), nullable=False)])), out)
    assert entry_of(out.getvalue(), index_of(VALUES, "long")) == {1, 2}


def test_columns_beside_are_told_apart() -> None:
    """The column that is named is read, and no other, whatever its place, its case or its name is."""
    out = io.BytesIO()
    pq.write_table(pa.table({"a": ["x"], "s": [{"C.c": 1}], "C.c": ["y"], "z": [3]}), out)
    assert entry_of(out.getvalue(), index_of(VALUES, "string", "c.C")) == {"y"}


def test_values_of_many_batches_are_united(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes in several batches and row groups is one list."""
    monkeypatch.setattr(data_file, "BATCH_ROWS", 3)
    values = [number % 11 for number in range(100)]
    data = file_of(pa.array(values), row_group_size=17)
    assert entry_of(data, index_of(VALUES, "long")) == set(range(11))
    assert entry_of(data, index_of(BLOOM, "long")) == filter_with(set(range(11)))


@pytest.mark.parametrize("rows", [0, 3])
def test_a_column_of_nulls_is_known_to_be_one(rows: int) -> None:
    """Without a value a list is empty and a filter has no bit."""
    data = file_of(pa.nulls(rows, pa.string()))
    assert entry_of(data, index_of(VALUES, "string")) == frozenset()
    empty = entry_of(data, index_of(BLOOM, "string"))
    assert isinstance(empty, bytes)
    filter_ = BloomFilter.of_bytes(empty)
    assert filter_ is not None and not any(filter_.may_hold(text) for text in ("", "a", "null"))


def test_a_nan_is_held_once() -> None:
    """However many NaN of whichever bits there are, a list has one, and -0.0 is 0.0."""
    other = float.fromhex("-0x1p0") * math.nan
    found = entry_of(
        file_of(pa.array([math.nan, 1.5, -0.0, other, math.nan]), row_group_size=1), index_of(VALUES, "double")
    )
    assert isinstance(found, frozenset) and len(found) == 3
    assert sum(value != value for value in found) == 1
    assert [math.copysign(1, float(value)) for value in found if value == 0] == [1.0]


def test_more_values_than_the_limit_are_unknown() -> None:
    """A list of one value too many is unknown as a whole, never a part."""
    data = file_of(pa.array([*range(10), None]), row_group_size=4)
    assert entry_of(data, index_of(VALUES, "long", most=10)) == set(range(10))
    assert entry_of(data, index_of(VALUES, "long", most=9)) == "it has more than 9 distinct values"


def test_too_many_bytes_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of long texts, and a filter of many values, are unknown beyond what an entry may take."""
    monkeypatch.setattr(entries, "MAX_ENTRY_BYTES", 1200)
    texts = ["x" * 300 + str(number) for number in range(4)]
    assert entry_of(file_of(pa.array(texts[:3])), index_of(VALUES, "string")) == set(texts[:3])
    assert "1 MiB" in str(entry_of(file_of(pa.array(texts)), index_of(VALUES, "string")))
    most = 1001  # 1,200 bytes at 1 %
    held = entry_of(file_of(pa.array(range(most))), index_of(BLOOM, "long"))
    assert isinstance(held, bytes) and held == filter_with(set(range(most)))
    for size in (most + 1, 100):
        data = file_of(pa.array(range(most + 1)), row_group_size=size)
        assert "more than 1,001 distinct" in str(entry_of(data, index_of(BLOOM, "long")))


def test_a_share_makes_a_filter_larger_or_smaller() -> None:
    """Filters are as large as the distinct values and the share ask for, and pass about as many others."""
    data = file_of(pa.array([f"u{number}" for number in range(2000)] * 2))
    sizes = []
    for share in (0.3, 0.01, 0.0001):
        entry = entry_of(data, index_of(BLOOM, "string", share=share))
        assert isinstance(entry, bytes)
        filter_ = BloomFilter.of_bytes(entry)
        assert filter_ is not None and all(filter_.may_hold(f"u{number}") for number in range(2000))
        assert sum(filter_.may_hold(f"other{number}") for number in range(2000)) < 2000 * share * 1.5 + 5
        sizes.append(len(entry))
    assert sizes == sorted(sizes) and sizes[-1] > 5 * sizes[0]


UNKNOWN = {
    "text that is no UTF-8": (pa.array([b"a", b"\xc3"]).view(pa.string()), "string", "no UTF-8"),
    "a column of another type": (pa.array([1], pa.int32()), "long", "the file has it as integer"),
}


@pytest.mark.parametrize("trap", UNKNOWN)
@pytest.mark.parametrize("kind", [VALUES, BLOOM])
def test_what_cannot_be_compared_is_unknown(trap: str, kind: str) -> None:
    """One value that cannot be compared leaves the whole list and the whole filter unknown."""
    column, of, said = UNKNOWN[trap]
    if kind == VALUES or of in FILTER_TYPES:
        assert said in str(entry_of(file_of(column), index_of(kind, of)))
    assert entry_of(file_of(column), index_of(kind, "long", "d")) == "the file does not have the column"


def test_old_days_of_an_unknown_calendar_are_unknown() -> None:
    """Before 1900 days count only from a writer whose calendar is known."""
    days = [datetime.date(1500, 1, 1), datetime.date(1950, 1, 1)]
    assert "calendar" in str(entry_of(file_of(pa.array(days), metadata={"writer": "o"}), index_of(VALUES, "date")))
    assert entry_of(file_of(pa.array(days[1:]), metadata={"writer": "o"}), index_of(VALUES, "date")) == {-7305}


@pytest.mark.parametrize("kind", [MINMAX, VALUES])
def test_numbers_that_do_not_fit_their_type_are_unknown(kind: str) -> None:
    """What Spark would cut to a byte, and digits beyond a decimal's precision, are never compared as they stand."""
    whole = file_of(pa.array([5, 300], pa.int32()))
    footer = read_footer(whole)
    metadata, _ = decode_struct(whole, start=footer.offset)
    for converted, said in ((15, "byte"), (5, "decimal(2,1)")):
        leaf = FileMetaData(metadata).schema[1].struct
        extra: dict[int, Any] = {6 << 4 | 5: converted}
        if converted == 5:
            extra |= {7 << 4 | 5: 1, 8 << 4 | 5: 2}
        plain = {key: value for key, value in leaf.items() if key >> 4 < 6}
        leaf.clear()
        leaf.update({**plain, **extra})
        encoded = encode_struct(metadata)
        data = whole[: footer.offset] + encoded + len(encoded).to_bytes(4, "little") + b"PAR1"
        assert isinstance(entry_of(data, index_of(kind, said)), str)


def test_delta_byte_arrays_are_unknown() -> None:
    """A few bytes of this encoding stand for any number of long texts, so they are not decoded."""
    data = file_of(pa.array(["a", "ab"]), use_dictionary=False, column_encoding={"c": "DELTA_BYTE_ARRAY"})
    assert "DELTA_BYTE_ARRAY" in str(entry_of(data, index_of(VALUES, "string")))
    other = file_of(pa.array(["a", "ab"]), use_dictionary=False, column_encoding={"c": "DELTA_LENGTH_BYTE_ARRAY"})
    assert entry_of(other, index_of(VALUES, "string")) == {"a", "ab"}


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("MAX_ROWS", "more than 100 rows"),
        ("MAX_STORED_BYTES", "column chunk of more than 0 MiB"),
        ("MAX_DECODED_BYTES", "0 MiB decompressed"),
        ("MAX_DICTIONARY_BYTES", "dictionary of more than 0 MiB"),
    ],
)
def test_large_chunks_are_unknown(monkeypatch: pytest.MonkeyPatch, limit: str, said: str) -> None:
    """What a chunk takes, as stored and as it announces, is bounded before it is decoded."""
    data = file_of(pa.array([f"{number}" * 20 for number in range(101)]))
    assert len(entry_of(data, index_of(VALUES, "string"))) == 101
    monkeypatch.setattr(data_file, limit, 100)
    assert said in str(entry_of(data, index_of(VALUES, "string")))


def test_many_row_groups_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is decoded as a file, so a small file of many takes minutes."""
    data = file_of(pa.array(["a", "b", "c"]), row_group_size=1)
    assert entry_of(data, index_of(VALUES, "string")) == {"a", "b", "c"}
    monkeypatch.setattr(data_file, "MAX_ROW_GROUPS", 2)
    assert "more than 2 row groups" in str(entry_of(data, index_of(VALUES, "string")))


def test_a_small_file_of_a_large_page_takes_little_memory(tmp_path: Path) -> None:
    """A page of 200 MB in a few kB is not decompressed."""
    file = tmp_path / "f.parquet"
    pq.write_table(
        pa.table({"c": ["x" * 200_000_000]}), file, compression="zstd", use_dictionary=False, write_statistics=False
    )
    assert file.stat().st_size < 20_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "page of more than 64 MiB" in str(entry_of(file.read_bytes(), index_of(VALUES, "string")))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


@pytest.mark.parametrize(("value", "times"), [("x" * 60_000_000, 1), ("x" * 100, 600_000)])
def test_a_small_file_of_much_content_takes_little_memory(tmp_path: Path, value: str, times: int) -> None:
    """Pages of 60 MB may be there alone; what all of a file take, in one row group or in several, is bounded."""
    file = tmp_path / "f.parquet"
    groups = {"row_group_size": 2 * times, "data_page_size": 1 << (26 if times > 1 else 0), "write_batch_size": times}
    pq.write_table(pa.table({"c": [value] * 4 * times}), file, compression="zstd", use_dictionary=False, **groups)
    assert file.stat().st_size < 100_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = entry_of(file.read_bytes(), index_of(VALUES, "string"))
    assert "decompress to more than 64 MiB and to more than 64 times their size" in str(found)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


def with_first_header(data: bytes, change: Callable[[Struct], None]) -> bytes:
    """Return a file of one chunk and one page whose header was changed; lengths in the footer are made to fit."""
    footer = read_footer(data)
    metadata, _ = decode_struct(data, start=footer.offset)
    header, length = decode_struct(data, start=4)
    change(header)
    encoded = encode_struct(header)
    chunk = FileMetaData(metadata).row_groups[0].columns[0].meta_data
    assert chunk is not None
    for key in (6 << 4 | 6, 7 << 4 | 6):
        size = chunk.struct[key]
        assert isinstance(size, int)
        chunk.struct[key] = size + len(encoded) - (length - 4)
    tail = encode_struct(metadata)
    return data[:4] + encoded + data[length : footer.offset] + tail + len(tail).to_bytes(4, "little") + b"PAR1"


@pytest.mark.parametrize("announced", [2**20, 2**31 - 1])
def test_what_a_page_announces_takes_little(announced: int) -> None:
    """A small page that announces much is refused or unknown, and nothing of that size is made."""

    def change(header: Struct) -> None:
        header[PageHeader.uncompressed_page_size.key] = announced

    data = with_first_header(file_of(pa.array([1, 2]), use_dictionary=False, compression="snappy"), change)
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    try:
        found: object = entry_of(data, index_of(VALUES, "long"))
    except FormatError as error:
        found = str(error)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(found, str) and ("expected" in found or "MiB" in found)
    assert peak < 5_000_000 and pa.total_allocated_bytes() - before < 5_000_000


@pytest.mark.parametrize(("values", "kind"), [(["a", "b"], "string"), ([1, 2], "long")])
def test_what_a_dictionary_announces_takes_little(values: list[Any], kind: str) -> None:
    """A dictionary page of a few bytes that announces billions of values is refused before room for them is made."""

    def change(header: Struct) -> None:
        dictionary = header[PageHeader.dictionary_page_header.key]
        assert isinstance(dictionary, Struct)
        dictionary[DictionaryPageHeader.num_values.key] = 2**31 - 1

    data = with_first_header(file_of(pa.array(values)), change)
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(FormatError, match=r"2147483647 values in \d+ bytes; expected no more values than bytes"):
        entry_of(data, index_of(VALUES, kind))
    assert (pa.default_memory_pool().max_memory() or 0) - (before or 0) < 5_000_000


def test_counts_of_pages_are_held_against_the_rows() -> None:
    """A page that says that it has fewer values would leave some out: it is refused."""

    def change(header: Struct) -> None:
        v1 = header[PageHeader.data_page_header.key]
        assert isinstance(v1, Struct)
        v1[DataPageHeader.num_values.key] = 1

    data = with_first_header(file_of(pa.array([1, 2]), use_dictionary=False), change)
    with pytest.raises(FormatError, match="hold 1 values; expected 2"):
        entry_of(data, index_of(VALUES, "long"))


@pytest.mark.slow
@pytest.mark.parametrize("encrypted", [False, True])
def test_damaged_files_are_refused_or_unknown(tmp_path: Path, encrypted: bool) -> None:
    """Damaged files give nothing but errors of this package; of encrypted ones, nothing is read that was changed."""
    chance, outcomes = random.Random(4711), Counter[str]()
    columns = [pa.array(["a", "bb", None] * 40), pa.array([*range(90), None])]
    files = [
        (file_of(column, **writer), kind)
        for column, kind in zip(columns, ("string", "long"), strict=True)
        for writer in WRITERS
    ]
    sources = [(sealed(data, tmp_path / "f.parquet").read_bytes() if encrypted else data, kind) for data, kind in files]
    whole = [entry_of(source, index_of(VALUES, kind), retrieve_key=retrieve) for source, kind in sources]
    for number in range(600):
        (source, kind), expected = sources[number % len(files)], whole[number % len(files)]
        damaged = mutate_bytes(source, chance, files[number * 7 % len(files)][0])
        try:
            with deadline(10.0):
                found = entry_of(damaged, index_of(VALUES, kind), retrieve_key=retrieve)
            outcomes["same" if found == expected else "other" if isinstance(found, frozenset) else "unknown"] += 1
        except SparkcryptError as error:
            outcomes[type(error).__name__] += 1
            assert isinstance(error, (FormatError, VerificationError, ConfigError)), error
    assert outcomes["FormatError"] + outcomes["VerificationError"] > 200, outcomes
    assert not encrypted or not outcomes["other"], outcomes


def test_a_changed_page_of_an_encrypted_file_is_not_believed(tmp_path: Path) -> None:
    """A page does not authenticate once a bit of it is another."""
    path = sealed(file_of(pa.array(["a", "b"])), tmp_path / "f.parquet")
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    with pytest.raises((VerificationError, FormatError)):
        entry_of(bytes(data), index_of(VALUES, "string"), retrieve_key=retrieve)


def test_keys_that_are_denied_or_missing_are_errors(tmp_path: Path) -> None:
    """The column's key is asked for, and what the key service says is what the caller gets."""
    path = sealed(file_of(pa.array(["a"])), tmp_path / "f.parquet")

    def denied(request: KeyRequest) -> bytes:
        if request.column is not None:
            raise KeyAccessDeniedError("key 'own' is denied")
        return FOOTER.key

    with pytest.raises(KeyAccessDeniedError, match="'own' is denied"):
        entry_of(path, index_of(BLOOM, "string"), retrieve_key=denied)
    with pytest.raises(ConfigError, match="no key is given"):
        entry_of(path, index_of(BLOOM, "string"))


@pytest.mark.parametrize(
    ("most", "share", "said"),
    [(0, 0.01, "allowed: 1 to 100,000"), (100_001, 0.01, "1 to 100,000"), (5, 0.0, "1e-09 to 0.5"), (5, 0.9, "0.5")],
)
def test_limits_are_refused_by_name(most: int, share: float, said: str) -> None:
    """Limits outside of what is allowed are a configuration error."""
    with pytest.raises(ConfigError, match=said):
        for kind in (VALUES, BLOOM):
            make_index("c", kind, "long", most_values=most, false_positives=share)


@pytest.mark.parametrize("text", ["many", "0", "nan", "1e9"])
def test_a_store_with_other_limits_is_refused(text: str) -> None:
    """The limits that a store notes are read as numbers of their range, or refused by name."""
    for kind, name in ((VALUES, MOST_VALUES), (BLOOM, FALSE_POSITIVES)):
        index = Index("f", kind, ("c",), "long", ((name, text), *index_of(BLOOM, "long").params[1:]))
        with pytest.raises(FormatError, match=f"index of 'c' has {name}"):
            entry_of(file_of(pa.array([1])), index)


def test_a_filter_that_does_not_tell_its_type_is_unknown(table: Table) -> None:
    """Filters as upstream notes them are carried over, and new files get none: integers and text hash otherwise."""
    assert "does not tell its type" in entry_of(file_of(pa.array([1])), Index("f", BLOOM, ("c",), "binary"))
    table.create("id", kinds={"id": (BLOOM,)})
    opened = table.opened(UUID)
    untold = [replace(entry, index=replace(entry.index, params=())) for entry in opened.store.indexes]
    other = replace(opened, store=replace(opened.store, indexes=tuple(untold)))
    table.write("c.parquet", 5, uuid=UUID, key="pii")
    built = build.refresh_store(table.folder, table.data, other, table.with_keys({}))
    assert built.unknown == {f"id {BLOOM}": {"its index does not tell its type": 1}}
    found = held(table)["id", BLOOM]
    assert (found["a.parquet"], found["c.parquet"]) == (filter_with({1, 2}), None)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Two encrypted files whose ``ssn`` is under its key."""
    keys = Keys(tmp_path / "keys")
    made = Table(tmp_path, keys, keys)
    made.write("a.parquet", 1, 2, uuid=UUID, key="pii")
    made.write("b.parquet", 3, 4, uuid=UUID, key="pii")
    return made


def held(table: Table) -> dict[tuple[str, str], dict[str, Any]]:
    """Return what each index of the store holds of each file."""
    store = table.opened(UUID).store
    names = [Path(name.partition("#")[0]).name for name in store.objects]
    return {
        (entry.index.columns[0], entry.index.kind): dict(zip(names, entry.entries, strict=True))
        for entry in store.indexes
    }


def test_a_refresh_makes_what_the_store_was_made_with(table: Table) -> None:
    """Kinds, limits and shares stay those of the store; data of new files alone is read; keys are the columns'."""
    table.create("id", "ssn", kinds={"id": (VALUES,), "ssn": (BLOOM, VALUES)}, most_values=3, false_positives=0.2)
    table.write("c.parquet", 5, 6, 7, uuid=UUID, key="pii")
    table.write("d.parquet", 8, 9, 10, 11, uuid=UUID, key="pii")
    built = table.refresh(UUID)
    assert sorted(set(table.read)) == ["c.parquet", "d.parquet"]
    assert built.unknown == {
        f"id {VALUES}": {"it has more than 3 distinct values": 1},
        f"ssn {VALUES}": {"it has more than 3 distinct values": 1},
    }
    found = held(table)
    assert found["id", VALUES] == {"a.parquet": {1, 2}, "b.parquet": {3, 4}, "c.parquet": {5, 6, 7}}
    assert found["ssn", VALUES]["c.parquet"] == {"005-secret", "006-secret", "007-secret"}
    assert found["ssn", BLOOM]["c.parquet"] == filter_with({"005-secret", "006-secret", "007-secret"}, 0.2)
    keys = {(entry.index.columns[0], entry.index.kind): entry.index.key for entry in table.opened(UUID).store.indexes}
    assert keys == {("id", VALUES): "footer", ("ssn", BLOOM): "pii", ("ssn", VALUES): "pii"}


def test_values_of_a_store_are_under_their_keys(table: Table) -> None:
    """Nothing of a list or a filter is in the store's files in clear."""
    table.create("ssn", kinds={"ssn": (VALUES, BLOOM)})
    for path in (table.root / "store").iterdir():
        assert b"secret" not in path.read_bytes() and b"BloomFilterMetaData" not in path.read_bytes()

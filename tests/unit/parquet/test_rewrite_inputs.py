"""Rewrites of files of many writers, types and widths."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkcrypt.errors import FormatError, SparkcryptError, VerificationError
from sparkcrypt.files.parquet import FOOTER_KEY, NewKeys, read_footer, rewrap_file, rewrite_file, verify_file
from sparkcrypt.files.parquet.summary import inspect_file
from sparkcrypt.files.parquet.thrift import metadata
from sparkcrypt.files.parquet.thrift.metadata import ColumnMetaData
from tests.fuzz.attempt import deadline
from tests.fuzz.cases import Original, corpus, make_case
from tests.unit.parquet.handmade import data_page, make_file
from tests.unit.parquet.rewriting import arrow_read, left_over, new_encryption, write_plain
from tests.unit.parquet.writers import ALGORITHMS, Keys

ROWS = 120
MODES = ("encrypted", "plaintext")


def typed() -> pa.Table:
    """Return a column of every type that pyarrow writes, with nulls in each."""
    numbers, moment = range(ROWS), datetime.datetime(2020, 1, 1, 12, 30)
    columns: dict[str, pa.Array] = {"bool": pa.array([n % 2 == 0 for n in numbers])}
    for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"):
        columns[name] = pa.array([n % 100 for n in numbers], getattr(pa, name)())
    for kind in (pa.float32(), pa.float64()):
        columns[str(kind)] = pa.array([n / 7 for n in numbers], kind)
    columns["half"] = pa.array(np.arange(ROWS, dtype=np.float16))
    texts = [f"text {n}" for n in numbers]
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        columns[str(kind)] = pa.array(texts, kind)
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
        columns[str(kind)] = pa.array([text.encode() for text in texts], kind)
    columns["fixed"] = pa.array([text.encode().ljust(9)[:9] for text in texts], pa.binary(9))
    for digits in (9, 18, 38):
        columns[f"decimal {digits}"] = pa.array([decimal.Decimal(n) / 4 for n in numbers], pa.decimal128(digits, 2))
    columns["decimal256"] = pa.array([decimal.Decimal(n) for n in numbers], pa.decimal256(60, 2))
    columns["date"] = pa.array([moment.date()] * ROWS)
    for unit in ("s", "ms", "us", "ns"):
        columns[f"at {unit}"] = pa.array([moment] * ROWS, pa.timestamp(unit))
        columns[f"at {unit} utc"] = pa.array([moment] * ROWS, pa.timestamp(unit, "Europe/Berlin"))
        columns[f"for {unit}"] = pa.array(list(numbers), pa.duration(unit))
    columns["time"] = pa.array([moment.time()] * ROWS, pa.time64("us"))
    columns["category"] = pa.array([text[-1] for text in texts]).dictionary_encode()
    columns["null"] = pa.nulls(ROWS)
    mask = np.array([n % 7 == 3 for n in numbers])
    made = {
        name: values if name in ("null", "category") else pa.array(values.to_pylist(), values.type, mask=mask)
        for name, values in columns.items()
        if name != "half"
    }
    return pa.table({**made, "half": columns["half"]})


def nested() -> pa.Table:
    """Return lists, structs and maps in one another, three deep, with nulls and empty ones at every level."""
    numbers = range(ROWS)
    deep = pa.list_(
        pa.struct([("m", pa.map_(pa.string(), pa.list_(pa.int32()))), ("s", pa.struct([("x", pa.int64())]))])
    )
    rows = [
        None
        if n % 5 == 0
        else []
        if n % 5 == 1
        else [None, {"m": None, "s": None}, {"m": [("k", [n, None]), ("e", []), ("n", None)], "s": {"x": n}}]
        for n in numbers
    ]
    cube = [[[[n, None], []], None, []] if n % 3 else None for n in numbers]
    return pa.table(
        {
            "deep": pa.array(rows, deep),
            "cube": pa.array(cube, pa.list_(pa.list_(pa.list_(pa.int32())))),
            "large": pa.array([["a"] * (n % 3) for n in numbers], pa.large_list(pa.string())),
            "fixed": pa.array([[n, n] for n in numbers], pa.list_(pa.int32(), 2)),
            "required": pa.array([{"y": n} for n in numbers], pa.struct([pa.field("y", pa.int32(), nullable=False)])),
        }
    )


TABLES = {"typed": typed, "nested": nested}


def round_trip(source: Path, folder: Path, **options: Any) -> None:
    """Assert that a file is what it was after both rewrites, and that pyarrow reads them so."""
    digest = verify_file(source).digest
    rewrite_file(source, folder / "there", encryption=new_encryption(default=FOOTER_KEY, **options))
    found = verify_file(folder / "there", retrieve_key=Keys(), equal_to=digest)
    assert found.plaintext_columns == ()
    rewrite_file(folder / "there", folder / "back", retrieve_key=Keys())
    verify_file(folder / "back", equal_to=digest)
    assert arrow_read(folder / "back", decrypt=False) == pq.read_table(source)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "brotli", "zstd", "lz4"])
@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("kind", TABLES)
def test_types_and_codecs(tmp_path: Path, kind: str, codec: str, dictionary: bool, version: str) -> None:
    """Every type and nesting, every codec, both page versions, dictionaries or none."""
    content = TABLES[kind]()
    plain = write_plain(
        tmp_path / "plain", content, compression=codec, use_dictionary=dictionary, data_page_version=version
    )
    round_trip(plain, tmp_path)
    if version == "1.0":
        assert arrow_read(tmp_path / "there") == pq.read_table(plain)


OPTIONS: dict[str, dict[str, Any]] = {
    "no statistics": {"write_statistics": False, "write_page_index": False},
    "no index": {"write_page_index": False},
    "int96": {"use_deprecated_int96_timestamps": True},
    "byte stream split": {"use_byte_stream_split": ["float", "double"], "use_dictionary": False},
    "delta": {"column_encoding": {"int64": "DELTA_BINARY_PACKED"}, "use_dictionary": False},
    "old format": {"version": "1.0"},
    "format 2.4": {"version": "2.4"},
    "small dictionary": {"dictionary_pagesize_limit": 64},
    "one row a group": {"row_group_size": 1},
    "one row a page": {"max_rows_per_page": 1},
    "not compliant": {"use_compliant_nested_type": False},
}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("name", OPTIONS)
def test_options_of_arrow(tmp_path: Path, name: str, algorithm: str) -> None:
    """Whatever else pyarrow can be told about pages, statistics and encodings."""
    content = typed().select(["int64", "float", "double", "string", "at us", "category"])
    plain = write_plain(tmp_path / "plain", content, **OPTIONS[name])
    round_trip(plain, tmp_path, algorithm=algorithm)
    assert arrow_read(tmp_path / "there") == pq.read_table(plain)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("mode", ["encrypted", "plaintext"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_files_of_nothing(tmp_path: Path, algorithm: str, mode: str, version: str) -> None:
    """No row groups, row groups of no rows, no columns, columns of nulls or empty lists alone."""
    nulls = {
        "a": pa.nulls(90, pa.int32()),
        "s": pa.nulls(90, pa.string()),
        "l": pa.array([[]] * 90, pa.list_(pa.int32())),
    }
    options: dict[str, Any] = {"algorithm": algorithm, "footer_mode": mode}
    for number, content in enumerate((typed()[:0], nested()[:0], pa.table(nulls), pa.table({"a": pa.array([""] * 9)}))):
        folder = tmp_path / str(number)
        folder.mkdir()
        round_trip(write_plain(folder / "plain", content, data_page_version=version), folder, **options)
    for number, schema in enumerate((typed().schema, pa.schema([]))):
        folder = tmp_path / f"none {number}"
        folder.mkdir()
        pq.ParquetWriter(folder / "plain", schema).close()
        round_trip(folder / "plain", folder, **options)


def test_frames_of_pandas(tmp_path: Path) -> None:
    """A pandas frame with an index, categories and time zones comes back equal."""
    frame = pd.DataFrame(
        {
            "c": pd.Categorical(["x", "y", "x"]),
            "t": pd.date_range("2020", periods=3, tz="Asia/Tokyo"),
            "o": ["a", None, "c"],
            "i": pd.array([1, None, 3], dtype="Int64"),
        },
        index=pd.Index([3, 1, 2], name="key"),
    )
    frame.to_parquet(tmp_path / "plain")
    round_trip(tmp_path / "plain", tmp_path)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "back"), frame)


def keyed(original: Original) -> dict[str, Any]:
    """Return what a file of the corpus is opened with."""
    return {"retrieve_key": original.retrieve_key} if original.keys else {}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("mode", ["encrypted", "plaintext"])
@pytest.mark.parametrize("original", corpus(), ids=lambda original: original.name)
def test_files_of_many_writers(tmp_path: Path, original: Original, mode: str, algorithm: str) -> None:
    """Files of Spark, fastparquet, Polars, DuckDB and pyarrow, plaintext and encrypted, become each other's kind."""
    before = verify_file(original.data, **keyed(original))
    result = rewrite_file(
        original.data,
        tmp_path / "other",
        encryption=new_encryption(default=FOOTER_KEY, footer_mode=mode, algorithm=algorithm, bits=128),
        **keyed(original),
    )
    assert bool(result.unauthenticated) == (before.footer != "plaintext" and before.authenticated == "partial")
    kept = {
        part: digest
        for part, digest in before.digests.items()
        if mode == "encrypted" or part not in ("key_value_metadata", "sorting_columns")
    }
    found = verify_file(tmp_path / "other", retrieve_key=Keys(), equal_to=kept)
    assert found.plaintext_columns == () and found.footer != "plaintext" and found.rows == before.rows
    rewrite_file(original.data, tmp_path / "plain", **keyed(original))
    verify_file(tmp_path / "plain", equal_to=before.digest)
    rewrite_file(tmp_path / "other", tmp_path / "back", retrieve_key=Keys())
    assert pq.read_table(tmp_path / "back").equals(pq.read_table(tmp_path / "plain"))
    if not any("V2 pages" in note for note in result.notes):
        assert arrow_read(tmp_path / "other").equals(pq.read_table(tmp_path / "plain"))


def test_wrong_keys_open_no_file_of_the_corpus(tmp_path: Path) -> None:
    """Every encrypted file of the corpus is refused with keys that are not its own."""
    encrypted = [original for original in corpus() if original.keys]
    assert len(encrypted) >= 8
    for original in encrypted:
        with pytest.raises((VerificationError, FormatError)):
            rewrite_file(original.data, tmp_path / "out", retrieve_key=lambda _: b"k" * 16)
        assert read_footer(original.data).mode != "plaintext" and not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_damaged_files(tmp_path: Path, seed: int) -> None:
    """Damaged files are rewritten, or refused with an error of this package, soon, and leave nothing behind."""
    refused = 0
    for number in range(250):
        case = make_case(seed + 1000, number)
        keys = case.original.retrieve_key
        options: dict[str, Any] = {"footer_mode": MODES[number % 2], "algorithm": ALGORITHMS[number // 2 % 2]}
        encryption = new_encryption(default=FOOTER_KEY, **options)
        actions: tuple[Callable[[], object], ...] = (
            lambda: rewrite_file(case.data, tmp_path / "out", retrieve_key=keys),  # noqa: B023 - called at once
            lambda: rewrite_file(case.data, tmp_path / "out", retrieve_key=keys, encryption=encryption),  # noqa: B023
            lambda: rewrap_file(case.data, tmp_path / "out", retrieve_key=keys, new_keys=NewKeys(lambda *_: b"x")),  # noqa: B023
        )
        for action in actions:
            try:
                with deadline():
                    action()
                (tmp_path / "out").unlink()
            except SparkcryptError as error:
                refused += 1
                assert not isinstance(error, FormatError) or "<bytes>: " in str(error)
            assert left_over(tmp_path) == []
    assert 300 < refused < 750


@pytest.mark.parametrize("size", [2**63 - 1, 2**62, -(2**40)])
def test_sizes_that_cannot_be_added(tmp_path: Path, size: int) -> None:
    """Sizes of copied chunks that make no size of a row group are FormatError."""
    source = make_file(
        [[[data_page()], [data_page()]]], lambda m: m.update({ColumnMetaData.total_uncompressed_size.key: size})
    )
    with pytest.raises(FormatError, match="<bytes>: row group 0 announces"):
        rewrite_file(source, tmp_path / "out")
    assert left_over(tmp_path) == []


COUNT = 300
MOST_VIEWS = 60 * COUNT


def write(path: Path, columns: int, rows: int) -> Path:
    """Write a file with a row group for each row."""
    table = pa.table({f"c{number}": pa.array(range(rows), pa.int32()) for number in range(columns)})
    pq.write_table(table, path, use_dictionary=False, row_group_size=1)
    return path


@pytest.mark.parametrize(("columns", "rows"), [(COUNT, 1), (1, COUNT)])
def test_work_grows_with_the_number_of_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int, rows: int
) -> None:
    """Lists of a footer become views a few times in all, not once for each of their elements."""
    plain = write(tmp_path / "plain", columns, rows)
    convert, made = metadata._convert_value, [0]

    def count(*arguments: Any) -> Any:
        found = convert(*arguments)
        made[0] += len(found) if isinstance(found, tuple) else 0
        return found

    monkeypatch.setattr(metadata, "_convert_value", count)

    def views(action: Callable[[], object]) -> int:
        made[0] = 0
        action()
        return made[0]

    own = tuple((f"c{number}",) for number in range(columns))
    first, second = tmp_path / "first", tmp_path / "second"
    steps: dict[str, Callable[[], object]] = {
        "inspect": lambda: inspect_file(plain),
        "verify plain": lambda: verify_file(plain),
        "encrypt": lambda: rewrite_file(plain, first, encryption=new_encryption(*own)),
        "verify": lambda: verify_file(first, retrieve_key=Keys()),
        "encrypt anew": lambda: rewrite_file(
            first, second, retrieve_key=Keys(), encryption=new_encryption(*own, footer_mode="plaintext")
        ),
        "purge": lambda: rewrite_file(
            first, tmp_path / "purged", retrieve_key=Keys(), encryption=new_encryption(*own), purge=own[:1]
        ),
        "decrypt": lambda: rewrite_file(second, tmp_path / "third", retrieve_key=Keys()),
    }
    found = {name: views(step) for name, step in steps.items()}
    assert not {name: number for name, number in found.items() if number > MOST_VIEWS}

"""Columns whose keys are gone, replaced by nulls: the rest of the file stays, and other code sees the nulls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkcrypt.errors import ConfigError, UnsupportedFileError, VerificationError
from sparkcrypt.files.parquet import FOOTER_KEY, KnownColumns, read_footer, rewrite_file, verify_file
from sparkcrypt.files.parquet.rewrite import source_chunk
from tests.unit.parquet.rewriting import arrow_read, new_encryption
from tests.unit.parquet.writers import ALGORITHMS, Keys

SSN, ID = ("ssn",), ("id",)
BYTE_ARRAY = 6
ROWS = 300
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("ssn", pa.string()),
        pa.field("day", pa.date32()),
        pa.field("tel", pa.list_(pa.string())),
    ]
)


def source(folder: Path, *sealed: tuple[str, ...], **options: Any) -> Path:
    """Return an encrypted file of three row groups, the last of another length."""
    rows = {
        "id": list(range(ROWS)),
        "ssn": [None if number % 7 == 0 else f"s{number % 11}" for number in range(ROWS)],
        "day": list(range(ROWS)),
        "tel": [["1", None], None, []] * (ROWS // 3),
    }
    order = pq.SortingColumn.from_ordering(SCHEMA, [("day", "ascending"), ("ssn", "ascending")])
    pq.write_table(
        pa.table(rows, schema=SCHEMA),
        folder / "plain",
        row_group_size=130,
        sorting_columns=order,
        write_page_index=True,
    )
    rewrite_file(folder / "plain", folder / "src", encryption=new_encryption(*(sealed or (SSN, ID)), **options))
    return folder / "src"


def purge(folder: Path, path: tuple[str, ...] = SSN, keys: Keys | None = None, **options: Any) -> Path:
    """Rewrite the source with a column replaced by nulls under the footer's key."""
    chosen = new_encryption(ID, columns={path: FOOTER_KEY}, **options)
    rewrite_file(folder / "src", folder / "out", retrieve_key=keys or Keys(), encryption=chosen, purge={path})
    return folder / "out"


@pytest.mark.parametrize("mode", ["encrypted", "plaintext"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_nulls_stand_in_the_place_of_a_column(tmp_path: Path, algorithm: str, mode: str) -> None:
    """Its key is not asked for; every other column, and all that the footer says, is what it was."""
    src, keys = source(tmp_path, algorithm=algorithm, footer_mode=mode), Keys()
    out = purge(tmp_path, keys=keys, algorithm=algorithm, footer_mode=mode)
    assert [request.column for request in keys.asked] == [None, ID]
    before = verify_file(src, retrieve_key=Keys(), known=KnownColumns(dark={SSN}))
    assert "column ssn: its key is gone" in before.not_authenticated
    parts = {part: digest for part, digest in before.digests.items() if part != "sorting_columns"}
    after = verify_file(out, retrieve_key=Keys(), equal_to=parts, known=KnownColumns(nulls={SSN}))
    assert (after.rows, after.row_groups) == (ROWS, 3)
    whole = pq.read_table(tmp_path / "plain")
    assert arrow_read(out).equals(whole.set_column(1, SCHEMA.field("ssn"), pa.nulls(ROWS, pa.string())))
    metadata = read_footer(out, retrieve_key=Keys()).metadata
    assert metadata is not None
    for group in metadata.row_groups:
        assert [column.column_idx for column in group.sorting_columns or ()] == [2]


def test_values_do_not_pass_for_nulls(tmp_path: Path) -> None:
    """A column that holds a value, or pages that say more than nulls, is found by the proof."""
    src = source(tmp_path)
    with pytest.raises(VerificationError, match="column ssn in row group 0 holds more than nulls"):
        verify_file(src, retrieve_key=Keys(), known=KnownColumns(nulls={SSN}))


@pytest.mark.parametrize("wrong", ["a level of 1", "bytes behind", "a second run", "another count"])
def test_wrong_nulls_do_not_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    """Whatever a rewrite might put there instead of nulls, the proof by other code finds it."""
    source(tmp_path)
    runs = {
        "a level of 1": lambda rows: source_chunk._varint(rows << 1) + b"\1",
        "bytes behind": lambda rows: source_chunk._varint(rows << 1) + b"\0\0\0\0\0",
        "another count": lambda rows: source_chunk._varint(rows + 1 << 1) + b"\0",
        "a second run": lambda rows: source_chunk._varint(rows - 1 << 1) + b"\0" + source_chunk._varint(2) + b"\1",
    }
    monkeypatch.setattr(source_chunk, "_run", runs[wrong])
    out = purge(tmp_path)
    with pytest.raises(VerificationError, match="holds more than nulls"):
        verify_file(out, retrieve_key=Keys(), known=KnownColumns(nulls={SSN}))


def test_changed_rest_is_found(tmp_path: Path) -> None:
    """What is left out of the comparison is the purged column alone."""
    src = source(tmp_path)
    before = verify_file(src, retrieve_key=Keys(), known=KnownColumns(dark={SSN}))
    folder = tmp_path / "other"
    folder.mkdir()
    pq.write_table(pq.read_table(tmp_path / "plain").slice(1), folder / "plain", row_group_size=130)
    rewrite_file(folder / "plain", folder / "src", encryption=new_encryption(SSN, ID))
    with pytest.raises(VerificationError, match="the content differs"):
        verify_file(
            purge(folder),
            retrieve_key=Keys(),
            equal_to={"pages": before.digests["pages"]},
            known=KnownColumns(nulls={SSN}),
        )


@pytest.mark.parametrize(
    ("path", "why"),
    [(ID, "column id is required"), (("tel", "list", "element"), "column tel.list.element is part of a nested column")],
)
def test_what_cannot_be_null_is_refused(tmp_path: Path, path: tuple[str, ...], why: str) -> None:
    """A required column and a nested one are refused by name, and nothing is written."""
    source(tmp_path, path)
    with pytest.raises(UnsupportedFileError, match=why):
        purge(tmp_path, path)
    assert not (tmp_path / "out").exists()


def test_only_columns_with_own_keys_are_purged(tmp_path: Path) -> None:
    """A column in plaintext, or under the footer's key, can be read: it is never replaced."""
    source(tmp_path, ID, columns={SSN: FOOTER_KEY})
    for path in (SSN, ("day",), ("none",)):
        with pytest.raises(ConfigError, match=f"dark columns {path[0]}; allowed"):
            rewrite_file(tmp_path / "src", tmp_path / "out", retrieve_key=Keys(), purge={path})
        with pytest.raises(ConfigError, match=f"dark columns {path[0]}; allowed"):
            verify_file(tmp_path / "src", retrieve_key=Keys(), known=KnownColumns(dark={path}))


def test_empty_row_group_has_no_page(tmp_path: Path) -> None:
    """A file without rows is purged as well."""
    pq.write_table(pa.table({"id": [0], "ssn": ["s"]}).slice(1), tmp_path / "plain")
    with pq.ParquetWriter(tmp_path / "plain", pa.schema([("id", pa.int64()), ("ssn", pa.string())])) as writer:
        writer.write_table(pa.table({"id": pa.array([], pa.int64()), "ssn": pa.array([], pa.string())}))
    rewrite_file(tmp_path / "plain", tmp_path / "src", encryption=new_encryption(SSN, ID))
    footer = read_footer(tmp_path / "src", retrieve_key=Keys())
    assert footer.metadata is not None
    assert [group.num_rows for group in footer.metadata.row_groups] == [0]
    out = purge(tmp_path)
    assert verify_file(out, retrieve_key=Keys(), known=KnownColumns(nulls={SSN})).rows == 0
    assert arrow_read(out).num_rows == 0


def test_nulls_have_the_type_of_their_own_leaf(tmp_path: Path) -> None:
    """A nested leaf of the same name and another type, earlier in the schema, has no say."""
    rows = {"a": [{"x": 1}, {"x": 2}], "x": ["s", None]}
    schema = pa.schema([("a", pa.struct([("x", pa.int32())])), ("x", pa.string())])
    pq.write_table(pa.table(rows, schema=schema), tmp_path / "plain")
    rewrite_file(tmp_path / "plain", tmp_path / "src", encryption=new_encryption(("x",)))
    rewrite_file(
        tmp_path / "src", tmp_path / "out", retrieve_key=Keys(), encryption=new_encryption(("a", "x")), purge={("x",)}
    )
    metadata = read_footer(tmp_path / "out", retrieve_key=Keys()).metadata
    assert metadata is not None
    chunk = metadata.row_groups[0].columns[1].meta_data
    assert chunk is not None and chunk.type == BYTE_ARRAY
    assert arrow_read(tmp_path / "out").column("x").to_pylist() == [None, None]

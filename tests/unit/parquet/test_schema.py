"""The schema of a file, and the summary of its footer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkcrypt.errors import FormatError, VerificationError
from sparkcrypt.files.parquet import inspect_file, leaf_paths, message_type, read_footer
from sparkcrypt.files.parquet.thrift.compact import BINARY, I32, LIST, STRUCT, List, Struct, encode_struct, field_key
from sparkcrypt.files.parquet.thrift.metadata import FileMetaData
from tests.unit.parquet.writers import FOOTER_MODES, Keys, table, write_encrypted, write_uniform


def element(
    name: str,
    *,
    type: int | None = None,
    repetition: int | None = 1,
    children: int | None = None,
    converted: int | None = None,
    logical: int | None = None,
) -> Struct:
    """Return a schema element with the given fields; ``logical`` is the number of the union's member."""
    fields = {
        field_key(1, I32): type,
        field_key(3, I32): repetition,
        field_key(4, BINARY): name.encode(),
        field_key(5, I32): children,
        field_key(6, I32): converted,
        field_key(10, STRUCT): None if logical is None else Struct({field_key(logical, STRUCT): Struct()}),
    }
    return Struct({key: value for key, value in fields.items() if value is not None})


def metadata(*elements: Struct) -> FileMetaData:
    """Return a footer with these schema elements."""
    return FileMetaData(Struct({field_key(2, LIST): List(STRUCT, elements)}))


ROOT = element("schema", repetition=None, children=1)
LEAF = element("x", type=1)


def test_an_arrow_schema_becomes_nested_fields(tmp_path: Path) -> None:
    """Structs, lists, maps and dotted names of a real file come out nested, annotated, in order, less the root."""
    pq.write_table(table(), tmp_path / "f.parquet")
    footer = read_footer(tmp_path / "f.parquet")
    assert footer.metadata is not None
    fields = {field["name"]: field for field in message_type(footer.metadata)}
    assert list(fields) == table().column_names
    leaf: dict[str, Any] = {"kind": "leaf", "annotation": None, "children": []}
    assert fields["a.b%"] == {"name": "a.b%", "repetition": "optional", **leaf}
    item = {"name": "element", "repetition": "optional", **leaf}
    assert fields["phones"] == {
        "name": "phones",
        "kind": "group",
        "annotation": "LIST",
        "repetition": "optional",
        "children": [
            {"name": "list", "kind": "group", "annotation": None, "repetition": "repeated", "children": [item]}
        ],
    }
    assert fields["labels"]["annotation"] == "MAP"
    assert [child["name"] for child in fields["labels"]["children"][0]["children"]] == ["key", "value"]
    assert fields["person"]["annotation"] is None
    paths = leaf_paths(footer.metadata)
    assert paths[:2] == (("id",), ("ssn",)) and ("labels", "key_value", "value") in paths and ("a.b%",) in paths


def test_leaf_paths_are_those_of_pyarrow(tmp_path: Path) -> None:
    """Leaves come in the order of the column chunks, three levels of nesting deep."""
    inner = pa.struct({"x": pa.int32(), "y": pa.list_(pa.int64())})
    kind = pa.list_(pa.struct({"m": pa.map_(pa.string(), pa.list_(inner))}))
    deep = pa.array([[{"m": [("k", [{"x": 1, "y": [2]}])]}]], kind)
    pq.write_table(pa.table({"deep": deep, "z": [1]}), tmp_path / "f.parquet")
    footer = read_footer(tmp_path / "f.parquet")
    assert footer.metadata is not None
    columns = pq.read_metadata(tmp_path / "f.parquet").row_group(0)
    expected = [columns.column(index).path_in_schema for index in range(columns.num_columns)]
    assert [".".join(path) for path in leaf_paths(footer.metadata)] == expected


@pytest.mark.parametrize(
    ("converted", "logical", "annotation"),
    [
        (None, None, None),
        (3, None, "LIST"),
        (1, None, "MAP"),
        (2, None, "MAP_KEY_VALUE"),
        (None, 3, "LIST"),
        (None, 2, "MAP"),
        (1, 3, "MAP"),
        (2, 40, "MAP_KEY_VALUE"),
        (0, 3, None),
        (99, 3, "LIST"),
        (99, None, None),
        (None, 40, None),
    ],
)
def test_old_and_new_annotations_are_understood(converted: int | None, logical: int | None, annotation: str) -> None:
    """LIST and MAP are known by either annotation, the old one going first, as for Spark; unknown ones are none."""
    group = element("g", children=1, converted=converted, logical=logical)
    (found,) = message_type(metadata(ROOT, group, LEAF))
    assert found["annotation"] == annotation


def test_a_leaf_is_never_annotated_and_an_empty_group_is_a_group() -> None:
    """Only what gives shape is told, and a group is what has no type."""
    (found,) = message_type(metadata(ROOT, element("x", type=6, converted=3)))
    assert (found["kind"], found["annotation"]) == ("leaf", None)
    (found,) = message_type(metadata(ROOT, element("g", children=0)))
    assert (found["kind"], found["children"]) == ("group", [])


@pytest.mark.parametrize(
    ("elements", "expected"),
    [
        ((), "no schema element"),
        ((ROOT,), "1 schema elements are missing"),
        ((ROOT, LEAF, LEAF), "belongs to no group"),
        ((ROOT, element("g", children=2), LEAF), "1 schema elements are missing"),
        ((element("schema", children=2**31 - 1), LEAF), "schema elements are missing"),
        ((element("schema", children=-1), LEAF), "announces -1 children"),
        ((element("schema"), LEAF), "announces None children"),
        ((ROOT, element("x", type=1, repetition=3)), "repetition 3"),
        ((ROOT, element("x", type=1, repetition=None)), "repetition None"),
        ((ROOT, element("x", type=1, repetition=-1)), "repetition -1"),
        ((ROOT, Struct({field_key(1, I32): 1})), "SchemaElement.name"),
        ((ROOT, Struct({field_key(1, I32): 1, field_key(4, BINARY): b"\xff"})), "not UTF-8"),
        ((ROOT, *(element("g", children=1) for _ in range(300)), LEAF), "nests too deep"),
    ],
)
def test_what_is_no_tree_is_refused(elements: tuple[Struct, ...], expected: str) -> None:
    """Counts that do not add up, absent names and repetitions, and endless depth are refused, each with its reason."""
    for read in (message_type, leaf_paths):
        with pytest.raises(FormatError, match=expected):
            read(metadata(*elements))


def test_the_deepest_schema_that_is_read_can_be_sent_on() -> None:
    """What is within the limit of depth can be written as JSON."""
    deepest = message_type(metadata(ROOT, *(element("g", children=1) for _ in range(255)), LEAF))
    assert json.dumps(deepest).count('"g"') == 255


KEY = b"0123456789abcdef"
FIELDS = ["path", "footer", "algorithm", "footer_key", "aad_prefix", "rows", "row_groups", "columns"]


def test_a_hidden_footer_is_null_without_a_key(tmp_path: Path) -> None:
    """Without a key an encrypted footer gives the footer's key id and algorithm, and null for what it hides."""
    path = write_encrypted(tmp_path / "f.parquet")
    assert inspect_file(path).to_dict() == {
        "path": str(path),
        "footer": "encrypted",
        "algorithm": "AES_GCM_V1",
        "footer_key": "footer key",
        "aad_prefix": None,
        "rows": None,
        "row_groups": None,
        "columns": None,
    }


@pytest.mark.parametrize("plaintext_footer", FOOTER_MODES)
def test_columns_and_their_key_ids_are_told(tmp_path: Path, plaintext_footer: bool) -> None:
    """With a key, or a plaintext footer, every leaf column is there with its decoded master key id."""
    path = write_encrypted(tmp_path / "f.parquet", plaintext_footer=plaintext_footer)
    summary = inspect_file(path, retrieve_key=None if plaintext_footer else Keys()).to_dict()
    assert list(summary) == FIELDS
    assert (summary["rows"], summary["row_groups"]) == (300, 3)
    columns = summary["columns"]
    assert columns["id"] == {"encrypted": False, "key_id": None}
    assert columns["ssn"] == columns["person.name"] == {"encrypted": True, "key_id": "pii:1"}
    assert columns["amount"] == {"encrypted": True, "key_id": "fin"}
    assert "a%2Eb%25" in columns
    assert json.loads(json.dumps(summary)) == summary


def test_columns_under_the_footer_key_have_its_id(tmp_path: Path) -> None:
    """Key metadata that is no key material of ours gives no key id, but the column is encrypted all the same."""
    path = write_uniform(tmp_path / "f.parquet", KEY, plaintext_footer=True, aad_prefix=b"t/p=0/\xff\x00")
    summary = inspect_file(path).to_dict()
    assert summary["footer_key"] is None
    assert summary["aad_prefix"] == "t/p=0/\\xff\x00"
    assert summary["columns"]["ssn"] == {"encrypted": True, "key_id": None}


def test_a_plain_file_says_so(tmp_path: Path) -> None:
    """A file that is not encrypted has no algorithm, key or prefix."""
    pq.write_table(table(), tmp_path / "f.parquet")
    summary = inspect_file(tmp_path / "f.parquet").to_dict()
    assert (summary["footer"], summary["algorithm"], summary["footer_key"]) == ("plaintext", None, None)
    assert {column["encrypted"] for column in summary["columns"].values()} == {False}


def test_errors_are_those_of_reading_the_footer(tmp_path: Path) -> None:
    """A wrong key or no Parquet file is an error, never a summary."""
    path = write_uniform(tmp_path / "f.parquet", KEY)
    with pytest.raises(VerificationError):
        inspect_file(path, retrieve_key=lambda _: KEY[::-1])
    with pytest.raises(FormatError):
        inspect_file(b"no parquet file at all")


def test_the_package_imports_with_nothing_installed() -> None:
    """Importing the layer and reading a plain footer loads neither pyarrow, pyspark, cryptography nor yaml."""
    program = (
        "import sys, sparkcrypt.files.parquet as p\n"
        "try: p.read_footer(b'no')\n"
        "except Exception: pass\n"
        "print([m for m in ('pyarrow', 'pyspark', 'cryptography', 'yaml') if m in sys.modules])\n"
        "print(sorted(name for name in p.__all__ if not hasattr(p, name)))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.split("\n")[:2] == ["[]", "[]"]


@pytest.mark.parametrize(
    ("rows", "expected"), [(None, r"f\.parquet: FileMetaData.num_rows"), (-1, r"f\.parquet: .* -1 rows; expected")]
)
def test_a_footer_without_a_count_of_rows_is_refused_by_name(tmp_path: Path, rows: int | None, expected: str) -> None:
    """A count that is missing or negative is an error that names the file, not a summary."""
    pq.write_table(table(), tmp_path / "f.parquet")
    data, footer = (tmp_path / "f.parquet").read_bytes(), read_footer(tmp_path / "f.parquet")
    assert footer.metadata is not None
    struct = footer.metadata.struct
    struct[FileMetaData.num_rows.key] = rows or 0
    if rows is None:
        del struct[FileMetaData.num_rows.key]
    wire = encode_struct(struct)
    (tmp_path / "f.parquet").write_bytes(data[: footer.offset] + wire + len(wire).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(FormatError, match=expected):
        inspect_file(tmp_path / "f.parquet")

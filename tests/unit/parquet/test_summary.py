from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from sparkcrypt.errors import FormatError, VerificationError
from sparkcrypt.files.parquet import inspect_file, read_footer
from sparkcrypt.files.parquet.thrift.compact import encode_struct
from sparkcrypt.files.parquet.thrift.metadata import FileMetaData
from tests.unit.parquet.writers import FOOTER_MODES, Keys, table, write_encrypted, write_uniform

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

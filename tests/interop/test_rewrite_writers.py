from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from sparkcrypt.files.parquet import FOOTER_KEY, FileEncryption, rewrite_file, verify_file
from tests.unit.parquet.rewriting import REDACTED, arrow_read, new_encryption
from tests.unit.parquet.writers import ALGORITHMS, Keys

FILES = sorted((Path(__file__).parent / "files").glob("*.parquet"))


def encryption(algorithm: str, mode: str) -> FileEncryption:
    """Encrypt every column with the footer's key."""
    return new_encryption(default=FOOTER_KEY, algorithm=algorithm, footer_mode=mode)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("mode", ["encrypted", "plaintext"])
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_files_of_other_writers(tmp_path: Path, file: Path, mode: str, algorithm: str) -> None:
    """Files of Polars, DuckDB and fastparquet in every codec say the same encrypted, and again once decrypted."""
    before = verify_file(file)
    parts = {part: digest for part, digest in before.digests.items() if mode == "encrypted" or part not in REDACTED}
    result = rewrite_file(file, tmp_path / "there", encryption=encryption(algorithm, mode))
    assert not [note for note in result.notes if "index" in note]
    assert verify_file(tmp_path / "there", retrieve_key=Keys(), equal_to=parts).plaintext_columns == ()
    rewrite_file(tmp_path / "there", tmp_path / "back", retrieve_key=Keys())
    verify_file(tmp_path / "back", equal_to=parts)
    expected = pq.read_table(file)
    assert arrow_read(tmp_path / "back", decrypt=False).equals(expected)
    if not any("V2 pages" in note for note in result.notes):
        assert arrow_read(tmp_path / "there").equals(expected)


def test_every_writer_is_there() -> None:
    """The files are those that their README speaks of, and small."""
    assert {file.name.split("_")[0] for file in FILES} == {"polars", "duckdb", "fastparquet"}
    assert len(FILES) == 24 and all(file.stat().st_size < 50_000 for file in FILES)

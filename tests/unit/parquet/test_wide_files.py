"""Files of many columns and of many row groups: the work grows with their number, not with its square."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkcrypt.files.parquet import inspect_file, rewrite_file, verify_file
from sparkcrypt.files.parquet.thrift import metadata
from tests.unit.parquet.rewriting import new_encryption
from tests.unit.parquet.writers import Keys

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

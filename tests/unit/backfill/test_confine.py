"""Paths of records: inside the folders in which the table's runs work, or named by somebody else, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from sparkcrypt.errors import VerificationError
from sparkcrypt.ledger.audit.trust import RunFolders, refuse_outside
from sparkcrypt.ledger.journal.journal import Record

BASE = "hdfs://nn/warehouse/db/t"
STAGED = "hdfs://nn/warehouse/db/.sparkcrypt/t/run-1/p=0"


def record(**fields: Any) -> Record:
    """A record with these fields."""
    return Record("runs/t/r/000002.json", 2, "", "unit_listed", "r", 1, fields, "", None, "", "")


def refused(named: tuple[str, ...] = (), **fields: Any) -> bool:
    """Tell whether a record is refused, where the metastore names these folders."""
    try:
        refuse_outside([record(unit="p=0", **fields)], RunFolders(BASE, lambda: named))
    except VerificationError as error:
        assert "runs/t/r/000002.json" in str(error)
        return True
    return False


def nested(path: str) -> list[dict[str, Any]]:
    """Return every way in which a record can name a path."""
    return [
        {"location": path},
        {"from": path},
        {"base": path},
        {"to": path},
        {"outcome": {"old_location": path}},
        {"outcome": {"new_location": path}},
        {"files": [["", [[path, 1, 2]]]]},
        {"made": [["a=1", [[path, 1, 2]]]]},
        *({"evidence": {"changes": [{"sources": [{name: path}], "targets": []}]}} for name in ("path", "kept")),
        *({"evidence": {"changes": [{"sources": [], "targets": [{name: path}]}]}} for name in ("path", "staged")),
    ]


@pytest.mark.parametrize("path", [BASE, f"{BASE}/p=0/part-0", STAGED, f"{BASE}//p=0", "hdfs://nn/warehouse/db/t/"])
def test_what_is_inside_is_taken(path: str) -> None:
    """The table's folder, what is below it, and what is below the folder beside it."""
    assert not any(refused(**fields) for fields in nested(path))


@pytest.mark.parametrize(
    "path",
    [
        "hdfs://nn/warehouse/db/other",
        "hdfs://nn/warehouse/db/t2/p=0",
        "hdfs://nn/warehouse/db/.sparkcrypt/t2/run-1",
        "hdfs://nn/warehouse/db",
        f"{BASE}/../other",
        f"{BASE}/p=0/../../other",
        f"{BASE}/./p=0",
        "hdfs://other/warehouse/db/t",
        "file:/warehouse/db/t",
        "/warehouse/db/t",
        "warehouse/db/t",
        "",
        "hdfs:warehouse/db/t",
    ],
)
def test_what_is_outside_is_refused(path: str) -> None:
    """Another folder, table, scheme or authority, a way up, or no absolute path, wherever a record names it."""
    assert all(refused(**fields) for fields in nested(path))
    assert refused(staged=path)


def test_what_runs_make_is_in_their_folder() -> None:
    """A staging folder inside the table itself is refused: it would be live rows."""
    assert not refused(staged=STAGED)
    assert refused(staged=f"{BASE}/p=0") and refused(staged=BASE)


def test_what_somebody_else_names_is_taken() -> None:
    """A partition that the metastore has elsewhere may be named, and a path out of it may not."""
    named = ("s3a://bucket/p=0",)
    assert not refused(named, location="s3a://bucket/p=0", files=[["", [["s3a://bucket/p=0/f", 1, 2]]]])
    assert refused(named, location="s3a://bucket/p=1") and refused(named, location="s3a://bucket/p=0/../p=1")


@pytest.mark.parametrize("path", ["..", "../other", "/etc", "a=1/../..", "a//b", "a/./b", "a\0b"])
def test_relative_folders_stay_below_the_unit(path: str) -> None:
    """Folders of files, and partition paths, lead nowhere up."""
    assert refused(files=[[path, []]]) and refused(made=[[path, []]]) and refused(partition_path=path)
    assert refused(evidence={"changes": [{"folder": path}]})

"""A forged file on a table that requires encryption: its unit is left as it was, whatever a run may do to others."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sparkcrypt import verify_table
from sparkcrypt.runs.passes.passes import PassOptions, backfill
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.support import SECRET, Lake, assert_encrypted, data_files, refusal

pytestmark = pytest.mark.spark

TAGS = "\n  pii: {key: pii}\n  fin: {key: fin, history: [pii]}\n"
FORGED = f"{SECRET}-forged"
REFUSED = ": belongs to table "


def options(*, rewrap: bool = False, adopt: bool = False) -> PassOptions:
    """Return the options of a pass over one table."""
    return PassOptions(run=RunOptions(keep_going=True, rewrap=rewrap, adopt=adopt))


def folder(lake: Lake, p: int, table: str = "t") -> Path:
    """Return where a partition's files are now."""
    catalog = Catalog(lake.spark)
    (found,) = catalog.partitions(catalog.table(table), {"p": str(p)})
    return Path(found.location.removeprefix("file:"))


def one_row(lake: Lake, p: int) -> tuple[object, ...]:
    """Read a partition that has one row."""
    lake.spark.catalog.refreshTable("t")
    (row,) = lake.sql(f"SELECT id, email FROM t WHERE p = {p}").collect()
    return tuple(row)


@pytest.mark.parametrize("rewrap", [False, True])
def test_file_of_another_table_is_quarantined_until_it_is_adopted(lake: Lake, rewrap: bool) -> None:
    """A file of another table under the same keys takes the place of one: no pass makes it authentic by itself.

    The rest of the table is done; readers refuse the file before and after; with adopt its rows are the table's.
    """
    policy = lake.policy(TAGS, f"  {lake.name('t')}: {{require_encryption: true}}\n")
    for name in ("t", "u"):
        lake.sql(f"CREATE TABLE {name} (id INT, email STRING, note STRING, p INT) USING parquet PARTITIONED BY (p)")
        set_tags(lake.spark, name, {"email": ["pii"]}, policy)
    lake.sql(f"INSERT INTO t VALUES (0, '{SECRET}-0', 'CANARY-plain-value', 0), (1, '{SECRET}-1', 'note', 1)")
    lake.sql(f"INSERT INTO u VALUES (9, '{FORGED}', 'CANARY-plain-value', 1)")
    (own,) = data_files(folder(lake, 1))
    (foreign,) = data_files(folder(lake, 1, "u"))
    content = foreign.read_bytes()
    own.unlink()
    forged = Path(shutil.copy(foreign, own.parent))  # its name and its partition are right: only the table is another
    assert REFUSED in refusal(lambda: one_row(lake, 1))
    if rewrap:  # every file then needs another master key, which data keys could be wrapped with anew
        set_tags(lake.spark, "t", {"email": ["fin"]}, policy)
    report = backfill(lake.spark, policy, tables=["t"], options=options(rewrap=rewrap))
    (table,) = report.tables
    assert (report.outcome, table.files_rewritten) == ("incomplete", 1 if rewrap else 0)
    (quarantined,) = table.quarantined
    assert (quarantined["unit"], quarantined["error"]) == ("p=1", "VerificationError")
    assert f"{forged.name}: the file: aad_mismatch: " in quarantined["message"]
    assert "--adopt" in quarantined["message"]
    assert folder(lake, 1) == forged.parent
    assert {file: file.read_bytes() for file in data_files(forged.parent)} == {forged: content}
    assert REFUSED in refusal(lambda: one_row(lake, 1))
    assert one_row(lake, 0) == (0, f"{SECRET}-0")
    done = backfill(lake.spark, policy, tables=["t"], options=options(rewrap=rewrap, adopt=True))
    assert (done.outcome, done.tables[0].files_rewritten) == ("done", 1)
    assert (one_row(lake, 0), one_row(lake, 1)) == ((0, f"{SECRET}-0"), (9, FORGED))
    assert forged.read_bytes() == content
    assert_encrypted(folder(lake, 1), policy, {"email": "fin" if rewrap else "pii"})
    assert verify_table(lake.spark, "t", policy, manifest=True).ok

"""Queries by a store that is larger than what a helper keeps open: tasks judge its parts, and rows are never others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sparkcrypt
from sparkcrypt import names, skipping_report
from sparkcrypt.skipping.trusted import write
from sparkcrypt.skipping.trusted.sidecar import PartSize
from tests.spark.fixtures import new_lake
from tests.spark.stored_tables import FILES, ROWS, append, check, heard, index, make, policy_file, store_of
from tests.spark.support import Lake, refusal, with_keys, without_keys

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
OPENED = {
    "id = 31": 1,
    "email = 'e0031' OR plain = 'p0200'": 2,
    "id BETWEEN 25 AND 35 AND NOT (email >= 'e0032')": 2,
    "email IS NULL": FILES,
    "id > 1000": 0,
}
"""Predicate -> how many of the files are opened, by a store that is kept open and by its parts."""


def enlarge(patched: pytest.MonkeyPatch, rows: int) -> None:
    """Let stores that are written have parts of so many objects, each said to hold more than is kept open."""
    patched.setattr(write, "ROWS_PER_FILE", rows)
    patched.setattr(write, "PartSize", lambda count, size, values: PartSize(count, size + (1 << 40), values))


@pytest.fixture(scope="module")
def large(spark: SparkSession, private_jar: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A table of eight files, with a store of eight parts that is too large to be kept open."""
    with new_lake(spark, tmp_path_factory.mktemp("large")) as lake, pytest.MonkeyPatch.context() as patched:
        lake.policy(more="index: {location: indexes/}\n")
        enlarge(patched, 1)
        make(lake)
        yield lake


def jobs(lake: Lake) -> list[str]:
    """Return the descriptions of the jobs in which parts were judged."""
    found = lake.spark._jsc.sc().statusStore().jobsList(None)
    texts = [found.apply(number).description() for number in range(found.size())]
    return [text.get() for text in texts if text.isDefined() and "parts of the store" in text.get()]


@pytest.mark.parametrize("predicate", OPENED)
def test_tasks_leave_out_what_an_open_store_leaves_out(large: Lake, predicate: str) -> None:
    """Rows are those of a whole scan; files, metrics and report are those of a store that is kept open."""
    before = len(jobs(large))
    found = check(large, f"SELECT * FROM t WHERE {predicate}")
    assert (found.listed, found.opened, found.unused, found.generation) == (FILES, OPENED[predicate], {}, 1)
    assert "Location: SkippingFileIndex" in str(large.sql(f"EXPLAIN SELECT * FROM t WHERE {predicate}").collect())
    assert jobs(large)[before:], "no task judged a part"
    assert set(jobs(large)) == {f"sparkcrypt: judges {FILES} parts of the store of {large.name('t')}"}


def test_few_parts_are_judged_without_tasks(large: Lake) -> None:
    """The driver's helper judges up to four parts itself: those of files that are listed; a refresh keeps them true."""
    with pytest.MonkeyPatch.context() as patched:
        enlarge(patched, 2)
        make(large, "few")
        before = len(jobs(large))
        assert check(large, "SELECT * FROM few WHERE id = 31").opened == 1
        append(large, "few", 1000, 1010, 2)
        assert check(large, "SELECT * FROM few WHERE id = 31 OR id = 1005").opened == 3
        assert jobs(large)[before:] == []
        index(large, "few", verb="refresh")
        found = check(large, "SELECT * FROM few WHERE id = 31 OR id = 1005")
        assert (found.listed, found.opened, found.generation) == (FILES + 2, 2, 2)
        assert len(jobs(large)) > before


def test_reader_without_a_key_is_not_helped_by_its_index(large: Lake) -> None:
    """Tasks use his keys: other indexes serve him, the one of the denied column does not, and refusals stay."""
    policy = sparkcrypt.load_policy(policy_file(large))
    poor = sparkcrypt.session(with_keys(policy, large.root / "poor", without_keys("pii")))
    poor.sql(f"USE {large.database}")
    poor.conf.set(names.SKIPPING, "true")
    assert check(large, "SELECT id FROM t WHERE email = 'e0031'").opened == 1
    found = check(large, "SELECT id, plain FROM t WHERE id = 31 OR plain = 'p0200'", poor)
    assert (found.opened, list(found.unused)) == (2, ["email minmax"])
    (scan,) = skipping_report(poor.sql("SELECT id FROM t WHERE email = 'none'"))
    assert (scan.opened, scan.store) == (FILES, None)
    assert "column email of table" in refusal(poor.sql("SELECT id FROM t WHERE email = 'e0031'").collect)


def test_damaged_part_keeps_every_file(large: Lake) -> None:
    """Where one part of those that a query needs does not authenticate, nothing is left out; one warning says so."""
    make(large, "damaged")
    part = sorted(store_of(large, "damaged").glob("part-*"))[5]
    content = bytearray(part.read_bytes())
    content[len(content) // 3] ^= 1
    part.write_bytes(content)
    with heard(large) as writer:
        assert large.sql("SELECT count(*) FROM damaged WHERE email = 'e0031'").collect() == [(1,)]
        (line,) = str(writer.toString()).splitlines()
    assert "no file is skipped, since its store cannot be used: " in line
    assert "does not authenticate" in line
    assert "e0031" not in line
    found = check(large, "SELECT * FROM damaged WHERE id = 31")
    assert (found.opened, found.store) == (FILES, None)
    assert large.sql("SELECT * FROM damaged").count() == ROWS

"""Files of many writers go through the whole package: what readers that are not ours get of them stays the same."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sparkcrypt
from sparkcrypt import configure, encrypt_table, verify_table
from sparkcrypt.errors import KeyNotFoundError
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.tables.tagging import set_tags
from tests.corpus.driving import DENIED, Trial, arrow_rows, encrypt, go_on, opened, plain, trials
from tests.corpus.manifest import FILES, load
from tests.corpus.spark_reads import Rows, choose_groups, infer_schemas, read_rows
from tests.spark.fixtures import new_lake, private_jar
from tests.spark.support import Lake, make_policy, with_keys, without_keys

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["private_jar"]
NAMES = sorted(load())
STEPS = ("plain", "encrypted", "decrypted")
# Whichever test comes first waits for all files to be driven.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]


@dataclass
class Driven:
    """What became of all files.

    Attributes:
        trials: of each file what this package did.
        rows: what Spark read of it, at each step.
        said: what Spark said where it did not read a file's own rows, by the name of the file.
        refused: what Spark said of a file of each format that has a denied column.
    """

    trials: dict[str, Trial]
    rows: Rows = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    """A policy of two keys."""
    return make_policy(tmp_path_factory.mktemp("policy"), more="formats: [parquet, orc]\n")


@pytest.fixture(scope="module")
def poor(policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> Policy:
    """The policy of somebody who lacks one of them."""
    return with_keys(policy, tmp_path_factory.mktemp("poor") / "keys", without_keys(DENIED))


@pytest.fixture(scope="module")
def corpus_lake(spark: SparkSession, private_jar: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """The session of these tests."""
    with new_lake(spark, tmp_path_factory.mktemp("corpus")) as lake:
        lake.spark.conf.set("spark.sql.caseSensitive", "true")
        lake.spark.conf.set("spark.sql.session.timeZone", "UTC")
        lake.spark.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")
        lake.spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.threshold", "10000")
        yield lake


@pytest.fixture(scope="module")
def driven(corpus_lake: Lake, policy: Policy, poor: Policy) -> Driven:
    """Each file planned, encrypted, rewrapped, keyed anew and decrypted, and what Spark reads at each step."""
    found = trials(corpus_lake.root / "files")
    session, result = corpus_lake.spark, Driven({trial.name: trial for trial in found})
    infer_schemas(session, found)
    result.said = {trial.name: trial.spark_error for trial in found if trial.spark_error}
    configure(session, policy)
    for trial in found:
        encrypt(trial, policy)
        if trial.refusal is None:
            go_on(trial, policy)
    readable = [trial for trial in found if trial.refusal is None and trial.spark_schema is not None]
    groups = choose_groups(trial for trial in readable if "spark" not in trial.entry)
    for group in groups:
        result.rows |= read_rows(session, group, STEPS, result.said)
    for trial in readable:
        if "spark" in trial.entry:
            read_rows(session, [trial], ("plain",), result.said)
    configure(session, poor)
    for kind in ("parquet", "orc"):
        said: dict[str, str] = {}
        read_rows(session, [result.trials[f"arrow_people_snappy.{kind}"]], ("encrypted",), said)
        result.refused += said.values()
    return result


@pytest.mark.parametrize("name", NAMES)
def test_file(driven: Driven, policy: Policy, poor: Policy, name: str) -> None:
    """Every route gives the file's rows, or the manifest says what is refused, and why."""
    trial, entry = driven.trials[name], driven.trials[name].entry
    if "refused" in entry:
        assert entry["why"] and trial.refusal is not None and re.search(entry["refused"], str(trial.refusal))
        assert not trial.place("encrypted").exists()
        return
    assert trial.refusal is None
    if "spark" in entry:
        assert re.search(entry["spark"], driven.said[name])
    else:
        assert name not in driven.said
        of_spark = {step: driven.rows[name, step] for step in STEPS}
        assert of_spark["encrypted"] == of_spark["plain"] == of_spark["decrypted"]
    if "arrow" in entry:
        with pytest.raises(Exception, match=entry["arrow"]):
            arrow_rows(trial.source)
        return
    expected = plain(arrow_rows(trial.source))
    assert plain(arrow_rows(trial.place("decrypted"))) == expected
    if "open" in entry:
        assert entry["why"]
        with pytest.raises(Exception, match=entry["open"]):
            opened(trial, "encrypted", policy).to_table()
        return
    for step in ("encrypted", "rekeyed"):
        assert plain(opened(trial, step, policy).to_table()) == expected
    _check_denied(trial, poor)


def _check_denied(trial: Trial, poor: Policy) -> None:
    """Check that the columns whose key is denied are an error by the key's name, and null where that is asked for."""
    whole = arrow_rows(trial.source)
    if DENIED not in trial.keys.values() or not whole.num_rows:
        return
    with pytest.raises(KeyNotFoundError, match=f"'{DENIED}'"):
        opened(trial, "encrypted", poor).to_table()
    if not trial.tags:  # nulls are for columns with a tag
        return
    masked = opened(trial, "encrypted", poor, on_denied="mask").to_table()
    assert masked.num_rows == whole.num_rows
    for place, name in enumerate(masked.column_names):
        if trial.tags.get((name,)) == DENIED:
            assert masked.column(place).null_count == masked.num_rows, name
        elif not any(path[0] == name for path, tag in trial.tags.items() if tag == DENIED):
            assert plain(masked.select([place])) == plain(whole.select([place])), name


def test_spark_refuses_denied_columns(driven: Driven) -> None:
    """Without the key a read of these files ends with an error that names it, for both formats."""
    assert len(driven.refused) == 2
    assert all(f"'{DENIED}'" in said for said in driven.refused)


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_tables_of_many_writers(corpus_lake: Lake, policy: Policy, poor: Policy, kind: str) -> None:
    """A run encrypts a table whose files many writers wrote; its rows stay the same, or null without the key."""
    session, name = corpus_lake.spark, corpus_lake.name(f"people_{kind}")
    folder = corpus_lake.root / f"people_{kind}"
    folder.mkdir()
    for file in sorted(FILES.glob(f"*_people_*.{kind}")):
        of_other_types = file.name.startswith(("go_", "polars_")) or "zero" in file.name
        if not of_other_types and load()[file.name].keys().isdisjoint({"spark", "refused"}):
            shutil.copy(file, folder)
    configure(session, policy)
    columns = "id BIGINT, email STRING, score DOUBLE, member BOOLEAN, born DATE, seen TIMESTAMP, owed DECIMAL(10, 2)"
    more = "phones ARRAY<STRING>, home STRUCT<city: STRING, zip: INT>"
    session.sql(f"CREATE TABLE {name} ({columns}, {more}) USING {kind} LOCATION '{folder.as_uri()}'")
    files = len(list(folder.iterdir()))

    def rows() -> list[str]:
        return sorted(repr(row) for row in session.table(name).collect())

    before = rows()
    set_tags(session, name, {"id": ["pii"], "email": ["pii"], "home.city": ["fin"], "seen": ["fin"]}, policy)
    report = encrypt_table(session, name, policy)
    assert report.files_rewritten == files > 15
    verification = verify_table(session, name, policy)
    assert not verification.drift and rows() == before
    without = sparkcrypt.session(poor, on_denied="mask")
    found = without.table(name).select("id", "email", "score").distinct().collect()
    assert {(row.id, row.email) for row in found} == {(None, None)} and len(found) > 1


def test_manifest_and_files_are_one() -> None:
    """Each file has its line, with a writer, what is odd and known expectations; all of them are small."""
    entries = load()
    assert sorted(file.name for file in FILES.iterdir()) == sorted(entries)
    known = {"writer", "version", "odd", "refused", "why", "spark", "arrow", "open"}
    assert all({"writer", "odd"} <= entry.keys() <= known for entry in entries.values())
    assert sum(file.stat().st_size for file in FILES.iterdir()) < 2_500_000

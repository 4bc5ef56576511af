"""Files of many writers go through the whole package: what readers that are not ours get of them stays the same."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sparkcrypt import configure
from sparkcrypt.errors import KeyNotFoundError
from sparkcrypt.parquet import inspect_file
from sparkcrypt.policy.model import Policy
from tests.corpus.driving import Trial, arrow_rows, carry_out, encrypt, opened, plain, trials
from tests.corpus.manifest import FILES, load
from tests.corpus.spark_reads import Rows, groups, infer_schemas, read_rows
from tests.spark.fixtures import new_lake, private_jar
from tests.spark.support import make_policy, said_of, with_keys, without_keys

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["private_jar"]
pytestmark = pytest.mark.spark
NAMES = sorted(load())
ROUTES = ("plain", "encrypted", "masked", "nulls", "denied", "decrypted")


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    """A policy of two keys."""
    return make_policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture(scope="module")
def poor(policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> Policy:
    """The policy of somebody who lacks one of them."""
    return with_keys(policy, tmp_path_factory.mktemp("poor") / "keys", without_keys("pii"))


@pytest.fixture(scope="module")
def driven(
    spark: SparkSession, private_jar: Path, policy: Policy, poor: Policy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Trial]]:
    """Each file planned, encrypted, rewrapped and decrypted, and what Spark reads at each step."""
    folder = tmp_path_factory.mktemp("corpus")
    found = trials(folder)
    t0 = time.time()
    with new_lake(spark, folder) as lake:
        session = lake.spark
        session.conf.set("spark.sql.caseSensitive", "true")
        session.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")
        infer_schemas(session, found)
        print("infer", time.time() - t0)
        configure(session, policy)
        for trial in found:
            drive(trial, policy)
        print("drive", time.time() - t0)
        of_one = groups(trial for trial in found if trial.refusal is None)
        print(len(of_one), "groups")

        def read(route: str, step: str | None, mask: Callable[[str], bool] = lambda _: False) -> None:
            for group in of_one:
                for name, rows in read_rows(session, group, step, mask).items():
                    by_name[name].rows[route] = rows
            print(route, time.time() - t0)

        by_name = {trial.name: trial for trial in found}
        read("plain", None)
        read("nulls", None, lambda tag: tag == "pii")
        read("encrypted", "encrypted")
        read("decrypted", "decrypted")
        configure(session, poor, on_denied="mask")
        read("masked", "encrypted")
        configure(session, poor)
        read("denied", "encrypted")
    yield by_name


def drive(trial: Trial, policy: Policy) -> None:
    encrypt(trial, policy)
    if trial.refusal is None:
        try:
            carry_out(trial, "rewrapped", trial.place("encrypted"), policy, "rewrap")
            carry_out(trial, "decrypted", trial.place("rewrapped"), policy, "decrypt")
        except Exception as e:
            trial.refusal = e


@pytest.mark.parametrize("name", NAMES)
def test_spark(driven: dict[str, Trial], name: str) -> None:
    """x."""
    trial = driven[name]
    if trial.refusal:
        raise trial.refusal
    assert not trial.spark_error
    assert not isinstance(trial.rows["plain"], str), trial.rows["plain"]
    for a, b in (("plain", "encrypted"), ("plain", "decrypted"), ("nulls", "masked")):
        assert trial.rows[a] == trial.rows[b], (a, b)


@pytest.mark.parametrize("name", NAMES)
def test_native(driven: dict[str, Trial], policy: Policy, poor: Policy, name: str) -> None:
    """x."""
    trial = driven[name]
    if trial.refusal:
        raise trial.refusal
    expected = plain(arrow_rows(trial.source))
    assert plain(opened(trial, "encrypted", policy).to_table()) == expected
    assert plain(arrow_rows(trial.place("decrypted"))) == expected

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.everyday.night import Plan, play
from tests.spark.fixtures import new_lake, private_jar

__all__ = ["private_jar"]


@pytest.mark.spark
@pytest.mark.timeout(900)  # a minute, on a machine that does nothing else
def test_a_night_loses_doubles_and_betrays_nothing(spark: SparkSession, private_jar: Path, tmp_path: Path) -> None:
    """After what people do, killed passes and expires every row is there once, and no tagged value in clear."""
    plan = Plan(2, turns=1)
    with new_lake(spark, tmp_path / "estate") as lake:
        result = play(lake, tmp_path / "outside", plan, print)
    assert [finding for finding, _ in result.wrong] == [], "\n".join(result.log)
    assert result.reached, "no driver was killed"

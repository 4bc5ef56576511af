"""How many tasks have ended is told while they run."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sparkcrypt.spark.tasks.run import watch_tasks

pytestmark = pytest.mark.spark
TASKS = 12


def slow(batches: Iterator[Any]) -> Iterator[Any]:
    """Pass on what comes, after a while."""
    for batch in batches:
        time.sleep(0.2)
        yield batch


def test_tasks_are_told_as_they_end_and_no_others(spark: SparkSession) -> None:
    """Those of another thread are not counted, and a job group that the caller had set is his again."""
    told: list[int] = []
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", "the caller's")
    other = threading.Thread(target=lambda: spark.range(0, 50, 1, 50).count())
    try:
        with watch_tasks(spark, told.append, every_seconds=0.05):
            other.start()
            rows = spark.range(0, TASKS, 1, TASKS).mapInArrow(slow, "id long").count()
        other.join()
        assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") == "the caller's"
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    assert rows == TASKS
    assert told == sorted(set(told))
    assert len(told) > 2
    assert max(told) <= TASKS + 1  # the last stage adds up the counts
    assert not [thread for thread in threading.enumerate() if thread.name == "tasks watched"]


def test_failure_in_the_block_is_the_one_that_is_raised(spark: SparkSession) -> None:
    """And the thread that watched has ended."""
    with pytest.raises(ZeroDivisionError), watch_tasks(spark, print, every_seconds=0.05):
        raise ZeroDivisionError
    assert not [thread for thread in threading.enumerate() if thread.name == "tasks watched"]

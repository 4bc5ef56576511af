"""Reads the footers of many files in Spark tasks on the executors."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from pyspark.sql import SparkSession

from sparkcrypt.files.footers import PACKED_SCHEMA, Found, footer_reader, unpack
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.spark.tasks.run import bring_package, hadoop_settings, translated_failure

FILES_A_TASK = 250
TASKS_A_JOB = 80
"""Limit of tasks: a job's serialised code contains all its paths, from which each task takes its own."""


def read_footers_in_tasks(
    spark: SparkSession,
    paths: Sequence[str],
    key_service: KeyServiceConfig,
    *,
    every_key: bool = False,
    shredded: Collection[str] = (),
) -> Iterator[tuple[str, Found]]:
    """Yield each file's facts, or the error of opening its footer or, with ``every_key``, one of its keys.

    Args:
        spark: a classic session.
        paths: the files.
        key_service: opens footers.
        every_key: open the keys of columns as well.
        shredded: master keys whose wrapped keys ``every_key`` does not open.

    Raises:
        ConfigError: the executors' interpreter lacks what this needs.
    """
    bring_package(spark)
    settings = hadoop_settings(spark)
    chunks = [tuple(paths[start : start + FILES_A_TASK]) for start in range(0, len(paths), FILES_A_TASK)]
    for start in range(0, len(chunks), TASKS_A_JOB):
        some = chunks[start : start + TASKS_A_JOB]
        frame = spark.range(0, len(some), 1, len(some))
        with translated_failure():
            reader = footer_reader(some, key_service, settings, every_key=every_key, shredded=shredded)
            rows = frame.mapInArrow(reader, PACKED_SCHEMA).collect()
        for row in rows:
            yield from unpack(row.packed).items()

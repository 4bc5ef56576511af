"""Checks that Python on the driver and the executors can run the native engine, by running tasks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from sparkcrypt.spark.tasks.run import bring_package, translated_failure

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_MOST_TASKS = 200


def versions_of_tasks(spark: SparkSession) -> str:
    """Run a task with the engine's libraries in every slot, and return the versions that they report.

    Raises:
        ConfigError: the driver or an executor lacks a library of the engine, or has one that is too old for Spark.
    """
    bring_package(spark)
    tasks = max(1, min(_MOST_TASKS, spark.sparkContext.defaultParallelism))
    with translated_failure():
        rows = spark.range(0, tasks, 1, tasks).mapInArrow(_versions_reader(), "versions string").collect()
    found = sorted({str(row.versions) for row in rows})
    return f"{tasks} tasks ran with {'; others with '.join(', '.join(json.loads(text)) for text in found)}"


def _versions_reader() -> Callable[[Iterable[RecordBatch]], Iterator[RecordBatch]]:
    """Return the task's function; a local one is serialised by value, since executors have no ``sparkcrypt.spark``."""

    def read(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        import importlib
        import json
        import platform

        import pyarrow as pa
        from pyspark.sql.pandas.utils import require_minimum_pandas_version, require_minimum_pyarrow_version

        require_minimum_pandas_version()
        require_minimum_pyarrow_version()
        importlib.import_module("sparkcrypt.files.rewrite")
        modules = [importlib.import_module(name) for name in ("pandas", "pyarrow", "cryptography")]
        versions = [
            f"Python {platform.python_version()}",
            *(f"{module.__name__} {module.__version__}" for module in modules),
        ]
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"versions": [json.dumps(versions)] * batch.num_rows})

    return read

"""Runs orders of the native engine in Spark tasks, each with one large file or some tens of small ones."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from pyspark.sql import SparkSession

from sparkcrypt.errors import ConfigError
from sparkcrypt.files.open_places import S3_BUCKETS, worker_settings
from sparkcrypt.files.orders import FileOutcome, KeySettings, Order
from sparkcrypt.files.task_batches import OUTCOME_SCHEMA, rewriter, share_out
from sparkcrypt.files.webhdfs.name_nodes import HADOOP_USER
from sparkcrypt.spark.jvm.failures import short_text
from sparkcrypt.spark.jvm.gateway import copy_collection, hadoop_conf, jvm
from sparkcrypt.spark.jvm.jar import jar_path
from sparkcrypt.spark.tasks.task_progress import Told, watch_tasks

_BRINGING = threading.Lock()
_BROUGHT: set[str] = set()
"""Ids of the applications whose executors have the package."""
ORDERS_A_JOB = 2000
"""Limit of orders: a job's serialised code contains all its orders, from which each task takes its own."""


def rewrite_in_tasks(
    spark: SparkSession, orders: Sequence[Order], lengths: Mapping[str, int], keys: KeySettings, progress: Told
) -> list[FileOutcome]:
    """Run orders on the executors and return an outcome for each order, in the same sequence.

    Args:
        spark: a classic session.
        orders: the orders.
        lengths: source file of an order -> its length in bytes.
        keys: the source of data keys.
        progress: called with the number of orders done, estimated from the number of tasks that have ended.

    Raises:
        ConfigError: the executors' interpreter lacks a library that the engine needs.
    """
    settings = hadoop_settings(spark)
    bring_package(spark)
    outcomes: list[FileOutcome] = []
    for start in range(0, len(orders), ORDERS_A_JOB):
        some = tuple(orders[start : start + ORDERS_A_JOB])
        tasks = share_out([lengths[order.source] for order in some])
        # A range has a partition for each number, and Spark never coalesces them.
        numbers = spark.range(0, len(tasks), 1, len(tasks))
        further = partial(_report_orders, progress, start, len(some) / len(tasks))
        with translated_failure(), watch_tasks(spark, further):
            work = rewriter([some[task.start : task.stop] for task in tasks], keys, settings)
            rows = numbers.mapInArrow(work, OUTCOME_SCHEMA).collect()
        outcomes.extend(FileOutcome.from_json(row.outcome) for row in rows)
    return outcomes


def _report_orders(progress: Told, start: int, orders_a_task: float, tasks: int) -> None:
    progress(start + int(tasks * orders_a_task))


@contextmanager
def translated_failure() -> Iterator[None]:
    """Translate errors of the block about a Python module that is missing or that Spark does not support.

    Raises:
        ConfigError: such a module, on the driver or on an executor.
    """
    try:
        yield
    except ImportError as error:  # Spark checks the driver first, when a frame is made
        raise _lacks("driver", short_text(error)) from error
    except Exception as error:
        lines = [line for line in str(error).splitlines() if _IMPORT_FAILURE.match(line)]
        if not lines and not _IMPORT_FAILURE.search(str(error)):
            raise
        raise _lacks("executors", lines[-1] if lines else short_text(error)) from error


_IMPORT_FAILURE = re.compile(r"\b[\w.]*(ModuleNotFoundError|ImportError)\b")


def _lacks(where: str, text: str) -> ConfigError:
    return ConfigError(
        f"the Python of the {where} cannot run the native engine: {text}; install there what "
        "`sparkcrypt[spark]` names and the key service's library, or use --engine spark"
    )


def bring_package(spark: SparkSession) -> None:
    """Add this package, which the jar contains, to the executors' Python path; in local mode it is there already.

    It is added once per application: ``addPyFile`` clears Python's import caches, which is not thread-safe.
    """
    context = spark.sparkContext
    if str(context.master).startswith("local"):
        return
    with _BRINGING:
        if str(context.applicationId) not in _BROUGHT:
            context.addPyFile(str(jar_path()))
            _BROUGHT.add(str(context.applicationId))


def hadoop_settings(spark: SparkSession) -> dict[str, str]:
    """Return the session's Hadoop settings and user that a worker needs to access the files."""
    conf = hadoop_conf(spark)
    user = jvm(spark).org.apache.hadoop.security.UserGroupInformation.getCurrentUser().getShortUserName()
    buckets = [f"{S3_BUCKETS}{name}" for name in copy_collection(conf.getPropsWithPrefix(S3_BUCKETS).keySet())]
    return worker_settings(conf.get, buckets) | {HADOOP_USER: str(user)}

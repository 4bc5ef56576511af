"""Runs the native engine and reads footers in Spark tasks, whose end it watches, and checks that they can run."""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from sparkcrypt.errors import ConfigError
from sparkcrypt.files.footers import PACKED_SCHEMA, Depth, Found, Part, read_packed, run_parts, unpack
from sparkcrypt.files.open_places import S3_BUCKETS, worker_settings
from sparkcrypt.files.orders import FileOrder, FileOutcome, KeySettings
from sparkcrypt.files.webhdfs.client import HADOOP_USER
from sparkcrypt.files.workers import rewrite_packed, share_out
from sparkcrypt.log_lines import LogSettings
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.spark.files.listing import SourceFile
from sparkcrypt.spark.jvm.failures import find_carried_error, short_text
from sparkcrypt.spark.jvm.gateway import copy_collection, hadoop_conf, jvm
from sparkcrypt.spark.jvm.jar import jar_path

if TYPE_CHECKING:
    from pyarrow import RecordBatch

Told = Callable[[int], None]
"""Called with the amount of work done, which never decreases."""
EVERY_SECONDS = 1.0
_GROUP = "spark.jobGroup.id"


@contextmanager
def watch_tasks(spark: SparkSession, progress: Told, *, every_seconds: float | None = None) -> Iterator[None]:
    """Report repeatedly how many tasks have ended of the jobs that this thread runs in the block.

    The jobs get a job group of their own.  ``progress`` is called from another thread, by default at most every second.
    """
    context = spark.sparkContext
    group, before, ended = f"sparkcrypt-{uuid.uuid4().hex}", context.getLocalProperty(_GROUP), threading.Event()
    tracker = context.statusTracker()

    def tasks() -> int:
        stages = [
            tracker.getStageInfo(stage)
            for job in tracker.getJobIdsForGroup(group)
            if (info := tracker.getJobInfo(job)) is not None
            for stage in info.stageIds
        ]
        return sum(stage.numCompletedTasks for stage in stages if stage is not None)

    def look() -> None:
        most = 0
        while not ended.wait(EVERY_SECONDS if every_seconds is None else every_seconds):
            try:
                found = tasks()
            except (Py4JError, OSError):  # the session is stopping, and its own thread raises the error
                return
            if found > most and not ended.is_set():
                most = found
                progress(found)

    context.setLocalProperty(_GROUP, group)
    thread = threading.Thread(target=look, name="tasks watched", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        context.setLocalProperty(_GROUP, before)  # type: ignore[arg-type]  # None removes it


_BRINGING = threading.Lock()
_BROUGHT: set[str] = set()
"""Ids of the applications whose executors have the package."""
ORDERS_A_JOB = 2000
"""Limit of orders: a job's serialised code contains all its orders, from which each task takes its own."""


def rewrite_in_tasks(
    spark: SparkSession, orders: Sequence[FileOrder], lengths: Mapping[str, int], keys: KeySettings, progress: Told
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
    work = partial(rewrite_packed, keys.to_json(), hadoop_settings(spark))
    outcomes: list[FileOutcome] = []
    for start in range(0, len(orders), ORDERS_A_JOB):
        some = tuple(orders[start : start + ORDERS_A_JOB])
        tasks = share_out([lengths[order.source] for order in some])
        texts = [tuple(json.dumps(order.to_dict()) for order in some[task.start : task.stop]) for task in tasks]

        def tell(ended: int, start: int = start, orders_a_task: float = len(some) / len(tasks)) -> None:
            progress(start + int(ended * orders_a_task))

        outcomes.extend(map(FileOutcome.from_json, run_in_tasks(spark, texts, work, tell)))
    return outcomes


def run_in_tasks(
    spark: SparkSession, parts: Sequence[Part], work: Callable[[Part], Iterable[str]], progress: Told | None = None
) -> list[str]:
    """Run a function on each part, in a task of its own, and return the texts that it gives.

    Args:
        spark: a classic session.
        parts: as in `run_parts`.
        work: as in `run_parts`.
        progress: called with the number of tasks that have ended.

    Raises:
        ConfigError: the executors' interpreter lacks a library that the work needs.
    """
    bring_package(spark)
    numbers = spark.range(0, len(parts), 1, len(parts))  # a partition for each, and Spark never coalesces them
    watched = nullcontext() if progress is None else watch_tasks(spark, progress)
    with translated_failure(), watched:
        rows = numbers.mapInArrow(partial(run_parts, tuple(parts), work, LogSettings()), PACKED_SCHEMA).collect()
    return [row.packed for row in rows]


@contextmanager
def translated_failure() -> Iterator[None]:
    """Translate errors of the block about a Python, or a module of it, that is missing or that Spark does not support.

    Raises:
        ConfigError: such a module, on the driver or on an executor; or an executor's Python is not the driver's.
    """
    try:
        yield
    except ImportError as error:  # Spark checks the driver first, when a frame is made
        raise _lacks("driver", short_text(error)) from error
    except Exception as error:
        carried = find_carried_error(error)
        if isinstance(carried, ConfigError):
            raise carried from error
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


FOOTERS_A_TASK = 250
FILES_A_JOB = 20_000
"""Limit of files: a job's serialised code contains all their paths, from which each task takes its own."""


def read_footers_in_tasks(
    spark: SparkSession,
    sources: Sequence[SourceFile],
    key_service: tuple[KeyServiceConfig, str],
    *,
    depth: Depth,
    shredded: Collection[str] = (),
) -> Iterator[tuple[str, Found]]:
    """Yield each file's facts, or the error of opening its footer or, to the depth ``keys``, one of its keys.

    Args:
        spark: a classic session.
        sources: the files.
        key_service: opens footers; and who asks, as in `read_packed`.
        depth: as in `read_facts`.
        shredded: as in `read_facts`.

    Raises:
        ConfigError: the executors' interpreter lacks what this needs.
    """
    config, reader = key_service
    work = partial(read_packed, (config.canonical(), reader), hadoop_settings(spark), depth, frozenset(shredded))
    for start in range(0, len(sources), FILES_A_JOB):
        some = sources[start : start + FILES_A_JOB]
        whole = depth == "modules"
        tasks = share_out([file.length if whole else 0 for file in some], None if whole else FOOTERS_A_TASK)
        parts = [tuple(file.path for file in some[task.start : task.stop]) for task in tasks]
        for packed in run_in_tasks(spark, parts, work):
            yield from unpack(packed).items()


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

"""Reports how many tasks have ended of the jobs that a thread runs."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

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

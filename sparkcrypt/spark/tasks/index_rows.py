"""Reads the rows of a store for data skipping from many files in Spark tasks on the executors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from pyspark.sql import SparkSession

from sparkcrypt.errors import ConfigError, FormatError, SparkcryptError
from sparkcrypt.files.listing import ListedFile
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.skipping.indexes.entries import ReadFile, read_packed, unpack_file
from sparkcrypt.skipping.indexes.files import (
    ReadRow,
    RowReader,
    RowsWanted,
    Told,
    changed_since,
    read_rows,
    tell_nobody,
)
from sparkcrypt.spark.tasks.run import hadoop_settings, run_in_tasks

FEW = 64
"""Number of files up to which the driver alone is faster than tasks."""
FILES_A_TASK, TASKS_A_JOB = 50, 80
"""Limits of a job: its serialised code contains all its paths, from which each task takes its own."""
FIRST_TASKS, BYTES_A_JOB = 8, 128 << 20
"""Limit of a job's answers on the driver, estimated from the previous job's size; the first job is small."""


class _Answers(NamedTuple):
    """What tasks read of each file, or their error, and the total size of the packed answers in characters."""

    files: dict[str, ReadFile | SparkcryptError]
    bytes: int


def rows_in_tasks(spark: SparkSession, key_service: KeyServiceConfig) -> RowReader:
    """Return a reader that reads the rows of few files on the driver, and of many files in tasks.

    If the executors' interpreter lacks a library that this needs, the driver reads the files.

    Args:
        spark: a classic session.
        key_service: opens the keys of files.
    """
    return partial(_read_rows, spark, key_service)


def _read_rows(
    spark: SparkSession,
    key_service: KeyServiceConfig,
    wanted: RowsWanted,
    files: Sequence[ListedFile],
    progress: Told = tell_nobody,
) -> Iterator[ReadRow]:
    data, start, tasks = wanted.data, 0, FIRST_TASKS
    while start < len(files):
        some, read = files[start : start + FILES_A_TASK * tasks], _Answers({}, 0)
        if len(files) > FEW:
            with suppress(ConfigError):
                read = _read_in_tasks(spark, key_service, wanted, some, partial(_report_files, progress, start))
        tasks = count_tasks(len(some), read.bytes)
        for number, file in enumerate(some, start=start + 1):
            found = read.files.pop(data.path_of(file.name), None)
            if found is None:
                yield from read_rows(wanted, (file,))
            elif isinstance(found, ReadFile):
                data.check_file(data.path_of(file.name), found.summary)
                yield file, found
            elif not (isinstance(found, FormatError) and file.name in changed_since(data, (file,))):
                raise found
            progress(number)
        start += len(some)


def count_tasks(files: int, size: int) -> int:
    """Return the number of the next job's tasks, given the files of the previous one and its answers' size in bytes."""
    most = BYTES_A_JOB * files // max(1, size)
    return max(1, min(TASKS_A_JOB, most // FILES_A_TASK))


def _report_files(progress: Told, start: int, tasks: int) -> None:
    progress(start + tasks * FILES_A_TASK)


def _read_in_tasks(
    spark: SparkSession,
    key_service: KeyServiceConfig,
    wanted: RowsWanted,
    files: Sequence[ListedFile],
    progress: Told,
) -> _Answers:
    """Return each file's content or error; ``progress`` is called with the number of tasks that have ended.

    Raises:
        ConfigError: the executors' interpreter lacks a library that this needs.
    """
    paths = [wanted.data.path_of(file.name) for file in files]
    chunks = [tuple(paths[start : start + FILES_A_TASK]) for start in range(0, len(paths), FILES_A_TASK)]
    work = partial(
        read_packed, tuple(wanted.indexes), key_service.canonical(), hadoop_settings(spark), wanted.digest_key
    )
    rows = run_in_tasks(spark, chunks, work, progress)
    found = dict(unpack_file(packed, wanted.indexes) for packed in rows)
    return _Answers(found, sum(map(len, rows)))

"""The active session for commands that run in the process of the tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from sparkcrypt.cli.main import cli
from sparkcrypt.spark.jvm.gateway import jvm
from tests.spark.support import Lake


@contextmanager
def active(lake: Lake) -> Iterator[None]:
    """Make the lake's session the active one, which commands use."""
    with _active_kept(lake.spark) as sessions:
        sessions.setActiveSession(lake.spark._jsparkSession)
        yield


@contextmanager
def none_active(spark: SparkSession) -> Iterator[None]:
    """Leave this thread without an active session."""
    with _active_kept(spark) as sessions:
        sessions.clearActiveSession()
        yield


@contextmanager
def _active_kept(spark: SparkSession) -> Iterator[Any]:
    """Yield the JVM's session class; restore the active session afterwards."""
    sessions = jvm(spark).org.apache.spark.sql.classic.SparkSession
    before = sessions.getActiveSession()
    try:
        yield sessions
    finally:
        sessions.clearActiveSession()
        if before.isDefined():
            sessions.setActiveSession(before.get())


def run_command(lake: Lake, *arguments: str) -> Result:
    """Run a command in this JVM."""
    with active(lake):
        return CliRunner().invoke(cli, list(arguments))

"""The session and database of one test, for the folders whose tests need a real Spark."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkcrypt.spark.jvm.gateway import jvm
from tests.spark.support import Lake, clear_global, quiet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def private_jar(jar: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of the jar that is not rebuilt while JVMs have it open."""
    if "SPARKCRYPT_JAR" in os.environ:  # set by another folder's fixture, or by the caller of the tests
        yield Path(os.environ["SPARKCRYPT_JAR"])
        return
    copy = Path(shutil.copy(jar, tmp_path_factory.mktemp("jar") / "sparkcrypt.jar"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARKCRYPT_JAR", str(copy))
        yield copy


@pytest.fixture
def lake(spark: SparkSession, private_jar: Path, tmp_path: Path) -> Iterator[Lake]:
    """A new session, unconfigured, with a new database in use."""
    with new_lake(spark, tmp_path) as made:
        yield made


@contextlib.contextmanager
def new_lake(spark: SparkSession, folder: Path) -> Iterator[Lake]:
    """Yield a new session, unconfigured, with a new database in use; for tests that share one.

    The application's session is made the active one, since the database of the one that an earlier test left may no
    longer exist.  pyspark keeps an active session too, which createDataFrame sets.
    """
    type(spark)._activeSession = spark
    name = spark._jsparkSession.getClass().getName()  # in 4.0 and later in the package ``classic``
    reduce(getattr, name.split("."), jvm(spark)).setActiveSession(spark._jsparkSession)
    session = spark.newSession()
    quiet(session)
    database = f"lake{next(_NUMBERS)}"
    session.sql(f"CREATE DATABASE {database} LOCATION '{(folder / 'db').as_uri()}'")
    session.sql(f"USE {database}")
    yield Lake(session, database, folder)
    clear_global(session)
    with Lake(session, database, folder).stranger() as stranger:
        stranger.sql("USE default")
        stranger.sql(f"DROP DATABASE {database} CASCADE")

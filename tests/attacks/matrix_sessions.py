"""Sessions of each kind, by which a property is set, and rows are written and read: classic, Connect, Thrift."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql.connect.session import SparkSession as RemoteSession

from sparkcrypt.spark.jvm.gateway import jvm
from tests.services.connect import start_connect_server
from tests.services.thrift import start_thrift_server
from tests.spark.support import SECRET, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id INT, email STRING"
USER = "eve"
CONF = {
    "spark.sql.catalogImplementation": "hive",
    "spark.sql.parquet.compression.codec": "uncompressed",
    "spark.hadoop.parquet.compression": "uncompressed",
}
"""What servers are launched with, beside the policy."""


class Client(Protocol):
    """What one user does in a session."""

    def run(self, text: str) -> list[Any]:
        """Run a statement, and return its rows in order."""

    def get(self, name: str) -> str | None:
        """Return a setting's value, None if it has none."""

    def set(self, name: str, value: str | None) -> None:
        """Give a setting a value, or, with None, its value of the launch."""

    def append(self, folder: Path, options: Mapping[str, str]) -> None:
        """Write a row by path, with options of the write."""

    def read(self, folder: Path, options: Mapping[str, str]) -> list[Any]:
        """Read by path, with options of the read."""


class FrameSession:
    """A session with frames: classic or Connect."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def run(self, text: str) -> list[Any]:
        """Run a statement, and return its rows in order."""
        return rows_of(self._spark.sql(text))

    def get(self, name: str) -> str | None:
        """Return a setting's value, None if it has none."""
        return self._spark.conf.get(name, None)

    def set(self, name: str, value: str | None) -> None:
        """Give a setting a value, or, with None, its value of the launch."""
        if value is None:
            self._spark.conf.unset(name)
        else:
            self._spark.conf.set(name, value)

    def append(self, folder: Path, options: Mapping[str, str]) -> None:
        """Write a row by path, with options of the write."""
        row = self._spark.createDataFrame([(1, SECRET)], SCHEMA).coalesce(1)
        row.write.options(**options).mode("append").parquet(str(folder))

    def read(self, folder: Path, options: Mapping[str, str]) -> list[Any]:
        """Read by path, with options of the read."""
        return rows_of(self._spark.read.options(**options).schema(SCHEMA).parquet(str(folder)))


class JdbcSession:
    """A session of a Thrift server, which has SQL alone: its writes and reads by path are those of a temporary view."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        classes = jvm(spark)
        login = classes.java.util.Properties()
        login.setProperty("user", USER)
        self._connection = classes.org.apache.hive.jdbc.HiveDriver().connect(url, login)

    def run(self, text: str) -> list[Any]:
        """Run a statement, and return its rows in order."""
        statement = self._connection.createStatement()
        try:
            if not statement.execute(text):
                return []
            found = statement.getResultSet()
            columns = range(1, found.getMetaData().getColumnCount() + 1)
            rows = []
            while found.next():
                rows.append(tuple(found.getObject(column) for column in columns))
            return sorted(rows, key=repr)
        finally:
            statement.close()

    def get(self, _name: str) -> str | None:
        """Return None: RESET gives a setting its value of the launch again."""
        return None

    def set(self, name: str, value: str | None) -> None:
        """Give a setting a value, or, with None, its value of the launch."""
        self.run(f"RESET `{name}`" if value is None else f"SET `{name}` = `{value}`")

    def append(self, folder: Path, options: Mapping[str, str]) -> None:
        """Write a row by path, with options of the write."""
        self._name_folder(folder, options)
        self.run(f"INSERT INTO by_path VALUES (1, '{SECRET}')")

    def read(self, folder: Path, options: Mapping[str, str]) -> list[Any]:
        """Read by path, with options of the read."""
        self._name_folder(folder, options)
        return self.run("SELECT * FROM by_path")

    def _name_folder(self, folder: Path, options: Mapping[str, str]) -> None:
        pairs = {"path": str(folder), **options}
        told = ", ".join(f"'{name}' '{value}'" for name, value in pairs.items())
        self.run(f"CREATE OR REPLACE TEMPORARY VIEW by_path ({SCHEMA}) USING parquet OPTIONS ({told})")


@contextmanager
def serve_connect(work: Path, conf: Mapping[str, str]) -> Iterator[Client]:
    """Yield a session of a new Connect server."""
    server = start_connect_server(work, {**CONF, **conf})
    try:
        remote = RemoteSession.builder.remote(f"{server.url}/;user_id={USER}").create()
        yield FrameSession(remote)  # type: ignore[arg-type]  # pyspark's own classes have no common type
        remote.stop()
    finally:
        server.stop()


@contextmanager
def serve_thrift(spark: SparkSession, work: Path, conf: Mapping[str, str]) -> Iterator[Client]:
    """Yield a session of a new Thrift server, asked by the JDBC driver in a classic session's JVM."""
    server = start_thrift_server(work, {**CONF, **conf})
    try:
        yield JdbcSession(spark, server.url)
    finally:
        server.stop()

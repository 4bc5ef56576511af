"""A Hive metastore on 127.0.0.1: the one that Spark ships, over its own Derby database."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from tests.services.installed import spark_environment, spark_home
from tests.services.processes import LOCAL, ServiceProcess, accepts, free_port, start_process, wait_until
from tests.services.quick_java import quick_home

START_SECONDS = 180.0
SERVER = Path(__file__).with_name("LocalMetastore.java")


@dataclass(frozen=True, slots=True)
class Metastore:
    """A running metastore: its Thrift URI and the warehouse of its managed tables."""

    uri: str
    warehouse: Path
    process: ServiceProcess

    def spark_conf(self) -> dict[str, str]:
        """Return the conf with which a Spark session uses this metastore."""
        return {
            "spark.sql.catalogImplementation": "hive",
            "spark.hadoop.hive.metastore.uris": self.uri,
            "spark.sql.warehouse.dir": self.warehouse.as_uri(),
        }

    def stop(self) -> None:
        """End the process."""
        self.process.stop()


def start_metastore(work_dir: Path, port: int | None = None) -> Metastore:
    """Start a metastore whose database, warehouse and log are under a folder; return when it accepts connections.

    Hive's client tries a failed connection again.

    Args:
        work_dir: the folder; that of an earlier metastore restarts it with its tables.
        port: the port; a free one by default.

    Raises:
        ServiceUnavailableError: there is no JDK or no Spark.
        ServiceFailedError: it did not become ready.
    """
    warehouse, conf = work_dir / "warehouse", work_dir / "metastore-conf"
    warehouse.mkdir(parents=True, exist_ok=True)
    conf.mkdir(exist_ok=True)
    (conf / "hive-site.xml").write_text(_hive_site(work_dir / "metastore_db", warehouse))
    port = port or free_port()
    command: list[str | Path] = [
        quick_home() / "bin" / "java",
        "-Xmx512m",
        f"-Dderby.system.home={work_dir}",
        "-cp",
        f"{conf}:{spark_home() / 'jars'}/*",
        SERVER,
        str(port),
    ]
    process = start_process("metastore", command, work_dir, spark_environment())
    wait_until(lambda: accepts(port), process, START_SECONDS)
    return Metastore(f"thrift://{LOCAL}:{port}", warehouse, process)


def _hive_site(database: Path, warehouse: Path) -> str:
    properties = {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={database};create=true",
        "hive.metastore.warehouse.dir": warehouse.as_uri(),
        "datanucleus.schema.autoCreateAll": "true",
        "hive.metastore.schema.verification": "false",
        # The asynchronous logger needs a library that Spark does not ship.
        "hive.async.log.enabled": "false",
    }
    rows = "".join(
        f"<property><name>{name}</name><value>{escape(value)}</value></property>" for name, value in properties.items()
    )
    return f"<configuration>{rows}</configuration>"

"""Who may set which property, and what happens to a value that would weaken a table whose rule requires encryption.

Each row is a property that the jar or the package reads; each column a place where it can be set.  ``write`` and
``read`` are OPTIONS of a write and of a read by path, ``tbl`` TBLPROPERTIES of a Hive table, ``serde`` SERDEPROPERTIES
of a data source table, ``launch`` the launch configuration.

- ``c``: it counts, since who may set it there may decide it: his own session, write or read, or the launch.
- ``n``: it weakens nothing: it is not read from there, is taken away, or only adds protection.
- ``r``: the write, or else the read, is refused, or Spark refuses to set it.

All are tried but those that count at the launch: whoever launches a session decides what it does.
"""

from __future__ import annotations

from typing import Literal

Cell = Literal["c", "n", "r"]
Place = Literal["set", "read", "write", "tblproperties", "serdeproperties", "launch"]
Session = Literal["classic", "connect", "thrift"]

PLACES: tuple[Place, ...] = ("set", "read", "write", "tblproperties", "serdeproperties", "launch")
SESSIONS: tuple[Session, ...] = ("classic", "connect", "thrift")
ROWS = """
name                                                set read write tbl serde launch
orc.bloom.filter.columns                            n   n    n     n   n     n
orc.encrypt                                         n   n    n     n   n     n
orc.key.provider                                    n   n    n     n   n     n
orc.mask                                            n   n    n     n   n     n
parquet.crypto.factory.class                        n   n    n     n   n     c
parquet.enable.summary-metadata                     r   n    r     r   r     r
parquet.encryption.algorithm                        n   n    n     n   n     n
parquet.encryption.cache.lifetime.seconds           r   r    r     r   r     c
parquet.encryption.column.keys                      r   n    r     r   r     r
parquet.encryption.complete.columns                 r   n    r     r   r     r
parquet.encryption.data.key.length.bits             n   n    n     n   n     n
parquet.encryption.double.wrapping                  n   n    n     n   n     n
parquet.encryption.footer.key                       r   n    r     r   r     r
parquet.encryption.kek.length.bits                  n   n    n     n   n     n
parquet.encryption.key.access.token                 n   n    n     n   n     n
parquet.encryption.key.material.store.internally    n   n    n     n   n     n
parquet.encryption.kms.client.class                 n   n    n     n   n     c
parquet.encryption.kms.instance.id                  n   n    n     n   n     n
parquet.encryption.kms.instance.url                 n   n    n     n   n     n
parquet.encryption.plaintext.footer                 n   n    n     n   n     n
parquet.encryption.uniform.key                      r   n    r     r   r     r
parquet.sparkcrypt.allow_masked                     c   n    c     n   n     c
parquet.sparkcrypt.field_metadata                   c   n    c     n   n     c
parquet.sparkcrypt.history.                         n   n    n     n   n     n
parquet.sparkcrypt.key_service                      r   r    r     r   r     c
parquet.sparkcrypt.locations                        n   n    n     n   n     n
parquet.sparkcrypt.orc.schema                       r   r    r     r   r     r
parquet.sparkcrypt.owner.schemas                    n   n    n     n   n     n
parquet.sparkcrypt.partition                        c   n    c     n   n     c
parquet.sparkcrypt.policy                           r   r    r     r   r     c
parquet.sparkcrypt.query.schema                     n   n    n     n   n     n
parquet.sparkcrypt.require_encryption               n   n    n     n   n     n
parquet.sparkcrypt.session_token                    r   r    r     r   r     r
parquet.sparkcrypt.stream                           n   n    n     n   n     n
parquet.sparkcrypt.table                            r   r    r     n   n     c
parquet.sparkcrypt.table.name                       n   n    n     n   n     n
parquet.sparkcrypt.table.schema                     n   n    n     n   n     n
parquet.sparkcrypt.table.uuid                       c   r    c     c   c     c
parquet.sparkcrypt.tags.                            n   n    n     n   n     n
parquet.summary.metadata.level                      r   n    r     r   r     r
spark.eventLog.dir                                  r   n    n     n   n     c
spark.files.ignoreCorruptFiles                      r   r    n     n   r     r
spark.files.ignorecorruptfiles                      n   r    n     n   r     r
spark.hadoop.sparkcrypt.python                      n   n    n     n   n     c
spark.pyspark.python                                r   n    n     n   n     c
spark.sparkcrypt.allow_http                         n   n    n     n   n     c
spark.sparkcrypt.allow_on_server                    n   n    n     n   n     c
spark.sparkcrypt.helper.deadline.seconds            n   n    n     n   n     c
spark.sparkcrypt.helper.environment                 n   n    n     n   n     c
spark.sparkcrypt.on_denied                          c   n    n     n   n     c
spark.sparkcrypt.principal                          n   n    n     n   n     c
spark.sparkcrypt.probe.path                         c   n    n     n   n     c
spark.sparkcrypt.python                             n   n    n     n   n     c
spark.sparkcrypt.skipping                           c   c    n     n   n     c
spark.sparkcrypt.stock_factory                      n   n    n     n   n     c
spark.sparkcrypt.strict_projection                  c   n    n     n   n     c
spark.sql.caseSensitive                             c   n    n     r   n     c
spark.sql.execution.id                              r   n    n     r   n     n
spark.sql.extensions                                r   n    n     r   n     c
spark.sql.files.ignoreCorruptFiles                  r   r    n     r   r     r
spark.sql.files.ignorecorruptfiles                  n   r    n     r   r     r
spark.sql.hive.convertMetastoreOrc                  c   n    n     r   n     c
spark.sql.orc.impl                                  c   n    n     r   n     c
spark.sql.parquet.fieldId.read.enabled              c   n    n     r   n     c
spark.sql.queryExecutionListeners                   r   n    n     r   n     c
spark.sql.sources.commitProtocolClass               c   n    n     r   n     c
spark.sql.streaming.commitProtocolClass             c   n    n     r   n     c
spark.sql.variant.inferShreddingSchema              n   n    n     r   n     n
spark.sql.warehouse.dir                             r   n    n     r   n     c
sparkcrypt.pin                                      n   n    n     n   n     n
sparkcrypt.reader                                   n   n    n     n   n     n
sparkcrypt.rule                                     n   n    n     c   n     n
sparkcrypt.table                                    n   n    n     c   n     n
sparkcrypt.predecessor                              n   n    n     c   n     n
"""

NOT_OF_A_TABLE = {
    "parquet.encryption.": "a prefix",
    "parquet.sparkcrypt.": "a prefix",
    "spark.hadoop.": "a prefix",
    "parquet.avro.schema": "in footers",
    "spark.executorEnv.": "a prefix, of the launch",
    "sparkcrypt.followed": "a mark in plans",
    "sparkcrypt.places": "a mark in plans",
    "orc.schema": "a part of another name",
    "spark.sql.catalog": "a prefix, which doctor lists",
    "spark.sql.catalogImplementation": "of the launch, for a message",
    "parquet.field.id": "in the metadata of fields",
    "spark.app.id": "set by Spark",
    "spark.authenticate": "of the session that makes an archive of classes",
    "spark.driver.bindAddress": "of the session that makes an archive of classes",
    "spark.driver.host": "of the session that makes an archive of classes",
    "spark.local.dir": "of the session that makes an archive of classes",
    "spark.ui.enabled": "of the session that makes an archive of classes",
    "spark.driver.extraClassPath": "a line that `sparkcrypt conf` prints",
    "spark.jars": "a line that `sparkcrypt conf` prints",
    "spark.job.description": "of jobs, for people",
    "spark.job.tags": "of jobs, for the records of accesses",
    "spark.jobGroup.id": "of jobs, for progress and the records of accesses",
    "spark.log.level": "of the session of a command",
    "spark.ui.showConsoleProgress": "of the session of a command",
    "spark.yarn.maxAppAttempts": "of a submission",
    "spark.yarn.submit.waitAppCompletion": "of a submission",
    "sparkcrypt.hadoop.user": "in the state of a file system",
    "sparkcrypt.helper.deadline.seconds": "in the site file of a JVM without Spark",
    "sparkcrypt.helper.environment": "in the site file of a JVM without Spark",
    "sparkcrypt.jar": "a file's name",
    "sparkcrypt.key_services": "a group of entry points",
    "sparkcrypt.masked": "in the metadata of columns",
    "sparkcrypt.name.": "a property of a database",
    "sparkcrypt.named": "a mark in plans",
    "sparkcrypt.policy.digest": "in footers",
    "sparkcrypt.principal": "in the site file of a JVM without Spark",
    "sparkcrypt.purged": "in footers",
    "sparkcrypt.python": "in the site file of a JVM without Spark",
    "sparkcrypt.type": "in the metadata of Arrow's fields",
}
"""What has the form of a property's name and is none that a session, table, write or read has."""

CLASSIC_ALONE = frozenset({"parquet.sparkcrypt.session_token"})
"""What `configure` gives to classic sessions: Connect's and Thrift's have the launch's policy, or their principal's."""

OF_A_PROGRAM = frozenset({"parquet.sparkcrypt.table"})
"""What a program's own session may not SET, and what has no effect where a server's session SETs it."""


def read_rows() -> dict[str, dict[Place, Cell]]:
    """Return property -> place -> cell.

    Raises:
        ValueError: a row does not have one cell for each place, or a property has two rows.
    """
    rows: dict[str, dict[Place, Cell]] = {}
    for line in ROWS.strip().splitlines()[1:]:
        name, *cells = line.split()
        if len(cells) != len(PLACES) or not set(cells) <= {"c", "n", "r"} or name in rows:
            raise ValueError(line)
        rows[name] = dict(zip(PLACES, cells, strict=True))  # type: ignore[arg-type]  # compared above
    return rows


def decide(name: str, place: Place, session: Session) -> Cell:
    """Return what happens to a property that is set in a place, in a session of this kind.

    SET, options and properties of tables are judged by the jar on the driver, which all three kinds share.
    """
    cell = read_rows()[name][place]
    if session != "classic" and name in CLASSIC_ALONE:
        return "r"
    return "n" if session != "classic" and name in OF_A_PROGRAM and place == "set" else cell

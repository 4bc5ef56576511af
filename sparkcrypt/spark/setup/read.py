"""What users call in a session under a policy: tables read, tags put on or taken off, a report on skipped files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sparkcrypt import names
from sparkcrypt.errors import ConfigError, PlanError, show
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.policy.load import PolicySource, policy_of
from sparkcrypt.policy.model import READ_MODES, OnDenied, Policy, ReadMode
from sparkcrypt.spark.jvm.failures import find_carried_error
from sparkcrypt.spark.jvm.gateway import JVM_ERRORS, call_static, install_extension, is_connect
from sparkcrypt.spark.jvm.jar import bring_jar
from sparkcrypt.spark.setup.session import configure, masked_columns
from sparkcrypt.spark.tables.table import quote_name
from sparkcrypt.spark.tables.tagging import AvroSource, avro_of
from sparkcrypt.tags.field_metadata import add_tags
from sparkcrypt.tags.model import ColumnTags, given_tags

if TYPE_CHECKING:
    from pyspark.sql import Column


_own_sessions: WeakKeyDictionary[SparkSession, dict[tuple[str, OnDenied], SparkSession]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class ReadReport(JsonObject):
    """The result of denied keys when a table is read: the ``denied`` columns are null, or left out."""

    table: str
    on_denied: ReadMode
    denied: tuple[str, ...]


def read_table(
    spark: SparkSession,
    name: str,
    policy: PolicySource,
    *,
    on_denied: ReadMode = "error",
    report: Callable[[ReadReport], None] | None = None,
) -> DataFrame:
    """Read a table under a policy.

    The session is unchanged: the frame belongs to another session of its application, one for each policy and mode,
    with the same current database and without temporary views.

    Args:
        spark: a classic session.
        name: ``db.table``, or a table of the current database.
        policy: the table's policy, or the path of its file.
        on_denied: ``error``: a query that touches a column whose key is denied fails; ``mask``: denied leaves are null,
            in the partitions where they are denied, and their siblings keep their values; ``drop``: as ``mask``, and
            top-level columns that are denied in every partition are left out.  A tag whose rule has
            ``on_denied: error`` is an error in every mode.
        report: called before anything is read, with the columns that are null because their key is denied or missing.

    Raises:
        ConfigError: on_denied is unknown, or the policy cannot be read.
        KeyAccessDeniedError, KeyNotFoundError: the footer key is denied or missing, so nothing can be read.
        KeyServiceUnavailableError: the key service cannot be asked which keys are denied.
    """
    if on_denied not in READ_MODES:
        raise ConfigError(f"on_denied is {on_denied!r}; allowed: {', '.join(READ_MODES)}")
    session = _own_session(spark, policy_of(policy), READ_MODES[on_denied])
    try:
        frame = session.table(name)
    except JVM_ERRORS as error:
        refused = find_carried_error(error)
        if refused is None:
            raise
        raise refused from error
    denied = masked_columns(frame)
    if report is not None:
        report(ReadReport(name, on_denied, tuple(denied)))
    if on_denied != "drop":
        return frame
    everywhere = {name for name, why in denied.items() if not why.endswith(names.IN_SOME_PARTITIONS)}
    return frame.drop(*(name for name in frame.columns if name in everywhere))


def _own_session(spark: SparkSession, policy: Policy, mode: OnDenied) -> SparkSession:
    """Return this session's other session for a policy and a mode, with the same current database."""
    beside = _own_sessions.setdefault(spark, {})
    session = beside.get((policy.canonical(), mode))
    if session is None:
        bring_jar(spark)
        install_extension(spark)
        session = spark.newSession()
        configure(session, policy, on_denied=mode)
        beside[policy.canonical(), mode] = session
    session.catalog.setCurrentDatabase(spark.catalog.currentDatabase())
    return session


def tag(frame: DataFrame, tags: ColumnTags | None = None, *, avro: AvroSource | None = None) -> DataFrame:
    """Return a frame whose columns have tags, so that already the first write of it is encrypted, and keeps them.

    Tags that its columns have stay.  Those of elements, keys and values of an array or map are put on the field that
    has them, since Spark has no place for them there.

    Example: ``sparkcrypt.tag(frame, {"email": "pii"}).write.saveAsTable("sales.customers")``

    Args:
        frame: a frame of a session under a policy.
        tags: dotted column path -> a tag, or several.
        avro: an Avro schema whose ``confluent:tags`` are put on the columns too: the path or URI of its file.

    Raises:
        PlanError: the frame has no such column, no tag is given, or the Avro schema cannot be read.
    """
    given = given_tags(tags, None if avro is None else avro_of(frame.sparkSession, avro))
    fields = StructType.fromJson(json.loads(add_tags(frame.schema.json(), given))).fields
    tagged: dict[str, Column] = {}
    for field, before in zip(fields, frame.schema.fields, strict=True):
        if field != before:
            column = F.col(quote_name(field.name))
            column = column if field.dataType == before.dataType else column.cast(field.dataType)  # tags inside of it
            tagged[field.name] = column.alias(field.name, metadata=field.metadata)
    return frame.withColumns(tagged)


def declassify(column: Column | str, reason: str) -> Column:
    """Return a column with the values of another one but without its tags, which no longer encrypt what is written.

    The policy's ``declassify`` defines who may use this, and for which tags; each use is logged as an access event.  It
    calls the SQL function ``declassify(column, 'reason')`` of sessions with the jar's extension.

    Example: ``df.select(declassify(F.year("born"), "ticket 17: years only").alias("year"))``

    Args:
        column: a column or its name.
        reason: the reason, for the readers of the log.

    Raises:
        PlanError: the reason is empty.
    """
    if not reason.strip():
        raise PlanError(f"the reason is {show(reason)}; allowed: a text that says why the tags may go")
    return F.call_function("declassify", F.col(column) if isinstance(column, str) else column, F.lit(reason))


@dataclass(frozen=True, slots=True)
class ScanReport:
    """The effect of data skipping on one scan of a table.

    Attributes:
        table: the table's name, or its folder if it is read by path.
        listed: number of files that remain after partition pruning.
        opened: how many of them the query opens.
        by: index (``column kind``; several joined by ``and``) -> number of files that it leaves out.
        unused: index -> reason why it is not used.
        store: location of the table's store; None if no store was consulted.
        generation: the store's generation; None if no store was consulted.
        why: the reason why no store was consulted; None if one was.
    """

    table: str
    listed: int
    opened: int
    by: Mapping[str, int]
    unused: Mapping[str, str]
    store: str | None
    generation: int | None
    why: str | None

    @property
    def skipped(self) -> int:
        """The number of files that the query does not open."""
        return self.listed - self.opened


def skipping_report(frame: DataFrame) -> tuple[ScanReport, ...]:
    """Return the effect that data skipping has on each scan of a DataFrame when it is executed; opens no data file.

    Scans that no store can serve are left out: those with skipping off, and those of other tables than Parquet ones.
    Files that Spark leaves out while a query runs (dynamic partition pruning) count as opened.

    Args:
        frame: a DataFrame of a classic session under a policy.

    Raises:
        ConfigError: the DataFrame belongs to a Spark Connect client, and its plan is on the server.
    """
    if is_connect(frame.sparkSession):
        raise ConfigError(
            "skipping_report: the plan of a DataFrame of Spark Connect is on the server; allowed: classic sessions; "
            "EXPLAIN names SkippingFileIndex, and the server's log (INFO, io.sparkcrypt.FileSkipper) has the numbers"
        )
    found = call_static(frame.sparkSession, names.SKIPPING_REPORT_CLASS, "of", frame._jdf)
    return tuple(_scan_report(entry) for entry in json.loads(str(found)))


def _scan_report(entry: Mapping[str, object]) -> ScanReport:
    return ScanReport(
        table=str(entry["table"]),
        listed=int(str(entry["listed"])),
        opened=int(str(entry["opened"])),
        by=entry.get("by") or {},  # type: ignore[arg-type]  # as the helper answers
        unused=entry.get("unused") or {},  # type: ignore[arg-type]
        store=entry.get("store"),  # type: ignore[arg-type]
        generation=entry.get("generation"),  # type: ignore[arg-type]
        why=entry.get("why"),  # type: ignore[arg-type]
    )

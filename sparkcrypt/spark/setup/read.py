"""Reads a table under its policy; the caller chooses whether denied columns are errors, nulls or left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal
from weakref import WeakKeyDictionary

from pyspark.sql import DataFrame, SparkSession

from sparkcrypt import names
from sparkcrypt.errors import ConfigError
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.policy.model import OnDenied as PolicyMode
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.jvm.extension import install_extension
from sparkcrypt.spark.jvm.failures import find_carried_error
from sparkcrypt.spark.jvm.gateway import JVM_ERRORS
from sparkcrypt.spark.jvm.jar import bring_jar
from sparkcrypt.spark.setup.masks import masked_columns
from sparkcrypt.spark.setup.session import configure

OnDenied = Literal["error", "mask", "drop"]
_MODES: dict[OnDenied, PolicyMode] = {"error": "error", "mask": "mask", "drop": "mask"}
_own_sessions: WeakKeyDictionary[SparkSession, dict[tuple[str, PolicyMode], SparkSession]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class ReadReport(JsonObject):
    """The result of denied keys when a table is read: the ``denied`` columns are null, or left out."""

    table: str
    on_denied: OnDenied
    denied: tuple[str, ...]


def read_table(
    spark: SparkSession,
    name: str,
    policy: Policy,
    *,
    on_denied: OnDenied = "error",
    report: Callable[[ReadReport], None] | None = None,
) -> DataFrame:
    """Read a table under a policy.

    The session is unchanged: the frame belongs to another session of its application, one for each policy and mode,
    with the same current database and without temporary views.

    Args:
        spark: a classic session.
        name: ``db.table``, or a table of the current database.
        policy: the table's policy.
        on_denied: ``error``: a query that touches a column whose key is denied fails; ``mask``: denied leaves are null,
            in the partitions where they are denied, and their siblings keep their values; ``drop``: as ``mask``, and
            top-level columns that are denied in every partition are left out.  A tag whose rule has
            ``on_denied: error`` is an error in every mode.
        report: called before anything is read, with the columns that are null because their key is denied or missing.

    Raises:
        ConfigError: on_denied is unknown.
        KeyAccessDeniedError, KeyNotFoundError: the footer key is denied or missing, so nothing can be read.
        KeyServiceUnavailableError: the key service cannot be asked which keys are denied.
    """
    if on_denied not in _MODES:
        raise ConfigError(f"on_denied is {on_denied!r}; allowed: {', '.join(_MODES)}")
    session = _own_session(spark, policy, _MODES[on_denied])
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
    return frame.drop(*_list_denied_everywhere(denied, frame)) if on_denied == "drop" else frame


def _own_session(spark: SparkSession, policy: Policy, mode: PolicyMode) -> SparkSession:
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


def _list_denied_everywhere(denied: dict[str, str], frame: DataFrame) -> list[str]:
    return [name for name in frame.columns if name in denied and not denied[name].endswith(names.IN_SOME_PARTITIONS)]

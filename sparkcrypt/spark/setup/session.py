"""Puts sessions under a policy: after ``configure`` every Parquet write and read of a session obeys it.

A policy reaches a session by a channel that SQL, options and table properties cannot use: the driver registers it under
a random token (``PolicyRegister`` in the jar), and the session's configuration has the token beside the policy's text.
A table or an option can repeat the text, but without the token it has no effect.  A Spark Connect client has no such
channel: its policy is that of the server's launch.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkcrypt import names
from sparkcrypt.decide.context import parse_policy
from sparkcrypt.errors import BridgeError, ConfigError
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.policy.load import PolicySource, policy_of
from sparkcrypt.policy.model import ON_DENIED, OnDenied, Policy, TagRule
from sparkcrypt.policy.template import KeyTemplate
from sparkcrypt.schema import join_dotted
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.jvm.failures import find_carried_error, short_text
from sparkcrypt.spark.jvm.gateway import has_rules, install_extension, is_connect, java_session, jvm
from sparkcrypt.spark.jvm.jar import bring_jar, jar_path
from sparkcrypt.spark.setup.command_session import allows_http
from sparkcrypt.spark.setup.options import refuse_throw_away_keys, session_options, token_options, write_options
from sparkcrypt.spark.tables.catalog import Catalog

_LAUNCHED = f"spark.hadoop.{names.POLICY}"
_HTTP_VARIABLE = "SPARKCRYPT_ALLOW_HTTP"


def policy_register(spark: SparkSession) -> Any:
    """Return the policy register of a classic session's application; the session must have the jar."""
    return jvm(spark).io.sparkcrypt.PolicyRegister(spark.sparkContext._jsc.sc())


def pin_session(spark: SparkSession, policy: Policy) -> tuple[str, str]:
    """Put a classic session under a policy.

    Returns:
        The token for the session's configuration, and the token for sessions that no program configures.
    """
    register, session = policy_register(spark), java_session(spark)
    token = register.addSession(session, policy.canonical())
    return str(token), str(register.tokenForOthers(session))


@contextmanager
def registered_policy(spark: SparkSession, policy: Policy) -> Iterator[dict[str, str]]:
    """Yield the options that put single writes and reads under another policy than their session's."""
    register = policy_register(spark)
    token = register.add(policy.canonical())
    try:
        yield {names.POLICY: policy.canonical(), **token_options(str(token))}
    finally:
        register.remove(token)


def set_for_application(spark: SparkSession, options: Mapping[str, str]) -> None:
    """Apply settings to every session of the application that is created later or reset with RESET."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    for name, value in options.items():
        if not name.startswith("spark."):
            hadoop.set(name, value)
    # A new session starts from the shared state's configuration; RESET goes back to the context's.
    for conf in (java_session(spark).sharedState().conf(), spark.sparkContext._jsc.sc().conf()):
        for name, value in options.items():
            if name.startswith("spark."):
                conf.set(name, value)


def check_launched_policy(spark: SparkSession, policy: Policy) -> None:
    """Compare a policy with the one that a Connect server was launched with.

    Raises:
        ConfigError: it was launched with none, or with another; the message names the differences.
    """
    text = spark.conf.get(_LAUNCHED, None)
    if not text:
        raise ConfigError(
            "this Spark Connect server was launched without a policy, and a client cannot choose one; allowed: the "
            "lines that `sparkcrypt conf --policy …` prints, in the server's spark-defaults.conf; start it again with "
            "them"
        )
    launched = parse_policy(text)
    if launched.digest() != policy.digest():
        raise ConfigError(
            f"this Spark Connect server was launched with policy {launched.digest()[:12]}…, and this one is "
            f"{policy.digest()[:12]}…: they differ in {', '.join(_differences(launched, policy))}; allowed: the "
            "server's; give the same policy here, or start the server again with the lines of `sparkcrypt conf`"
        )


def _differences(policy: Policy, other: Policy) -> list[str]:
    """Return the names of the settings that differ; those of tags and tables as ``tags.NAME`` and ``tables.NAME``."""
    first, second = policy.to_dict(), other.to_dict()
    found = [
        name for name in {**first, **second} if name not in ("tags", "tables") and first.get(name) != second.get(name)
    ]
    for section in ("tags", "tables"):
        mine, theirs = dict(first[section]), dict(second[section])
        found += [f"{section}.{name}" for name in {**mine, **theirs} if mine.get(name) != theirs.get(name)]
    return found or ["the order of tags"]


_LINE = f"spark.sql.extensions={names.EXTENSIONS_CLASS}"
_EXTENSIONS = "spark.sql.extensions"


def masked_columns(frame: DataFrame) -> dict[str, str]:
    """Return the columns of a frame that are null because their key is denied or missing: column path -> reason.

    They are found by their metadata, so a column that was computed from a masked one is found only if Spark keeps the
    metadata: if it was renamed, cast, or read through a view.
    """
    return {join_dotted(path): reason for path, reason in _find_masked(json.loads(frame.schema.json()), ())}


def _find_masked(kind: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if not isinstance(kind, Mapping):
        return
    for field in kind.get("fields", ()):
        below = (*path, field["name"])
        reason = (field.get("metadata") or {}).get(names.MASKED)
        if reason is not None:
            yield below, str(reason)
        else:
            yield from _find_masked(field["type"], below)
    for name, step in (("elementType", "element"), ("keyType", "key"), ("valueType", "value")):
        yield from _find_masked(kind.get(name), (*path, step))


def check_on_denied(spark: SparkSession, on_denied: OnDenied | None) -> None:
    """Check a session's setting for denied columns.

    Raises:
        ConfigError: the value is unknown, or the session has no rules that replace denied columns with nulls.
    """
    if on_denied is not None and on_denied not in ON_DENIED:
        raise ConfigError(f"on_denied is {on_denied!r}; allowed: {', '.join(ON_DENIED)}")
    if on_denied == "mask" and not _has_rules(spark):
        raise ConfigError(
            'on_denied="mask" needs rules that Spark takes only when a session is made: launch with '
            f"--conf {_LINE}, or that line of `sparkcrypt conf` in spark-defaults.conf, or use the session that "
            'sparkcrypt.session(policy, on_denied="mask") makes'
        )


def _has_rules(spark: SparkSession) -> bool:
    if is_connect(spark):
        return names.EXTENSIONS_CLASS in str(spark.conf.get(_EXTENSIONS, "") or "")
    return has_rules(spark)


def check_strict_projection(policy: Policy, strict: bool | None) -> None:
    """Check a session's setting for queries that name masked columns.

    Raises:
        ConfigError: the value is no boolean or None, or is False although the policy requires True.
    """
    if strict is not None and not isinstance(strict, bool):
        raise ConfigError(f"strict_projection is {strict!r}; allowed: True, False, None")
    if strict is False and policy.strict_projection:
        raise ConfigError(
            "strict_projection=False: the policy says 'strict_projection: true', which no session takes back; leave "
            "the argument out, or have the policy's owner change it"
        )


def _set_for_reads(spark: SparkSession, on_denied: OnDenied | None, strict: bool | None) -> None:
    """Set a session's settings for denied and masked columns, already checked; None leaves one unchanged."""
    if on_denied is not None:
        spark.conf.set(names.ON_DENIED, on_denied)
    if strict is not None:
        spark.conf.set(names.STRICT_PROJECTION, str(strict).lower())


_FIRST_SPARK = (3, 5)
_IGNORE_CORRUPT = "spark.sql.files.ignoreCorruptFiles"
_DEFAULT_COMMIT_PROTOCOL = "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
_DEFAULT_STREAM_COMMIT_PROTOCOL = "org.apache.spark.sql.execution.streaming.ManifestFileCommitProtocol"
PROBE_PATH = "spark.sparkcrypt.probe.path"
_TEMPORARY = "/tmp"  # noqa: S108  # on the default file system, where every executor may write
_PROBE_OPTION = f"{names.PREFIX}probe"
_OTHER_FACTORY = (
    "a probe row came out in clear: another crypto factory is in force; remove parquet.crypto.factory.class from the "
    "launch configuration"
)
_probed: set[str] = set()
"""Ids of applications whose probe succeeded; jar, interpreter and factory are the same for every policy."""


def configure(
    spark: SparkSession,
    policy: PolicySource,
    *,
    on_denied: OnDenied | None = None,
    strict_projection: bool | None = None,
    stock_factory: bool = False,
) -> None:
    """Make every later Parquet write and read of a session obey a policy.

    Adds the jar to a live classic session, sets the configuration, and once per application probes a write and a read
    that no cache can answer.  Other sessions of the application get the same settings, unless a program configures them
    too.  A Connect server obeys the policy that it was launched with; there this compares the policies, and probes.

    Args:
        spark: a live session, classic or Connect.
        policy: the policy, or the path of its file.
        on_denied: ``mask`` gives this session nulls in place of columns whose keys are denied, ``error`` an error; None
            leaves the choice to the session's configuration and the policy's tags.
        strict_projection: True makes it an error to name a column that would be null, False overrides the session's
            configuration, None leaves the choice to it.  If the policy requires it, it holds in every session.
        stock_factory: True lets writes and reads of this session name Parquet's own crypto factory and its keys, as
            the options of ``parquet_options`` do, where no table has a tag or a rule.  On Connect the launch decides.

    Raises:
        ConfigError: the policy cannot be read, the session's settings contradict it, or a Connect server was launched
            with another; nothing was changed.  Or nulls are asked for in a session that was made without the rules for
            them, or strict_projection is False although the policy requires it.
        BridgeError: the jar or its interpreter was not found; the message names the configuration line.
    """
    policy = policy_of(policy)
    refuse_release(spark.version)
    _refuse_ignoring(spark)
    _refuse_other_stream_protocol(spark)
    refuse_throw_away_keys(policy)
    check_strict_projection(policy, strict_projection)
    if is_connect(spark):
        check_launched_policy(spark, policy)
        check_on_denied(spark, on_denied)
        _probe_once(spark)
        _set_for_reads(spark, on_denied, strict_projection)
        return
    if allows_http(spark):  # this process and the Python workers of executors do too
        os.environ[_HTTP_VARIABLE] = spark.sparkContext.environment[_HTTP_VARIABLE] = "true"
    options = session_options(policy, table_locations(spark, policy))
    if spark.conf.get(names.COMMIT_PROTOCOL, _DEFAULT_COMMIT_PROTOCOL) not in (
        _DEFAULT_COMMIT_PROTOCOL,
        names.COMMIT_PROTOCOL_CLASS,
    ):
        options.pop(names.COMMIT_PROTOCOL)  # keep the object store's own committer
    bring_jar(spark)
    check_on_denied(spark, on_denied)
    if str(spark.sparkContext.master).startswith("local"):  # driver and executor are one JVM
        policy_register(spark).useInterpreter(sys.executable)
    _probe_once(spark)
    token, token_of_others = pin_session(spark, policy)
    policy_register(spark).allowStock(token, stock_factory)
    own, others = {**options, **token_options(token)}, {**options, **token_options(token_of_others)}
    for name, value in own.items():
        spark.conf.set(name, value)
    set_for_application(spark, others)
    policy_register(spark).guardStatistics()
    install_extension(spark)
    policy_register(spark).putStreams(java_session(spark), own, others)  # from their next micro-batch on
    _set_for_reads(spark, on_denied, strict_projection)


def session(
    policy: PolicySource,
    *,
    on_denied: OnDenied | None = None,
    strict_projection: bool | None = None,
    builder: SparkSession.Builder | None = None,
) -> SparkSession:
    """Return a new session under a policy, with the rules that Spark accepts only when a session is made.

    If a classic session is active, it is a ``newSession`` of that application with the same current database;
    otherwise it starts the application.

    Args:
        policy: the policy, or the path of its file.
        on_denied: as for ``configure``.
        strict_projection: as for ``configure``.
        builder: starts the application if no session is active; ``SparkSession.builder`` by default.

    Raises:
        ConfigError, BridgeError: as ``configure``.
    """
    policy, living = policy_of(policy), SparkSession.getActiveSession()
    if living is None:
        starting = (builder or SparkSession.builder).config("spark.jars", str(jar_path()))
        created = starting.config("spark.sql.extensions", names.EXTENSIONS_CLASS).getOrCreate()
    else:
        bring_jar(living)
        install_extension(living)
        created = living.newSession()
        created.catalog.setCurrentDatabase(living.catalog.currentDatabase())
    configure(created, policy, on_denied=on_denied, strict_projection=strict_projection)
    return created


def refuse_release(version: str) -> None:
    """Refuse a release of Spark that the jar does not fit.

    Raises:
        ConfigError: the message names the releases that are supported.
    """
    release = re.match(r"(\d+)\.(\d+)", version)
    if release is None or (int(release[1]), int(release[2])) < _FIRST_SPARK:
        raise ConfigError(
            f"Spark {version} is not supported; allowed: 3.5 and 4.x; run the application on one of these"
        )


def _refuse_ignoring(spark: SparkSession) -> None:
    if str(spark.conf.get(_IGNORE_CORRUPT, "false")).lower() == "true":
        raise ConfigError(
            f"{_IGNORE_CORRUPT} is true: a denied key would silently give fewer rows; set it to false, and use "
            'sparkcrypt.configure(…, on_denied="mask") where nulls are wanted'
        )


def _refuse_other_stream_protocol(spark: SparkSession) -> None:
    found = spark.conf.get(names.STREAM_COMMIT_PROTOCOL, _DEFAULT_STREAM_COMMIT_PROTOCOL)
    if found not in (_DEFAULT_STREAM_COMMIT_PROTOCOL, names.STREAM_COMMIT_PROTOCOL_CLASS):
        raise ConfigError(
            f"{names.STREAM_COMMIT_PROTOCOL} is {found}, with which a stream into a tagged table would not know the "
            "table's tags; unset it"
        )


def _probe_once(spark: SparkSession) -> None:
    application = spark.conf.get("spark.app.id", "") or str(id(spark))
    if application not in _probed:
        probe(spark)
        _probed.add(application)


def probe(spark: SparkSession) -> None:
    """Write and read one encrypted row under a throw-away key, to detect a missing jar or interpreter early.

    On Spark Connect, where a client may not choose a key service, a write that the server's helper must refuse shows
    that jar and interpreter work; it does not show the encryption itself.

    Raises:
        BridgeError: the row could not be written, was not encrypted, or could not be read.
    """
    if is_connect(spark):
        _probe_server(spark)
        return
    policy = Policy(
        key_service=KeyServiceConfig.from_dict({"type": "ephemeral", "secret": secrets.token_hex(32)}),
        algorithm="AES_GCM_V1",
        data_key_bits=128,
        footer_key="probe-footer",
        footer_mode="encrypted",
        untagged="deny",
        run_state="/nowhere",
        tags=(TagRule("probe", KeyTemplate("probe")),),
    )
    path = f"{probe_root(spark)}/sparkcrypt-probe-{uuid.uuid4()}"
    word = f"probe-{uuid.uuid4()}"
    values = spark.sql(f"VALUES ('{word}') AS probes (probe)")  # a local relation, for which Spark compiles no code
    row = values.select(F.col("probe").alias("probe", metadata={"tags": ["probe"]}))
    files = HadoopFiles(spark)
    try:
        with registered_policy(spark, policy) as pinned:
            options = {**write_options(policy), **pinned, "compression": "none"}
            row.write.options(**options).parquet(path)
            magics = {files.read(file.path)[-4:] for file in files.data_files(path)}
            read = [
                row["probe"] for row in spark.read.options(**options).schema("probe STRING").parquet(path).collect()
            ]
    except Exception as error:  # Spark's errors have no common base that its versions share
        raise BridgeError(_explain(error)) from error
    finally:
        files.delete_tree(path)
    if magics != {b"PARE"} or read != [word]:
        raise BridgeError(_OTHER_FACTORY)


def _probe_server(spark: SparkSession) -> None:
    path = f"{probe_root(spark)}/sparkcrypt-probe-{uuid.uuid4()}"
    try:
        spark.range(1).write.option(_PROBE_OPTION, "true").parquet(path)
    except Exception as error:  # Connect's errors have no base that classic ones share
        if f"{_PROBE_OPTION} is not known" not in str(error):
            raise BridgeError(_explain(error)) from error
    else:
        raise BridgeError(_OTHER_FACTORY)


def probe_root(spark: SparkSession) -> str:
    """Return the folder below which probe rows are written, to which every executor can write."""
    named = spark.conf.get(PROBE_PATH, None)
    if named:
        return named.rstrip("/")
    if is_connect(spark):
        return str(spark.conf.get("spark.sql.warehouse.dir")).rstrip("/")
    return f"{HadoopFiles(spark).default_file_system().rstrip('/')}{_TEMPORARY}"


def _explain(error: Exception) -> str:
    text = str(error)
    cause = str(find_carried_error(error) or short_text(error))  # the jar's message names the interpreter it tried
    if "ClassNotFound" in text or "could not instantiate" in text.lower():
        return (
            f"the jar is not in this session ({cause}); launch with --jars, or with the lines that "
            "`sparkcrypt conf` prints in spark-defaults.conf"
        )
    return (
        f"a probe write and read failed: {cause}\nThe helper needs an interpreter that has the key service's library, "
        f"on the driver and on every executor: name it in the launch configuration, {names.PYTHON}=/path/to/python3"
    )


def table_locations(spark: SparkSession, policy: Policy) -> dict[str, dict[str, str | None]]:
    """Return the locations of all tables that the policy lists: location -> table name and UUID.

    They include the location that Spark would give each table, so that a table that is dropped and re-created by
    ``saveAsTable`` stays under its rule.
    """
    catalog = Catalog(spark)
    found: dict[str, dict[str, str | None]] = {}
    for rule in policy.tables:
        table = catalog.find(rule.name)
        if table is not None:
            found[table.location] = {"table": rule.name, "uuid": table.uuid}
        default = catalog.default_location(rule.name)
        if default is not None:
            found.setdefault(default, {"table": rule.name, "uuid": None})
    return found

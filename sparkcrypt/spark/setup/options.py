"""The configuration that makes Parquet writers and readers obey a policy, as session, launch and table settings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from xml.sax.saxutils import escape

from sparkcrypt import names
from sparkcrypt.errors import ConfigError, PlanError
from sparkcrypt.keys.ids import encode_key_id
from sparkcrypt.plan import ColumnPlan, EncryptionPlan
from sparkcrypt.policy.key_service import PRINCIPAL
from sparkcrypt.policy.model import Policy


def session_options(policy: Policy, locations: Mapping[str, Mapping[str, str | None]] | None = None) -> dict[str, str]:
    """Return the session settings under which every Parquet write and read obeys a policy.

    Args:
        policy: the policy.
        locations: table location -> ``{"table": name, "uuid": uuid or None}``.
    """
    options = {
        names.CRYPTO_FACTORY: names.CRYPTO_FACTORY_CLASS,
        names.KMS_CLIENT: names.KMS_CLIENT_CLASS,
        names.POLICY: policy.canonical(),
        names.ORC_KEY_PROVIDER: names.ORC_KEY_PROVIDER_KIND,
        names.SUMMARY_LEVEL: "NONE",
        names.COMMIT_PROTOCOL: names.COMMIT_PROTOCOL_CLASS,
        names.STREAM_COMMIT_PROTOCOL: names.STREAM_COMMIT_PROTOCOL_CLASS,
        "spark.sql.files.ignoreCorruptFiles": "false",
    }
    if locations:
        options[names.LOCATIONS] = json.dumps(locations, sort_keys=True)
    return options


def token_options(token: str) -> dict[str, str]:
    """Return the settings of the register's token; ORC caches one key provider for each digest of a token."""
    digest = hashlib.sha256(token.encode()).hexdigest()
    return {names.SESSION_TOKEN: token, names.ORC_KEY_PROVIDER: f"{names.ORC_KEY_PROVIDER_KIND}:{digest}"}


def write_options(policy: Policy) -> dict[str, str]:
    """Return the session settings that can also be options of a single write or read."""
    return {name: value for name, value in session_options(policy).items() if not name.startswith("spark.")}


def refuse_throw_away_keys(policy: Policy) -> None:
    """Refuse the key service of probes: its keys are derived from its configuration, which every session can read.

    Raises:
        ConfigError: the policy has that key service.
    """
    if policy.key_service.type == "ephemeral":
        raise ConfigError(
            "key_service: type 'ephemeral' holds its keys in its own configuration and is for probes alone; allowed: "
            "local, vault, or the name of an installed entry point"
        )


def launch_conf(policy: Policy, jar: str, python: str | None = None) -> dict[str, str]:
    """Return the launch configuration for sessions without this package: spark-sql, Thrift and Connect servers.

    Raises:
        ConfigError: the policy's key service is the throw-away one.
    """
    refuse_throw_away_keys(policy)
    # A Thrift server opens sessions in threads whose class loader does not contain spark.jars.
    conf = {"spark.jars": jar, "spark.driver.extraClassPath": jar}
    for name, value in session_options(policy).items():
        conf[name if name.startswith("spark.") else f"spark.hadoop.{name}"] = value
    conf["spark.sql.extensions"] = names.EXTENSIONS_CLASS
    conf["spark.sql.queryExecutionListeners"] = names.STATISTICS_GUARD_CLASS
    if python:
        conf[names.PYTHON] = python
    return conf


def defaults_lines(conf: Mapping[str, str]) -> str:
    """Return a configuration as lines of spark-defaults.conf, a Java properties file, with backslashes doubled."""
    return "\n".join(f"{name} {value}".replace("\\", "\\\\") for name, value in conf.items())


def site_settings(policy: Policy, python: str | None = None) -> dict[str, str]:
    """Return the settings of JVMs without Spark that read under a policy: what `site_file` writes.

    Raises:
        ConfigError: the policy's key service is the throw-away one, or another for each principal.
    """
    refuse_throw_away_keys(policy)
    if PRINCIPAL in policy.key_service.options_json:
        raise ConfigError(
            f"key_service: {PRINCIPAL!r} stands for the user of a session, and without Spark there is none; allowed: a "
            "key service with one credential for all that such a JVM reads; give a policy without it"
        )
    return {names.POLICY: policy.canonical(), **({names.PYTHON.removeprefix("spark."): python} if python else {})}


def site_file(settings: Mapping[str, str]) -> str:
    """Return settings in the form of Hadoop's configuration files, as ``sparkcrypt-site.xml`` has them."""
    entries = (
        f"  <property><name>{escape(name)}</name><value>{escape(value)}</value></property>\n"
        for name, value in settings.items()
    )
    return f"<configuration>\n{''.join(entries)}</configuration>"


def parquet_options(plan: EncryptionPlan, partition: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the options that make the stock ``PropertiesDrivenCryptoFactory`` apply a plan.

    They can be given as ``.option(...)``, ``OPTIONS(...)`` or TBLPROPERTIES of a Hive table.  A session under a policy
    takes them only where the launch (``spark.sparkcrypt.stock_factory=true``) or ``configure(…, stock_factory=True)``
    allows Parquet's own factory, and for no table or folder with tags or a rule.  They need the jar and the
    key service of the launch (``spark.hadoop.parquet.sparkcrypt.key_service``, or the lines of ``sparkcrypt conf``) or
    of ``configure``, since no table may name one.  They do not follow later changes of tags.

    Args:
        plan: the plan.
        partition: partition column -> value, for key templates.

    Raises:
        PlanError: a column's name cannot be written in these options, or no column is encrypted.
    """
    keys = plan.key_ids(partition or {})
    if not keys:
        raise PlanError(
            f"{plan.table or 'the plan'}: no column is encrypted, so there are no options to set; tag a column first"
        )
    _refuse_names(plan.encrypted)
    by_key: dict[str, list[str]] = {}
    for column, key in keys.items():
        by_key.setdefault(encode_key_id(key or plan.footer_key), []).append(".".join(column))
    return {
        names.CRYPTO_FACTORY: names.STOCK_CRYPTO_FACTORY_CLASS,
        names.KMS_CLIENT: names.KMS_CLIENT_CLASS,
        # parquet-mr's static caches of clients and keys are keyed by this alone: two key services must not share one.
        "parquet.encryption.key.access.token": hashlib.sha256(plan.key_service_json.encode()).hexdigest(),
        "parquet.encryption.footer.key": encode_key_id(plan.footer_key),
        "parquet.encryption.column.keys": ";".join(
            f"{key}:{','.join(columns)}" for key, columns in sorted(by_key.items())
        ),
        "parquet.encryption.plaintext.footer": str(plan.footer_mode == "plaintext").lower(),
        "parquet.encryption.algorithm": plan.algorithm,
        "parquet.encryption.data.key.length.bits": str(plan.data_key_bits),
        "parquet.encryption.kek.length.bits": str(plan.data_key_bits),
    }


def _refuse_names(columns: tuple[ColumnPlan, ...]) -> None:
    for column in columns:
        for name in column.path:
            if name != name.strip() or any(sign in name for sign in ".,;:"):
                raise PlanError(
                    f"column {column.leaf.dotted}: a name with '.', ',', ';', ':' or spaces around it cannot be "
                    "written in "
                    "parquet.encryption.column.keys; use sparkcrypt.configure, which has no such limit, or rename the "
                    "column"
                )

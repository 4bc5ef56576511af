"""Masked columns: finding those that are null because their key is denied, and a session's settings for them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from sparkcrypt import names
from sparkcrypt.errors import ConfigError
from sparkcrypt.policy.model import ON_DENIED, OnDenied, Policy
from sparkcrypt.schema import join_dotted
from sparkcrypt.spark.jvm.extension import has_rules
from sparkcrypt.spark.jvm.gateway import is_connect

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


def set_on_denied(spark: SparkSession, on_denied: OnDenied | None) -> None:
    """Set a session's setting for denied columns, already checked; None leaves it unchanged."""
    if on_denied is not None:
        spark.conf.set(names.ON_DENIED, on_denied)


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


def set_strict_projection(spark: SparkSession, strict: bool | None) -> None:
    """Set a session's setting for queries that name masked columns, already checked; None leaves it unchanged."""
    if strict is not None:
        spark.conf.set(names.STRICT_PROJECTION, str(strict).lower())


def _has_rules(spark: SparkSession) -> bool:
    if is_connect(spark):
        return names.EXTENSIONS_CLASS in str(spark.conf.get(_EXTENSIONS, "") or "")
    return has_rules(spark)

"""Puts a session under a policy through a channel that SQL, options and table properties cannot use.

The driver registers each policy under a random token (``PolicyRegister`` in the jar), and the session's configuration
has the token beside the policy's text.  A table or an option can repeat the text, but without the token it has no
effect.  A Spark Connect client has no such channel: its policy is that of the server's launch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from sparkcrypt import names
from sparkcrypt.decide.context import parse_policy
from sparkcrypt.errors import ConfigError
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.jvm.gateway import java_session, jvm
from sparkcrypt.spark.setup.command_session import allows_http
from sparkcrypt.spark.setup.options import token_options

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


def set_for_running_streams(spark: SparkSession, own: Mapping[str, str], others: Mapping[str, str]) -> None:
    """Apply the settings to the application's running streams, from their next micro-batch on.

    Args:
        spark: the session that is being configured.
        own: the settings of this session.
        others: the settings of sessions that no program configures.
    """
    streams = jvm(spark).io.sparkcrypt.RunningStreams(spark.sparkContext._jsc.sc())
    streams.put(java_session(spark), dict(own), dict(others))


def take_launch_settings(spark: SparkSession) -> None:
    """Pass the launch's setting for plain http on to this process and the Python workers of executors."""
    if allows_http(spark):
        os.environ[_HTTP_VARIABLE] = "true"
        spark.sparkContext.environment[_HTTP_VARIABLE] = "true"


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

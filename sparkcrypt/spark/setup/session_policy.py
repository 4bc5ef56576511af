"""Which policy a session is under: told to its JVM by a way that SQL, options and table properties do not have.

The driver keeps each policy behind a random token (``PolicyRegister`` in the jar), and the session's configuration
carries the token beside the policy's text.  A table or an option can repeat the text; without the token it chooses
nothing.  A Spark Connect client has no such way: there the launch of the server decides.
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
    """Return the register of a classic session's application; the jar must be in the session."""
    return jvm(spark).io.sparkcrypt.PolicyRegister(spark.sparkContext._jsc.sc())


def pin_session(spark: SparkSession, policy: Policy) -> tuple[str, str]:
    """Put a classic session under a policy.

    Returns:
        The token that the session's configuration must carry, and the one for sessions that no program configures.
    """
    register, session = policy_register(spark), java_session(spark)
    token = register.addSession(session, policy.canonical())
    return str(token), str(register.tokenForOthers(session))


@contextmanager
def registered_policy(spark: SparkSession, policy: Policy) -> Iterator[dict[str, str]]:
    """Yield the options by which single writes and reads go by another policy than their session's."""
    register = policy_register(spark)
    token = register.add(policy.canonical())
    try:
        yield {names.POLICY: policy.canonical(), **token_options(str(token))}
    finally:
        register.remove(token)


def set_for_application(spark: SparkSession, options: Mapping[str, str]) -> None:
    """Give settings to every session of a classic session's application that is made later or falls back by RESET."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    for name, value in options.items():
        if not name.startswith("spark."):
            hadoop.set(name, value)
    # A new session begins with the one, RESET goes back to the other.
    for conf in (java_session(spark).sharedState().conf(), spark.sparkContext._jsc.sc().conf()):
        for name, value in options.items():
            if name.startswith("spark."):
                conf.set(name, value)


def set_for_running_streams(spark: SparkSession, own: Mapping[str, str], others: Mapping[str, str]) -> None:
    """Put streams of the application that run already under the settings, from their next micro-batch on.

    Args:
        spark: the session that is being configured.
        own: the settings of this session.
        others: those of sessions that no program configures.
    """
    streams = jvm(spark).io.sparkcrypt.RunningStreams(spark.sparkContext._jsc.sc())
    streams.put(java_session(spark), dict(own), dict(others))


def take_launch_settings(spark: SparkSession) -> None:
    """Let this process, and the Python workers of executors, know what the launch allows key services."""
    if allows_http(spark):
        os.environ[_HTTP_VARIABLE] = "true"
        spark.sparkContext.environment[_HTTP_VARIABLE] = "true"


def check_launched_policy(spark: SparkSession, policy: Policy) -> None:
    """Compare a policy with the one that a Connect server was launched with.

    Raises:
        ConfigError: it was launched with none, or with another; the message says what differs.
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
    """Return the names of what differs: a tag's and a table's with theirs."""
    first, second = policy.to_dict(), other.to_dict()
    found = [
        name for name in {**first, **second} if name not in ("tags", "tables") and first.get(name) != second.get(name)
    ]
    for section in ("tags", "tables"):
        mine, theirs = dict(first[section]), dict(second[section])
        found += [f"{section}.{name}" for name in {**mine, **theirs} if mine.get(name) != theirs.get(name)]
    return found or ["the order of tags"]

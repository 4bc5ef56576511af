"""The jar's extension of Spark, by which rules for a table hold in a session: how it comes into one that lives."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from sparkcrypt.names import EXTENSIONS_CLASS
from sparkcrypt.spark.jvm.gateway import java_session, jvm


def install_extension(spark: SparkSession) -> None:
    """Bring the extension into a live classic session that has the jar, and into what its ``newSession`` makes."""
    _call(spark, "install")


def has_rules(spark: SparkSession) -> bool:
    """Tell whether a classic session resolves queries with the extension's rules, which only a new session takes."""
    return bool(_call(spark, "hasRules"))


def _call(spark: SparkSession, method: str) -> Any:
    machine = jvm(spark)
    loader = machine.java.lang.Thread.currentThread().getContextClassLoader()
    kinds = machine.java.lang.reflect.Array.newInstance(machine.java.lang.Class.forName("java.lang.Class"), 1)
    kinds[0] = machine.java.lang.Class.forName("java.lang.Object")
    arguments = machine.java.lang.reflect.Array.newInstance(machine.java.lang.Class.forName("java.lang.Object"), 1)
    arguments[0] = java_session(spark)
    return loader.loadClass(EXTENSIONS_CLASS).getMethod(method, kinds).invoke(None, arguments)

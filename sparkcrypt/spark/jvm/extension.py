"""Installs the jar's Spark extension, which enforces rules for tables, into a live session."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from sparkcrypt.names import EXTENSIONS_CLASS
from sparkcrypt.spark.jvm.gateway import java_session, jvm


def install_extension(spark: SparkSession) -> None:
    """Install the extension into a live classic session that has the jar, and into its later ``newSession`` ones."""
    call_static(spark, EXTENSIONS_CLASS, "install", java_session(spark))


def has_rules(spark: SparkSession) -> bool:
    """Tell whether a classic session has the extension's resolution rules, which only a new session can get."""
    return bool(call_static(spark, EXTENSIONS_CLASS, "hasRules", java_session(spark)))


def call_static(spark: SparkSession, name: str, method: str, argument: Any) -> Any:
    """Call a static method of a class of the jar, which py4j does not find if the jar was added to a live session.

    Args:
        spark: a classic session that has the jar.
        name: the class's full name.
        method: the name of a static method that takes one Object.
        argument: an object of the JVM.
    """
    machine = jvm(spark)
    loader = machine.java.lang.Thread.currentThread().getContextClassLoader()
    kinds = machine.java.lang.reflect.Array.newInstance(machine.java.lang.Class.forName("java.lang.Class"), 1)
    kinds[0] = machine.java.lang.Class.forName("java.lang.Object")
    arguments = machine.java.lang.reflect.Array.newInstance(machine.java.lang.Class.forName("java.lang.Object"), 1)
    arguments[0] = argument
    return loader.loadClass(name).getMethod(method, kinds).invoke(None, arguments)

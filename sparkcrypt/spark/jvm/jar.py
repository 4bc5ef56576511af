"""Finds the jar, which needs no pyspark, and adds it to a live session."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from sparkcrypt.errors import BridgeError
from sparkcrypt.names import CRYPTO_FACTORY_CLASS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def jar_path() -> Path:
    """Return the path of this version's jar, or of the one that SPARKCRYPT_JAR names.

    Raises:
        BridgeError: there is no such file.
    """
    override = os.environ.get("SPARKCRYPT_JAR")
    path = Path(override) if override else Path(str(files("sparkcrypt"))) / "_jar" / "sparkcrypt.jar"
    if not path.is_file():
        raise BridgeError(
            f"the jar is not at {path}; in a checkout run `make jar`, else install the wheel of sparkcrypt, which "
            "holds it, or "
            "name it in SPARKCRYPT_JAR"
        )
    return path


def bring_jar(spark: SparkSession) -> None:
    """Add the jar to a live classic session: to the driver's class loader and to every executor.

    No public interface of Spark serves both reads and writes: ``ADD JAR`` and ``spark.jars`` after launch serve only
    writes, since reads look classes up in the class loader of the driver's main thread.
    """
    from py4j.protocol import Py4JError

    from sparkcrypt.spark.jvm.gateway import jvm

    machine = jvm(spark)
    loader = machine.java.lang.Thread.currentThread().getContextClassLoader()
    if _loads(machine, loader):
        return
    path = jar_path()
    try:
        loader.addURL(machine.java.io.File(str(path.absolute())).toURI().toURL())
    except Py4JError as error:
        raise BridgeError(
            f"this session's class loader cannot take a jar; launch with --jars {path} or spark.jars={path}"
        ) from error
    spark.sparkContext._jsc.addJar(str(path.absolute()))


def _loads(machine: object, loader: object) -> bool:
    from sparkcrypt.spark.jvm.gateway import JVM_ERRORS, read_java_error

    try:
        machine.java.lang.Class.forName(CRYPTO_FACTORY_CLASS, False, loader)  # type: ignore[attr-defined]  # py4j view
    except JVM_ERRORS as error:
        if "ClassNotFoundException" not in read_java_error(error)[0]:
            raise
        return False
    return True

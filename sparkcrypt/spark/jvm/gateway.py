"""Access to the JVM behind a classic session and to the jar's extension in it; the error for a Spark Connect client."""

from __future__ import annotations

import json
from collections.abc import MutableMapping
from typing import Any
from weakref import WeakKeyDictionary

from py4j.java_gateway import JavaPackage
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from sparkcrypt.errors import ConfigError
from sparkcrypt.names import EXTENSIONS_CLASS

JVM_ERRORS = (Py4JJavaError, PySparkException)
"""Errors of a call into the JVM: py4j's own, or pyspark's translation of the exceptions that it recognises."""
_FOUND: MutableMapping[Any, dict[str, Any]] = WeakKeyDictionary()
"""View of a JVM -> full class name -> class, for each class that was looked up."""
_MAPPERS: MutableMapping[Any, Any] = WeakKeyDictionary()
"""View of a JVM -> its mapper of objects to JSON, which takes 10 ms to learn how each class is written."""


class JavaClasses:
    """A package of the JVM: attributes that begin with a lower-case letter are packages, others are classes.

    py4j asks the JVM about every part of a dotted name, and the JVM searches each of Spark's three hundred jars for a
    class of a package's name (for the first part: once for each import of the view).  That took a third of a driver's
    CPU time in runs over small tables.  Here a class is looked up once, by its full name.
    """

    def __init__(self, view: Any, package: str = "") -> None:
        """Store py4j's view of the JVM and the package's name, which is empty for the root."""
        self._view = view
        self._package = package

    def __getattr__(self, name: str) -> Any:
        """Return a package as a ``JavaClasses``, or a class as py4j's object."""
        if name.startswith("_"):
            raise AttributeError(name)
        whole = f"{self._package}.{name}" if self._package else name
        if name[0].islower():
            return JavaClasses(self._view, whole)
        found = _FOUND.setdefault(self._view, {})
        if whole not in found:
            looked_up = getattr(self._view, whole)
            if isinstance(looked_up, JavaPackage):  # there is no such class: the jar may be loaded later
                return looked_up
            found[whole] = looked_up
        return found[whole]


def read_java_error(error: BaseException) -> tuple[str, str]:
    """Return the Java class and message behind one of ``JVM_ERRORS``."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if java is None:
        return type(error).__name__, str(error).splitlines()[0]
    return str(java.getClass().getName()), str(java.getMessage())


def is_connect(spark: SparkSession) -> bool:
    """Tell whether the session is a Spark Connect client, which has no JVM."""
    return ".connect." in type(spark).__module__


def jvm(spark: SparkSession) -> Any:
    """Return an object that looks up classes of the driver's JVM by their dotted names.

    Raises:
        ConfigError: the session is a Spark Connect client.
    """
    if is_connect(spark):
        raise ConfigError(
            "this needs a classic Spark session, and this one is a Spark Connect client; run it with spark-submit, or "
            "on the "
            "machine of the Connect server"
        )
    return JavaClasses(spark._jvm)


def java_session(spark: SparkSession) -> Any:
    """Return the JVM's SparkSession."""
    jvm(spark)
    return spark._jsparkSession


def cut_lineage(frame: DataFrame) -> DataFrame:
    """Return a frame of the same rows and fields, for which Spark does not know the tables that they are from."""
    rows, fields = frame._jdf.queryExecution().toRdd(), frame._jdf.schema()
    spark = frame.sparkSession
    return DataFrame(java_session(spark).internalCreateDataFrame(rows, fields, False), spark)


def hadoop_conf(spark: SparkSession) -> Any:
    """Return a Hadoop configuration in which this session's settings override the cluster's."""
    return java_session(spark).sessionState().newHadoopConf()


def to_dict(spark: SparkSession, scala_map: Any) -> dict[str, str]:
    """Copy a Scala map of strings."""
    return {str(key): str(value) for key, value in to_json(spark, scala_map).items()}


def to_json(spark: SparkSession, scala_object: Any) -> Any:
    """Copy a Scala collection or case class as JSON values in one call, since each getter call takes a millisecond."""
    machine = jvm(spark)
    mapper = _MAPPERS.get(spark._jvm)
    if mapper is None:
        mapper = machine.com.fasterxml.jackson.databind.ObjectMapper()
        mapper.registerModule(machine.com.fasterxml.jackson.module.scala.DefaultScalaModule())
        _MAPPERS[spark._jvm] = mapper
    return json.loads(mapper.writeValueAsString(scala_object))


def to_list(spark: SparkSession, scala_seq: Any) -> list[Any]:
    """Copy a Scala sequence."""
    return copy_collection(jvm(spark).scala.collection.JavaConverters.seqAsJavaList(scala_seq))


def copy_collection(collection: Any) -> list[Any]:
    """Copy a Java collection through an array: py4j's iterators end with exceptions, which pyspark handles slowly."""
    values = collection.toArray()
    return [values[place] for place in range(len(values))]


def option(scala_option: Any) -> Any:
    """Return the value of a Scala Option, or None."""
    return scala_option.get() if scala_option.isDefined() else None


def install_extension(spark: SparkSession) -> None:
    """Install the extension into a live classic session that has the jar, and into its later ``newSession`` ones."""
    call_static(spark, EXTENSIONS_CLASS, "install", java_session(spark))


def has_rules(spark: SparkSession) -> bool:
    """Tell whether a classic session has the extension's resolution rules, which only a new session can get."""
    return bool(call_static(spark, EXTENSIONS_CLASS, "hasRules", java_session(spark)))


def call_static(spark: SparkSession, name: str, method: str, *arguments: Any) -> Any:
    """Call a static method of a class of the jar, which py4j does not find if the jar was added to a live session.

    Args:
        spark: a classic session that has the jar.
        name: the class's full name.
        method: the name of a static method, each parameter of which is an Object.
        *arguments: objects of the JVM, and texts.
    """
    machine = jvm(spark)
    loader = machine.java.lang.Thread.currentThread().getContextClassLoader()
    reflect, kind = machine.java.lang.reflect.Array, machine.java.lang.Class
    kinds = reflect.newInstance(kind.forName("java.lang.Class"), len(arguments))
    values = reflect.newInstance(kind.forName("java.lang.Object"), len(arguments))
    for place, argument in enumerate(arguments):
        kinds[place], values[place] = kind.forName("java.lang.Object"), argument
    return loader.loadClass(name).getMethod(method, kinds).invoke(None, values)

"""What the driver's JVM is asked for by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pytest
from py4j.java_gateway import JavaPackage, JVMView

from sparkcrypt import encrypt_table
from sparkcrypt.spark.jvm import gateway
from sparkcrypt.spark.jvm.gateway import jvm, to_list
from sparkcrypt.spark.tables.tagging import set_tags
from tests.services.installed import ROOT
from tests.spark.support import Lake

pytestmark = pytest.mark.spark


def heard(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets every name which the JVM is asked for."""
    names: list[str] = []
    for kind in (JVMView, JavaPackage):
        asked = kind.__getattr__

        def note(place: Any, name: str, asked: Any = asked) -> Any:
            names.append(f"{place.__dict__.get('_fqn', '')}.{name}".lstrip("."))
            return asked(place, name)

        monkeypatch.setattr(kind, "__getattr__", note)
    return names


def test_run_asks_for_whole_names_of_classes(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """No package is looked up while a table is tagged and encrypted, and a class once: each searches Spark's jars."""
    lake.sql("CREATE TABLE t (id INT, email STRING) USING parquet")
    lake.sql("INSERT INTO t VALUES (1, 'CANARY')")
    policy = lake.policy()
    monkeypatch.setattr(gateway, "_FOUND", WeakKeyDictionary())
    names = heard(monkeypatch)
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    assert encrypt_table(lake.spark, "t", policy).outcome == "done"
    assert names.count("org.apache.hadoop.fs.Path") == 1
    packages = {name for name in names if name.rpartition(".")[2].islower()}
    assert packages <= {"py4j", "py4j.reflection"}  # what pyspark itself asks for when Java has thrown something


def test_sequence_is_copied_without_an_exception(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Scala sequence becomes a list, and pyspark has no exception to look into, as it has with py4j's iterator."""
    classes = jvm(lake.spark)
    names = heard(monkeypatch)
    for values in ((), ("a",), ("a", "b")):
        made = classes.java.util.ArrayList()
        for value in values:
            made.add(value)
        sequence = classes.scala.collection.JavaConverters.asScalaBuffer(made).toSeq()
        assert to_list(lake.spark, sequence) == list(values)
    assert "py4j" not in names


def test_class_is_found_by_its_dotted_name(lake: Lake) -> None:
    """Classes, classes inside them, and their static members are what py4j has; what is private is no package."""
    classes = jvm(lake.spark)
    assert classes.java.lang.Integer.parseInt("7") == 7
    assert str(classes.java.util.AbstractMap.SimpleEntry("a", "b").getKey()) == "a"
    assert str(classes.org.apache.hadoop.fs.Path("/x").getName()) == "x"
    with pytest.raises(AttributeError, match="_private"):
        _ = classes.java._private


def find_method(lake: Lake, owner: str, signature: str) -> Any:
    """Return a method of a class, which may be of the package alone."""
    classes = jvm(lake.spark)
    loader = classes.java.lang.Thread.currentThread().getContextClassLoader()
    methods = classes.java.lang.Class.forName(owner, True, loader).getDeclaredMethods()
    found = next(method for method in methods if f".{signature}" in str(method.toString()))
    found.setAccessible(True)
    return found


def to_array(lake: Lake, *values: Any) -> Any:
    """Return values as an array of Java."""
    made = lake.spark.sparkContext._gateway
    assert made is not None
    array = made.new_array(jvm(lake.spark).java.lang.Object, len(values))
    for place, value in enumerate(values):
        array[place] = value
    return array


def test_no_log_line_controls_a_terminal(lake: Lake, tmp_path: Path) -> None:
    """Names in log lines are shown without what a terminal obeys, and begin no line of their own."""
    lake.policy()
    classes = jvm(lake.spark)
    logged = tmp_path / "lines.log"
    layout = classes.org.apache.logging.log4j.core.layout.PatternLayout.newBuilder().withPattern("%m%n").build()
    appender = classes.org.apache.logging.log4j.core.appender.FileAppender.newBuilder().withFileName(str(logged))
    appender = appender.setName("lines").setLayout(layout).build()
    appender.start()
    root = classes.org.apache.logging.log4j.LogManager.getRootLogger()
    root.addAppender(appender)
    try:
        make = find_method(lake, "io.sparkcrypt.CleanLog", "of(java.lang.Class)")
        error = find_method(lake, "org.slf4j.Logger", "error(java.lang.String,java.lang.Object,java.lang.Object)")
        logger = make.invoke(None, to_array(lake, classes.java.lang.Class.forName("java.lang.String")))
        error.invoke(logger, to_array(lake, "table {} of {}", "a\x1b[2J\nb", 7))
    finally:
        root.removeAppender(appender)
        appender.stop()
    assert logged.read_text() == "table a\N{REPLACEMENT CHARACTER}[2J\N{REPLACEMENT CHARACTER}b of 7\n"


def test_every_logger_is_clean() -> None:
    """No class asks for a logger itself."""
    named = [source for source in (ROOT / "jars").rglob("*.java") if "LoggerFactory" in source.read_text()]
    assert [source.stem for source in named] == ["CleanLog"]


def test_class_that_comes_later_is_found(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that was asked for before its jar is in the JVM is asked for again."""
    monkeypatch.setattr(gateway, "_FOUND", WeakKeyDictionary())
    asked = JVMView.__getattr__
    monkeypatch.setattr(JVMView, "__getattr__", lambda view, name: JavaPackage(name, view._gateway_client))
    assert isinstance(jvm(lake.spark).java.lang.StringBuilder, JavaPackage)
    monkeypatch.setattr(JVMView, "__getattr__", asked)
    assert str(jvm(lake.spark).java.lang.StringBuilder("found").toString()) == "found"

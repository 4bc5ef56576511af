"""What the driver's JVM is asked for by name."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import pytest
from py4j.java_gateway import JavaPackage, JVMView

from sparkcrypt import encrypt_table
from sparkcrypt.spark.jvm import gateway
from sparkcrypt.spark.jvm.gateway import jvm, to_list
from sparkcrypt.spark.tables.tagging import set_tags
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

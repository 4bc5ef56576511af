"""The class path that a command's JVM gets with an archive is Spark's own, or there is no archive."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sparkcrypt.spark.setup.class_archive import SUBMIT_OPTIONS, class_path, launch_options


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Spark with its jars and an empty folder of settings, and no variable that changes its class path."""
    for name in ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "SPARK_DIST_CLASSPATH"):
        monkeypatch.delenv(name, raising=False)
    for folder in ("jars", "conf"):
        (tmp_path / folder).mkdir()
    (tmp_path / "jars" / "slf4j-api-2.0.17.jar").touch()
    return tmp_path


def jars(home: Path) -> str:
    """Return the part that each class path begins with."""
    return f"{home}/jars/slf4j-api-2.0.17.jar:{home}/jars/*"


def test_settings_come_after_the_jars(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hadoop's do so in Spark too."""
    for name in ("hive-site.xml", "log4j2.properties", "spark-defaults.conf", "fairscheduler.xml.template"):
        (home / "conf" / name).touch()
    hadoop = home / "hadoop"
    hadoop.mkdir()
    monkeypatch.setenv("HADOOP_CONF_DIR", f"{hadoop}/")
    assert class_path(home, {}) == f"{jars(home)}:{home}/conf/:{hadoop}/"


SETTINGS = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR")


@pytest.mark.parametrize("name", SETTINGS)
def test_folder_of_settings_that_is_named(home: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """It is on the class path, whichever of Spark's variables names it."""
    (home / "elsewhere").mkdir()
    monkeypatch.setenv(name, f"{home}/elsewhere")
    own = "" if name == "SPARK_CONF_DIR" else f"{home}/conf/:"
    assert class_path(home, {}) == f"{jars(home)}:{own}{home}/elsewhere/"


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize(
    "value", ["{0}/conf:{0}/hadoop", "{0}/conf:", "{0}/nowhere", "{0}/conf/hive-site.xml", "{0}/*"]
)
def test_variable_of_settings_that_names_no_single_folder(
    home: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """Spark splits a list, which as one folder would be nowhere, and its settings would vanish without a word."""
    (home / "hadoop").mkdir()
    (home / "conf" / "hive-site.xml").touch()
    monkeypatch.setenv(name, value.format(home))
    assert class_path(home, {}) is None


def test_settings_that_this_user_may_not_list(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They can be read by name all the same, by Spark; root may list every folder, so the refusal is made here."""

    def refuse(folder: Path) -> None:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(Path, "iterdir", refuse)
    assert class_path(home, {}) is None


def test_settings_that_cannot_be_read_end_no_command(home: Path) -> None:
    """Spark itself says what is wrong with them, or does without."""
    (home / "conf" / "spark-defaults.conf").mkdir()
    assert class_path(home, {}) is None


@pytest.mark.parametrize(
    "name", ["spark-env.sh", "java-opts", "Driver.class", "messages.properties", "core-default.xml"]
)
def test_settings_that_may_mean_another_class_path(home: Path, name: str) -> None:
    """A script may set anything, and a file that jars have too would be found there first."""
    (home / "conf" / name).touch()
    assert class_path(home, {}) is None


@pytest.mark.parametrize("name", ["SPARK_DIST_CLASSPATH", "SPARK_PREPEND_CLASSES", "SPARK_TESTING"])
def test_variables_that_add_jars(home: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """As Spark without Hadoop needs them."""
    monkeypatch.setenv(name, "/opt/hadoop/*")
    assert class_path(home, {}) is None


@pytest.mark.parametrize(
    "words",
    ["--driver-class-path a.jar", "--conf spark.driver.extraClassPath=a.jar", "--properties-file other.conf"],
)
def test_arguments_that_add_jars(home: Path, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    """A file of properties may, too."""
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"{words} pyspark-shell")
    assert class_path(home, {}) is None


@pytest.mark.parametrize("line", ["spark.driver.extraClassPath a.jar", "spark.driver.extra\\\nClassPath a.jar"])
def test_defaults_that_add_jars(home: Path, line: str) -> None:
    """Nor is a line read that goes on below."""
    (home / "conf" / "spark-defaults.conf").write_text(f"{line}\n")
    assert class_path(home, {}) is None


def test_configuration_that_adds_jars(home: Path) -> None:
    """Given with --conf."""
    assert class_path(home, {"spark.driver.extraClassPath": "a.jar"}) is None
    assert class_path(home, {"spark.ui.enabled": "false"}) is not None


def test_options_of_the_user_come_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """So they win; and they are all that is there afterwards."""
    monkeypatch.setenv(SUBMIT_OPTIONS, "-Xmx3g")
    with launch_options(("-Xmx1g", '-Dname="a b"')):
        assert os.environ[SUBMIT_OPTIONS] == '"-Xmx1g" "-Dname=\\"a b\\"" -Xmx3g'
    assert os.environ[SUBMIT_OPTIONS] == "-Xmx3g"
    monkeypatch.delenv(SUBMIT_OPTIONS)
    with pytest.raises(OSError, match="no"), launch_options(("-Xmx1g",)):
        raise OSError("no")
    assert SUBMIT_OPTIONS not in os.environ

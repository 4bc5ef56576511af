"""What a command says before and while its JVM starts: nothing but why it cannot."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from sparkcrypt.errors import ConfigError
from sparkcrypt.spark.jvm.failures import find_carried_error
from sparkcrypt.spark.setup.command_session import hold_start, require_java


def shown(capfd: pytest.CaptureFixture[str], wanted: str) -> str:
    """Return what stderr has got, once it has what is wanted."""
    found, ends = "", time.monotonic() + 10
    while wanted not in found and time.monotonic() < ends:
        time.sleep(0.005)
        found += capfd.readouterr().err
    return found


def test_lines_of_a_start_are_not_shown(capfd: pytest.CaptureFixture[str]) -> None:
    """Those that follow are, since they may be the reason why a JVM dies."""
    with hold_start() as prints_to:
        later = os.dup(prints_to)
        os.write(prints_to, b"WARNING: Using incubator modules\n")
        time.sleep(0.05)
    os.write(later, b"java.lang.OutOfMemoryError\n")
    os.close(later)
    assert shown(capfd, "OutOfMemoryError\n") == "java.lang.OutOfMemoryError\n"


def test_lines_of_a_start_that_fails_are_shown(capfd: pytest.CaptureFixture[str]) -> None:
    """They have the reason."""
    with pytest.raises(OSError, match="no session"), hold_start() as prints_to:
        os.write(prints_to, b"Unrecognized VM option\n")
        time.sleep(0.05)
        raise OSError("no session")
    assert shown(capfd, "option\n") == "Unrecognized VM option\n"


def test_no_java_is_told_before_spark_is_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """JAVA_HOME counts first, as in Spark's scripts, then the PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    with pytest.raises(ConfigError, match=r"jdk, where there is no bin/java; allowed: Java 17 or later; install a JDK"):
        require_java()
    monkeypatch.delenv("JAVA_HOME")
    with pytest.raises(ConfigError, match=r"JAVA_HOME is not set, and there is no java on the PATH"):
        require_java()
    (tmp_path / "java").write_text("#!/bin/sh\n")
    (tmp_path / "java").chmod(0o755)
    require_java()
    (tmp_path / "jdk" / "bin").mkdir(parents=True)
    (tmp_path / "java").rename(tmp_path / "jdk" / "bin" / "java")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    require_java()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.10 than that in driver: 3.11, PySpark "
            "cannot run with different minor versions.",
            "is 3.10, and that of the driver 3.11;",
        ),
        (
            "Python in worker has different version (3, 9) than that in driver 3.11, PySpark cannot run",
            "is 3.9, and that of the driver 3.11;",
        ),
        (
            'java.io.IOException: Cannot run program "python3.9": error=2, No such file or directory',
            "is python3.9, which is not there;",
        ),
        (
            "org.apache.spark.SparkException: \nError from python worker:\n  /env/bin/python: No module named pyspark\n"
            "PYTHONPATH was:\n  /spark/python/lib/pyspark.zip\n",
            "does not start: /env/bin/python: No module named pyspark;",
        ),
    ],
)
def test_another_python_on_executors_is_told(text: str, told: str) -> None:
    """With both versions, in the words of each Spark, and what to set; not as the worker's traceback."""
    error = find_carried_error(RuntimeError(f"Job aborted\n{text}\n\tat org.apache.spark"))
    assert isinstance(error, ConfigError) and told in str(error) and "spark.pyspark.python" in str(error)


def test_another_program_that_is_missing_is_not_pythons() -> None:
    """Hadoop starts programs too."""
    assert find_carried_error(RuntimeError('Cannot run program "chmod": error=2, No such file or directory')) is None

"""Delta and Iceberg tables in a configured session: tagged columns are refused by name."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.conftest import or_skip
from tests.services.installed import ROOT
from tests.services.lakehouse import DELTA, ICEBERG, Format, find_lakehouse
from tests.spark.support import make_policy

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.slow, pytest.mark.timeout(1000)]
_SECONDS = 900.0


def outcomes_of(wanted: Format, java: dict[str, str], jar: Path, script: str, *arguments: object) -> dict[str, str]:
    """Run a script of these tests on a format's Spark, with a folder, the jars and more, and return what it prints."""
    found = or_skip(find_lakehouse, wanted)
    folder, *more = arguments
    unset = {name: value for name, value in java.items() if not name.startswith(("SPARK_HOME", "PYSPARK_"))}
    done = subprocess.run(
        [
            found.python,
            ROOT / "tests" / "spark" / script,
            *map(str, (folder, ",".join(map(str, (jar, *found.jars))), *more)),
        ],
        env={**unset, "PYTHONPATH": str(ROOT), "SPARKCRYPT_JAR": str(jar), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("OUTCOMES ")]
    assert lines, done.stdout[-2000:] + done.stderr[-4000:]
    told: dict[str, str] = json.loads(lines[0].removeprefix("OUTCOMES "))
    return told


def write_policy(folder: Path, untagged: str) -> None:
    """Write ``<untagged>.yaml`` beside the folder of its keys."""
    make_policy(folder / untagged, untagged=untagged)
    text = (folder / untagged / "policy.yaml").read_text()
    (folder / f"{untagged}.yaml").write_text(text.replace("path: keys/", f"path: {folder}/{untagged}/keys"))


def assert_refused(outcomes: dict[str, str], name: str) -> None:
    """Assert that every way was refused by the column's name, and that no file holds its value."""
    assert outcomes.pop("secrets") == ""
    for way, said in outcomes.items():
        assert "column email carries the tag 'pii'" in said, (way, said)
        assert name in said, way


def test_delta_refuses_tagged_columns_and_keeps_its_log(
    java: dict[str, str], private_jar: Path, tmp_path: Path
) -> None:
    """Each way to write a tagged column is refused by the column's name; checkpoints are plaintext and read."""
    for untagged in ("plaintext", "footer_key"):
        write_policy(tmp_path, untagged)
    outcomes = outcomes_of(DELTA, java, private_jar, "delta_script.py", tmp_path)
    served = {"untagged", "checkpoint"}
    assert {name: outcomes.pop(name) for name in served} == dict.fromkeys(served, "done")
    assert "is written by a stream to Delta: the format loses tags" in outcomes.pop("stream")
    assert_refused(outcomes, "Delta")


def test_iceberg_refuses_tagged_columns(java: dict[str, str], private_jar: Path, tmp_path: Path) -> None:
    """A tagged column is refused by its name, whether frames, SQL or streams write it; other columns are written."""
    write_policy(tmp_path, "plaintext")
    outcomes = outcomes_of(ICEBERG, java, private_jar, "iceberg_script.py", tmp_path)
    served = {"plain", "plain delta", "other column", "filtered"}
    assert {name: outcomes.pop(name) for name in served} == dict.fromkeys(served, "done")
    assert_refused(outcomes, "Iceberg")

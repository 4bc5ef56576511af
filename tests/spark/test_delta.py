"""Delta tables in a configured session: tagged columns are refused by name, and the log stays readable."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.conftest import require_service
from tests.services import ServiceUnavailableError
from tests.services.delta import Delta, find_delta
from tests.services.installed import ROOT
from tests.spark.support import make_policy

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.slow, pytest.mark.timeout(1000)]
_SECONDS = 900.0


@pytest.fixture(scope="module")
def delta() -> Delta:
    """A Spark that Delta's jars fit."""
    try:
        return find_delta()
    except ServiceUnavailableError as unavailable:
        require_service(str(unavailable))


def test_delta_refuses_tagged_columns_and_keeps_its_log(
    delta: Delta, java: dict[str, str], private_jar: Path, tmp_path: Path
) -> None:
    """Each way to write a tagged column is refused by the column's name; checkpoints are plaintext and read."""
    for untagged in ("plaintext", "footer_key"):
        policy = make_policy(tmp_path / untagged, untagged=untagged)
        text = (
            (tmp_path / untagged / "policy.yaml")
            .read_text()
            .replace("path: keys/", f"path: {tmp_path}/{untagged}/keys")
        )
        (tmp_path / f"{untagged}.yaml").write_text(text)
        assert policy.untagged == untagged
    jars = ",".join(map(str, (private_jar, *delta.jars)))
    unset = {name: value for name, value in java.items() if not name.startswith(("SPARK_HOME", "PYSPARK_"))}
    done = subprocess.run(
        [delta.python, ROOT / "tests" / "spark" / "delta_script.py", tmp_path, jars],
        env={**unset, "PYTHONPATH": str(ROOT), "SPARKCRYPT_JAR": str(private_jar), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("OUTCOMES ")]
    assert lines, done.stdout[-2000:] + done.stderr[-4000:]
    outcomes = json.loads(lines[0].removeprefix("OUTCOMES "))
    served = {"untagged", "checkpoint"}
    assert {name: outcomes.pop(name) for name in served} == dict.fromkeys(served, "done")
    assert outcomes.pop("secrets") == ""
    for way, said in outcomes.items():
        assert "column email carries the tag 'pii'" in said, (way, said)
        assert "Delta" in said, way

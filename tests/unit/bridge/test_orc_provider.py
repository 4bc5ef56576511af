"""Spark skips a file on any exception under ignoreCorruptFiles: the provider of ORC's keys raises Errors alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.services.installed import ROOT, java_home, spark_home
from tests.services.quick_java import QUICK


@pytest.mark.slow
def test_every_failure_of_the_provider_of_orc_keys_is_an_error() -> None:
    """Refusals, answers of the helper and what nobody expected end as Errors that say what is wrong."""
    jars = f"{ROOT / 'sparkcrypt' / '_jar' / 'sparkcrypt.jar'}:{spark_home() / 'jars'}/*"
    source = Path(__file__).with_name("OrcProviderCheck.java")
    command = [str(java_home() / "bin" / "java"), *QUICK, "-cp", jars, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    outcomes = {line.split("\t")[0]: line.split("\t")[1:] for line in done.stdout.splitlines()}
    assert len(outcomes) == 6
    assert {name: kind for name, (kind, *_) in outcomes.items()} == dict.fromkeys(outcomes, "Error")
    assert all("Error: " in message for _, message in outcomes.values())
    assert "does not say which ORC file it reads" in outcomes["open without a file"][1]

"""The log of a policy in the jar: the key of its maps of access events, however many policies an application has."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.services.installed import ROOT, java_home, spark_home
from tests.services.quick_java import QUICK


@pytest.mark.slow
def test_log_of_a_policy_is_the_same_key_of_maps_whenever_it_is_asked_for() -> None:
    """Events that wait, the bound on them and events that were written at once are found under it again."""
    jars = f"{ROOT / 'sparkcrypt' / '_jar' / 'sparkcrypt.jar'}:{spark_home() / 'jars'}/*"
    source = Path(__file__).with_name("LogPlaceCheck.java")
    command = [str(java_home() / "bin" / "java"), *QUICK, "-cp", jars, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "true true false\n"

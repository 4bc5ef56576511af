"""Runs a demo as its make verb does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping

from tests.services.installed import ROOT


def run_demo(name: str, java: Mapping[str, str], *arguments: str, seconds: float) -> str:
    """Run a program below demo/ to its end, see that it passed, and return what it printed.

    Args:
        name: of its file.
        java: the environment for Spark processes.
        *arguments: of the program.
        seconds: how long it may take.
    """
    done = subprocess.run(
        [sys.executable, ROOT / "demo" / name, *arguments],
        env=java,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-4000:]}"
    assert "The demo passed" in done.stdout
    return done.stdout

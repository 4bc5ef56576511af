"""The demo of three users of one Thrift server, whole: what each gets, what he is refused, and what the log says."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.services.installed import ROOT
from tests.services.quick_java import EXECUTORS

pytestmark = [pytest.mark.services, pytest.mark.slow, pytest.mark.timeout(600)]


def test_each_user_gets_what_his_keys_allow(java: dict[str, str], jar: object) -> None:
    """Table, view, path and pyarrow give the same to each user, and the log tells the intern's refusals."""
    done = subprocess.run(
        [sys.executable, ROOT / "demo" / "run_access_demo.py"],
        env={**java, **EXECUTORS},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-4000:]}"
    assert "The demo passed" in done.stdout
    assert done.stdout.count("1 ann NULL NULL; 2 bob NULL NULL") == 4  # the intern, by each route
    assert "encrypted by their footers: pay, ssn" in done.stdout
    assert "cannot be read by intern" in done.stdout
    assert "refused, since what he would write are nulls" in done.stdout

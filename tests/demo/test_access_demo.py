"""The demo of three users of one Thrift server, whole: what each gets, what he is refused, and what the log says."""

from __future__ import annotations

import pytest

from tests.demo.running import run_demo

pytestmark = [pytest.mark.services, pytest.mark.slow, pytest.mark.timeout(600)]


def test_each_user_gets_what_his_keys_allow(java: dict[str, str], jar: object) -> None:
    """Table, view, path and pyarrow give the same to each user, and the log tells the intern's refusals."""
    printed = run_demo("run_access_demo.py", java, seconds=500)
    assert printed.count("1 ann NULL NULL; 2 bob NULL NULL") == 4  # the intern, by each route
    assert "encrypted by their footers: pay, ssn" in printed
    assert "cannot be read by intern" in printed
    assert "refused, since what he would write are nulls" in printed

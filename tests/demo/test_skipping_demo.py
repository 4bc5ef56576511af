"""The demo of data skipping, whole: one file of 400 is opened, a denied column stays refused, late files are found."""

from __future__ import annotations

import re

import pytest

from tests.demo.running import run_demo

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


def test_one_file_is_opened(java: dict[str, str], jar: object) -> None:
    """With the store a lookup opens one file, by the encrypted column and by another; without it, all."""
    printed = run_demo("run_skipping_demo.py", java, seconds=500)
    rows = re.findall(r"│ (with|without) the store +│ (\d+) ", printed)
    assert rows == [("without", "400"), ("with", "1")] * 2
    assert "is refused, with the store and without: column email of table" in printed
    assert "before the refresh: 2 of 401 files are opened" in printed

"""The demo of ORC, whole: what is there and what comes is encrypted, and readers get what their keys allow."""

from __future__ import annotations

import pytest

from tests.demo.running import run_demo

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


def test_orc_table_is_encrypted_and_read(java: dict[str, str], jar: object) -> None:
    """Each step checks what it shows; these are the words that a person looks for."""
    printed = run_demo("run_orc_demo.py", java, seconds=500)
    assert "email is under pii in each of the" in printed
    assert "email is refused: its key 'pii' is not there" in printed

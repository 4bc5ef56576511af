"""The nightly example: old files go only when readers have had their grace since the swap."""

from __future__ import annotations

import runpy
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).resolve().parents[3] / "conf" / "airflow" / "sparkcrypt_nightly.py"


@pytest.fixture(scope="module")
def tasks() -> dict[str, Any]:
    """The tasks of the example, by their ids."""
    dag = runpy.run_path(str(EXAMPLE))["sparkcrypt_nightly"]()
    return dict(dag.task_dict)


def test_grace_begins_when_the_swaps_are_made(tasks: dict[str, Any]) -> None:
    """The wait ends the grace after the backfill did, however long that took, and never counts from the run's start."""
    grace = tasks["end_of_grace"]
    assert grace.upstream_task_ids == {"backfill"}
    before = datetime.now(timezone.utc)
    until = datetime.fromisoformat(grace.python_callable({"grace_hours": 2.5}))
    assert before <= until - timedelta(hours=2.5) <= datetime.now(timezone.utc)
    wait = tasks["wait_for_readers"]
    assert "end_of_grace" in wait.target_time and "dag_run" not in wait.target_time
    assert wait.upstream_task_ids == {"end_of_grace"}


def test_expire_judges_each_run_by_its_own_last_swap(tasks: dict[str, Any]) -> None:
    """It gives the grace as --older-than, and so may run on nights without drift too."""
    expire = tasks["expire"]
    assert expire.options == ["--older-than", "{{ params.grace_hours }}h"]
    assert expire.upstream_task_ids == {"check_keys", "wait_for_readers"}
    assert expire.trigger_rule == "none_failed"

"""A spark-submit that ends as a test says, and what Airflow hands to a task."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

try:
    from airflow.sdk import DAG
except ModuleNotFoundError:  # Airflow 2
    from airflow.models.dag import DAG

__all__ = ["DAG", "SparkSubmit", "report", "table", "trying"]
PROGRAM = """#!{python}
import json, sys
from pathlib import Path

home = Path({home!r})
calls = json.loads((home / "calls.json").read_text())
endings = json.loads((home / "endings.json").read_text())
(home / "calls.json").write_text(json.dumps([*calls, sys.argv[1:]]))
text, code = endings[len(calls)]
if text is not None:
    Path(sys.argv[sys.argv.index("--report") + 1]).write_text(text)
sys.exit(code)
"""


def report(**fields: Any) -> dict[str, Any]:
    """Return a report of a pass in which nothing was to do, with other fields."""
    return {
        "kind": "sparkcrypt backfill",
        "version": 1,
        "pass_id": "20261121T101112Z-3f9a2c",
        "outcome": "nothing to do",
        "started": "2026-11-21T10:11:12+00:00",
        "seconds": 1.5,
        "tables": [],
        "failed": [],
        "refused": [],
        "throughput": [],
        "error": None,
        **fields,
    }


def table(**fields: Any) -> dict[str, Any]:
    """Return the part of a report that is about one table."""
    run = {"table": "sales.orders", "run_id": "20261121T101113Z-0a1b2c", "outcome": "done", "units_left": 0}
    return {**run, "units": [], "planned": [], "quarantined": [], **fields}


@dataclass(frozen=True, slots=True)
class SparkSubmit:
    """The program on PATH: how its calls will end, and what they were."""

    home: Path

    def will(self, *endings: tuple[dict[str, Any] | str | None, int]) -> None:
        """Say for each call which report it writes (None: none), and its exit code."""
        texts = [(text if isinstance(text, str | None) else json.dumps(text), code) for text, code in endings]
        (self.home / "endings.json").write_text(json.dumps(texts))

    @property
    def calls(self) -> list[list[str]]:
        """The command lines so far."""
        return list(json.loads((self.home / "calls.json").read_text()))

    @property
    def jobs(self) -> list[list[str]]:
        """What followed the job's name on each, without its report."""
        jobs = [call[call.index("backfill.py") + 1 :] for call in self.calls]
        return [[*job[: job.index("--report")], *job[job.index("--report") + 2 :]] for job in jobs]

    @property
    def reports(self) -> list[str]:
        """Where each call was to write its report."""
        return [call[call.index("--report") + 1] for call in self.calls]


@pytest.fixture
def spark_submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SparkSubmit:
    """A spark-submit in place of Spark's: only so can a report be missing, torn, or another's."""
    home = tmp_path / "spark"
    home.mkdir()
    program = home / "spark-submit"
    program.write_text(PROGRAM.format(python=sys.executable, home=str(home)))
    program.chmod(0o755)
    (home / "calls.json").write_text("[]")
    monkeypatch.setenv("PATH", f"{home}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    made = SparkSubmit(home)
    made.will((report(), 0))
    return made


@pytest.fixture
def context() -> dict[str, Any]:
    """What Airflow hands to a task, as far as it is asked for."""
    return trying(1)


def trying(number: int) -> dict[str, Any]:
    """Return the context of a task's try; ``pushed`` has the XComs that it was given besides its result."""
    pushed: dict[str, Any] = {}
    task = SimpleNamespace(
        dag_id="nightly", task_id="backfill", run_id="scheduled__2026-11-21T01:00:00+00:00", map_index=2,
        try_number=number, xcom_push=lambda key, value: pushed.update({key: value}),
    )  # fmt: skip
    return {"ti": task, "pushed": pushed}


@pytest.fixture
def arguments(tmp_path: Path) -> dict[str, Any]:
    """The arguments that every operator here has."""
    return {
        "task_id": "t",
        "application": "backfill.py",
        "policy": "policy.yaml",
        "report_folder": str(tmp_path / "reports"),
        "table": "sales.orders",
    }

"""The notebook of the docs runs in one session, and has no outputs."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.services.installed import ROOT
from tests.spark.support import Lake

pytestmark = pytest.mark.spark
NOTEBOOK = ROOT / "docs" / "notebook.ipynb"


def cells(kind: str) -> list[dict[str, Any]]:
    """Return the cells of the notebook that are of one kind."""
    return [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == kind]


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Run one cell as a notebook does, and return the value of its last line, or None."""
    if source.startswith("%%bash\n"):
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        command = ["bash", "-euo", "pipefail", "-c", source.partition("\n")[2]]
        subprocess.run(command, env={**os.environ, "PATH": path}, check=True, capture_output=True)
        return None
    *body, last = ast.parse(source).body
    if not isinstance(last, ast.Expr):
        body.append(last)
    exec(compile(ast.Module(body, []), "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names) if isinstance(last, ast.Expr) else None


def test_the_notebook_runs(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cell runs in one session; results show themselves, and no file of its tables has a tagged value."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", lambda self: lake.spark)
    names: dict[str, Any] = {}
    shown = [run_cell("".join(cell["source"]), names) for cell in cells("code")]
    results = [value for value in shown if value is not None]
    assert [type(value).__name__ for value in results] == [
        *("TableVerification", "TargetPlan", "Report", "TableVerification", "Lineage"),
        *("RolledBack", "Expired", "EstateStatus"),
    ]
    for value in results:
        assert str(value) and not str(value).startswith(type(value).__name__), value
        assert value._repr_html_().startswith("<")
    assert names["visitors"].verify().ok
    in_use = [Path(spark_file.removeprefix("file:")) for spark_file in in_files(lake, "visitors", "customers", "mails")]
    assert in_use
    assert not [file for file in in_use if b"ann@example.org" in file.read_bytes()]


def in_files(lake: Lake, *tables: str) -> list[str]:
    """Return the files that tables have in use."""
    return [file for table in tables for file in lake.spark.table(table).inputFiles()]


def test_the_notebook_has_no_outputs() -> None:
    """Outputs would show paths of one machine."""
    assert [cell for cell in cells("code") if cell["outputs"] or cell["execution_count"]] == []

"""The suite's parts: every file in one of them, and no failure of a part passed over."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.services.installed import ROOT

SCRIPT = ROOT / "tools" / "test_parts.py"


@pytest.fixture(scope="module")
def parts() -> Any:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("test_parts", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_file_is_in_one_part_and_parts_take_the_same_time(parts: Any) -> None:
    """A file that was never measured counts as much as the middle one."""
    seconds = {f"tests/test_{number}.py": float(number) for number in range(1, 30)}
    files = [*seconds, "tests/test_new.py"]
    dealt = parts.deal_files(files, seconds, 3)
    assert sorted(file for part in dealt for file in part) == sorted(files)
    loads = [sum(seconds.get(file, 15.0) for file in part) for part in dealt]
    assert max(loads) - min(loads) <= 2.0
    assert all(part == sorted(part) for part in dealt)


def test_recorded_files_are_those_of_the_suite(parts: Any) -> None:
    """A file that is gone has no place in the record, else its time would be given to nobody."""
    recorded = json.loads(parts.DURATIONS.read_text())
    assert [file for file in recorded if not (ROOT / file).is_file()] == []


@pytest.mark.parametrize(
    ("ends", "code"), [("exit 0", 0), ('[[ "$*" != *--ignore* ]]', 1), ('[[ "$*" != *test_matrix* ]]', 1)]
)
def test_one_part_that_fails_fails_the_suite(parts: Any, ends: str, code: int) -> None:
    """Whichever it is; the others run to their end, and what they say is shown."""
    command = [sys.executable, str(SCRIPT), "bash", "-c", f'echo "part of $*"; {ends}', "part"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode == code
    first, *others = (line.split()[2:] for line in done.stdout.splitlines() if line.startswith("part of "))
    assert first == ["tests", *(f"--ignore=tests/{name}" for name in parts.DEALT)]
    dealt = [file for name in parts.DEALT for file in Path(ROOT, "tests", name).rglob("test_*.py")]
    assert sorted(file for part in others for file in part) == sorted(str(file.relative_to(ROOT)) for file in dealt)

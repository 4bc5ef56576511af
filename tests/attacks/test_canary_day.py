"""A day of statements over values that must be nowhere in clear, but where the documents say so."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from tests.attacks.canaries import Canaries, search
from tests.attacks.canary_script import SHOWN, TAGS
from tests.conftest import FreshJvm
from tests.services.installed import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.slow]
SEED = int(os.environ.get("SPARKCRYPT_SEED", "1"))
STATEMENTS = int(os.environ.get("SPARKCRYPT_STATEMENTS", "40"))
SECONDS_PER_STATEMENT = 20
EVENTS = ("encrypt.default.ruled", "rotate.default.ruled")
REFUSED = (
    "which encrypts, and is written to",
    "before tags can follow it",
    "is a partition column",
    "inherit: refuse",
    "[UNRESOLVED_COLUMN.WITHOUT_SUGGESTION]",  # by Spark: an inline table in a view or cached query finds no variable
)
"""What a statement of the day may be refused with."""


def test_each_line_of_the_list_is_shown() -> None:
    """The page lists nothing that the day does not show, but sessions without the extension."""
    section = (ROOT / TAGS).read_text().partition("## What is not seen\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("- ")]
    shown = [line for line in lines if any(way.words in line for way in SHOWN.values() if way.page == TAGS)]
    assert lines[:-2] == shown
    assert all("sessions without the extension" in line.lower() for line in lines[-2:])


@pytest.mark.timeout(240 + STATEMENTS * SECONDS_PER_STATEMENT)
def test_no_canary_is_anywhere(fresh_jvm: FreshJvm, private_jar: Path, tmp_path: Path) -> None:
    """Each file of the day is searched, and so are names, command lines and environments of processes."""
    root = tmp_path / "day"
    root.mkdir()
    script = "from tests.attacks.canary_script import main\nmain()\n"
    done = fresh_jvm(
        script,
        root,
        SEED,
        STATEMENTS,
        env={"SPARKCRYPT_JAR": str(private_jar), "SPARK_LOCAL_DIRS": str(root / "local")},
        timeout=240 + STATEMENTS * SECONDS_PER_STATEMENT,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    day = json.loads(done.stdout.splitlines()[-1])
    assert day["processes"] == []
    events = [json.loads(line) for line in (root / "lineage.json").read_text().splitlines()]
    told = Counter((event["job"]["name"].removeprefix("sparkcrypt."), event["eventType"]) for event in events)
    assert told == {(name, state): 1 for name in EVENTS for state in ("START", "COMPLETE")}
    assert '"level": "info", "message": "default.ruled: ' in (root / "report-1").read_text()
    assert 'table="default.ruled"' in (root / "status.prom").read_text() and (root / "status.html").is_file()
    assert search(root, Canaries.of(SEED, "ruled")) == {}
    assert Canaries.of(SEED, "ruled").text not in done.stderr.lower()
    for name, shown in SHOWN.items():
        found = search(root, Canaries.of(SEED, name))
        assert {place for place in shown.places if any(file.startswith(place) for file in found)} == set(
            shown.places
        ), name
        assert [file for file in found if not file.startswith(shown.places)] == [], name
        assert shown.words in (ROOT / shown.page).read_text(), name
    refused = [result for result in day["results"] if result["said"]]
    assert [result for result in refused if not any(reason in result["said"] for reason in REFUSED)] == []
    assert min(len(refused), len(day["results"]) - len(refused)) > STATEMENTS // 6

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.services.installed import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]
SECONDS = 600.0


class Ended:
    """How the commands of the scenario ended."""

    def __init__(self, home: Path, ended: dict[str, Any]) -> None:
        self.home, self._ended = home, ended

    def code(self, name: str) -> int:
        """Return a command's exit code."""
        return int(self._ended[name]["code"])

    def errors(self, name: str) -> str:
        """Return what it wrote to stderr."""
        return str(self._ended[name]["errors"])

    def text(self, name: str) -> str:
        """Return what it wrote to stdout."""
        return str(self._ended[name]["output"])

    def document(self, name: str) -> Any:
        """Return its standard output, which must be one JSON document."""
        return json.loads(self.text(name))

    def fact(self, name: str) -> Any:
        """Return what the scenario itself saw."""
        return self._ended[name]


@pytest.fixture(scope="module")
def ended(private_jar: Path, java: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ended]:
    """Every command of ``cli_scenario.py``, run in one JVM on a real Hive table."""
    home = tmp_path_factory.mktemp("cli")
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("cli_scenario.py")), str(home)]
    environment = {**java, "PYTHONPATH": str(ROOT), "SPARKCRYPT_JAR": str(private_jar)}
    done = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr[-4000:]
    yield Ended(home, json.loads((home / "ended.json").read_text()))


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("tags set unknown", "'nosuch'"),
        ("tags set partition", "partition column"),
        ("tags set nowhere", "d.nosuch"),
        ("encrypt nowhere", "d.nosuch"),
    ],
)
def test_what_makes_no_plan_is_65(ended: Ended, name: str, word: str) -> None:
    """An unknown tag, a partition column and a table that is not there are named, and end with 65."""
    assert ended.code(name) == 65
    assert word in ended.errors(name)
    assert ended.document(name)["error"]["type"] == "PlanError"


def test_refused_tags_change_nothing(ended: Ended) -> None:
    """After refused commands the table carries no tag."""
    assert ended.document("tags show before") == {"table": "d.t", "tags": [], "warnings": []}


def test_tags_are_set_in_both_places(ended: Ended) -> None:
    """`tags set` and `tags copy` write the Spark schema and the table's properties."""
    assert ended.document("tags set") == {"table": "d.t", "columns": {"ssn": ["pii"]}}
    assert ended.document("tags copy") == {"table": "d.t", "columns": {"note": ["public"]}}
    found = {(tag["column"], *tag["tags"], tag["source"]) for tag in ended.document("tags show")["tags"]}
    assert found == {
        ("ssn", "pii", "schema metadata"),
        ("ssn", "pii", "table property"),
        ("note", "public", "schema metadata"),
        ("note", "public", "table property"),
    }


def test_plaintext_files_are_drift(ended: Ended) -> None:
    """Before the run every file drifts; the keys that are not made yet are named, and the code is theirs."""
    assert ended.code("plan before") == 69
    found = ended.document("plan before")
    assert (found["files_total"], found["files_matching"], found["files_drifted"]) == (2, 0, 2)
    assert {drift["kind"] for drift in found["drift"]} == {"plaintext"}
    assert ended.errors("plan before") == ""
    assert [key["key_id"] for key in found["missing_keys"]] == ["audit", "footer", "pii"]
    assert "keys create pii --policy FILE" in ended.text("plan text")
    assert "2 files in 2 units: 2 differ from the plan" in ended.text("plan text")


def test_doctor_without_keys_names_what_to_create(ended: Ended) -> None:
    """Absent keys fail their checks with the command that makes them, and the exit code is the first failure's."""
    assert ended.code("doctor without keys") == 78
    found = {check["check"]: check for check in ended.document("doctor without keys")}
    failed = [name for name, check in found.items() if not check["ok"]]
    assert failed == ["key directory", "key footer", "key pii", "key audit"]
    assert found["key pii"]["fix"].startswith("sparkcrypt keys create pii")
    assert "write under the policy" not in found


def test_doctor_is_content_when_all_is_there(ended: Ended) -> None:
    """With keys every check is well, from the policy to the table, and nothing that it wrote is left."""
    found = ended.document("doctor")
    assert [check["check"] for check in found if not check["ok"]] == []
    assert [check["check"] for check in found] == [
        "policy",
        "key directory",
        "key service",
        "audit",
        "key footer",
        "key pii",
        "key contact-{p}",
        "key audit",
        "java",
        "spark",
        "jar",
        "key services of tables",
        "table formats",
        "helper on the driver",
        "tasks of the native engine",
        "helper on executors",
        "write under the policy",
        "state directory",
        "environment",
        "plan of d.t",
        "place of d.t",
        "tags of d.t",
        "names of d.t",
        "properties of d.t",
        "identity of d.t",
        "rule of d.t",
    ]
    assert all(set(check) == {"check", "ok", "detail", "fix"} for check in found)
    (tasks,) = [check["detail"] for check in found if check["check"] == "tasks of the native engine"]
    assert re.match(r"2 tasks ran with Python 3\..*pandas 2\..*pyarrow", tasks)
    assert ended.code("doctor") == 0
    assert ended.text("doctor text").count("\n") == len(found)
    assert ended.fact("left") == []


def test_a_dry_run_says_what_would_be_done(ended: Ended) -> None:
    """A dry run reports the files, rewrites none, and needs no lock or journal."""
    found = ended.document("encrypt dry run")
    assert (found["outcome"], found["files_total"], found["files_rewritten"]) == ("dry run", 2, 0)


def test_the_table_is_encrypted_and_reported(ended: Ended) -> None:
    """The run's report is on stdout and in the file, the plan and the progress on stderr."""
    found = ended.document("encrypt")
    assert (found["outcome"], found["files_rewritten"], found["rows"], found["verified"]) == ("done", 2, 100, True)
    assert found["columns"] == {"ssn": "pii"}
    assert json.loads((ended.home / "report.json").read_text()) == found
    errors = ended.errors("encrypt")
    assert "1 of 3 columns encrypted" in errors
    assert "2 of 2 files" in errors


def test_afterwards_everything_agrees(ended: Ended) -> None:
    """Plan and verification find nothing, a second run does nothing, the rows are all there."""
    assert (ended.code("plan after"), ended.document("plan after")["drift"]) == (0, [])
    assert (ended.code("verify"), ended.document("verify")["authenticated"]) == (0, "all")
    assert ended.document("encrypt again")["outcome"] == "nothing to do"
    assert ended.fact("rows") == [100, 4950, 100]


def test_the_run_is_known_and_audited(ended: Ended) -> None:
    """The state directory tells of the runs, and their audit verifies: an entry a unit, up to the report's head."""
    assert ended.document("backfill status")["state"] in ("done", "nothing to do")
    head = {**ended.document("encrypt")["audit"], "key_id": "audit"}
    verified = {"table": "d.t", "entries": 2, "verified": True, "heads": [head], "warnings": []}
    assert ended.document("audit verify") == verified


def test_old_files_were_moved_when_that_was_asked(ended: Ended) -> None:
    """--move-old reaches the run, and the report names the place."""
    report = ended.document("encrypt")
    assert report["old_location"].endswith(f"/d.db/.sparkcrypt/t/old-{report['run_id']}")


def test_old_files_expire_when_they_are_told_to(ended: Ended) -> None:
    """A dry run deletes nothing; the real one deletes what the dry run named."""
    told, done = ended.document("expire dry run"), ended.document("expire")
    assert (told["dry_run"], done["dry_run"]) == (True, False)
    assert told["files"] == done["files"] == 2
    assert not list((ended.home / "warehouse" / "d.db" / "t").rglob("*.parquet"))


def test_a_failed_run_leaves_its_report(ended: Ended) -> None:
    """Where exit codes vanish the report says that the run failed, and why."""
    found = json.loads((ended.home / "failed.json").read_text())
    assert (found["outcome"], found["table"], found["verified"]) == ("failed", "d.nosuch", False)
    assert (found["error"]["type"], found["error"]["exit_code"]) == ("PlanError", 65)


def test_an_engine_that_does_not_exist_is_64(ended: Ended) -> None:
    """The engines that there are, are named."""
    assert ended.code("encrypt engine") == 64
    assert "'native', 'spark'" in ended.errors("encrypt engine")


def test_a_bare_directory_needs_a_place_for_the_copy(ended: Ended) -> None:
    """Without --output or --exclusive nothing is written; the drift of its files is still told."""
    assert ended.code("encrypt path") == 78
    assert "--output" in ended.errors("encrypt path")
    assert (ended.code("plan path"), ended.document("plan path")["files_total"]) == (2, 1)


def test_a_policy_may_be_named_by_uri(ended: Ended) -> None:
    """A file: URI is read as the path is."""
    assert ended.code("policy by uri") == 0


def test_lost_tags_are_drift_and_fail_verification(ended: Ended) -> None:
    """When a tag is gone, the encrypted files differ from the plan: 2 by `plan`, 74 by `verify`."""
    assert ended.code("plan without tag") == 2
    assert ended.code("verify without tag") == 74
    assert ended.document("verify without tag")["verified"] is False


def test_a_session_that_lived_before_lives_on(ended: Ended) -> None:
    """Commands called inside a running application do not stop its session."""
    assert ended.fact("session lives") is True

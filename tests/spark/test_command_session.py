"""What runs need of a session: its Python, its tasks, and few frames on the way."""

from __future__ import annotations

import json
import os
import stat
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import sparkcrypt
from sparkcrypt import encrypt_table
from sparkcrypt.files.orders import FileOrder, FileOutcome, KeySettings
from sparkcrypt.files.parquet.rewrite import chunk
from sparkcrypt.files.rewrite import rewrite
from sparkcrypt.ledger.unit import Folder, Unit
from sparkcrypt.runs.rewrite import native_engine as native
from sparkcrypt.runs.rewrite.engine import make_fresh_folder
from sparkcrypt.spark.files.access_rights import copy_access
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.setup.class_archive import OFF
from sparkcrypt.spark.setup.command_session import spark_session
from sparkcrypt.spark.tasks.run import watch_tasks
from tests.conftest import FreshJvm
from tests.services.installed import ROOT
from tests.spark.sessions import none_active
from tests.spark.support import Lake, make_policy

pytestmark = pytest.mark.spark


def test_application_outlives_a_command_that_found_no_active_session(spark: SparkSession) -> None:
    """Its thread had none; the session that it got is the application's, and is not the command's to stop."""
    with none_active(spark):
        assert SparkSession.getActiveSession() is None
        with spark_session("a command") as given:
            assert given.range(3).count() == 3
    assert spark.range(2).count() == 2


PROGRAM = "from sparkcrypt.cli.main import main; main()"
CHECK = "tasks of the native engine"
ABSENT = "raise ModuleNotFoundError(\"No module named 'pandas'\", name='pandas')\n"
OLD = "__version__ = '0.25.3'\n"


def library(folder: Path, text: str) -> str:
    """Return a folder for PYTHONPATH in whose pandas there is this text alone."""
    (folder / "pandas").mkdir(parents=True)
    (folder / "pandas" / "__init__.py").write_text(text)
    return str(folder)


def doctor(fresh_jvm: FreshJvm, policy: Path, jar: Path, *conf: str, python_path: str = "") -> tuple[int, Any]:
    """Return the exit code of ``sparkcrypt doctor`` and its check of the engine's tasks."""
    settings = ["spark.ui.enabled=false", f"spark.sql.warehouse.dir={(policy.parent / 'warehouse').as_uri()}", *conf]
    arguments = [argument for setting in settings for argument in ("--conf", setting)]
    environment = {"SPARKCRYPT_JAR": str(jar)}
    if python_path:
        environment["PYTHONPATH"] = os.pathsep.join((python_path, str(ROOT)))
    done = fresh_jvm(
        PROGRAM, "doctor", "--policy", policy, "--json", "--master", "local[2]", *arguments, env=environment
    )
    assert done.stdout, done.stderr[-3000:]
    checks = {check["check"]: check for check in json.loads(done.stdout)}
    return done.returncode, checks[CHECK]


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """A policy whose keys exist."""
    make_policy(tmp_path / "p")
    return tmp_path / "p" / "policy.yaml"


@pytest.mark.slow
def test_driver_without_pandas(fresh_jvm: FreshJvm, private_jar: Path, policy: Path, tmp_path: Path) -> None:
    """Spark makes no frame of tasks on a driver without the pandas that it takes: the check fails and says so."""
    code, check = doctor(fresh_jvm, policy, private_jar, python_path=library(tmp_path / "lib", ABSENT))
    assert (code, check["ok"]) == (78, False), check
    assert "the driver" in check["detail"]
    assert "andas" in check["detail"]
    assert "pip install 'sparkcrypt[spark]'" in check["fix"]


@pytest.mark.slow
def test_executors_with_an_old_pandas(fresh_jvm: FreshJvm, private_jar: Path, policy: Path, tmp_path: Path) -> None:
    """The driver has what it needs, the executors' Python does not: the check tells them apart."""
    path = library(tmp_path / "lib", OLD)
    code, check = doctor(fresh_jvm, policy, private_jar, f"spark.executorEnv.PYTHONPATH={path}")
    assert (code, check["ok"]) == (78, False), check
    assert "the executors" in check["detail"]
    assert "0.25.3" in check["detail"]


NOTED_JAVA = """#!/usr/bin/env bash
echo "$*" >> {log}
exec {java} "$@"
"""


@pytest.mark.slow
def test_commands_of_a_batch_share_one_jvm(
    fresh_jvm: FreshJvm, java: dict[str, str], private_jar: Path, policy: Path, tmp_path: Path
) -> None:
    """The first reads no rows, and starts the JVM of all, which has every compiler: the second may read rows."""
    (tmp_path / "raw").mkdir()
    pq.write_table(pa.table({"email": ["x"], "id": [1]}), tmp_path / "raw" / "part-0.parquet")
    field = {"name": "email", "type": "string", "confluent:tags": ["pii"]}
    avro = {"type": "record", "name": "r", "fields": [field, {"name": "id", "type": "long"}]}
    (tmp_path / "r.avsc").write_text(json.dumps(avro))
    about = f"--avro-schema r.avsc --policy {policy}"
    commands = (f"plan --path raw {about}", f"encrypt --path raw --output out {about}", f"plan --path out {about}")
    (tmp_path / "commands.txt").write_text("\n".join(commands))
    (tmp_path / "jdk" / "bin").mkdir(parents=True)
    noted, log = tmp_path / "jdk" / "bin" / "java", tmp_path / "started.log"
    noted.write_text(NOTED_JAVA.format(log=log, java=Path(java["JAVA_HOME"]) / "bin" / "java"))
    noted.chmod(0o755)
    environment = {"JAVA_HOME": str(tmp_path / "jdk"), "SPARKCRYPT_JAR": str(private_jar), OFF: ""}
    launch = ("--master", "local[2]", "--conf", "spark.ui.enabled=false")
    done = fresh_jvm(PROGRAM, "batch", "commands.txt", "--keep-going", *launch, env=environment)
    assert done.returncode == 2, done.stderr[-3000:]  # of the plan, from which the file differs
    assert [line for line in done.stderr.splitlines() if " ended with " in line] == [
        "commands.txt, line 1: plan --path ended with 2"
    ]
    assert (tmp_path / "out" / "part-0.parquet").read_bytes().endswith(b"PARE")
    started = [line for line in log.read_text().splitlines() if "launcher.Main" not in line]
    assert len(started) == 1, started
    assert "SparkSubmit" in started[0]
    assert "-XX:TieredStopAtLevel=1" not in started[0]


TASKS = 12


def slow(batches: Iterator[Any]) -> Iterator[Any]:
    """Pass on what comes, after a while."""
    for batch in batches:
        time.sleep(0.2)
        yield batch


def test_tasks_are_told_as_they_end_and_no_others(spark: SparkSession) -> None:
    """Those of another thread are not counted, and a job group that the caller had set is his again."""
    told: list[int] = []
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", "the caller's")
    other = threading.Thread(target=lambda: spark.range(0, 50, 1, 50).count())
    try:
        with watch_tasks(spark, told.append, every_seconds=0.05):
            other.start()
            rows = spark.range(0, TASKS, 1, TASKS).mapInArrow(slow, "id long").count()
        other.join()
        assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") == "the caller's"
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    assert rows == TASKS
    assert told == sorted(set(told))
    assert len(told) > 2
    assert max(told) <= TASKS + 1  # the last stage adds up the counts
    assert not [thread for thread in threading.enumerate() if thread.name == "tasks watched"]


def test_failure_in_the_block_is_the_one_that_is_raised(spark: SparkSession) -> None:
    """And the thread that watched has ended."""
    with pytest.raises(ZeroDivisionError), watch_tasks(spark, print, every_seconds=0.05):
        raise ZeroDivisionError
    assert not [thread for thread in threading.enumerate() if thread.name == "tasks watched"]


TO_THE_UNIT = 5
TO_THE_PAGE = 16
PACKAGE = str(Path(sparkcrypt.__file__).parent)


class Reached(BaseException):
    """Raised where a page is converted; nothing catches it on the way."""


def own_frames(error: BaseException) -> list[str]:
    """Return the functions of this package between the call and the error, those of a unit's thread too."""
    frames = traceback.extract_tb(error.__traceback__)
    return [f"{Path(frame.filename).stem}.{frame.name}" for frame in frames if frame.filename.startswith(PACKAGE)]


def test_few_frames_lie_between_the_call_and_a_page(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger can follow a run: five functions to the work on one unit, and few more to each of its pages."""

    def raise_here(*_: object) -> None:
        raise Reached

    def rewrite_here(
        _: object, orders: Sequence[FileOrder], lengths: object, keys: KeySettings, told: Callable[[int], None]
    ) -> list[FileOutcome]:
        return [rewrite(order, keys, {}) for order in orders]

    policy = lake.policy(tables=f"  files.x: {{location: '{lake.root / 'in'}', tags: {{email: pii}}}}\n")
    with lake.stranger() as stranger:
        stranger.sql("SELECT 1 AS id, 'x' AS email").write.parquet(str(lake.root / "in"))
    monkeypatch.setattr(native, "rewrite_in_tasks", rewrite_here)
    monkeypatch.setattr(chunk, "_convert", raise_here)
    with pytest.raises(Reached) as raised:
        encrypt_table(lake.spark, None, policy, path=str(lake.root / "in"), output=str(lake.root / "out"))
    frames = own_frames(raised.value)
    to_unit = frames.index("units.process_all") + 1
    assert to_unit <= TO_THE_UNIT, frames
    assert len(frames) <= TO_THE_PAGE, frames


def mode_of(path: Path) -> int:
    """Return the permissions of a file or folder."""
    return stat.S_IMODE(path.stat().st_mode)


def test_a_staged_folder_is_closed_until_it_is_given_its_access(spark: SparkSession, tmp_path: Path) -> None:
    """What Spark writes there under its own umask is reached by nobody else until it has its source's access."""
    table, staged = tmp_path / "t", tmp_path / ".sparkcrypt" / "t" / "run-1"
    (table / "p=1").mkdir(parents=True)
    files, rows = HadoopFiles(spark), spark.range(3).coalesce(1)
    rows.write.parquet(f"{table}/p=1", mode="append")
    (source,) = (path for path in (table / "p=1").iterdir() if path.name.startswith("part-"))
    source.chmod(0o600)
    for folder in (table, table / "p=1"):
        folder.chmod(0o750)
    staged.parent.parent.mkdir()
    staged.parent.parent.chmod(0o2755)  # files below it get its group
    unit = Unit("t", table.as_uri(), None, "", {}, (Folder("p=1", ()),))
    make_fresh_folder(files, unit, staged.as_uri())
    assert mode_of(staged) == 0o2700
    assert mode_of(staged.parent) & 0o055, "those above it are passed through by readers later"
    rows.write.parquet(f"{staged}/p=1", mode="append")
    assert mode_of(staged) == 0o2700
    copy_access(files, table.as_uri(), staged.as_uri())
    assert (mode_of(staged), mode_of(staged / "p=1") & 0o777) == (0o2750, 0o750)
    assert {mode_of(path) for path in (staged / "p=1").iterdir() if path.name.startswith("part-")} == {0o600}

"""Swaps that were cut off, and what people did to the table before the next command: no copy of a row is ever lost."""

from __future__ import annotations

import functools
import os
import shutil
from pathlib import Path
from typing import Any, Literal

import pytest
from click.testing import CliRunner, Result

from sparkcrypt import encrypt_table, verify_table
from sparkcrypt.cli.runs.past_runs import status
from sparkcrypt.errors import ConfigError, SparkcryptError, VerificationError
from sparkcrypt.ledger.state.lock import acquire
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.old_folders import past_run
from sparkcrypt.runs.old_folders.expire import expire_run
from sparkcrypt.runs.old_folders.problems import Decision
from sparkcrypt.runs.old_folders.rollback import rollback_run
from sparkcrypt.runs.passes.resolve_problem import resolve_problem
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.jvm.gateway import JVM_ERRORS
from tests.spark.killing import Clock, Killed, after_swap, between_renames, kill, kill_during
from tests.spark.late_writers import audits, ids
from tests.spark.passes import the_pass, the_problem
from tests.spark.support import SECRET, Lake, assert_encrypted
from tests.spark.tables import PARTITIONED, UNPARTITIONED, tagged

pytestmark = pytest.mark.spark


def stranger(lake: Lake, *statements: str) -> None:
    """Run SQL in a session that knows nothing of runs."""
    with lake.stranger() as session:
        for statement in statements:
            session.sql("REFRESH TABLE t")
            session.sql(statement)


def cut_off(lake: Lake, clock: Clock, *statements: str) -> Policy:
    """Kill a run between the renames of its swap; then run SQL on the table."""
    policy, _ = tagged(lake, UNPARTITIONED["using"])
    kill(lake, policy, clock, between_renames)
    stranger(lake, *statements)
    return policy


def copies(lake: Lake) -> list[str]:
    """Return the data files beside the table's folder: old files, and what was staged."""
    beside = lake.root / "db" / ".sparkcrypt" / "t"
    return sorted(str(file.relative_to(beside)) for file in beside.rglob("*.parquet"))


def status_of(lake: Lake) -> Result:
    """Run `backfill status` over the table."""
    file = next(lake.root.glob("policy-*/policy.yaml"))
    return CliRunner().invoke(status, ["--policy", str(file), "--table", lake.name("t")])


INSERT = f"INSERT INTO t VALUES (100, '{SECRET}-tomorrow', 'n')"


@pytest.mark.parametrize(
    "after", [[INSERT], [INSERT.replace("INTO", "OVERWRITE")], [INSERT, "TRUNCATE TABLE t"]], ids=str
)
def test_foreign_folder_is_never_taken_for_the_swap(lake: Lake, clock: Clock, after: list[str]) -> None:
    """The folder was made anew between two renames: each command names that, and keeps old and staged files."""
    policy = cut_off(lake, clock, *after)
    kept = copies(lake)
    problem = the_problem(the_pass(lake, policy))
    assert problem["kind"] == "a swap was cut off"
    assert the_problem(the_pass(lake, policy)) == problem
    with pytest.raises((ConfigError, VerificationError), match=r"is unfinished|cut off"):
        expire_run(lake.spark, "t", policy)
    with pytest.raises(VerificationError, match="cut off"):
        encrypt_table(lake.spark, "t", policy)
    assert copies(lake) == kept
    assert audits(lake, policy) == []


@pytest.mark.parametrize("emptied", [False, True], ids=["inserted", "emptied"])
def test_old_files_come_back_beside_what_was_written_since(lake: Lake, clock: Clock, emptied: bool) -> None:
    """In favour of the old files, the table has all rows, old and new, and the next pass encrypts them."""
    policy = cut_off(lake, clock)
    for statement in ("SELECT * FROM t", INSERT):  # in a session under the policy, which would see no row, and add one
        with pytest.raises(JVM_ERRORS, match="cut off between two renames"):
            lake.spark.sql(statement).collect()
    stranger(lake, INSERT, *(["TRUNCATE TABLE t"] if emptied else []))
    told = status_of(lake)
    assert (told.exit_code, "may be half done" in told.output) == (74, True)
    problem = the_problem(the_pass(lake, policy))
    resolve_problem(lake.spark, "t", policy, problem["problem"], Decision("old", "the INSERT was an append"))
    expected = [0, 1, 2, 3] + ([] if emptied else [100])
    assert ids(lake) == expected
    assert the_pass(lake, policy).outcome in ("done", "nothing to do")
    assert_encrypted(lake.path("t"), policy, {"email": "pii"}, visible=["note 1"])
    assert not expire_run(lake.spark, "t", policy).refused
    assert (ids(lake), copies(lake)) == (expected, [])
    assert verify_table(lake.spark, "t", policy, manifest=True).ok
    assert audits(lake, policy).count("resolve") == 1
    assert status_of(lake).exit_code == 0


def test_what_was_written_since_is_kept_alone(lake: Lake, clock: Clock) -> None:
    """In favour of what is in the table, the old rows go, at `expire` and not before."""
    policy = cut_off(lake, clock, INSERT.replace("INTO", "OVERWRITE"))
    problem = the_problem(the_pass(lake, policy))
    kept = copies(lake)
    resolve_problem(lake.spark, "t", policy, problem["problem"], Decision("new", "it was an overwrite"))
    assert (ids(lake), copies(lake)) == ([100], kept)
    assert the_pass(lake, policy).outcome == "done"
    assert_encrypted(lake.path("t"), policy, {"email": "pii"}, visible=[])
    expire_run(lake.spark, "t", policy)
    assert (ids(lake), copies(lake)) == ([100], [])


def test_kill_within_the_return_of_old_files_is_continued(lake: Lake, clock: Clock, monkeypatch: Any) -> None:
    """The decision is carried out by the next command, however far it had come."""
    policy = cut_off(lake, clock, INSERT)
    problem = the_problem(the_pass(lake, policy))["problem"]
    rename, count = HadoopFiles.rename, [0]

    def killed_after(step: int) -> None:
        def renamed(files: HadoopFiles, source: str, target: str) -> None:
            rename(files, source, target)
            count[0] += 1
            if count[0] == step:
                raise Killed

        monkeypatch.setattr(HadoopFiles, "rename", renamed)

    monkeypatch.setattr(past_run, "acquire", functools.partial(acquire, clock=clock))
    for step in (1, 1):
        killed_after(step)
        count[0] = 0
        kill_during(
            lambda: resolve_problem(lake.spark, "t", policy, problem, Decision("old", "an append")),
            clock,
            lambda _: None,
        )
    monkeypatch.setattr(HadoopFiles, "rename", rename)
    resolve_problem(lake.spark, "t", policy, problem, Decision("old", "an append"))
    assert ids(lake) == [0, 1, 2, 3, 100]
    assert the_pass(lake, policy).outcome == "nothing to do"
    expire_run(lake.spark, "t", policy)
    assert ids(lake) == [0, 1, 2, 3, 100]


def test_rollback_that_was_cut_off_loses_nothing_either(lake: Lake, clock: Clock, monkeypatch: Any) -> None:
    """A rollback renames twice as well; a folder that came between its renames is a question for a person."""
    policy, before = tagged(lake, UNPARTITIONED["using"])
    run = encrypt_table(lake.spark, "t", policy).run_id
    rename = HadoopFiles.rename

    def renamed(files: HadoopFiles, source: str, target: str) -> None:
        rename(files, source, target)
        if "/old-" not in source:
            raise Killed

    monkeypatch.setattr(past_run, "acquire", functools.partial(acquire, clock=clock))
    kill_during(
        lambda: rollback_run(lake.spark, "t", policy, run),
        clock,
        lambda patch: patch.setattr(HadoopFiles, "rename", renamed),
    )
    stranger(lake, INSERT)
    kept = copies(lake)
    with pytest.raises(SparkcryptError, match="cut off"):
        rollback_run(lake.spark, "t", policy, run)
    problem = the_problem(the_pass(lake, policy))
    with pytest.raises(VerificationError, match="cut off"):
        expire_run(lake.spark, "t", policy)
    assert copies(lake) == kept
    resolve_problem(lake.spark, "t", policy, problem["problem"], Decision("old", "an append"))
    assert ids(lake) == [*(row.id for row in before), 100]


def test_overwrite_after_an_unrecorded_swap_is_a_question(lake: Lake, clock: Clock) -> None:
    """A partition points to the run's folder, whose files an overwrite replaced before the swap was recorded."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    kill(lake, policy, clock, after_swap, parallelism=1)
    unit = next(
        partition
        for partition in ("p=0", "p=1")
        if list((lake.root / "db" / ".sparkcrypt" / "t").rglob(f"{partition}/*.parquet"))
    )
    stranger(lake, f"INSERT OVERWRITE t PARTITION ({unit}) VALUES (100, '{SECRET}-tomorrow', 'n')")
    problem = the_problem(the_pass(lake, policy))
    assert (problem["unit"], problem["kind"]) == (unit, "a swap was cut off")
    resolve_problem(lake.spark, "t", policy, problem["problem"], Decision("new", "it was an overwrite"))
    assert the_pass(lake, policy).outcome == "done"
    assert not expire_run(lake.spark, "t", policy).refused
    assert ids(lake) == sorted([100, *(number for number in range(4) if number % 2 != int(unit[-1]))])


@pytest.mark.parametrize("keep", ["new", "old"])
def test_problem_of_a_swap_whose_records_are_lost_is_one_of_the_swap(lake: Lake, keep: Literal["new", "old"]) -> None:
    """A file is erased from the old folder, which is told; then the end of the log is lost, and a unit overwritten."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy)
    next((lake.path("t") / "p=0").glob("part-*")).unlink()
    assert the_problem(the_pass(lake, policy))["kind"] == "removed"
    lose_swaps(policy)
    stranger(lake, f"INSERT OVERWRITE t PARTITION (p = 0) VALUES (100, '{SECRET}-tomorrow', 'n')")
    problem = the_problem(the_pass(lake, policy))
    assert (problem["unit"], problem["kind"]) == ("p=0", "a swap was cut off")
    assert the_problem(the_pass(lake, policy)) == problem
    resolve_problem(lake.spark, "t", policy, problem["problem"], Decision(keep, "it was an overwrite"))
    assert not the_pass(lake, policy).tables[0].problems
    assert 100 in ids(lake)


def lose_swaps(policy: Policy) -> None:
    """Delete the first record of a log that says that a swap was done, and all after it."""
    (log,) = Path(policy.run_state).joinpath("log").iterdir()
    records = sorted(log.iterdir())
    first = next(number for number, record in enumerate(records) if b"unit_swapped" in record.read_bytes())
    for record in records[first:]:
        record.unlink()


def test_no_command_ends_well_while_a_folder_is_missing(lake: Lake) -> None:
    """A table whose folder is gone makes `expire` fail, also when no old file of it waits."""
    policy, _ = tagged(lake, UNPARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy)
    expire_run(lake.spark, "t", policy)
    shutil.rmtree(lake.path("t"))
    with pytest.raises(VerificationError, match="is missing"):
        expire_run(lake.spark, "t", policy)
    assert the_pass(lake, policy).exit_code == 74


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="needs a second file system")
def test_refused_rename_leaves_a_local_folder_whole(lake: Lake, tmp_path: Path) -> None:
    """A local rename is one step or none; Hadoop's own would copy the files, and delete them at their first place."""
    source = Path("/dev/shm") / f"sparkcrypt-{os.getpid()}"
    (source / "below").mkdir(parents=True)
    (source / "below" / "file").write_text("content")
    try:
        with pytest.raises(SparkcryptError, match="another file system"):
            HadoopFiles(lake.spark).rename(source.as_uri(), (tmp_path / "target").as_uri())
        assert (source / "below" / "file").read_text() == "content"
        assert not (tmp_path / "target").exists()
    finally:
        shutil.rmtree(source)


@pytest.mark.parametrize("create", [PARTITIONED["using"], UNPARTITIONED["hive"]], ids=["partition", "table"])
@pytest.mark.parametrize("keep", ["new", "old"])
def test_truncated_unit_is_a_question_and_others_expire(lake: Lake, create: str, keep: Any) -> None:
    """TRUNCATE after a swap is listed by each pass; once it is decided, nothing of the old files is left."""
    policy, before = tagged(lake, create)
    encrypt_table(lake.spark, "t", policy)
    parts = "PARTITIONED" in create
    stranger(lake, "TRUNCATE TABLE t" + (" PARTITION (p=0)" if parts else ""))
    problem = the_problem(the_pass(lake, policy))
    assert problem["kind"] == "new files are gone"
    if parts:
        expired = expire_run(lake.spark, "t", policy)
        assert list(expired.refused) == ["p=0"]
        assert not list((lake.path("t") / "p=1").glob("*.parquet"))
        assert list((lake.path("t") / "p=0").glob("*.parquet"))
    else:
        with pytest.raises(VerificationError, match="is gone or changed"):
            expire_run(lake.spark, "t", policy)
    resolve_problem(lake.spark, "t", policy, problem["problem"], Decision(keep, "as it should be"))
    assert the_pass(lake, policy).outcome == "nothing to do"
    expire_run(lake.spark, "t", policy)
    left = [row.id for row in before] if keep == "old" else [1, 3] if parts else []
    assert ids(lake) == left
    assert not [file for file in lake.path("t").rglob("*.parquet") if parts]
    stranger(lake, INSERT.replace("'n')", "'n', 0)") if parts else INSERT)
    assert ids(lake) == sorted([*left, 100])


@pytest.mark.parametrize("create", [PARTITIONED["using"], UNPARTITIONED["using"]], ids=["partitions", "table"])
def test_kill_of_expire_between_two_folders_is_no_erasure(
    lake: Lake, clock: Clock, monkeypatch: Any, create: str
) -> None:
    """What a killed `expire` had deleted is gone on purpose: a pass asks nobody, and the next `expire` goes on."""
    policy, before = tagged(lake, create)
    encrypt_table(lake.spark, "t", policy)
    delete = HadoopFiles.delete_tree

    def deleted(files: HadoopFiles, path: str) -> None:
        delete(files, path)
        raise Killed

    monkeypatch.setattr(past_run, "acquire", functools.partial(acquire, clock=clock))
    kill_during(
        lambda: expire_run(lake.spark, "t", policy),
        clock,
        lambda patch: patch.setattr(HadoopFiles, "delete_tree", deleted),
    )
    assert the_pass(lake, policy).outcome == "nothing to do"
    assert not expire_run(lake.spark, "t", policy).refused
    assert (ids(lake), len(list(lake.path("t").glob("p=*/*.parquet")))) == ([row.id for row in before], 0)
    assert the_pass(lake, policy).outcome == "nothing to do"

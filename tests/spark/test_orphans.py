"""Old files that nobody leads to any more, or that come back into reach."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sparkcrypt import encrypt_table, verify_table
from sparkcrypt.cli.runs.past_runs import expire
from sparkcrypt.cli.tables.audit import verify
from sparkcrypt.errors import ConfigError, VerificationError
from sparkcrypt.ledger.audit.audit import list_entries
from sparkcrypt.ledger.state.store import open_state_store
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.old_folders import old_folder as reach_module
from sparkcrypt.runs.old_folders.expire import ExpiryOptions, expire_run
from sparkcrypt.runs.old_folders.orphans import Orphan, find_orphans
from sparkcrypt.runs.old_folders.problems import Decision
from sparkcrypt.runs.old_folders.rollback import rollback_run
from sparkcrypt.runs.passes.choose_tables import Choice
from sparkcrypt.runs.passes.html.page import report_html
from sparkcrypt.runs.passes.passes import PassOptions, backfill, expire_many
from sparkcrypt.runs.passes.plan import plan_target
from sparkcrypt.runs.passes.report import PassReport
from sparkcrypt.runs.passes.resolve_problem import resolve_problem
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.runs.table import in_use
from sparkcrypt.runs.table.disposal import Disposal
from sparkcrypt.runs.table.target import catalog_target, target_folder_id
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.killing import Clock, Killed, between_renames, kill, kill_during
from tests.spark.late_writers import ids
from tests.spark.passes import the_pass, the_problem, with_grace
from tests.spark.support import SECRET, Lake, assert_encrypted, assert_plaintext, data_files, rows_of
from tests.spark.tables import PARTITIONED, UNPARTITIONED, make_table, tagged

pytestmark = pytest.mark.spark

EXTERNAL = f"{UNPARTITIONED['using']} LOCATION '{{}}'"


def external(lake: Lake) -> str:
    """Return what makes an external table."""
    return EXTERNAL.format((lake.root / "external").as_uri())


def age(folder: Path, days: float = 30) -> None:
    """Let everything below a folder be as old as that."""
    then = time.time() - days * 86_400
    for path in [*folder.rglob("*"), folder]:
        os.utime(path, (then, then))


def aged(monkeypatch: pytest.MonkeyPatch, days: float = 30) -> None:
    """Let the clock by which orphans are judged be ahead."""
    real = time.time
    monkeypatch.setattr("sparkcrypt.runs.old_folders.orphans.time.time", lambda: real() + days * 86_400)


def found(lake: Lake, policy: Policy, *, delete: bool = False) -> dict[str, Orphan]:
    """Return the orphans beside the database's tables, by folder."""
    orphans = find_orphans(lake.spark, policy, databases=(lake.database,), delete=delete)
    return {orphan.folder.removeprefix("file:").removeprefix("//"): orphan for orphan in orphans}


def deletions(policy: Policy, table_id: str) -> list[dict[str, Any]]:
    """Return what an audit says was deleted."""
    entries = list_entries(open_state_store(policy.run_state), table_id, None)
    return [signed.entry for signed in entries if signed.entry["what"] == "delete"]


def verified(policy: Policy, table_id: str) -> None:
    """See that `sparkcrypt audit verify` takes an audit."""
    file = next(Path(policy.run_state.removeprefix("file:")).parent.glob("policy.yaml"))
    told = CliRunner().invoke(verify, ["--table", table_id, "--policy", str(file)])
    assert (told.exit_code, "all authentic" in told.stdout) == (0, True), told.output


def test_old_files_of_a_dropped_table_are_found_and_go(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """DROP TABLE before expire leaves plaintext that no table leads to: it is listed, and deleted on demand."""
    policy, _ = tagged(lake, UNPARTITIONED["using"])
    report = encrypt_table(lake.spark, "t", policy)
    old = Path(str(report.old_location).removeprefix("file:"))
    assert found(lake, policy) == {}
    lake.sql("DROP TABLE t")
    assert found(lake, policy) == {}  # it may be another state directory's, and young
    aged(monkeypatch)
    assert {place: orphan.kind for place, orphan in found(lake, policy).items()} == {str(old): "old"}
    assert found(lake, policy, delete=True)[str(old)].deleted
    assert not old.exists()
    (entry,) = deletions(policy, "orphans")
    assert entry["unit"] == {"unit": f"file:{old}", "kind": "old", "files": 5, "bytes": entry["unit"]["bytes"]}
    assert (entry["why"]["run_id"], entry["why"]["policy_digest"]) == ("orphans", policy.digest())
    verified(policy, "orphans")
    assert found(lake, policy) == {}


def test_rows_of_a_dropped_external_table_stay(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its old plaintext goes; its newest files, which are all that is left of its rows, are never deleted."""
    policy, _ = tagged(lake, external(lake))
    encrypt_table(lake.spark, "t", policy)
    new = Catalog(lake.spark).table("t").location.removeprefix("file:")
    lake.sql("DROP TABLE t")
    aged(monkeypatch)
    orphans = find_orphans(lake.spark, policy, path=str(lake.root), delete=True)
    by_folder = {orphan.folder.removeprefix("file:"): orphan for orphan in orphans}
    assert by_folder[str(lake.root / "external")].deleted
    assert (by_folder[new].deleted, by_folder[new].kind) == (False, "new")
    assert list(Path(new).rglob("*.parquet"))


def test_table_made_anew_and_lost_state_leave_nothing_unknown(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old files are found by where partitions point, when the state directory that told of them is gone."""
    policy, before = tagged(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy)
    shutil.rmtree(policy.run_state.removeprefix("file:"))
    age(lake.path("t"))
    aged(monkeypatch)
    orphans = found(lake, policy)
    assert sorted(orphans) == [str(lake.path("t") / "p=0"), str(lake.path("t") / "p=1")]
    assert all(orphan.deleted for orphan in found(lake, policy, delete=True).values())
    assert not list(lake.path("t").rglob("*.parquet"))
    assert ids(lake) == sorted(row.id for row in before)


@pytest.mark.parametrize("create", [UNPARTITIONED["using"], PARTITIONED["using"]])
def test_old_files_are_told_at_once_where_the_state_is_lost(lake: Lake, create: str) -> None:
    """Passes, plans and this command name plaintext of which no record is left, and delete nothing of it yet."""
    policy, before = tagged(lake, create)
    (unit, *_) = encrypt_table(lake.spark, "t", policy, move_old=True).units
    old = Path(str(unit["old_location"]).removeprefix("file:"))
    assert the_pass(lake, policy).exit_code == 0
    state, backup = Path(policy.run_state.removeprefix("file:")), lake.root / "backup"
    state.rename(backup)
    run = old if "PARTITIONED" not in create else old.parent
    for _ in range(2):
        told = the_pass(lake, policy)
        assert told.exit_code == 74
        assert [str(run) in unit["message"] for unit in told.tables[0].quarantined] == [True]
    target = catalog_target(lake.spark, Catalog(lake.spark).table("t"), policy, None)
    planned = plan_target(lake.spark, target, policy)
    assert (planned.exit_code, [str(run) in text for text in planned.stray]) == (74, [True])
    listed = found(lake, policy, delete=True)
    assert [(orphan.kind, orphan.deleted, "restore it" in str(orphan.why_kept)) for orphan in listed.values()] == [
        ("old", False, True)
    ]
    assert list(run.rglob("*.parquet"))
    assert ids(lake) == sorted(row.id for row in before)
    (problem,) = told.tables[0].problems
    resolve_problem(lake.spark, "t", policy, problem["problem"], Decision("new", "there is no copy of the state"))
    assert the_pass(lake, policy).exit_code == 0
    assert list(run.rglob("*.parquet"))
    shutil.rmtree(state)
    backup.rename(state)
    assert the_pass(lake, policy).exit_code == 0
    assert found(lake, policy) == {}


@pytest.mark.parametrize("lost", [False, True], ids=["state kept", "state lost"])
def test_files_of_a_swap_that_was_cut_short_stay(
    lake: Lake, clock: Clock, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    """Between the two renames neither folder is the table's: the old one and the staged one are listed, and stay."""
    policy, before = tagged(lake, UNPARTITIONED["using"])
    kill(lake, policy, clock, between_renames)
    if lost:
        shutil.rmtree(policy.run_state.removeprefix("file:"))
    aged(monkeypatch)
    orphans = found(lake, policy, delete=True)
    kept = {Path(place).name[:4]: (orphan.kind, orphan.deleted) for place, orphan in orphans.items()}
    assert kept == {"old-": ("old", False)} | ({_staged(lake).name[:4]: ("new", False)} if lost else {})
    if lost:
        return
    assert encrypt_table(lake.spark, "t", policy).outcome == "done"
    assert ids(lake) == sorted(row.id for row in before)


def _staged(lake: Lake) -> Path:
    (staged,) = (lake.root / "db" / ".sparkcrypt" / "t").glob("2*")
    return staged


def test_what_a_killed_command_had_set_aside_stays(lake: Lake, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that `expire` was about to delete may be the table's again: it is listed, and deleted by nobody."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy)
    rename = HadoopFiles.rename

    def renamed(files: HadoopFiles, source: str, target: str) -> None:
        rename(files, source, target)
        if "/trash-" in target:
            raise Killed

    def expire_all() -> None:
        expire_many(lake.spark, policy, Choice((lake.name("t"),)), options=ExpiryOptions(older_than_seconds=0))

    def patch(patched: pytest.MonkeyPatch) -> None:
        patched.setattr(HadoopFiles, "rename", renamed)
        patched.setattr(Disposal, "_put_back", lambda *_: "")

    kill_during(expire_all, clock, patch)
    (trash,) = (lake.root / "db" / ".sparkcrypt" / "t").glob("trash-*")
    aged(monkeypatch)
    orphan = found(lake, policy, delete=True)[str(trash)]
    assert (orphan.kind, orphan.deleted) == ("old", False)
    assert "set aside" in (orphan.why_kept or "")
    assert list(trash.rglob("*.parquet"))


def test_folder_in_use_or_of_a_live_run_is_no_orphan(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a table points to, and what expire will dispose of, are not listed; nor is anything younger than a day."""
    policy, before = tagged(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy)
    aged(monkeypatch)
    assert found(lake, policy, delete=True) == {}
    assert ids(lake) == sorted(row.id for row in before)
    with pytest.raises(ConfigError, match="24h or more"):
        find_orphans(lake.spark, policy, older_than_seconds=3600)


def test_expire_leaves_no_empty_folder_of_a_run(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the table are only the folders in use; an empty one is nobody's rows."""
    policy, before = tagged(lake, PARTITIONED["using"])
    for column in ("email", "note", "id"):
        set_tags(lake.spark, "t", {column: ["pii"]}, policy)
        encrypt_table(lake.spark, "t", policy)
        expire_run(lake.spark, "t", policy)
    beside = lake.root / "db" / ".sparkcrypt" / "t"
    held = {file.parent for file in beside.rglob("*.parquet")}
    empty = [folder for folder in beside.rglob("*") if folder.is_dir() and not any(folder in at.parents for at in held)]
    assert set(empty) == held
    left = beside / "20200101T000000000Z-abcdef-1-1-abcdef01" / "p=0"
    left.mkdir(parents=True)
    age(beside.parent)
    aged(monkeypatch)
    (found,) = find_orphans(lake.spark, policy, delete=True)
    assert (Path(found.folder.removeprefix("file:")), found.files, found.deleted) == (left.parent, 0, True)
    assert rows_of(lake.spark.table("t")) == before


def test_expiry_of_many_tables_asks_about_all_tables_twice(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first folder goes and once it is set aside, for each table and run; and once for UUIDs."""
    policy = lake.policy()
    for name in "abc":
        make_table(lake, name)
        for level in (["pii"], ["fin"]):
            set_tags(lake.spark, name, {"email": level}, policy)
            encrypt_table(lake.spark, name, policy)
    asked: Counter[str] = Counter()
    look, entries = in_use.locations_of_tables, Catalog.list_entries

    def counted(name: str, ask: Callable[..., Any]) -> Callable[..., Any]:
        def count(*args: Any) -> Any:
            asked[name] += 1
            return ask(*args)

        return count

    monkeypatch.setattr(in_use, "locations_of_tables", counted("folders", look))
    monkeypatch.setattr(Catalog, "list_entries", counted("entries", entries))
    done = expire_many(
        lake.spark, policy, Choice(databases=(lake.database,)), options=ExpiryOptions(older_than_seconds=0)
    )
    assert not done.failed and [len(table.run_ids) for table in done.tables] == [2, 2, 2]
    assert all(table.files and not table.refused for table in done.tables)
    assert asked == {"folders": 2, "entries": 1}
    for name in "abc":
        assert not list((lake.path(name) / "p=0").glob("*.parquet")) and lake.spark.table(name).count() == 3


def test_expire_by_database_uuid_and_age(lake: Lake) -> None:
    """Runs younger than asked keep their old files; a dropped table's go by its UUID."""
    policy, _ = tagged(lake, external(lake))
    encrypt_table(lake.spark, "t", policy)
    uuid = Catalog(lake.spark).table("t").uuid or ""
    of_database = Choice(databases=(lake.database,))
    (young,) = expire_many(lake.spark, policy, of_database, options=ExpiryOptions(older_than_seconds=3600)).tables
    assert (young.files, young.younger) == (0, 1)
    assert (lake.root / "external").exists()
    lake.sql("DROP TABLE t")
    assert expire_many(lake.spark, policy, of_database, options=ExpiryOptions(older_than_seconds=0)).tables == ()
    (orphan,) = expire_many(lake.spark, policy, Choice((uuid,)), options=ExpiryOptions(older_than_seconds=0)).left[uuid]
    assert orphan.deleted
    assert not (lake.root / "external").exists()
    (entry,) = deletions(policy, uuid)
    assert (entry["unit"]["unit"], entry["unit"]["files"]) == (f"file:{lake.root / 'external'}", 5)
    verified(policy, uuid)


def test_expire_of_a_directory(lake: Lake) -> None:
    """Old files of a directory that was renamed go by its path, once they are old enough; its new ones stay."""
    with lake.stranger() as stranger:
        stranger.sql(f"SELECT 1 AS id, '{SECRET}' AS email").write.parquet(str(lake.root / "dir"))
    policy = lake.policy(untagged="footer_key")
    backfill(lake.spark, policy, path=str(lake.root / "dir"), options=PassOptions(run=RunOptions(exclusive=True)))
    (old,) = (lake.root / ".sparkcrypt" / "dir").glob("old-*")
    assert_plaintext(old)
    place = (lake.root / "dir").as_uri().replace("file://", "file:")
    base = ["--path", str(lake.root / "dir"), "--policy", str(next(lake.root.glob("policy-*/policy.yaml"))), "--json"]
    young = CliRunner().invoke(expire, base)
    assert (young.exit_code, json.loads(young.stdout)["left"]) == (0, {place: []})
    dry = CliRunner().invoke(expire, [*base, "--older-than", "0s", "--dry-run"])
    assert [orphan["deleted"] for orphan in json.loads(dry.stdout)["left"][place]] == [False]
    done = CliRunner().invoke(expire, [*base, "--older-than", "0s"])
    assert [(orphan["files"], orphan["deleted"]) for orphan in json.loads(done.stdout)["left"][place]] == [(2, True)]
    assert not old.exists()
    assert_encrypted(lake.root / "dir", policy, {"id": "footer", "email": "footer"}, visible=())
    assert [entry["unit"]["unit"] for entry in deletions(policy, target_folder_id(place))] == [f"file:{old}"]


def test_plaintext_awaiting_expiry_is_a_headline(lake: Lake) -> None:
    """Reports say how much there is and since when, and the page of a pass is not green beyond the grace."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    report = the_pass(lake, policy)
    waiting = report.tables[0].awaiting_expiry or {}
    assert (waiting["plaintext_files"], waiting["beyond_grace"]) == (4, False)
    assert report.totals()["plaintext_files_awaiting_expiry"] == 4
    page = report_html(report.to_dict())
    assert "Plaintext awaiting expiry" in page
    assert "beyond its grace" not in page
    policy = with_grace(lake, policy, "1s")
    page = report_html(the_pass(lake, policy).to_dict())
    assert "beyond its grace" in page
    expire_many(lake.spark, policy, Choice((lake.name("t"),)), options=ExpiryOptions(older_than_seconds=0))
    assert (the_pass(lake, policy).tables[0].awaiting_expiry or {})["files"] == 0


def drop_and_insert(lake: Lake) -> None:
    """Load a partition anew in the way that brings old files back."""
    lake.sql("ALTER TABLE t DROP PARTITION (p = 0)")
    lake.sql(f"INSERT INTO t VALUES (50, '{SECRET}-50', 'new', 0)")


@pytest.mark.parametrize("keep", ["new", "old"])
def test_rows_that_came_back_are_not_taken_for_the_tables(lake: Lake, keep: Any) -> None:
    """A pass leaves a unit with files of an earlier run's source list as it was, until someone decides."""
    policy, before = tagged(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy)
    drop_and_insert(lake)
    with_old = sorted([*(row.id for row in before), 50])
    assert ids(lake) == with_old
    report = the_pass(lake, policy)
    problem = the_problem(report)
    assert (problem["kind"], problem["unit"], len(problem["came"])) == ("old files are in use again", "p=0", 2)
    assert report.tables[0].units_left == 1
    assert (lake.path("t") / "p=0" / problem["came"][0]).read_bytes()[-4:] == b"PAR1"
    assert the_problem(the_pass(lake, policy)) == problem
    resolve_problem(lake.spark, "t", policy, problem["problem"], Decision(keep, "looked at"))
    after = with_old if keep == "old" else [1, 3, 50]
    assert the_pass(lake, policy).outcome in ("done", "nothing to do")
    assert ids(lake) == after
    assert verify_table(lake.spark, "t", policy).ok
    assert the_pass(lake, policy).outcome == "nothing to do"
    expire_run(lake.spark, "t", policy)
    assert ids(lake) == after


def test_old_files_that_another_table_reads_stay(lake: Lake) -> None:
    """A decision to move them out is refused while another table points to the folder, and carried out afterwards."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy)
    drop_and_insert(lake)
    problem = the_problem(the_pass(lake, policy))["problem"]
    place = lake.path("t") / "p=0"
    lake.sql(f"CREATE TABLE other (id INT, email STRING, note STRING) USING parquet LOCATION 'file:{place}'")
    files = data_files(place)
    with pytest.raises(VerificationError, match=r"other points to .*p=0, so it stays where it is"):
        resolve_problem(lake.spark, "t", policy, problem, Decision("new", "looked at"))
    assert data_files(place) == files
    lake.sql("DROP TABLE other")
    resolve_problem(lake.spark, "t", policy, problem, Decision("new", "looked at"))
    assert ids(lake) == [1, 3, 50]
    assert len(data_files(place)) == len(files) - 2


def test_partition_that_is_added_again_is_seen(lake: Lake) -> None:
    """MSCK REPAIR brings a dropped partition's old files back, nothing more: that is seen too."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy)
    lake.sql("ALTER TABLE t DROP PARTITION (p = 0)")
    lake.sql("MSCK REPAIR TABLE t")
    assert the_problem(the_pass(lake, policy))["kind"] == "old files are in use again"


def test_rows_that_a_rollback_put_back_are_the_tables(lake: Lake) -> None:
    """After a rollback old files are in use, and the next pass encrypts them without a question."""
    policy, before = tagged(lake, PARTITIONED["using"])
    first = encrypt_table(lake.spark, "t", policy)
    rollback_run(lake.spark, "t", policy, first.run_id)
    assert the_pass(lake, policy).outcome == "done"
    assert ids(lake) == sorted(row.id for row in before)


@pytest.mark.parametrize("kind", ["partitioned", "external"])
def test_old_files_are_out_of_reach_after_the_grace(lake: Lake, kind: str) -> None:
    """The first pass after the grace moves them; a partition that is loaded anew has its new row alone."""
    create = PARTITIONED["using"]
    if kind == "external":
        create = f"{UNPARTITIONED['using']} LOCATION '{(lake.root / 'external').as_uri()}'"
    policy, before = tagged(lake, create)
    policy = with_grace(lake, policy, "1h")
    first = encrypt_table(lake.spark, "t", policy)
    place = lake.path("t") / "p=0" if kind == "partitioned" else lake.root / "external"
    the_pass(lake, policy)
    assert_plaintext(place)
    policy = lake.changed("grace: 1h", "grace: 1s")
    time.sleep(1)  # the grace
    assert the_pass(lake, policy, changed=True).outcome == "nothing to do"
    assert not place.exists()
    assert len(list(lake.root.rglob(f".sparkcrypt/*/old-{first.run_id}/**/*.parquet"))) == 4
    assert the_pass(lake, policy).outcome == "nothing to do"
    assert ids(lake) == sorted(row.id for row in before)
    if kind == "partitioned":
        drop_and_insert(lake)
        assert ids(lake) == [1, 3, 50]
        assert not the_pass(lake, policy).left_out
    else:
        rollback_run(lake.spark, "t", policy, first.run_id)
        assert ids(lake) == sorted(row.id for row in before)
        assert_plaintext(place)


def test_grace_of_nothing_moves_old_files_at_once(lake: Lake) -> None:
    """``grace: 0s`` is ``--move-old`` for every run."""
    policy, before = tagged(lake, PARTITIONED["using"])
    policy = with_grace(lake, policy, "0s")
    report = the_pass(lake, policy).tables[0]
    assert "/old-" in str(report.old_location)
    assert not any((lake.path("t") / "p=0").glob("*.parquet"))
    assert ids(lake) == sorted(row.id for row in before)


def test_move_that_was_killed_is_written_down(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass that is killed between the rename and its record loses nothing, and the next one opens no problem."""
    policy, before = tagged(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy)
    policy = with_grace(lake, policy, "1s")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(reach_module, "_note_move", killed)
        with pytest.raises(KeyboardInterrupt):
            the_pass(lake, policy)
    assert the_pass(lake, policy).outcome == "nothing to do"
    assert ids(lake) == sorted(row.id for row in before)
    assert expire_run(lake.spark, "t", policy).files == 4


def test_old_files_stay_where_a_rename_is_no_single_step(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """On an object store they are not moved, and each report says so."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy)
    policy = with_grace(lake, policy, "1s")
    monkeypatch.setattr(HadoopFiles, "renames_at_once", lambda *_: False)
    report: PassReport = the_pass(lake, policy)
    assert report.outcome == "nothing to do"
    assert "where a rename is a copy of each file" in " ".join(report.tables[0].warnings)
    assert_plaintext(Path(lake.path("t")) / "p=0")
    assert_encrypted(lake.root / "db" / ".sparkcrypt" / "t", policy, {"email": "pii"}, visible=["note 1"])

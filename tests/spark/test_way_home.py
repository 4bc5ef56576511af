"""Tables and partitions that are brought back to the folders from which runs have taken them."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql.functions import lit

from sparkcrypt import encrypt_table, verify_table
from sparkcrypt.cli.runs.past_runs import expire
from sparkcrypt.errors import ConfigError, RunConflictError, SourceChangedError, VerificationError
from sparkcrypt.ledger.state.lock import acquire
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.old_folders import past_run
from sparkcrypt.runs.old_folders.expire import expire_run
from sparkcrypt.runs.old_folders.rollback import rollback_run
from sparkcrypt.runs.rewrite import swap
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.killing import STEPS, Clock, Killed, kill, kill_during
from tests.spark.late_writers import audits, ids
from tests.spark.passes import the_pass, the_problem
from tests.spark.support import Lake, assert_encrypted, data_files, rows_of
from tests.spark.tables import PARTITIONED, UNPARTITIONED, fill

pytestmark = pytest.mark.spark

PLACES = {"table": UNPARTITIONED["using"], "partitions": PARTITIONED["using"], "hive": PARTITIONED["hive"]}


def away(lake: Lake, create: str = UNPARTITIONED["using"], *, expired: bool = True) -> tuple[Policy, str, Path]:
    """Encrypt an external table, and let its old files expire; return policy, run, and the folder that it has left."""
    fill(lake, create, external=True)
    policy = lake.policy()
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    run_id = encrypt_table(lake.spark, "t", policy).run_id
    if expired:
        expire_run(lake.spark, "t", policy)
    return policy, run_id, lake.root / "external"


def locations(lake: Lake) -> list[str]:
    """Return where the table is, or its partitions."""
    catalog = Catalog(lake.spark)
    table = catalog.table("t")
    places = [part.location for part in catalog.partitions(table)] if table.partition_columns else [table.location]
    return sorted(place.removeprefix("file:").replace("//", "/") for place in places)


def homes(lake: Lake, create: str) -> list[str]:
    """Return where it was before runs."""
    root = lake.root / "external"
    return [str(root / f"p={p}") for p in (0, 1)] if "PARTITIONED" in create else [str(root)]


@pytest.mark.parametrize("create", PLACES.values(), ids=PLACES)
def test_table_comes_home(lake: Lake, create: str) -> None:
    """Its files are copied as they are and proven, jobs use the folder by path again, and the copy away expires."""
    policy, _, home = away(lake, create)
    before, there = rows_of(lake.spark.table("t")), locations(lake)
    home.mkdir(exist_ok=True)
    (home / "_SUCCESS").touch()
    dry = encrypt_table(lake.spark, "t", policy, home=True, dry_run=True)
    assert {action for unit in dry.planned for action in unit["actions"]} == {"bring home"}
    assert locations(lake) == there
    report = encrypt_table(lake.spark, "t", policy, home=True)
    assert (report.outcome, report.swap) == ("done", "set location to the former home")
    assert locations(lake) == homes(lake, create)
    assert_encrypted(home, policy, {"email": "pii"}, visible=["note 1"])
    assert rows_of(lake.spark.table("t")) == before
    assert lake.spark.read.parquet(str(home)).count() == 4
    rows = lake.spark.table("t").where("id = 1").withColumn("id", lit(9))
    rows.write.mode("append").partitionBy(*(["p"] if "PARTITIONED" in create else [])).parquet(str(home))
    lake.spark.catalog.refreshTable("t")
    assert ids(lake) == [0, 1, 2, 3, 9]
    assert_encrypted(home, policy, {"email": "pii"}, visible=["note 1"])
    assert encrypt_table(lake.spark, "t", policy, home=True).outcome == "nothing to do"
    assert the_pass(lake, policy).outcome == "nothing to do"
    assert sorted(expire_run(lake.spark, "t", policy).folders) == [f"file:{place}" for place in there]
    assert (ids(lake), data_files(lake.root / ".sparkcrypt")) == ([0, 1, 2, 3, 9], [])
    assert verify_table(lake.spark, "t", policy, manifest=True).ok


def test_home_that_is_taken(lake: Lake) -> None:
    """Old files, files that are in no table, something beside data, and another table there: refused by name."""
    policy, _, home = away(lake, expired=False)
    listed = data_files(lake.root)
    with pytest.raises(VerificationError, match=r"cannot come back to .*part-.* is there; old files go with"):
        encrypt_table(lake.spark, "t", policy, home=True)
    assert data_files(lake.root) == listed
    expire_run(lake.spark, "t", policy)
    for name in ("part-0.parquet", "_checkpoint/offsets"):
        stray = home / name
        stray.parent.mkdir(parents=True, exist_ok=True)
        stray.write_bytes(b"PAR1")
        with pytest.raises(VerificationError, match=f"cannot come back to .*{name.partition('/')[0]}"):
            encrypt_table(lake.spark, "t", policy, home=True)
        assert stray.read_bytes() == b"PAR1"
        shutil.rmtree(home)
    with lake.stranger() as stranger:
        stranger.sql(f"CREATE TABLE u (id INT) USING parquet LOCATION '{home.as_uri()}'")
    with pytest.raises(VerificationError, match=r"where it would come back to, and .*\.u points to"):
        encrypt_table(lake.spark, "t", policy, home=True)
    assert ids(lake) == [0, 1, 2, 3]


def test_only_what_is_away_comes_home(lake: Lake) -> None:
    """A partition at home stays as it is, though it differs from the plan; readers accept it afterwards, as before."""
    fill(lake, PARTITIONED["using"], external=True)
    policy = lake.policy(tables=f"  {lake.name('t')}: {{require_encryption: true}}\n")
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    encrypt_table(lake.spark, "t", policy, adopt=True)
    expire_run(lake.spark, "t", policy)
    encrypt_table(lake.spark, "t", policy, home=True)
    set_tags(lake.spark, "t", {"email": ["fin"]}, policy)
    encrypt_table(lake.spark, "t", policy, where="p = 0")
    expire_run(lake.spark, "t", policy)
    report = encrypt_table(lake.spark, "t", policy, home=True)
    assert [unit["unit"] for unit in report.units] == ["p=0"]
    assert locations(lake) == homes(lake, PARTITIONED["using"])
    lake.spark.catalog.refreshTable("t")
    assert ids(lake) == [0, 1, 2, 3]
    assert encrypt_table(lake.spark, "t", policy).outcome == "done"
    assert_encrypted(lake.root / ".sparkcrypt", policy, {"email": "fin"}, visible=["note 1"])


def test_managed_table_is_never_away(lake: Lake) -> None:
    """The option is refused for a table that no run moves, and beside what writes files anew."""
    fill(lake, UNPARTITIONED["using"])
    policy = lake.policy()
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    with pytest.raises(ConfigError, match=r"no run takes .* away from its folder"):
        encrypt_table(lake.spark, "t", policy, home=True)
    with pytest.raises(ConfigError, match="leave one out"):
        encrypt_table(lake.spark, "t", policy, home=True, engine="spark")


def after_the_rename(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill the run when its files are at home, and the metastore still points away."""
    rename = swap._rename_whole

    def renamed(files: HadoopFiles, source: str, target: str) -> None:
        rename(files, source, target)
        raise Killed

    monkeypatch.setattr(swap, "_rename_whole", renamed)


KILLS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {**STEPS, "the rename": after_the_rename}


@pytest.mark.parametrize("step", KILLS)
def test_killed_on_the_way(lake: Lake, clock: Clock, step: str) -> None:
    """Whatever the step, the table has all rows meanwhile, and the same command ends what was begun, once."""
    policy, _, home = away(lake)
    kill(lake, policy, clock, KILLS[step], home=True)
    lake.spark.catalog.refreshTable("t")
    assert ids(lake) == [0, 1, 2, 3]
    assert encrypt_table(lake.spark, "t", policy, home=True).outcome in ("done", "nothing to do")
    assert locations(lake) == [str(home)]
    assert (ids(lake), audits(lake, policy)) == ([0, 1, 2, 3], ["encrypt", "encrypt"])
    expire_run(lake.spark, "t", policy)
    assert (ids(lake), len(data_files(lake.root))) == ([0, 1, 2, 3], 4)
    assert verify_table(lake.spark, "t", policy, manifest=True).ok


def test_killed_after_the_rename_and_given_up(lake: Lake, clock: Clock) -> None:
    """A pass that goes on with it ends it; what a job adds at home meanwhile by path is neither lost nor taken in."""
    policy, _, home = away(lake)
    kill(lake, policy, clock, after_the_rename, home=True)
    with lake.stranger() as stranger:
        stranger.sql("SELECT 9 AS id, 'e' AS email, 'n' AS note").write.mode("append").parquet(str(home))
    listed = data_files(home)
    with pytest.raises(VerificationError, match="cannot come back"):
        encrypt_table(lake.spark, "t", policy, home=True)
    assert (ids(lake), data_files(home)) == ([0, 1, 2, 3], listed)
    assert the_problem(the_pass(lake, policy))["kind"] == "came to a former home"


def test_driver_that_wakes_up_after_another_has_come_home(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """Right before it would point the table home, another driver does all of it: its files and later rows stay."""
    policy, _, home = away(lake)
    set_location = Catalog.set_location
    slept: list[str] = []

    def paused(catalog: Catalog, table: Any, location: str) -> None:
        if not slept:
            slept.append(location)
            clock.now += 1_000
            assert encrypt_table(lake.spark, "t", policy, home=True).outcome == "done"
            lake.sql("INSERT INTO t VALUES (77, 'e', 'n')")
        set_location(catalog, table, location)

    monkeypatch.setattr(Catalog, "set_location", paused)
    with pytest.raises(RunConflictError, match="no longer holds the lock"):
        encrypt_table(lake.spark, "t", policy, home=True)
    monkeypatch.undo()
    assert (locations(lake), ids(lake)) == ([str(home)], [0, 1, 2, 3, 77])
    assert the_pass(lake, policy).outcome == "nothing to do"
    expire_run(lake.spark, "t", policy)
    assert ids(lake) == [0, 1, 2, 3, 77]


def test_metastore_refuses(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rename is taken back if the metastore does not take the home, or somebody moved the table meanwhile."""
    policy, _, home = away(lake)
    there = locations(lake)

    def refuse(*_: object) -> None:
        raise SourceChangedError("moved")

    with monkeypatch.context() as patch:
        patch.setattr(Catalog, "set_location", refuse)
        patch.setattr("sparkcrypt.runs.passes.units.PAUSES_SECONDS", (0.0,))
        with pytest.raises(SourceChangedError):
            encrypt_table(lake.spark, "t", policy, home=True)
    assert (locations(lake), home.exists(), ids(lake)) == (there, False, [0, 1, 2, 3])
    assert encrypt_table(lake.spark, "t", policy, home=True).outcome == "done"
    assert locations(lake) == [str(home)]


@pytest.mark.parametrize("killed", [False, True], ids=["whole", "killed"])
def test_rolled_back(lake: Lake, clock: Clock, monkeypatch: pytest.MonkeyPatch, killed: bool) -> None:
    """A rollback points the table away again, and takes the files from its home; a killed one is ended by the next."""
    monkeypatch.setattr(past_run, "acquire", functools.partial(acquire, clock=clock))
    policy, _, home = away(lake)
    there = locations(lake)
    run_id = encrypt_table(lake.spark, "t", policy, home=True).run_id
    if killed:

        def stop(monkeypatch: pytest.MonkeyPatch) -> None:
            def put_back(*_: object) -> None:
                raise Killed

            monkeypatch.setattr(swap.HomeSwap, "put_back", put_back)

        kill_during(lambda: rollback_run(lake.spark, "t", policy, run_id), clock, stop)
        assert ids(lake) == [0, 1, 2, 3]
    rollback_run(lake.spark, "t", policy, run_id)
    assert (locations(lake), home.exists(), ids(lake)) == (there, False, [0, 1, 2, 3])
    expire_run(lake.spark, "t", policy)
    assert (ids(lake), len(data_files(lake.root))) == ([0, 1, 2, 3], 4)


def test_expire_offers_the_way_home(lake: Lake) -> None:
    """It says where jobs would look for the table by path, and what brings it there, as long as it is away."""
    policy, _, home = away(lake, expired=False)
    file = next(lake.root.glob("policy-*/policy.yaml"))
    told = CliRunner().invoke(expire, ["--policy", str(file), "--table", lake.name("t"), "--dry-run"])
    assert f"`sparkcrypt encrypt --home --table {lake.name('t')}` brings the files back" in told.output
    assert expire_run(lake.spark, "t", policy).homes == {lake.name("t"): home.as_uri().replace("///", "/")}
    encrypt_table(lake.spark, "t", policy, home=True)
    assert expire_run(lake.spark, "t", policy).homes == {}

"""Stores of tables by their names: folders, partitions, types and keys are those of the catalog."""

from __future__ import annotations

import json
import os
import shutil
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sparkcrypt import encrypt_table, index_table, names
from sparkcrypt.cli.frame.command_context import Workplace
from sparkcrypt.cli.main import cli
from sparkcrypt.errors import ConfigError, FormatError, PlanError, VerificationError
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.old_folders.orphans import Orphan, find_orphans
from sparkcrypt.runs.table.progress import Progress
from sparkcrypt.runs.table.table_index import drop_index, open_table_index
from sparkcrypt.skipping.indexes.build import Wanted, keys_of_store, read_kinds
from sparkcrypt.skipping.trusted.sidecar import SIDECAR
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags
from sparkcrypt.spark.tasks import index_rows
from tests.spark.stored_tables import append, check, policy_file, settle
from tests.spark.support import Lake, assert_plaintext, data_files

pytestmark = pytest.mark.spark
PLACES = "index: {location: indexes/}\n"


@pytest.fixture
def commands(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs commands in the session of the test."""
    monkeypatch.setattr(Workplace, "spark", property(lambda _: lake.spark))

    def run(*words: object, code: int = 0) -> Any:
        done = CliRunner().invoke(cli, ["index", *map(str, words), "--policy", policy_file(lake)])
        assert done.exit_code == code, done.output
        return done

    return run


def make_days(lake: Lake) -> None:
    """Make an external table of eight plaintext files in four partitions by date, by a writer who knows no tags."""
    with lake.stranger() as stranger:
        place = (lake.root / "days").as_uri()
        stranger.sql(
            f"CREATE TABLE t (id INT, email STRING, day DATE) USING parquet PARTITIONED BY (day) LOCATION '{place}'"
        )
        day = "date_add(DATE '2024-01-01', CAST(id % 4 AS INT)) day"
        rows = stranger.range(80).selectExpr("CAST(id AS INT) id", "concat('e', lpad(id, 2, '0')) email", day)
        rows.repartitionByRange(2, "id").write.insertInto("t")
    settle(lake.root / "days")


def test_plaintext_table_is_indexed_then_encrypted(lake: Lake) -> None:
    """Its store is made by the catalog's UUID and under the plan's keys, and the run that encrypts it carries it."""
    make_days(lake)
    policy = lake.policy(more=PLACES)
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    made = index_table(lake.spark, lake.name("t"), policy, columns=["id", "email:minmax:bloom"])
    assert (made.objects, made.read, made.generation, made.unknown) == (8, 8, 1, {})
    assert_plaintext(lake.root / "days")
    opened = open_table_index(lake.spark, "t", policy).store.open(1)
    assert keys_of_store(opened.store, policy.footer_key) == {"email": "pii"}
    assert [(column.column, column.type) for column, _ in opened.store.partitions] == [("day", "date")]

    lake.spark.conf.set(names.SKIPPING, "true")
    lake.sql("REFRESH TABLE t")
    queries = ("id = 5", "email = 'e05' AND day = DATE '2024-01-02'", "email >= 'e70'", "email = 'none'")
    before = [check(lake, f"SELECT * FROM t WHERE {query}").opened for query in queries]
    assert before == [4, 1, 4, 0]
    done = encrypt_table(lake.spark, "t", policy)
    assert done.index is not None
    assert (done.index["state"], done.index["known"]) == ("carried", 8)
    lake.sql("REFRESH TABLE t")
    assert [check(lake, f"SELECT * FROM t WHERE {query}").opened for query in queries] == before
    assert index_table(lake.spark, "t", policy).written is False


def test_commands_name_a_table(lake: Lake, commands: Any) -> None:
    """Create, show, refresh, verify and drop find files and store by the name, wherever partitions lie."""
    make_days(lake)
    policy = lake.policy(more=PLACES)
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    report = lake.root / "report.json"
    said = json.loads(commands("create", "--table", "t", "--column", "id", "--report", report, "--json").stdout)
    assert (said["table"], said["objects"], said["generation"]) == (lake.name("t"), 8, 1)
    written = json.loads(report.read_text())
    assert (written["kind"], written["version"], written["outcome"]) == ("sparkcrypt index", 1, "done")
    assert written["store"] == said["store"]

    elsewhere = lake.root / "elsewhere" / "day=2024-01-02"
    shutil.copytree(lake.root / "days" / "day=2024-01-02", elsewhere)
    lake.sql(f"ALTER TABLE t PARTITION (day = '2024-01-02') SET LOCATION 'file://{elsewhere}'")
    settle(elsewhere)
    assert len(data_files(elsewhere)) == 2
    touched = data_files(lake.root / "days" / "day=2024-01-01")[0]
    os.utime(touched, (touched.stat().st_mtime - 9,) * 2)
    stale = json.loads(commands("show", "--table", "t", "--json").stdout)["freshness"]
    assert (stale["fresh"], stale["generation"]) == (False, 1)
    assert [stale[kind] for kind in ("indexed", "changed", "new", "gone")] == [5, 1, 2, 2]
    assert stale["written_at"] <= datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    text = commands("show", "--table", "t").stdout
    assert f"generation 1, written {stale['written_at']}; 5 files as indexed, 1 changed, 2 new, 2 gone" in text
    compared = json.loads(commands("verify", "--table", "t", "--json").stdout)
    assert (compared["same"], len(compared["new"]), len(compared["gone"])) == (5, 3, 3)
    refreshed = json.loads(commands("refresh", "--table", "t", "--json").stdout)
    assert (refreshed["read"], refreshed["generation"], refreshed["objects"]) == (3, 2, 8)
    assert json.loads(commands("verify", "--table", "t", "--json").stdout)["fresh"] is True
    lake.spark.conf.set(names.SKIPPING, "true")
    lake.sql("REFRESH TABLE t")
    found = check(lake, "SELECT * FROM t WHERE id = 5")
    assert (found.listed, found.opened) == (8, 4)
    shown = json.loads(commands("show", "--table", "t", "--json").stdout)
    assert (shown["path"], shown["objects"]) == (said["store"], 8)
    assert [shown["freshness"][kind] for kind in ("generation", "fresh", "indexed")] == [2, True, 8]
    dropped = json.loads(commands("drop", "--table", "t", "--json").stdout)
    assert dropped["store"] == said["store"]
    assert not Path(said["store"]).exists()
    assert "has no index at" in commands("refresh", "--table", "t", code=78).output


def test_store_of_a_table_follows_a_changed_tag(lake: Lake, commands: Any) -> None:
    """A refresh by the table's name puts an index under its column's present key, though no file has changed."""
    policy = lake.policy(more=PLACES)
    lake.sql("CREATE TABLE t (id INT, email STRING, plain STRING) USING parquet")
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    append(lake, "t", 0, 40, 4)
    settle(lake.path("t"))
    index_table(lake.spark, "t", policy, columns=["email"])
    set_tags(lake.spark, "t", {"email": ["fin"]}, policy)
    said = json.loads(commands("refresh", "--table", "t", "--json").stdout)
    assert (said["read"], said["written"], said["generation"]) == (0, True, 2)
    opened = open_table_index(lake.spark, "t", policy).store.open(2)
    assert keys_of_store(opened.store, policy.footer_key) == {"email": "fin"}


@pytest.mark.parametrize(
    ("column", "why"),
    [
        ("pay", r"its tag 'pay' gives it a key for each day \(pay-\{day:%Y-%m\}\), and an index is under one key"),
        ("deep", "it is nested or repeated"),
        ("code", "it is CHAR, which Spark pads"),
        ("day", "is a partition column, which every index has"),
        ("none", r"has none of that name; allowed: id, pay, deep, code, day"),
    ],
)
def test_column_that_cannot_be_indexed_is_refused_by_name(lake: Lake, commands: Any, column: str, why: str) -> None:
    """The catalog and the tags tell, before a file is looked at."""
    policy = lake.policy('\n  pay: {key: "pay-{day:%Y-%m}"}\n', keys=("pay-2026-01",), more=PLACES)
    lake.sql(
        "CREATE TABLE t (id INT, pay INT, deep ARRAY<INT>, code CHAR(4), day STRING) USING parquet PARTITIONED BY (day)"
    )
    set_tags(lake.spark, "t", {"pay": ["pay"]}, policy)
    with pytest.raises(ConfigError, match=why):
        index_table(lake.spark, "t", policy, columns=["id", column])
    assert f"column '{column}'" in commands("create", "--table", "t", "--column", column, code=78).output
    assert not Path(str(policy.index_location)).exists()


def test_what_has_no_place_or_name_is_refused(lake: Lake, commands: Any) -> None:
    """A table without UUID, a policy without a place, a view, and options that belong to folders."""
    policy = lake.policy(more=PLACES)
    lake.sql("CREATE TABLE u (id INT) USING parquet")
    with pytest.raises(ConfigError, match="has no UUID, by which its index would be found"):
        index_table(lake.spark, "u", policy, columns=["id"])
    lake.sql("CREATE VIEW v AS SELECT 1 x")
    with pytest.raises(PlanError, match="is a view"):
        index_table(lake.spark, "v", policy, columns=["x"])
    lake.sql("CREATE TABLE o (id INT) USING orc")
    with pytest.raises(PlanError, match=r"\.o is a table in ORC; data-skipping indexes are of Parquet tables"):
        index_table(lake.spark, "o", lake.policy(more=f"{PLACES}formats: [parquet, orc]\n"), columns=["id"])
    bare = lake.policy()
    set_tags(lake.spark, "u", {"id": ["pii"]}, bare)
    with pytest.raises(ConfigError, match="does not say where indexes are"):
        index_table(lake.spark, "u", bare, columns=["id"])
    for words in (("--to", "x"), ("--partition", "a=b"), ("--path", "x")):
        commands("create", "--table", "u", "--column", "id", *words, code=64)


def test_store_is_not_dropped_while_a_table_is_at_its_folder(lake: Lake, commands: Any) -> None:
    """The metastore is asked, by path alone; the store of a table that is gone is dropped by its UUID."""
    policy = lake.policy(more=PLACES)
    lake.sql("CREATE TABLE t (id INT, email STRING, plain STRING) USING parquet")
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    append(lake, "t", 0, 10, 1)
    settle(lake.path("t"))
    store = Path(index_table(lake.spark, "t", policy, columns=["id"]).store)
    uuid = str(Catalog(lake.spark).table("t").uuid)
    with lake.stranger() as stranger:
        stranger.sql(f"CREATE TABLE squatter (id INT) USING parquet LOCATION '{store.parent.as_uri()}'")
    with pytest.raises(VerificationError, match=r"table lake\d+.squatter is at .*/indexes by the metastore"):
        drop_index(lake.spark, policy, uuid)
    assert "squatter" in commands("drop", "--table", "t", code=74).output
    assert len(data_files(store)) == 1
    lake.sql("DROP TABLE squatter")
    lake.sql("DROP TABLE t")
    said = json.loads(commands("drop", "--uuid", uuid, "--json").stdout)
    assert (said["uuid"], said["store"], len(said["deleted"])) == (uuid, str(store), 2)
    assert not store.exists()


def test_store_of_a_dropped_table_is_listed_and_stays(lake: Lake, commands: Any) -> None:
    """Orphans name it, with the command that drops it, and delete nothing of it, nor anything beside it."""
    policy = lake.policy(more=PLACES)
    stores = []
    for name in ("t", "other"):
        lake.sql(f"CREATE TABLE {name} (id INT, email STRING, plain STRING) USING parquet")
        set_tags(lake.spark, name, {"email": ["pii"]}, policy)
        append(lake, name, 0, 10, 1)
        settle(lake.path(name))
        stores.append(Path(index_table(lake.spark, name, policy, columns=["id"]).store))
    (stores[0].parent / "no store").mkdir()
    lake.sql("DROP TABLE t")
    assert [entry for entry in list_orphans(lake, policy) if entry.kind == "store"] == []  # it is too young
    make_old(stores[0].parent)
    for delete in (False, True):
        (found,) = [entry for entry in list_orphans(lake, policy, delete=delete) if entry.kind == "store"]
        assert (found.folder.removeprefix("file:"), found.files, found.deleted) == (str(stores[0]), 3, False)
        assert f"`sparkcrypt index drop --uuid {stores[0].name}`" in str(found.why_kept)
    assert all((store / SIDECAR).is_file() for store in stores)
    commands("drop", "--uuid", stores[0].name)
    assert [entry.kind for entry in list_orphans(lake, policy)] == []


def test_stores_are_no_leftovers_of_runs(lake: Lake) -> None:
    """Where the policy puts stores below the folder that runs use, orphans take none of them for a run's."""
    policy = lake.policy(more=f"index: {{location: {lake.root / 'db' / '.sparkcrypt' / 't'}}}\n")
    lake.sql("CREATE TABLE t (id INT, email STRING, plain STRING) USING parquet")
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    append(lake, "t", 0, 10, 1)
    settle(lake.path("t"))
    store = Path(index_table(lake.spark, "t", policy, columns=["id"]).store)
    make_old(store.parent)
    assert find_orphans(lake.spark, policy, databases=(lake.database,), delete=True) == []
    assert (store / SIDECAR).is_file()


def list_orphans(lake: Lake, policy: Policy, *, delete: bool = False) -> list[Orphan]:
    """Return the orphans of this test's folders; other tests' tables may be in the metastore, too."""
    found = find_orphans(lake.spark, policy, delete=delete)
    return [entry for entry in found if str(lake.root) in entry.folder]


def make_old(folder: Path) -> None:
    """Let everything below a folder be a month old."""
    then = time.time() - 30 * 86_400
    for path in [*folder.rglob("*"), folder]:
        os.utime(path, (then, then))


class Told(Progress):
    """Adds up what it hears of progress."""

    files = total_bytes = 0
    finished = False

    def start(self, *what: Any) -> None:
        """Note what is to do."""
        self.started = what

    def advance(self, files: int, total_bytes: int, units: int = 0) -> None:
        """Add to what is done."""
        assert files > 0
        self.files += files
        self.total_bytes += total_bytes

    def finish(self) -> None:
        """Note the end."""
        self.finished = True


def test_many_files_are_read_by_tasks(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks say of each file what the driver says, in stores that are alike; a torn file ends the work by its name."""
    policy = lake.policy(more=PLACES)
    lake.sql("CREATE TABLE t (id INT, email STRING, plain STRING) USING parquet")
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    append(lake, "t", 0, 40, 4)
    settle(lake.path("t"))
    columns = ("id", "email:bloom", "plain:values:minmax")
    index_table(lake.spark, "t", policy, columns=columns)
    by_driver = open_table_index(lake.spark, "t", policy).store.open(1)
    known = list(by_driver.parts())
    monkeypatch.setattr(index_rows, "FEW", 1)
    monkeypatch.setattr(index_rows, "FILES_A_TASK", 1)
    monkeypatch.setattr(index_rows, "TASKS_A_JOB", 3)
    with monkeypatch.context() as patched:
        patched.setattr(index_rows, "read_rows", None)  # the driver reads none
        told = Told()
        open_table_index(lake.spark, "t", policy, told).create(Wanted(read_kinds(columns)))
    size = sum(file.stat().st_size for file in data_files(lake.path("t")))
    assert told.started == (lake.name("t"), 0, 4, size)
    assert (told.files, told.total_bytes, told.finished) == (4, size, True)
    by_tasks = open_table_index(lake.spark, "t", policy).store.open(2)
    assert list(by_tasks.parts()) == known != []
    assert {name: (facts.length, facts.file_unique) for name, facts in by_tasks.sidecar.objects.items()} == {
        name: (facts.length, facts.file_unique) for name, facts in by_driver.sidecar.objects.items()
    }
    assert open_table_index(lake.spark, "t", policy).verify().is_fresh
    torn = data_files(lake.path("t"))[2]
    torn.write_bytes(torn.read_bytes()[:-9] + b"\x00\x00\x00\x00\x00PARE")
    settle(lake.path("t"))
    with pytest.raises(FormatError, match=torn.name):
        index_table(lake.spark, "t", policy, columns=columns)


def test_driver_reads_where_tasks_cannot(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Executors that lack what the work needs cost time, and nothing else."""
    policy = lake.policy(more=PLACES)
    lake.sql("CREATE TABLE t (id INT, email STRING, plain STRING) USING parquet")
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    append(lake, "t", 0, 10, 2)
    settle(lake.path("t"))

    def refuse(*_: Any) -> Any:
        raise ConfigError("the executors lack pyarrow")

    monkeypatch.setattr(index_rows, "FEW", 1)
    monkeypatch.setattr(index_rows, "_read_in_tasks", refuse)
    assert index_table(lake.spark, "t", policy, columns=["id"]).read == 2

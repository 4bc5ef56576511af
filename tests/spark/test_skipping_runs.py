"""Runs keep stores true: files have new names and keys after each, and queries open as few as before, with all rows."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt import encrypt_table, names
from sparkcrypt.files.parquet import read_footer
from sparkcrypt.keys.material import parse_key_material, version_of
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.keys.rotate import rotate_key
from sparkcrypt.runs.old_folders.expire import expire_run
from sparkcrypt.runs.old_folders.rollback import rollback_run
from sparkcrypt.runs.table import table_index
from sparkcrypt.skipping.trusted.folder import LocalFolder
from sparkcrypt.skipping.trusted.sidecar import SIDECAR
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.killing import Clock, Killed, kill
from tests.spark.stored_tables import FILES, ROWS, check, index, make
from tests.spark.support import Lake, key_service, retriever

pytestmark = pytest.mark.spark
PLACES = "index: {location: indexes/}\n"
PREDICATES = (
    "email = 'e0031'",
    "id BETWEEN 25 AND 35",
    "plain >= 'p0230'",
    "NOT (email >= 'e0010') OR id > 235",
    "email IS NULL",
    "email LIKE 'e01%' AND plain <> 'p0100'",
)
KINDS = {"managed": "", "partitioned": "partitioned"}


def make_stored(lake: Lake, kind: str = "managed") -> Policy:
    """Make a table of eight files with a store, its column ``email`` under ``pii``; in four partitions if asked."""
    policy = lake.policy(more=PLACES)
    if kind == "managed":
        make(lake)
        return policy
    lake.sql("CREATE TABLE t (id INT, email STRING, plain STRING, day DATE) USING parquet PARTITIONED BY (day)")
    set_tags(lake.spark, "t", {"email": ["pii"]}, None)
    day = "date_add(DATE '2024-01-01', CAST(id DIV 60 AS INT)) day"
    rows = lake.spark.range(ROWS).selectExpr(
        "CAST(id AS INT) id", "concat('e', lpad(id, 4, '0')) email", "concat('p', lpad(id, 4, '0')) plain", day
    )
    rows.repartitionByRange(FILES, "id").write.insertInto("t")
    index(lake, "t", "id", "email", "plain", more=("--partition", "day=date"))
    lake.spark.conf.set(names.SKIPPING, "true")
    return policy


def hold(lake: Lake, opened: int = 1) -> None:
    """Hold the rows of queries against those without the store, and count the files that a lookup opens."""
    lake.sql("REFRESH TABLE t")
    found = [check(lake, f"SELECT * FROM t WHERE {predicate}") for predicate in PREDICATES]
    assert (found[0].listed, found[0].opened) == (FILES, opened), found[0]
    assert all(scan.unused == {} for scan in found)
    assert lake.sql("SELECT count(*) FROM t").collect() == [(ROWS,)]


def store_folder(policy: Policy, lake: Lake) -> Path:
    """Return the folder of the table's store."""
    return Path(str(policy.index_location)) / str(Catalog(lake.spark).table("t").uuid)


def keys_of_indexes(policy: Policy, lake: Lake) -> dict[str, tuple[str, set[int]]]:
    """Return column of the store's parts -> master key, with the versions of it that wrapped."""
    found: dict[str, tuple[str, set[int]]] = {}
    for part in store_folder(policy, lake).glob("*.parquet"):
        for column in read_footer(part, retrieve_key=retriever(policy)).columns or ():
            if column.own_key:
                material = parse_key_material(column.key_metadata or b"")
                _, versions = found.setdefault(column.path[0].partition("_")[0], (material.master_key_id, set()))
                versions.add(version_of(material.wrapped_kek or material.wrapped_dek))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_each_run_carries_the_store_over(lake: Lake, kind: str) -> None:
    """After tags came and changed, a rotation, a rollback and an expiry, a lookup opens one file and finds its row."""
    policy = make_stored(lake, kind)
    hold(lake)

    set_tags(lake.spark, "t", {"plain": ["pii"]}, policy)
    done = encrypt_table(lake.spark, "t", policy)
    assert done.index == {
        "state": "carried",
        "reason": None,
        "store": str(store_folder(policy, lake)),
        "generation": 2,
        "known": FILES,
    }
    hold(lake)
    assert {column: key for column, (key, _) in keys_of_indexes(policy, lake).items()} == {
        "email": "pii",
        "plain": "pii",
    }

    set_tags(lake.spark, "t", {"email": ["fin"], "plain": ["public"]}, policy)
    tagged_again = encrypt_table(lake.spark, "t", policy, allow_decrypt=True)
    assert tagged_again.index is not None
    assert (tagged_again.index["state"], tagged_again.index["known"]) == ("carried", FILES)
    hold(lake)
    assert keys_of_indexes(policy, lake) == {"email": ("fin", {1})}

    rotate_key(lake.spark, policy, "fin")
    hold(lake)
    assert keys_of_indexes(policy, lake) == {"email": ("fin", {2})}

    last = encrypt_table(lake.spark, "t", policy)
    assert (last.outcome, last.index) == ("nothing to do", None)


@pytest.mark.parametrize("kind", KINDS)
def test_rollback_carries_the_store_back(lake: Lake, kind: str) -> None:
    """Old files are known under their former names at once, after a run again under new ones, and after expiry too."""
    policy = make_stored(lake, kind)
    set_tags(lake.spark, "t", {"email": ["fin"]}, policy)
    run_id = encrypt_table(lake.spark, "t", policy).run_id
    back = rollback_run(lake.spark, "t", policy, run_id)
    assert back.index is not None
    assert (back.index["state"], back.index["known"], back.index["generation"]) == ("carried", FILES, 3)
    hold(lake)
    again = encrypt_table(lake.spark, "t", policy)
    assert again.index is not None
    assert (again.index["state"], again.index["generation"]) == ("carried", 4)
    expire_run(lake.spark, "t", policy)
    hold(lake)
    if kind == "managed":
        index(lake, "t", verb="verify")


KILLED: dict[str, Callable[[pytest.MonkeyPatch], None]] = {}


def killed(step: str) -> Callable[[Callable[[pytest.MonkeyPatch], None]], Callable[[pytest.MonkeyPatch], None]]:
    """Note a patch that kills a run at a step."""

    def note(patch: Callable[[pytest.MonkeyPatch], None]) -> Callable[[pytest.MonkeyPatch], None]:
        KILLED[step] = patch
        return patch

    return note


def die(*_: Any, **__: Any) -> None:
    """Stand for the end of the process."""
    raise Killed


@killed("before the store is looked at")
def kill_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill a run whose units are swapped."""
    monkeypatch.setattr("sparkcrypt.runs.passes.run.carry_index", die)


@killed("with the store's new files written")
def kill_amid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill a run right before the store's sidecar is replaced."""
    monkeypatch.setattr(LocalFolder, "replace", die)


@killed("with the sidecar replaced")
def kill_after(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill a run before the store's old files are deleted, and before its generation is noted."""
    monkeypatch.setattr(LocalFolder, "delete", die)


@pytest.mark.parametrize("step", KILLED)
def test_run_that_is_killed_leaves_a_store_that_loses_no_row(lake: Lake, clock: Clock, step: str) -> None:
    """Files that the store does not know are opened; the run that goes on carries it over, and no row is lost."""
    policy = make_stored(lake)
    set_tags(lake.spark, "t", {"email": ["fin"]}, policy)
    kill(lake, policy, clock, KILLED[step])
    lake.sql("REFRESH TABLE t")
    found = [check(lake, f"SELECT * FROM t WHERE {predicate}") for predicate in PREDICATES]
    assert found[0].opened == (1 if step == "with the sidecar replaced" else FILES)
    done = encrypt_table(lake.spark, "t", policy)
    assert done.index is not None
    assert (done.index["state"], done.index["known"]) == ("carried", FILES)
    hold(lake)
    assert len(list(store_folder(policy, lake).glob("*.parquet"))) == 1


def test_rollback_that_is_killed_goes_on_with_the_store(lake: Lake) -> None:
    """A rollback that was killed with its units back carries the store over when it is asked for again."""
    policy = make_stored(lake)
    set_tags(lake.spark, "t", {"email": ["fin"]}, policy)
    run_id = encrypt_table(lake.spark, "t", policy).run_id

    with pytest.MonkeyPatch.context() as patched, pytest.raises(Killed):
        patched.setattr("sparkcrypt.runs.old_folders.rollback.carry_index", die)
        rollback_run(lake.spark, "t", policy, run_id)
    hold(lake, opened=FILES)
    back = rollback_run(lake.spark, "t", policy, run_id)
    assert back.index is not None
    assert (back.index["state"], back.index["known"]) == ("carried", FILES)
    hold(lake)


DAMAGE: dict[str, tuple[Callable[[Lake, Policy], object], str]] = {
    "a sidecar that is cut": (
        lambda lake, policy: _cut(store_folder(policy, lake) / SIDECAR),
        "FormatError: _sparkcrypt.json",
    ),
    "a file of the store that is gone": (
        lambda lake, policy: next(store_folder(policy, lake).glob("*.parquet")).unlink(),
        "is gone, and the sidecar names it",
    ),
    "a file that is none of the store's": (
        lambda lake, policy: (store_folder(policy, lake) / "strange.parquet").write_bytes(b"PAR1"),
        "is no file of a store that sparkcrypt wrote for this table",
    ),
    "an index whose key is shredded": (
        lambda _, policy: key_service(policy).delete_key("pii"),
        "the index of email cannot be carried over",
    ),
}


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


@pytest.mark.parametrize("damage", DAMAGE)
def test_store_that_cannot_be_written_fails_no_run(lake: Lake, damage: str) -> None:
    """The run is done, its report says why the store is stale, in one warning; queries find every row."""
    policy = make_stored(lake)
    set_tags(lake.spark, "t", {"email": ["fin"]}, policy)
    break_store, why = DAMAGE[damage]
    done = _run_with_damage(lake, policy, lambda: break_store(lake, policy))
    assert done.outcome == "done"
    assert done.index is not None
    assert done.index["state"] == "stale"
    assert why in done.index["reason"]
    (warning,) = [line for line in done.warnings if "data-skipping index" in line]
    assert why in warning
    assert "sparkcrypt index" in warning
    lake.sql("REFRESH TABLE t")
    assert check(lake, "SELECT * FROM t WHERE email = 'e0031'").opened == FILES


def _run_with_damage(lake: Lake, policy: Policy, break_store: Callable[[], object]) -> Any:
    """Run over the table; the store is broken once the units are swapped."""
    carry = table_index.carry_index

    def broken(*args: Any, **named: Any) -> Any:
        break_store()
        return carry(*args, **named)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sparkcrypt.runs.passes.run.carry_index", broken)
        return encrypt_table(lake.spark, "t", policy)


def test_file_that_is_not_the_proven_one_is_not_carried_over(lake: Lake) -> None:
    """A new file that somebody replaced, with its length and time kept, is unknown to the store, and is opened."""
    policy = make_stored(lake)
    set_tags(lake.spark, "t", {"email": ["fin"]}, policy)

    def replace_file() -> None:
        first, second = sorted(lake.path("t").glob("run-*.parquet"))[:2]
        kept = first.stat()
        content = second.read_bytes()[: kept.st_size].ljust(kept.st_size, b"\0")
        first.write_bytes(content)
        os.utime(first, ns=(kept.st_atime_ns, kept.st_mtime_ns))

    done = _run_with_damage(lake, policy, replace_file)
    assert done.index["known"] == FILES - 1
    assert f"does not know 1 of {FILES} files" in done.index["reason"]


def test_units_that_spark_writes_anew_are_unknown(lake: Lake) -> None:
    """Spark's engine says of no file whose rows it holds: the store is called stale, and all files are opened."""
    policy = make_stored(lake)
    set_tags(lake.spark, "t", {"email": ["fin"]}, policy)
    done = encrypt_table(lake.spark, "t", policy, engine="spark")
    assert done.index is not None
    assert (done.index["state"], done.index["known"]) == ("stale", 0)
    assert keys_of_indexes(policy, lake) == {"email": ("fin", {1})}
    lake.sql("REFRESH TABLE t")
    for predicate in PREDICATES:
        scan = check(lake, f"SELECT * FROM t WHERE {predicate}")
        assert scan.opened == scan.listed
    index(lake, "t", verb="refresh")
    assert check(lake, "SELECT * FROM t WHERE email = 'e0031'").opened == 1


def test_table_without_a_store_has_nothing_to_tell(lake: Lake) -> None:
    """Where there is no store, or the policy names no place, a run says nothing of one, and makes none."""
    policy = lake.policy(more=PLACES)
    lake.sql("CREATE TABLE t (id INT, email STRING, plain STRING) USING parquet")
    lake.sql("INSERT INTO t VALUES (1, 'e', 'p')")
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    done = encrypt_table(lake.spark, "t", policy)
    assert (done.outcome, done.index) == ("done", None)
    assert not Path(str(policy.index_location)).exists()

"""Verification against the audit's list of files: what was deleted, replayed, dropped or brought in since is found."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sparkcrypt import encrypt_table, verify_table
from sparkcrypt.errors import ConfigError, VerificationError
from sparkcrypt.ledger.state.store import open_state_store
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.old_folders.expire import expire_run
from sparkcrypt.runs.old_folders.rollback import rollback_run
from sparkcrypt.runs.table.verify import TableVerification
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.late_writers import leave
from tests.spark.sessions import run_command
from tests.spark.support import SECRET, Lake, data_files, rows_of
from tests.spark.tables import PARTITIONED, UNPARTITIONED, fill

pytestmark = pytest.mark.spark


def encrypted(lake: Lake, *tags: str, create: str = PARTITIONED["using"]) -> Policy:
    """Make a plaintext table, and run over it under each of these tags of a column in turn."""
    fill(lake, create)
    policy = lake.policy()
    for tag in tags:
        set_tags(lake.spark, "t", {"email": [tag]}, policy)
        assert encrypt_table(lake.spark, "t", policy).outcome == "done"
    return policy


def folder(lake: Lake, p: int) -> Path:
    """Return where a partition's files are now."""
    catalog = Catalog(lake.spark)
    (found,) = catalog.partitions(catalog.table("t"), {"p": str(p)})
    return Path(found.location.removeprefix("file:"))


def listed(lake: Lake, policy: Policy, table: str = "t", where: str | None = None) -> TableVerification:
    """Verify a table against its plan and its list."""
    return verify_table(lake.spark, table, policy, where=where, manifest=True)


def differences(found: TableVerification) -> dict[str, list[str]]:
    """Return the paths in which a table differs from its list, by kind, those without any left out."""
    assert found.manifest is not None
    told = {name: value for name, value in found.manifest.to_dict().items() if name != "files"}
    return {name: [path.removeprefix("file:") for path in paths] for name, paths in told.items() if paths}


def exit_codes(lake: Lake) -> tuple[int, ...]:
    """Return with what the command ends: without the list, with it, and where other files are differences too."""
    command = ["verify", "--table", lake.name("t"), "--policy", str(lake.root / "policy-0" / "policy.yaml")]
    ways: tuple[tuple[str, ...], ...] = ((), ("--manifest",), ("--manifest", "--complete"))
    return tuple(run_command(lake, *command, *more).exit_code for more in ways)


@pytest.mark.parametrize("tags", [("pii",), ("pii", "fin")])
def test_deleted_file_is_missing(lake: Lake, tags: tuple[str, ...]) -> None:
    """A file that is gone is nothing to the plan, and named by the list: after one run, and after another."""
    policy = encrypted(lake, *tags)
    whole = listed(lake, policy)
    assert whole.ok and whole.manifest is not None
    assert (whole.manifest.files, differences(whole)) == (4, {})
    assert exit_codes(lake) == (0, 0, 0)
    gone = data_files(folder(lake, 1))[0]
    gone.unlink()
    found = listed(lake, policy)
    assert (found.ok, found.drift, differences(found)) == (False, (), {"missing": [str(gone)]})
    assert exit_codes(lake) == (0, 74, 74)
    assert listed(lake, policy, where="p = 0").ok


def test_replayed_file_is_changed(lake: Lake) -> None:
    """An older file of the same name, place, length and keys is as the plan says, and is not the one of the list."""
    policy = encrypted(lake, "pii")
    old = {file.name: file.read_bytes() for file in data_files(folder(lake, 0))}
    for tag in ("fin", "pii"):
        set_tags(lake.spark, "t", {"email": [tag]}, policy)
        encrypt_table(lake.spark, "t", policy)
    replayed = data_files(folder(lake, 0))[0]
    new = replayed.read_bytes()
    assert len(new) == len(old[replayed.name]) and new != old[replayed.name]
    replayed.write_bytes(old[replayed.name])
    found = listed(lake, policy)
    assert (found.ok, found.drift, differences(found)) == (False, (), {"changed": [str(replayed)]})
    assert exit_codes(lake) == (0, 74, 74)
    replayed.write_bytes(new)
    assert listed(lake, policy).ok


def test_file_of_another_length_is_changed(lake: Lake) -> None:
    """What is no Parquet file any more is named by the list too, beside the plan's drift."""
    policy = encrypted(lake, "pii")
    cut = data_files(folder(lake, 0))[0]
    cut.write_bytes(cut.read_bytes()[:-4])
    found = listed(lake, policy)
    assert [drift.kind for drift in found.drift] == ["unreadable"]
    assert differences(found) == {"changed": [str(cut)]}


@pytest.mark.parametrize("origin", ["another table", "another partition", "another name"])
def test_foreign_file_is_unlisted(lake: Lake, origin: str) -> None:
    """A file that was copied into the table is not in the list, and drifts besides: its identity is another one."""
    policy = encrypted(lake, "pii")
    lake.sql("CREATE TABLE u (id INT, email STRING, note STRING, p INT) USING parquet PARTITIONED BY (p)")
    set_tags(lake.spark, "u", {"email": ["pii"]}, policy)
    lake.sql(f"INSERT INTO u VALUES (9, '{SECRET}-9', 'foreign', 1)")
    source = {"another table": lake.path("u"), "another partition": folder(lake, 0)}.get(origin, folder(lake, 1))
    file = data_files(source)[0]
    copy = folder(lake, 1) / (f"x-{file.name}" if origin == "another name" else file.name)
    assert not copy.exists()
    shutil.copyfile(file, copy)
    found = listed(lake, policy)
    assert [(drift.kind, drift.file.removeprefix("file:")) for drift in found.drift] == [("aad_mismatch", str(copy))]
    assert differences(found) == {"unlisted": [str(copy)]}
    assert exit_codes(lake) == (74, 74, 74)


def test_file_of_a_writer_is_unlisted_and_a_difference_only_if_asked(lake: Lake) -> None:
    """What a session wrote after the run is as the plan says; --complete alone ends with 74 for it, until a run."""
    policy = encrypted(lake, "pii")
    lake.sql(f"INSERT INTO t VALUES (9, '{SECRET}-9', 'new', 1)")
    found = listed(lake, policy)
    ((kind, (path,)),) = differences(found).items()
    assert (found.ok, kind, Path(path).parent) == (True, "unlisted", folder(lake, 1))
    assert exit_codes(lake) == (0, 0, 74)
    set_tags(lake.spark, "t", {"note": ["pii"]}, policy)
    encrypt_table(lake.spark, "t", policy)
    assert exit_codes(lake) == (0, 0, 0)


def test_dropped_partition_is_missing(lake: Lake) -> None:
    """Every file of a partition that is gone is named, also when another one of its value was made since."""
    policy = encrypted(lake, "pii")
    expire_run(lake.spark, "t", policy)
    gone = [str(file) for file in data_files(folder(lake, 1))]
    lake.sql("ALTER TABLE t DROP PARTITION (p = 1)")
    found = listed(lake, policy)
    assert (found.ok, found.drift, differences(found)) == (False, (), {"missing": gone})
    assert exit_codes(lake) == (0, 74, 74)
    assert listed(lake, policy, where="p = 0").ok
    lake.sql(f"INSERT INTO t VALUES (9, '{SECRET}-9', 'new', 1)")
    made = [str(file) for file in data_files(folder(lake, 1))]
    assert differences(listed(lake, policy)) == {"missing": gone, "unlisted": made}


def test_old_files_that_came_back_are_changed(lake: Lake) -> None:
    """A partition that is dropped and made anew before expire has its old files again: none is the one of the list."""
    policy = encrypted(lake, "pii")
    lake.sql("ALTER TABLE t DROP PARTITION (p = 1)")
    lake.sql("ALTER TABLE t ADD PARTITION (p = 1)")
    old = [str(file) for file in data_files(lake.path("t") / "p=1")]
    found = listed(lake, policy)
    assert [(drift.kind, drift.file.removeprefix("file:")) for drift in found.drift] == [
        ("plaintext", path) for path in old
    ]
    assert differences(found) == {"changed": old}


@pytest.mark.parametrize("create", [PARTITIONED["using"], UNPARTITIONED["using"]])
def test_rolled_back_run_leaves_the_list_of_old_files(lake: Lake, create: str) -> None:
    """After a rollback the list is that of the old files, of which none may be gone; the run's own are not in it."""
    policy = encrypted(lake, "pii", create=create)
    set_tags(lake.spark, "t", {"note": ["fin"]}, policy)
    second = encrypt_table(lake.spark, "t", policy).run_id
    rollback_run(lake.spark, "t", policy, second)
    found = listed(lake, policy)
    assert {drift.kind for drift in found.drift} == {"missing"}
    assert found.manifest is not None and found.manifest.ok
    assert (found.manifest.files, differences(found)) == (found.files, {})
    at = folder(lake, 1) if "PARTITIONED" in create else lake.path("t")
    gone = data_files(at)[0]
    gone.unlink()
    assert differences(listed(lake, policy)) == {"missing": [str(gone)]}


def test_file_that_was_carried_over_is_listed(lake: Lake) -> None:
    """A stale writer's file comes into the list beside the run's own, and is missed like them."""
    policy = encrypted(lake, "pii")
    leave(lake, lake.path("t") / "p=0", 77)
    known = {file.name for file in data_files(folder(lake, 0))}
    assert expire_run(lake.spark, "t", policy).carried == 1
    whole = listed(lake, policy)
    assert whole.manifest is not None
    assert (whole.ok, whole.manifest.files, differences(whole)) == (True, 5, {})
    (carried,) = (file for file in data_files(folder(lake, 0)) if file.name not in known)
    carried.unlink()
    assert differences(listed(lake, policy)) == {"missing": [str(carried)]}


def test_renamed_table_has_the_same_list(lake: Lake) -> None:
    """Places count, not paths: RENAME TABLE moves the folder, and a file that is gone is missed all the same."""
    policy = encrypted(lake, "pii", create=UNPARTITIONED["using"])
    before = rows_of(lake.spark.table("t"))
    lake.sql("ALTER TABLE t RENAME TO s")
    assert rows_of(lake.spark.table("s")) == before
    assert listed(lake, policy, "s").ok
    gone = data_files(lake.path("s"))[0]
    gone.unlink()
    ((kind, (path,)),) = differences(listed(lake, policy, "s")).items()
    assert (kind, Path(path).name) == ("missing", gone.name)


def test_list_that_was_cut_or_never_made_is_refused(lake: Lake) -> None:
    """Without a run there is no list; an audit whose last entry is gone, or that is gone altogether, makes none."""
    fill(lake, PARTITIONED["using"])
    policy = lake.policy()
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    with pytest.raises(ConfigError, match="there is no audit of this table"):
        listed(lake, policy)
    encrypt_table(lake.spark, "t", policy)
    store = open_state_store(policy.run_state)
    names = store.list(f"audit/{Catalog(lake.spark).table('t').uuid}/")
    for name in (max(path for path in names if path.rpartition("/")[2][0].isdigit()), *names):
        store.delete(name)
        with pytest.raises(VerificationError):
            listed(lake, policy)

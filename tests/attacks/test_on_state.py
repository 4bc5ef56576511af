"""Attacks by who may write to the state directory and has no key: planted records make no run, expiry or rollback act.

Each record is whole and chains to the one before; only a MAC is what the attacker cannot make.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt import encrypt_table, verify_table
from sparkcrypt.errors import SparkcryptError
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.ledger.audit.audit import list_entries_of
from sparkcrypt.ledger.journal.journal import KINDS
from sparkcrypt.ledger.log import TableLog
from sparkcrypt.ledger.state.mac import MasterKeys, open_mac
from sparkcrypt.ledger.state.store import LocalStateStore
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.old_folders.expire import expire_run
from sparkcrypt.runs.old_folders.rollback import rollback_run
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.support import Lake, rows_of
from tests.spark.tables import PARTITIONED, fill

pytestmark = pytest.mark.spark

LATER = "20991231T235959Z-ffffff"
Records = list[tuple[str, dict[str, Any]]]
Change = Callable[[str, dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class Victim:
    """A table of two encrypted partitions, whose old files are still there."""

    lake: Lake
    policy: Policy
    run_id: str
    rows: list[Any]
    store: LocalStateStore
    table_id: str
    foreign: Path

    def names(self) -> list[str]:
        """Return the names of the records of the run's journal."""
        log = TableLog.open(self.store, self.table_id, None)
        return [record.name for record in log.of_run(self.run_id) if record.kind in KINDS]

    def records(self) -> Records:
        """Return kind and fields of the run's records, which anybody who may read the state directory sees."""
        log = TableLog.open(self.store, self.table_id, None)
        return [(record.kind, dict(record.fields)) for record in log.of_run(self.run_id) if record.kind in KINDS]

    def plant(self, records: Iterable[tuple[str, dict[str, Any]]], run_id: str = LATER) -> None:
        """Write further records of a run without any key."""
        log = TableLog.open(self.store, self.table_id, None)
        for kind, fields in records:
            log.append(kind, run_id, 99, fields)

    def places(self) -> dict[str, Path]:
        """Return where the partitions are."""
        catalog = Catalog(self.lake.spark)
        found = catalog.partitions(catalog.table("t"))
        return {partition.folder: Path(partition.location.removeprefix("file:")) for partition in found}

    def is_unharmed(self) -> bool:
        """Tell whether the table has its rows, all encrypted, and the audit tells of the run and nothing else."""
        self.lake.spark.catalog.refreshTable("t")
        mac = open_mac(self.store, self.table_id, open_key_service(self.policy.key_service), MasterKeys.of(self.policy))
        told = {
            signed.entry["why"]["run_id"] for signed in list_entries_of(TableLog.open(self.store, self.table_id, mac))
        }
        whole = rows_of(self.lake.spark.table("t")) == self.rows and verify_table(self.lake.spark, "t", self.policy).ok
        return whole and LATER not in told and len(list(self.foreign.iterdir())) == 1


@pytest.fixture
def victim(lake: Lake) -> Victim:
    """The table, and a folder with one plaintext file of the attacker's, or of somebody else."""
    fill(lake, PARTITIONED["using"])
    policy = lake.policy()
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    rows = rows_of(lake.spark.table("t"))
    foreign = lake.root / "foreign"
    foreign.mkdir()
    shutil.copy(next((lake.path("t") / "p=1").glob("part-*")), foreign / "part-foreign.parquet")
    run_id = encrypt_table(lake.spark, "t", policy).run_id
    store = LocalStateStore(policy.run_state)
    return Victim(lake, policy, run_id, rows, store, str(Catalog(lake.spark).table("t").uuid), foreign)


def without(records: Records, *kinds: str) -> Records:
    """Leave records of some kinds out."""
    return [record for record in records if record[0] not in kinds]


def listed(folder: Path) -> list[Any]:
    """Return the files of a folder as a journal lists them."""
    files = sorted(folder.glob("*.parquet"))
    return [["", [[file.as_uri().replace("///", "/"), file.stat().st_size, 0] for file in files]]]


def test_a_planted_run_does_not_delete_a_live_folder(victim: Victim) -> None:
    """An unfinished run whose staging folder is a live partition: the next run passes it over and says so."""
    live = victim.places()["p=1"]
    began = {**dict(victim.records())["unit_listed"], "unit": "p=1", "staged": str(live)}
    victim.plant([victim.records()[0], ("unit_listed", began)])
    report = encrypt_table(victim.lake.spark, "t", victim.policy)
    assert live.is_dir() and victim.is_unharmed()
    assert any(LATER in warning for warning in report.warnings)


def test_a_planted_carry_over_brings_no_file_into_the_table(victim: Victim) -> None:
    """A record that a plaintext file was staged to be carried over does not put it beside the table's files."""
    live = victim.places()["p=1"]
    carrying = {
        "unit": "p=1", "from": str(victim.foreign), "to": str(live), "files": [], "staged": str(victim.foreign),
        "made": listed(victim.foreign), "evidence": {"digests": {}, "changes": []}, "rows": 1, "engine": "native",
    }  # fmt: skip
    victim.plant([*without(victim.records(), "run_finished"), ("unit_carrying", carrying)])
    with contextlib.suppress(SparkcryptError):
        encrypt_table(victim.lake.spark, "t", victim.policy)
    assert victim.is_unharmed()


def test_a_carry_over_planted_into_a_real_run_is_refused(victim: Victim) -> None:
    """The same at the end of a run's own journal, where a late file makes expire carry over."""
    live, old = victim.places()["p=1"], victim.lake.path("t") / "p=1"
    shutil.copy(next(old.glob("part-*")), old / "part-late.parquet")
    carrying = {
        "unit": "p=1", "from": str(old), "to": str(live), "files": [], "staged": str(victim.foreign),
        "made": listed(victim.foreign), "evidence": {"digests": {}, "changes": []}, "rows": 1, "engine": "native",
    }  # fmt: skip
    victim.plant([("unit_carrying", carrying)], victim.run_id)
    with contextlib.suppress(SparkcryptError):
        expire_run(victim.lake.spark, "t", victim.policy)
    assert victim.is_unharmed() and old.is_dir()


def foreign_rows(victim: Victim) -> Change:
    """Return a change of records after which the old files of p=1 are the attacker's."""
    uri = victim.foreign.as_uri().replace("///", "/")

    def changed(kind: str, fields: dict[str, Any]) -> dict[str, Any]:
        if fields.get("unit") != "p=1":
            return fields
        if "location" in fields:
            fields = {**fields, "location": uri, "files": listed(victim.foreign)}
        if "outcome" in fields:
            fields = {**fields, "outcome": {**fields["outcome"], "old_location": uri}}
        return fields

    return changed


def test_a_planted_run_is_not_rolled_back(victim: Victim) -> None:
    """A rollback of a run that never was does not point the table to the attacker's rows."""
    change = foreign_rows(victim)
    victim.plant([(kind, change(kind, fields)) for kind, fields in victim.records()])
    with pytest.raises(SparkcryptError, match=LATER):
        rollback_run(victim.lake.spark, "t", victim.policy, LATER)
    assert victim.is_unharmed()


def test_an_edited_run_is_not_rolled_back(victim: Victim) -> None:
    """Nor does that of a real run whose records were written anew."""
    change, records = foreign_rows(victim), victim.records()
    for name in victim.names():
        victim.store.delete(name)
    victim.plant([(kind, change(kind, fields)) for kind, fields in records], victim.run_id)
    with pytest.raises(SparkcryptError, match=victim.run_id):
        rollback_run(victim.lake.spark, "t", victim.policy, victim.run_id)
    assert victim.is_unharmed()


def test_expire_deletes_no_foreign_folder(victim: Victim) -> None:
    """Expire passes over a planted run whose old files are somebody else's, and does the real one."""
    change = foreign_rows(victim)
    victim.plant([(kind, change(kind, fields)) for kind, fields in victim.records()])
    done = expire_run(victim.lake.spark, "t", victim.policy)
    assert done.run_ids == (victim.run_id,) and any(LATER in reason for reason in done.unread)
    assert not any(Path(victim.lake.path("t")).rglob("*.parquet"))
    assert victim.is_unharmed()


def test_a_swap_whose_record_is_gone_is_refused(victim: Victim) -> None:
    """Without it neither expire nor a rollback acts, though every other record of the run is authentic."""
    log = TableLog.open(victim.store, victim.table_id, None)
    entry = [record.name for record in log.records if record.kind == "unit_swapped"][-1]
    victim.store.delete(entry)
    with pytest.raises(SparkcryptError, match=f"{entry}: is missing"):
        rollback_run(victim.lake.spark, "t", victim.policy, victim.run_id)
    done = expire_run(victim.lake.spark, "t", victim.policy)
    assert done.folders == () and f"{entry}: is missing" in done.unread[0]
    assert victim.is_unharmed() and any(Path(victim.lake.path("t")).rglob("*.parquet"))


@pytest.mark.parametrize("kept", [2, 5, 7])
def test_a_journal_that_was_cut_is_not_continued(victim: Victim, kept: int) -> None:
    """A run of which all but the last record was deleted is passed over: nothing live is deleted."""
    live = victim.places()
    for name in victim.names()[kept:-1]:
        victim.store.delete(name)
    report = encrypt_table(victim.lake.spark, "t", victim.policy)
    assert all(folder.is_dir() for folder in live.values()) and victim.is_unharmed()
    assert any("is missing" in warning for warning in report.warnings)


@pytest.mark.parametrize("kept", [2, 5, 7])
def test_a_log_that_was_cut_deletes_nothing_live(victim: Victim, kept: int) -> None:
    """A run of which the end was deleted looks interrupted: what is in use is proven, or left."""
    live, names = victim.places(), victim.store.list(f"log/{victim.table_id}/")
    for name in names[kept:]:
        victim.store.delete(name)
    with contextlib.suppress(SparkcryptError):
        encrypt_table(victim.lake.spark, "t", victim.policy)
    assert all(folder.is_dir() for folder in live.values()) and victim.is_unharmed()


def test_an_older_log_does_not_come_back(victim: Victim) -> None:
    """After a rollback the log as it was before, authentic in each record, lets expire delete nothing."""
    names = victim.store.list(f"log/{victim.table_id}/")
    rollback_run(victim.lake.spark, "t", victim.policy, victim.run_id)
    for name in set(victim.store.list(f"log/{victim.table_id}/")) - set(names):
        victim.store.delete(name)
    assert expire_run(victim.lake.spark, "t", victim.policy).folders == ()
    assert any(Path(victim.lake.path("t")).rglob("*.parquet"))


def test_packs_are_left_of_an_expired_run(victim: Victim, monkeypatch: pytest.MonkeyPatch) -> None:
    """After expire the log is packed, by which the run is known; it cannot be rolled back or expired again."""
    monkeypatch.setattr(import_module(TableLog.__module__), "MOST_PACKED", 2)
    expire_run(victim.lake.spark, "t", victim.policy)
    left = victim.store.list(f"log/{victim.table_id}/")
    assert sum(len(name.rpartition("/")[2]) > len("00000001.json") for name in left) >= len(left) - 2
    with pytest.raises(SparkcryptError, match="have expired"):
        rollback_run(victim.lake.spark, "t", victim.policy, victim.run_id)
    assert expire_run(victim.lake.spark, "t", victim.policy, run_id=victim.run_id).folders == ()
    assert verify_table(victim.lake.spark, "t", victim.policy, manifest=True).ok
    assert encrypt_table(victim.lake.spark, "t", victim.policy).outcome == "nothing to do"
    assert victim.is_unharmed()


def test_a_damaged_record_blocks_only_its_own_run(victim: Victim) -> None:
    """A new run starts and says what it could not read; expire does the others, and names what it left."""
    spark, policy = victim.lake.spark, victim.policy
    name = next(
        found for found, (kind, _) in zip(victim.names(), victim.records(), strict=True) if kind == "unit_staged"
    )
    record = Path(victim.store._root) / name
    record.write_bytes(record.read_bytes().replace(b'"unit":"p=', b'"unit":"q='))
    set_tags(spark, "t", {"note": ["pii"]}, policy)
    report = encrypt_table(spark, "t", policy)
    assert (report.outcome, len(report.units)) == ("done", 2)
    assert any(victim.run_id in warning and name in warning for warning in report.warnings)
    done = expire_run(spark, "t", policy)
    assert (done.run_ids, len(done.unread)) == ((report.run_id,), 1) and victim.run_id in done.unread[0]
    assert any(Path(victim.lake.path("t")).rglob("*.parquet")), "what the damaged journal tells of is left"
    with pytest.raises(SparkcryptError, match=name):
        expire_run(spark, "t", policy, run_id=victim.run_id)
    assert victim.is_unharmed()


def test_a_run_planted_before_the_first_keeps_none_from_being_made(lake: Lake) -> None:
    """A table that never had a run: what somebody planted of one is refused, and the first run does all."""
    fill(lake, PARTITIONED["using"])
    policy = lake.policy()
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    foreign = lake.root / "foreign"
    foreign.mkdir()
    shutil.copy(next((lake.path("t") / "p=1").glob("part-*")), foreign / "part-foreign.parquet")
    rows, table_id = rows_of(lake.spark.table("t")), str(Catalog(lake.spark).table("t").uuid)
    victim = Victim(lake, policy, "", rows, LocalStateStore(str(policy.run_state)), table_id, foreign)
    options = {"engine": "native", "where": None, "output": None, "exclusive": False}
    start = {
        "table_id": table_id, "table": lake.name("t"), "policy_digest": policy.digest(), "plan": {"columns": []},
        "options": options,
    }  # fmt: skip
    outcome = {"unit": "p=1", "old_location": str(foreign), "new_location": str(lake.path("t") / "p=1")}
    victim.plant([("run_started", start), ("unit_swapped", {"unit": "p=1", "outcome": outcome})])
    report = encrypt_table(lake.spark, "t", policy)
    assert (report.outcome, len(report.units), report.run_id == LATER) == ("done", 2, False)
    assert any(LATER in warning for warning in report.warnings)
    assert victim.is_unharmed()

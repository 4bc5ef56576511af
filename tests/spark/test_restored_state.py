"""State directories that tell less than what has happened: restored from a copy, or cut; no row may be lost by them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt import encrypt_table, verify_table
from sparkcrypt.backfill.audit import audit_entries
from sparkcrypt.backfill.expire import expire_run
from sparkcrypt.backfill.journal import Journal
from sparkcrypt.backfill.store import open_state_store
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.catalog import Catalog
from sparkcrypt.spark.tagging import set_tags
from tests.spark.support import Lake, rows_of
from tests.spark.test_encrypt_crash import Clock, clock  # noqa: F401  # a fixture
from tests.spark.test_encrypt_table import PARTITIONED, UNPARTITIONED, fill

pytestmark = pytest.mark.spark

KINDS = {
    "partitioned": (PARTITIONED["using"], False),
    "hive partitioned": (PARTITIONED["hive"], False),
    "external": (UNPARTITIONED["using"], True),
    "managed": (UNPARTITIONED["using"], False),
}
CASES = [(kind, "native") for kind in KINDS] + [("partitioned", "spark"), ("managed", "spark")]


def made(lake: Lake, kind: str) -> tuple[Policy, list[Any]]:
    """Make a plaintext table with a tag; return its policy and rows."""
    create, external = KINDS[kind]
    fill(lake, create, external=external)
    policy = lake.policy()
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    return policy, rows_of(lake.spark.table("t"))


def states(policy: Policy) -> Path:
    """Return the state directory."""
    return Path(policy.run_state or "")


def restore(policy: Policy, copy: Path, *, locks: bool = True) -> None:
    """Put a copy of the state directory in its place; without its locks, tokens begin again."""
    shutil.rmtree(states(policy))
    shutil.copytree(copy, states(policy))
    if not locks:
        shutil.rmtree(states(policy) / "locks")


def locations(lake: Lake) -> list[str]:
    """Return where the metastore says that the table's files are."""
    catalog = Catalog(lake.spark)
    table = catalog.table("t")
    if not table.partition_columns:
        return [table.location]
    return [one.location for one in catalog.partitions(table)]


def assert_whole(lake: Lake, policy: Policy, before: list[Any]) -> None:
    """Assert that every row is there and encrypted, and that the audit tells of every folder in use and every file."""
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before
    checked = verify_table(lake.spark, "t", policy, manifest=True)
    assert checked.ok
    assert checked.manifest is not None
    assert (checked.manifest.missing, checked.manifest.changed, checked.manifest.unlisted) == ((), (), ())
    store, uuid = open_state_store(policy.run_state), Catalog(lake.spark).table("t").uuid or ""
    told = {one.entry["unit"]["new_location"].rstrip("/") for one in audit_entries(store, uuid)}
    assert {one.replace("file:///", "file:/").rstrip("/") for one in locations(lake)} <= {
        one.replace("file:///", "file:/") for one in told
    }


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dict[str, Path]]:
    """Copies of the state directory right after the first record of each kind: kind -> copy."""
    append, kept = Journal.append, {}

    def appended(journal: Journal, kind: str, **fields: Any) -> Any:
        record = append(journal, kind, **fields)
        if kind not in kept:
            root = journal._store._root  # type: ignore[attr-defined]
            kept[kind] = Path(shutil.copytree(root, tmp_path / f"copy-{kind}"))
        return record

    monkeypatch.setattr(Journal, "append", appended)
    yield kept


@pytest.mark.parametrize(("kind", "engine"), CASES)
def test_state_of_the_middle_of_a_run_loses_nothing(
    lake: Lake,
    clock: Clock,  # noqa: F811
    copies: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    engine: str,
) -> None:
    """A state directory that is restored from a copy taken during a run, and the same command: every row is there."""
    policy, before = made(lake, kind)
    assert encrypt_table(lake.spark, "t", policy, engine=engine).outcome == "done"
    taken = dict(copies)
    for step in ("unit_listed", "unit_staged", "unit_verified", "unit_swapping"):
        for locks in (True, False):
            clock.now += 1_000
            restore(policy, taken[step], locks=locks)
            report = encrypt_table(lake.spark, "t", policy, engine=engine)
            assert report.outcome == "done", (step, locks)
            assert_whole(lake, policy, before)
    clock.now += 1_000
    expire_run(lake.spark, "t", policy)
    assert_whole(lake, policy, before)


@pytest.mark.parametrize(("kind", "engine"), CASES)
def test_journal_that_lost_its_end_loses_nothing(lake: Lake, clock: Clock, kind: str, engine: str) -> None:  # noqa: F811
    """Whether 1, 2 or 6 records are cut off a finished run's journal, the same command leaves every row there."""
    policy, before = made(lake, kind)
    report = encrypt_table(lake.spark, "t", policy, engine=engine)
    whole = shutil.copytree(states(policy), lake.root / "whole")
    uuid = Catalog(lake.spark).table("t").uuid
    records = sorted((whole / "runs" / str(uuid) / report.run_id).glob("*.json"))
    for cut in range(1, min(7, len(records))):
        clock.now += 1_000
        restore(policy, whole, locks=cut % 2 == 0)
        for record in records[-cut:]:
            (states(policy) / record.relative_to(whole)).unlink()
        again = encrypt_table(lake.spark, "t", policy, engine=engine)
        assert again.outcome in ("done", "nothing to do"), cut
        assert_whole(lake, policy, before)
    expire_run(lake.spark, "t", policy)
    assert_whole(lake, policy, before)

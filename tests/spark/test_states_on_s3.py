"""Tables of local disks whose state lies on a real S3 server: runs, passes, crashes, expiry and rollback."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from sparkcrypt import configure, encrypt_table, verify_table
from sparkcrypt.errors import ConfigError, RunConflictError
from sparkcrypt.ledger.audit.audit import list_entries
from sparkcrypt.ledger.state.directory import open_state_directory
from sparkcrypt.ledger.state.object_store import ObjectStateStore
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.old_folders.expire import expire_run
from sparkcrypt.runs.old_folders.rollback import rollback_run
from sparkcrypt.runs.passes.passes import backfill
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags
from tests.services.meddled_s3 import Environ, MeddledS3, Serve
from tests.spark.killing import Clock, after_record, after_swap, kill
from tests.spark.support import Lake, assert_plaintext, data_files, rows_of
from tests.spark.tables import PARTITIONED, fill

pytestmark = [pytest.mark.spark, pytest.mark.services]
_NUMBERS = itertools.count()
ABSENT = "absent-bucket"


@pytest.fixture
def s3_lake(lake: Lake, s3_server: MeddledS3) -> Lake:
    """A session whose s3a knows the server; Hadoop's own client of it is not there, and is not needed."""
    told = {"endpoint": s3_server.endpoint, "access.key": "test", "secret.key": "test", "endpoint.region": "us-east-1"}
    for bucket in ("lake", ABSENT):
        for name, value in told.items():  # keys for each, or the client asks the cloud's metadata address for some
            lake.spark.conf.set(f"fs.s3a.bucket.{bucket}.{name}", value)
    return lake


@pytest.fixture
def uri() -> str:
    """A state directory that is not there yet."""
    return f"s3a://lake/state/{next(_NUMBERS)}"


def on_disk(lake: Lake) -> Policy:
    """Make a partitioned plaintext table with a tag, and its policy."""
    fill(lake, PARTITIONED["using"])
    policy = lake.policy()
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    return policy


def on_s3(lake: Lake, uri: str) -> Policy:
    """Make a policy whose state lies there, and a partitioned plaintext table with a tag."""
    policy = replace(on_disk(lake), run_state=uri)
    configure(lake.spark, policy)
    return policy


def test_a_run_a_pass_and_expire(s3_lake: Lake, uri: str) -> None:
    """All that runs keep is on S3, is found again, and nothing of it lies on the disk."""
    lake, policy = s3_lake, on_s3(s3_lake, uri)
    before = rows_of(lake.spark.table("t"))
    report = encrypt_table(lake.spark, "t", policy)
    assert (report.outcome, report.verified) == ("done", True)
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before
    assert verify_table(lake.spark, "t", policy, manifest=True).ok
    store, uuid = open_state_directory(lake.spark, uri, outside="/nowhere"), Catalog(lake.spark).table("t").uuid or ""
    assert isinstance(store, ObjectStateStore)
    assert store.list(f"log/{uuid}/") and store.list("probes/") == ()
    assert len(list(list_entries(store, uuid, None))) == len(report.units)
    again = backfill(lake.spark, policy, tables=["t"])
    assert again.outcome == "nothing to do"
    lake.sql("INSERT INTO t VALUES (1001, 'late@example.com', 'late', 7)")
    set_tags(lake.spark, "t", {"note": ["fin"]}, policy)
    assert backfill(lake.spark, policy, tables=["t"]).outcome == "done"
    expire_run(lake.spark, "t", policy)
    assert not data_files(lake.path("t")) or verify_table(lake.spark, "t", policy).ok
    assert verify_table(lake.spark, "t", policy, manifest=True).ok
    assert not list(lake.root.glob("policy-*/state"))


def test_rollback(s3_lake: Lake, uri: str) -> None:
    """A run is found again by its journal, and its old files are in use again."""
    lake, policy = s3_lake, on_s3(s3_lake, uri)
    before = rows_of(lake.spark.table("t"))
    report = encrypt_table(lake.spark, "t", policy)
    rollback_run(lake.spark, "t", policy, report.run_id)
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before
    assert encrypt_table(lake.spark, "t", policy).outcome == "done"


@pytest.mark.parametrize("step", ["after the swap", "unit_staged", "unit_verified", "unit_swapping"])
def test_a_killed_run_is_continued(s3_lake: Lake, uri: str, clock: Clock, step: str) -> None:
    """The next command finds lock and journal there, waits for the lock, and ends what was begun."""
    lake, policy = s3_lake, on_s3(s3_lake, uri)
    before = rows_of(lake.spark.table("t"))
    clock.now -= 1_000  # what kill() lets pass afterwards
    kill(lake, policy, clock, after_swap if step == "after the swap" else after_record(step))
    clock.now -= 1_000
    with pytest.raises(RunConflictError, match="is held by run"):
        encrypt_table(lake.spark, "t", policy)
    clock.now += 1_000
    assert encrypt_table(lake.spark, "t", policy).outcome == "done"
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before
    assert verify_table(lake.spark, "t", policy, manifest=True).ok


def test_a_store_that_cannot_hold_a_lock_is_refused(s3_lake: Lake, s3_server: MeddledS3, uri: str) -> None:
    """One that ignores conditional creation, or has no such bucket, gets no run; nothing is written, there or here."""
    lake = s3_lake
    policy = replace(on_disk(lake), run_state=uri)
    before = rows_of(lake.spark.table("t"))

    def ignore(environ: Environ, serve: Serve) -> Any:
        environ.pop("HTTP_IF_NONE_MATCH", None)
        return serve()

    with s3_server.meddling(ignore), pytest.raises(ConfigError, match=rf"{uri}.* does not honour conditional creation"):
        encrypt_table(lake.spark, "t", policy)
    assert open_state_directory(lake.spark, uri, outside="/nowhere").list("") == ()
    with pytest.raises(ConfigError, match=rf"{ABSENT}.*NoSuchBucket"):
        encrypt_table(lake.spark, "t", replace(policy, run_state=f"s3a://{ABSENT}/state"))
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before
    assert_plaintext(lake.path("t"))
    assert encrypt_table(lake.spark, "t", policy).outcome == "done"


@pytest.mark.parametrize("uri", ["s3a://lake/t/state", "s3://lake/t/state", "s3://lake//t/"])
def test_state_inside_the_table_is_refused(s3_lake: Lake, uri: str) -> None:
    """An overwrite of the table would delete it, whatever scheme the policy writes."""
    with pytest.raises(ConfigError, match="inside the table's folder"):
        open_state_directory(s3_lake.spark, uri, outside="s3a://lake/t")

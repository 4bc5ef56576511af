"""Vault is killed in the middle of a job and started again over the same storage: nothing is lost or half done."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt import configure, load_policy, verify_table
from sparkcrypt.errors import KeyServiceUnavailableError
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.ledger.journal.journal import Journal
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.passes.report import PassReport
from sparkcrypt.runs.rewrite import schedule
from sparkcrypt.spark.tables.tagging import set_tags
from tests.conftest import or_skip
from tests.services.vault_server import LastingVault
from tests.spark.rotations import files_of, keks_by, rotate, write
from tests.spark.support import Lake, data_files, refusal, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.services]

POLICY = """
version: 1
key_service:
  type: vault
  address: "{address}"
  auth: {{method: token, token_file: {token}}}
  max_retries: {retries}
footer: {{key: footer, mode: encrypted}}
audit: {{key: audit}}
untagged: plaintext
run_state: state/
tags:
  pii: {{key: {key}}}
"""
BUCKETS = 8
BEARING = 8
"""Retries that outlast the start of the server: their pauses add up to some twenty seconds."""
DOWN_SECONDS = 1.0
"""So that what is asked right after the kill finds no server."""
WAIT_SECONDS = 60.0


@pytest.fixture
def lasting() -> Iterator[LastingVault]:
    """A Vault server that can be killed and started again."""
    running = or_skip(LastingVault)
    yield running
    running.stop()


def under(lake: Lake, vault: LastingVault, key: str, retries: int) -> Policy:
    """Put the session under a policy whose keys are in Vault, asked so many times again."""
    token = lake.root / "token"
    token.write_text(vault.server.root_token)
    token.chmod(0o600)
    file = lake.root / "policy.yaml"
    file.write_text(POLICY.format(address=vault.server.address, token=token, key=key, retries=retries))
    policy = load_policy(file)
    configure(lake.spark, policy)
    return policy


def make_table(lake: Lake, policy: Policy, *keys: str) -> None:
    """Make master keys, and a table with a tagged column."""
    service = open_key_service(policy.key_service)
    for key in ("footer", "audit", *keys):
        service.create(key)
    lake.sql("CREATE TABLE t (id BIGINT, email STRING, amount DOUBLE, p INT) USING parquet PARTITIONED BY (p)")
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)


def insert(lake: Lake, gate: Path) -> None:
    """Write a file into each partition, each under a key that its JVM has not used yet.

    The first two are written at once, the others when there is a file in the gate's place.
    """
    from pyspark.sql.functions import udf

    path, most = str(gate), WAIT_SECONDS  # a worker of Spark does not import this module

    def wait(number: int) -> int:
        import os
        import time

        end = time.monotonic() + most
        while number > 1 and not os.path.exists(path) and time.monotonic() < end:  # noqa: PTH110
            time.sleep(0.01)
        return number

    lake.jvm.org.apache.parquet.crypto.keytools.KeyToolkit.removeCacheEntriesForAllTokens()
    numbers = lake.spark.range(0, BUCKETS, 1, BUCKETS).select(udf(wait, "long")("id").alias("id"))
    numbers.createOrReplaceTempView("numbers")
    lake.sql("INSERT INTO t SELECT id, concat('e', id), double(id), cast(id AS INT) FROM numbers")


def wait_for(condition: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < end, "the job did not come so far"
        time.sleep(0.01)


def kill(vault: LastingVault, go_on: Callable[[], None], *, start: bool) -> None:
    """Kill Vault, let the job that waits for that go on, and start Vault again or not."""
    vault.kill()
    go_on()
    if start:
        time.sleep(DOWN_SECONDS)
        vault.start()


def insert_over_a_kill(lake: Lake, vault: LastingVault, *, start: bool) -> Future[None]:
    """Insert while Vault is killed, once two files are begun, and is started again or not; return the job.

    The server is started by this thread: it ends with the thread that has started it.
    """
    gate = lake.root / "gate"
    gate.unlink(missing_ok=True)
    with ThreadPoolExecutor(1) as threads:
        job = threads.submit(insert, lake, gate)
        wait_for(lambda: sum(1 for _ in lake.path("t").glob("_temporary/**/part-*.parquet")) >= 2)
        kill(vault, gate.touch, start=start)
    return job


@pytest.mark.filterwarnings("ignore:Cannot infer the eval type")
def test_write_over_a_restart(lake: Lake, lasting: LastingVault) -> None:
    """Without retries a write ends in one error that names Vault, and leaves no row; later it succeeds as it is.

    With retries that outlast the server's start the same write succeeds while Vault is killed and started again.
    """
    keys = [f"pii-{number}" for number in range(BUCKETS)]
    policy = under(lake, lasting, '"pii-{p}"', 0)
    make_table(lake, policy, *keys)
    said = refusal(insert_over_a_kill(lake, lasting, start=False).result)
    assert "KeyServiceUnavailableError" in said
    assert lasting.server.address in said
    lasting.start()
    assert data_files(lake.path("t")) == []
    insert(lake, lake.root / "gate")
    rows = rows_of(lake.spark.table("t"))
    assert [row.email for row in rows] == [f"e{number}" for number in range(BUCKETS)]

    under(lake, lasting, '"pii-{p}"', BEARING)
    insert_over_a_kill(lake, lasting, start=True).result()
    assert rows_of(lake.spark.table("t")) == sorted(rows * 2, key=repr)
    keks = keks_by(files_of(lake), open_key_service(policy.key_service))
    assert set(keks) == {"footer", *keys}


def rotate_over_a_kill(
    lake: Lake, policy: Policy, vault: LastingVault, patch: pytest.MonkeyPatch, *, start: bool
) -> Future[PassReport]:
    """Rotate while Vault is killed, once a unit is swapped, and is started again or not; return the job."""
    append, swapped, killed = Journal.append_all, threading.Event(), threading.Event()

    def appended(journal: Journal, records: Any) -> Any:
        written = append(journal, records)
        if any(kind == "unit_swapped" for kind, _ in records):
            swapped.set()
            killed.wait(WAIT_SECONDS)
        return written

    patch.setattr(Journal, "append_all", appended)
    patch.setattr(schedule, "MOST_UNITS", 1)
    with ThreadPoolExecutor(1) as threads:
        job = threads.submit(rotate, lake, policy, tables=["t"], run={"parallelism": 1})
        wait_for(swapped.is_set)
        kill(vault, killed.set, start=start)
    return job


def test_rotation_over_a_restart(lake: Lake, lasting: LastingVault, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rotation whose Vault is killed after its first swap says so, and goes on when it is given again.

    Every unit is as it was or rewrapped and proven; with retries that outlast the server's start it ends well at once.
    """
    policy = under(lake, lasting, "pii", 0)
    make_table(lake, policy, "pii")
    for number in range(4):
        write(lake, "t", number)
    rows, service = rows_of(lake.spark.table("t")), open_key_service(policy.key_service)
    with monkeypatch.context() as patch, pytest.raises(KeyServiceUnavailableError, match=lasting.server.address):
        rotate_over_a_kill(lake, policy, lasting, patch, start=False).result()
    lasting.start()
    lake.jvm.org.apache.parquet.crypto.keytools.KeyToolkit.removeCacheEntriesForAllTokens()
    assert rows_of(lake.spark.table("t")) == rows
    assert len({version for version, _ in keks_by(files_of(lake), service)["pii"]}) == 2
    assert rotate(lake, policy, tables=["t"]).outcome == "done"
    assert {version for version, _ in keks_by(files_of(lake), service)["pii"]} == {2}

    policy = under(lake, lasting, "pii", BEARING)
    with monkeypatch.context() as patch:
        assert rotate_over_a_kill(lake, policy, lasting, patch, start=True).result().outcome == "done"
    assert {version for version, _ in keks_by(files_of(lake), service)["pii"]} == {3}
    assert rows_of(lake.spark.table("t")) == rows
    assert verify_table(lake.spark, "t", policy, manifest=True).ok

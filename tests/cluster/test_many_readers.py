"""Two hundred readers at once on a cluster of two workers: Vault is asked once for each master key by each JVM."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkcrypt import load_policy
from sparkcrypt.decide.identity import FileIdentity
from sparkcrypt.files.parquet import DataKey, FileEncryption, rewrite_file
from sparkcrypt.keys.datakeys import DataKeyMaker
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.service import KeyService
from tests.conftest import or_skip
from tests.services.cluster import start_cluster
from tests.services.installed import ROOT
from tests.services.quick_java import quick_java
from tests.unit.keys.vault_proxy import running_proxy

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.services, pytest.mark.slow]

READERS, SESSIONS = 200, 4
MASTERS = ("readers-footer", "readers-pii", "readers-fin")
SLOW_SECONDS = 1.0
"""For each answer of Vault, so that all readers of a JVM ask before the first has its key."""
POLICY = """
version: 1
key_service: {{type: vault, address: "{address}", auth: {{method: token, token_file: {token}}}}}
footer: {{key: readers-footer, mode: encrypted}}
untagged: plaintext
run_state: state/
tags:
  pii: {{key: readers-pii}}
  fin: {{key: readers-fin}}
"""
READ = """
import json, sys
from concurrent.futures import ThreadPoolExecutor
from pyspark.sql import SparkSession
import sparkcrypt
master, policy, sessions, *files = sys.argv[1:]
builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
builder = builder.config("spark.executor.memory", "600m")
spark = builder.config("spark.driver.host", "127.0.0.1").config("spark.scheduler.mode", "FAIR").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
policy = sparkcrypt.load_policy(policy)
opened = [spark] + [spark.newSession() for _ in range(int(sessions) - 1)]
for session in opened:
    sparkcrypt.configure(session, policy)
while spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() < 3:
    pass  # the driver, and an executor of each worker

def read(number):
    frame = opened[number % len(opened)].read.schema("id BIGINT, email STRING, amount DOUBLE").parquet(files[number])
    return frame.where("email = concat('e', id) AND amount = id").count()

with ThreadPoolExecutor(len(files)) as threads:
    found = list(threads.map(read, range(len(files))))
print(json.dumps(found))
"""


def write_files(folder: Path, service: KeyService) -> list[Path]:
    """Write a file for each reader, all under one KEK of each master key, as a rotation or the native engine does."""
    plain = folder / "plain.parquet"
    rows = {"id": pa.array([1], pa.int64()), "email": pa.array(["e1"]), "amount": pa.array([1.0])}
    pq.write_table(pa.table(rows), plain)
    maker, files = DataKeyMaker(service, data_key_bits=128), []
    (folder / "data").mkdir()
    for number in range(READERS):
        footer, pii, fin = (maker.make(key, is_footer_key=key == MASTERS[0]) for key in MASTERS)
        files.append(folder / "data" / f"part-{number:05d}.parquet")
        encryption = FileEncryption(
            DataKey(*footer),
            columns={("email",): DataKey(*pii), ("amount",): DataKey(*fin)},
            aad_prefix=FileIdentity(None, None, files[-1].name).to_aad_prefix(),
        )
        rewrite_file(plain, files[-1], encryption=encryption)
    return files


def test_many_readers_ask_vault_once_a_key_and_jvm(java: dict[str, str], jar: Path, vault: Any, tmp_path: Path) -> None:
    """200 queries of four sessions, 100 tasks at a time in each worker: calls to Vault are JVMs times master keys.

    They are counted before Vault, where retries and calls past the caches would be seen too.
    """
    token, file = tmp_path / "token", tmp_path / "policy.yaml"
    driver, workers = ({"SPARKCRYPT_KEY_LOG": str(tmp_path / f"{name}.log")} for name in ("driver", "workers"))
    token.write_text(vault.root_token)
    token.chmod(0o600)
    with running_proxy(vault.address) as proxy:
        file.write_text(POLICY.format(address=proxy.address, token=token))
        service = open_key_service(load_policy(file).key_service)
        for key in MASTERS:
            service.create(key)
        files = write_files(tmp_path, service)
        proxy.delay_seconds = SLOW_SECONDS
        cluster = or_skip(start_cluster, tmp_path, env=quick_java(workers), cores=READERS // 2)
        try:
            program = [sys.executable, "-c", READ, cluster.master_url, str(file), str(SESSIONS), *map(str, files)]
            environment = {**java, **driver, "PYTHONPATH": str(ROOT)}
            done = subprocess.run(program, env=environment, capture_output=True, text=True, check=False, timeout=240)
        finally:
            cluster.stop()
        asked = proxy.count("/decrypt/")
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout.strip().splitlines()[-1]) == [1] * READERS
    made = Counter((call["pid"], call["key_id"]) for call in _unwraps(Path(workers["SPARKCRYPT_KEY_LOG"])))
    helpers = {pid for pid, _ in made}
    assert len(helpers) == 2, "one worker alone has read"
    assert dict(made) == dict.fromkeys(((pid, key) for pid in helpers for key in MASTERS), 1)
    assert asked == len(made) + len(_unwraps(Path(driver["SPARKCRYPT_KEY_LOG"]))) <= 3 * len(MASTERS)


def _unwraps(log: Path) -> list[dict[str, Any]]:
    """Return the calls that opened a key of the files, as helpers have noted them; those of one JVM have one pid."""
    lines = map(json.loads, log.read_text().splitlines() if log.exists() else ())
    return [line for line in lines if line["op"] == "unwrap" and line["key_id"] in MASTERS]

"""The processes of ``read_costs``: each measures contenders in turns in one JVM, and prints the figures of each round.

Usage: read_costs_child.py planning|calls|reads FOLDER
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import sparkcrypt
from bench.spark_write import TAGGED, check, jvm_clock, session, table
from sparkcrypt.keys.local.keystore import KeyDirectory
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.opened import KEY_LOG
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.policy.load import policy_from_text
from sparkcrypt.policy.model import AccessLogRule, Policy
from sparkcrypt.spark.tables.tagging import set_tags
from tests.services.vault_server import VaultServer, start_vault

JOINS, COLUMNS = 50, 2_000
PLAN_WARM_UP, PLAN_ROUNDS = 8, 15
CALL_ROUNDS = 5
READ_ROWS = 1_000_000
READ_FILES, SMALL_FILES = 2, 1_000
READ_WARM_UP, READ_ROUNDS = 2, 7
DENIED = "s1"
POLICY = """
version: 1
key_service: {type: local, path: keys}
footer: {key: footer}
untagged: plaintext
run_state: state
tags: {pii: {key: pii}, fin: {key: fin}}
"""
MAY = """
path "transit/keys/*" { capabilities = ["read"] }
path "transit/decrypt/footer" { capabilities = ["update"] }
path "transit/decrypt/fin" { capabilities = ["update"] }
"""
MAY_ALL = MAY + 'path "transit/decrypt/pii" { capabilities = ["update"] }\n'


def main() -> None:
    """Run the measurement that the first argument names."""
    {"planning": _plan, "calls": _count_calls, "reads": _read}[sys.argv[1]](Path(sys.argv[2]))


def _plan(folder: Path) -> None:
    """Plan one query without the extension's rules, with them, and by a reader who is denied a column of each table."""
    spark = session()
    bare = spark.newSession()
    bare._jsparkSession.sessionState().analyzer()  # created now, so it never gets the rules
    policy = _policy(folder)
    ruled = sparkcrypt.session(policy)
    masked = sparkcrypt.session(_without_key(policy, folder, "fin"), on_denied="mask")
    for database in ("clear", "tagged"):
        _make_tables(spark, database)
    for number in range(1, JOINS + 1):
        set_tags(ruled, f"tagged.t{number}", {f"c{number}_1": ["pii"], f"c{number}_3": ["fin"]}, policy)
    contenders = (("no tags", "clear", ruled), ("tags", "tagged", ruled), ("masks", "tagged", masked))
    for number in range(PLAN_WARM_UP + PLAN_ROUNDS):
        for what, database, with_rules in contenders:
            pair = (bare, with_rules) if number % 2 else (with_rules, bare)
            taken = {each is with_rules: _planning_time(each, _query(database)) for each in pair}
            if number >= PLAN_WARM_UP:
                _tell(what, *taken[False], *taken[True])
    spark.stop()


def _make_tables(spark: SparkSession, database: str) -> None:
    spark.sql(f"CREATE DATABASE {database}")
    keys = ", ".join(f"k{number} BIGINT" for number in range(1, JOINS + 1))
    spark.sql(f"CREATE TABLE {database}.t0 ({keys}) USING parquet")
    width = COLUMNS // JOINS - 2
    for number in range(1, JOINS + 1):
        others = ", ".join(f"c{number}_{n} {'STRING' if n % 2 else 'BIGINT'}" for n in range(width))
        spark.sql(f"CREATE TABLE {database}.t{number} (k BIGINT, {others}) USING parquet")


def _query(database: str) -> str:
    """Return a star join: in a chain of equal keys Spark infers conditions between all of them, which takes minutes."""
    joins = (f"JOIN {database}.t{number} ON t0.k{number} = t{number}.k" for number in range(1, JOINS + 1))
    return f"SELECT * FROM {database}.t0 {' '.join(joins)}"


def _planning_time(spark: SparkSession, query: str) -> tuple[float, float]:
    """Return the CPU and elapsed milliseconds from the query's text to its physical plan."""
    machine: Any = spark._jvm
    threads = machine.java.lang.management.ManagementFactory.getThreadMXBean()
    wall, cpu = time.perf_counter(), threads.getCurrentThreadCpuTime()  # py4j keeps one JVM thread for this thread
    spark._jsparkSession.sql(query).queryExecution().executedPlan()
    return (threads.getCurrentThreadCpuTime() - cpu) / 1e6, (time.perf_counter() - wall) * 1e3


def _count_calls(folder: Path) -> None:
    """Count calls for each key, of a reader with all keys and of one who is denied a key and gets nulls or an error."""
    with closing(_Stopped(start_vault())) as vault:
        policy = _with_token(_policy(folder, vault.server), folder, vault.server.root_token)
        for key in ("footer", "pii", "fin"):
            open_key_service(policy.key_service).create(key)
        spark = session()
        place = str(folder / "small")
        rows = sparkcrypt.session(policy).range(0, 10 * SMALL_FILES, 1, SMALL_FILES)
        columns = (("email", F.col("id").cast("string"), "pii"), ("amount", F.col("id") * 2, "fin"))
        tagged = (value.alias(name, metadata={"tags": [tag]}) for name, value, tag in columns)
        rows.select("id", *tagged).write.parquet(place)
        check(place)
        for _ in range(CALL_ROUNDS):
            _tell("all keys allowed: the key asked most", max(_calls(policy, vault.server, folder, MAY_ALL).values()))
            for on_denied in ("mask", "error"):
                found = _calls(policy, vault.server, folder, MAY, on_denied)
                said = f"a key denied, {'nulls' if on_denied == 'mask' else 'error'}"
                _tell(f"{said}: the denied key", found["pii"])
                _tell(f"{said}: the allowed key asked most", max(found["fin"], found["footer"]))
        spark.stop()


def _calls(policy: Policy, vault: VaultServer, folder: Path, may: str, on_denied: Any = None) -> Counter[str]:
    """Read every file with an unused credential, and return the calls for each key."""
    reader = sparkcrypt.session(_with_token(policy, folder, vault.token(may)), on_denied=on_denied)
    log = Path(os.environ[KEY_LOG])
    log.write_text("")
    read = reader.read.parquet(str(folder / "small")).agg(F.count("email"), F.sum("amount"))
    try:
        emails = read.collect()[0][0]
    except Exception as error:  # Spark's errors have no common base in all versions
        if on_denied != "error" or "KeyAccessDeniedError" not in str(error):
            raise
    else:
        expected = 0 if on_denied == "mask" else 10 * SMALL_FILES
        if on_denied == "error" or emails != expected:
            raise SystemExit(f"{emails} values of a column with on_denied {on_denied}; its figures would mean nothing")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return Counter(line["key_id"] for line in lines if not line["key_id"].startswith("probe"))


class _Stopped:
    """A server that is stopped at the end."""

    def __init__(self, server: VaultServer) -> None:
        self.server = server
        self.close = server.stop


def _with_token(policy: Policy, folder: Path, token: str) -> Policy:
    file = folder / f"token-{time.monotonic_ns()}"
    file.touch(mode=0o600)
    file.write_text(token)
    options = {**policy.key_service.options, "auth": {"method": "token", "token_file": str(file)}}
    return replace(policy, key_service=KeyServiceConfig.from_dict({"type": "vault", **options}))


def _read(folder: Path) -> None:
    """Read the same rows in clear, encrypted, with access events, and with one column of ten denied and masked.

    Those in clear are read by an application of their own: beside sessions of several key services one without a policy
    reads nothing.
    """
    clear, encrypted = str(folder / "clear"), str(folder / "encrypted")
    spark = session()
    clock = jvm_clock(spark)
    table(spark, READ_ROWS, READ_FILES).write.option("compression", "snappy").parquet(clear)
    in_clear = [_cpu(clock, partial(_read_all, spark, clear)) for _ in range(READ_WARM_UP + READ_ROUNDS)]
    spark.stop()
    spark = session()
    policy = _policy(folder)
    encrypting = sparkcrypt.session(policy)
    logging = sparkcrypt.session(replace(policy, access_log=AccessLogRule(str(folder / "log"))))
    masked = sparkcrypt.session(_without_key(policy, folder, "fin"), on_denied="mask")
    masked.conf.set("parquet.sparkcrypt.allow_masked", "true")  # the rows are not stored
    rows = table(encrypting, READ_ROWS, READ_FILES)
    tagged = (F.col(name).alias(name, metadata=_metadata(name)) for name in rows.columns)
    rows.select(*tagged).write.option("compression", "snappy").parquet(encrypted)
    check(encrypted)
    contenders = (encrypting, logging, masked)
    for number, before in enumerate(in_clear):
        order = [(place + number) % len(contenders) for place in range(len(contenders))]
        taken = {place: _cpu(clock, partial(_read_all, contenders[place], encrypted)) for place in order}
        _tell(f"{READ_FILES} files", before, *(taken[place] for place in range(len(contenders))))
    if masked.read.parquet(encrypted).where(f"{DENIED} IS NOT NULL").count():
        raise SystemExit(f"{DENIED} is not masked, so its figure would mean nothing")
    spark.stop()


def _metadata(name: str) -> dict[str, list[str]]:
    return {"tags": ["fin" if name == DENIED else "pii"]} if name in TAGGED else {}


def _read_all(spark: SparkSession, place: str) -> None:
    spark.read.parquet(place).write.format("noop").mode("overwrite").save()


def _cpu(clock: Callable[[], float], work: Callable[[], None]) -> float:
    begin = clock()
    work()
    return clock() - begin


def _policy(folder: Path, vault: VaultServer | None = None) -> Policy:
    """Return a policy of two tags, with its keys created in a folder, or in a Vault."""
    policy = policy_from_text(POLICY, where="policy.yaml", base=str(folder))
    if vault is not None:
        token = folder / "root-token"
        auth = {"method": "token", "token_file": str(token)}
        config = {"type": "vault", "address": vault.address, "auth": auth}
        return replace(policy, key_service=KeyServiceConfig.from_dict(config))
    for key in ("footer", "pii", "fin"):
        open_key_service(policy.key_service).create(key)
    return policy


def _without_key(policy: Policy, folder: Path, key: str) -> Policy:
    """Return the policy of a reader whose key directory lacks a key."""
    shutil.copytree(folder / "keys", folder / "fewer-keys")
    KeyDirectory(folder / "fewer-keys").remove(key)
    config = {"type": "local", "path": str(folder / "fewer-keys")}
    return replace(policy, key_service=KeyServiceConfig.from_dict(config))


def _tell(what: str, *figures: float) -> None:
    print(f"figures|{what}|{' '.join(map(str, figures))}", flush=True)


if __name__ == "__main__":
    main()

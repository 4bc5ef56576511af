"""Attacks on credentials: a table, an option or SET that names a key service of the attacker's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from sparkcrypt import configure, parquet_options
from sparkcrypt.errors import ConfigError
from sparkcrypt.names import CACHE_LIFETIME, KEY_SERVICE, POLICY, TAGS_PREFIX
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.setup.doctor import own_key_services
from sparkcrypt.spark.tables.planning import plan_path
from tests.attacks.listener import Listener, listening
from tests.spark.support import SECRET, Lake, data_files, refusal, rows_of

pytestmark = pytest.mark.spark
CONTENT = "CANARY-content-of-a-one-line-file"


@pytest.fixture
def attacker() -> Iterator[Listener]:
    """The attacker's address."""
    with listening() as listener:
        yield listener


def key_service_of(attacker: Listener, folder: Path) -> KeyServiceConfig:
    """A Vault at the attacker's address, to which a secret file of the reader's is shown as its token."""
    file = folder / "secret-file"
    file.write_text(CONTENT + "\n")
    auth = {"method": "token", "token_file": str(file)}
    return KeyServiceConfig.from_dict({"type": "vault", "address": attacker.address, "auth": auth, "max_retries": 0})


def evil_policy(policy: Policy, attacker: Listener, folder: Path) -> Policy:
    """The session's policy but for its key service."""
    return replace(policy, key_service=key_service_of(attacker, folder))


def sql_text(text: str) -> str:
    """Write a text as a literal of SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def assert_nothing_sent(attacker: Listener, said: str) -> None:
    """Assert that the attacker heard nothing, and that the property is named with what is allowed and the next step."""
    assert (attacker.requests, attacker.tokens) == (0, [])
    assert "ConfigError" in said
    assert CONTENT not in said
    assert [word for word in ("allowed", "OPTIONS", "SET") if word not in said] == []


@pytest.mark.parametrize("where", ["USING parquet OPTIONS", "STORED AS PARQUET TBLPROPERTIES"])
@pytest.mark.parametrize("convert", ["true", "false"])
def test_table_that_names_a_policy(lake: Lake, attacker: Listener, where: str, convert: str) -> None:
    """A table with a policy of the attacker's neither takes a write nor is read, and the attacker hears nothing."""
    lake.spark.conf.set("spark.sql.hive.convertMetastoreParquet", convert)
    policy = lake.policy()
    evil = evil_policy(policy, attacker, lake.root)
    options = f"'{POLICY}' = {sql_text(evil.canonical())}, '{TAGS_PREFIX}email' = 'pii'"
    lake.sql(f"CREATE TABLE t (id INT, email STRING) {where} ({options})")
    insert = f"INSERT INTO t VALUES (1, '{SECRET}')"
    said = refusal(lambda: lake.sql(insert))
    assert_nothing_sent(attacker, said)
    assert POLICY in said
    assert data_files(lake.path("t")) == []
    email = F.lit(SECRET).alias("email", metadata={"tags": ["pii"]})
    lake.spark.range(1).select(F.col("id").cast("int"), email).coalesce(1).write.parquet(str(lake.root / "good"))
    (file,) = data_files(lake.root / "good")
    (lake.path("t") / file.name).write_bytes(file.read_bytes())
    lake.spark.catalog.refreshTable("t")
    assert_nothing_sent(attacker, refusal(lake.spark.table("t").collect))
    with pytest.raises(ConfigError, match=f"lake.*t \\({POLICY}\\)"):
        own_key_services(lake.spark)
    if where.startswith("USING"):
        lake.sql(f"ALTER TABLE t SET SERDEPROPERTIES ('{POLICY}' = '')")
    else:
        lake.sql(f"ALTER TABLE t UNSET TBLPROPERTIES ('{POLICY}')")
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == [(0, SECRET)]
    assert own_key_services(lake.spark) == "no table names a key service or policy of its own"


@pytest.mark.parametrize("where", ["USING parquet OPTIONS", "STORED AS PARQUET TBLPROPERTIES"])
@pytest.mark.parametrize("convert", ["true", "false"])
def test_table_that_names_a_key_service(lake: Lake, attacker: Listener, where: str, convert: str) -> None:
    """The same for the stock factory's options, which name a key service."""
    lake.spark.conf.set("spark.sql.hive.convertMetastoreParquet", convert)
    policy = lake.policy()
    evil = key_service_of(attacker, lake.root)
    options = {**options_of(lake, policy), KEY_SERVICE: evil.canonical()}
    listed = ", ".join(f"'{name}' = {sql_text(value)}" for name, value in options.items())
    lake.sql(f"CREATE TABLE t (id BIGINT, email STRING) {where} ({listed})")
    said = refusal(lambda: lake.sql(f"INSERT INTO t VALUES (1, '{SECRET}')"))
    assert_nothing_sent(attacker, said)
    assert KEY_SERVICE in said
    assert data_files(lake.path("t")) == []


def options_of(lake: Lake, policy: Policy) -> dict[str, str]:
    """The stock factory's options for one tagged column, with an access token that no cache knows."""
    frame = lake.spark.range(1).select("id", F.lit("").alias("email", metadata={"tags": ["pii"]}))
    options = parquet_options(plan_path(frame.schema.json(), policy))
    return {**options, "parquet.encryption.key.access.token": lake.root.name}


def test_options_of_a_write_and_a_read(lake: Lake, attacker: Listener) -> None:
    """Options of a path do not choose the key service either, in the policy or beside it."""
    policy = lake.policy()
    evil = evil_policy(policy, attacker, lake.root)
    email = F.lit(SECRET).alias("email", metadata={"tags": ["pii"]})
    frame, path = lake.spark.range(1).select("id", email), str(lake.root / "out")
    frame.write.parquet(path)
    for options in ({POLICY: evil.canonical()}, {KEY_SERVICE: evil.key_service.canonical()}):
        write = frame.write.mode("overwrite").options(**options)
        assert_nothing_sent(attacker, refusal(write.parquet, path + "-evil"))
        read = lake.spark.read.schema("id LONG, email STRING").options(**options)
        assert_nothing_sent(attacker, refusal(read.parquet(path).collect))
    assert data_files(path + "-evil") == []
    configure(lake.spark, policy, stock_factory=True)
    options = {**options_of(lake, policy), KEY_SERVICE: evil.key_service.canonical()}
    assert_nothing_sent(
        attacker, refusal(lambda: frame.write.mode("overwrite").options(**options).parquet(path + "-evil"))
    )
    assert_nothing_sent(attacker, refusal(lake.spark.read.schema("id LONG").options(**options).parquet(path).collect))


def test_set_of_a_session(lake: Lake, attacker: Listener) -> None:
    """SET does not choose the key service; after RESET of that property the session goes on."""
    policy = lake.policy()
    evil = evil_policy(policy, attacker, lake.root)
    frame = lake.spark.range(1).select("id", F.lit(SECRET).alias("email", metadata={"tags": ["pii"]}))
    path = str(lake.root / "out")
    frame.write.parquet(path)
    for name, value in ((POLICY, evil.canonical()), (KEY_SERVICE, evil.key_service.canonical())):
        own = lake.spark.conf.get(name, None)
        lake.sql(f"SET {name}={value}")
        assert_nothing_sent(attacker, refusal(lambda: frame.write.mode("overwrite").parquet(path + "-evil")))
        assert_nothing_sent(attacker, refusal(lake.spark.read.schema("id LONG, email STRING").parquet(path).collect))
        lake.spark.conf.set(name, own) if own else lake.spark.conf.unset(name)
        assert lake.spark.read.parquet(path).head(1)[0].email == SECRET


def test_set_of_another_session_s_policy(lake: Lake) -> None:
    """A session does not get another session's keys by the text of its policy, nor by RESET."""
    theirs = lake.policy()
    frame = lake.spark.range(1).select("id", F.lit(SECRET).alias("email", metadata={"tags": ["pii"]}))
    path = str(lake.root / "out")
    frame.write.parquet(path)
    other = Lake(lake.spark.newSession(), lake.database, lake.root / "other")
    mine = other.policy()
    assert mine.key_service != theirs.key_service
    read = other.spark.read.schema("id LONG, email STRING")
    assert SECRET not in refusal(lambda: read.parquet(path).collect())
    other.sql(f"SET {POLICY}={theirs.canonical()}")
    assert POLICY in refusal(lambda: read.parquet(path).collect())
    other.sql("RESET")
    assert SECRET not in refusal(lambda: read.parquet(path).collect())
    assert lake.spark.read.parquet(path).head(1)[0].email == SECRET


def test_set_of_the_lifetime_of_keys(lake: Lake) -> None:
    """A session may keep opened keys for a shorter time than the launch says, and not for a longer one."""
    lake.policy()
    frame = lake.spark.range(1).select("id", F.lit(SECRET).alias("email", metadata={"tags": ["pii"]}))
    path = str(lake.root / "out")
    frame.write.parquet(path)
    for wrong in ("1e9", "NaN", "601", "ten"):
        lake.sql(f"SET {CACHE_LIFETIME}={wrong}")
        said = refusal(lake.spark.read.schema("id LONG, email STRING").parquet(path).collect)
        assert CACHE_LIFETIME in said
        assert "allowed" in said
    lake.sql(f"SET {CACHE_LIFETIME}=5")
    assert lake.spark.read.parquet(path).head(1)[0].email == SECRET


def test_throw_away_keys_by_option(lake: Lake) -> None:
    """A key service whose keys stand in its configuration, which whoever names it knows, encrypts nothing."""
    policy = lake.policy()
    known = KeyServiceConfig.from_dict({"type": "ephemeral", "secret": "ab" * 32})
    frame = lake.spark.range(1).select("id", F.lit(SECRET).alias("email", metadata={"tags": ["pii"]}))
    write = frame.write.option(POLICY, replace(policy, key_service=known).canonical())
    assert POLICY in refusal(lambda: write.parquet(str(lake.root / "out")))
    assert data_files(lake.root / "out") == []


def test_policy_by_option_that_asks_for_less(lake: Lake) -> None:
    """A policy on the same key service that leaves more in clear is refused as well."""
    policy = lake.policy()
    document = json.loads(policy.canonical())
    document["tags"] = [["pii", "plaintext"], ["fin", {"key": "fin"}], ["public", "plaintext"]]
    frame = lake.spark.range(1).select("id", F.lit(SECRET).alias("email", metadata={"tags": ["pii"]}))
    write = frame.write.option(POLICY, json.dumps(document))
    assert POLICY in refusal(lambda: write.parquet(str(lake.root / "out")))
    assert data_files(lake.root / "out") == []


def test_system_property_by_sql_runs_nothing(lake: Lake) -> None:
    """``reflect`` sets a system property of the JVM; no helper is started by it."""
    evil = lake.root / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {lake.root / 'executed'}\n")
    evil.chmod(0o755)
    lake.policy()
    before = lake.sql("SELECT reflect('java.lang.System', 'getProperty', 'sparkcrypt.python')").head(1)[0][0]
    lake.sql(f"SELECT reflect('java.lang.System', 'setProperty', 'sparkcrypt.python', '{evil}')").collect()
    try:
        frame = lake.spark.range(1).select("id", F.lit(SECRET).alias("email", metadata={"tags": ["pii"]}))
        frame.write.parquet(str(lake.root / "out"))
        assert not (lake.root / "executed").exists()
    finally:
        name = "sparkcrypt.python"
        undo = f"'setProperty', '{name}', '{before}'" if before else f"'clearProperty', '{name}'"
        lake.sql(f"SELECT reflect('java.lang.System', {undo})").collect()


def test_same_policy_by_option_goes_on(lake: Lake) -> None:
    """A table that was made with the session's own policy or key service in its options goes on working."""
    policy = lake.policy()
    configure(lake.spark, policy, stock_factory=True)
    options = f"'{POLICY}' = {sql_text(policy.canonical())}, '{TAGS_PREFIX}email' = 'pii'"
    lake.sql(f"CREATE TABLE t (id INT, email STRING) USING parquet OPTIONS ({options})")
    own = {**options_of(lake, policy), KEY_SERVICE: policy.key_service.canonical()}
    for name, where in (("u", "USING parquet OPTIONS"), ("h", "STORED AS PARQUET TBLPROPERTIES")):
        listed = ", ".join(f"'{option}' = {sql_text(value)}" for option, value in own.items())
        lake.sql(f"CREATE TABLE {name} (id BIGINT, email STRING) {where} ({listed})")
    for name in ("t", "u", "h"):
        lake.sql(f"INSERT INTO {name} VALUES (1, '{SECRET}')")
        assert lake.spark.table(name).head(1)[0].email == SECRET
        assert SECRET.encode() not in b"".join(file.read_bytes() for file in data_files(lake.path(name)))

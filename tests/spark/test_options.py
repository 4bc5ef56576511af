"""``parquet_options``: the stock crypto factory with our key services, in each place where Spark takes options."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F

from sparkcrypt import configure, parquet_options, plan_table
from sparkcrypt.errors import PlanError
from sparkcrypt.names import SESSION_TOKEN
from sparkcrypt.plan import EncryptionPlan
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.jvm.jar import bring_jar
from sparkcrypt.spark.setup.session import pin_session
from sparkcrypt.spark.tables.planning import plan_path
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.support import (
    SECRET,
    Lake,
    assert_encrypted,
    data_files,
    make_policy,
    read_options,
    refusal,
    rows_of,
    swapped,
    with_keys,
)

pytestmark = pytest.mark.spark
TAGS = """
  pii: {key: "arn:aws:kms;1,a"}
  fin: {key: fin}
"""
KEYS = {"email": "arn:aws:kms;1,a", "s.a": "fin"}
ROW = f"1 AS id, '{SECRET}' AS email, named_struct('a', '{SECRET}', 'b', 'CANARY-plain-value') AS s"


@pytest.fixture
def policy(lake: Lake) -> Policy:
    """A policy whose key service the session is under, as by the launch, with no other setting of ours."""
    bring_jar(lake.spark)
    policy = make_policy(lake.root / "p", TAGS)
    lake.spark.conf.set(SESSION_TOKEN, pin_session(lake.spark, policy)[0])
    return policy


def plan(lake: Lake, policy: Policy) -> EncryptionPlan:
    """Plan the rows of this module by their schema's tags."""
    frame = lake.sql(f"SELECT {ROW}").select(
        "id", F.col("email").alias("email", metadata={"tags": "pii"}), F.col("s").alias("s", metadata={"tags": "fin"})
    )
    document = frame.schema.json().replace('{"metadata":{},"name":"b"', '{"metadata":{"tags":["none"]},"name":"b"')
    return plan_path(document.replace('"tags":["none"]', ""), policy)


def listed(options: dict[str, str]) -> str:
    """Write options as SQL takes them."""
    return ", ".join(f"'{name}' = '{value}'" for name, value in options.items())


@pytest.mark.parametrize("mode", ["encrypted", "plaintext"])
def test_writer_and_reader_options(lake: Lake, mode: str) -> None:
    """``.option`` on writer and reader encrypts, reads back, refuses other keys; the policy's factory reads it too."""
    policy = make_policy(lake.root / "p", TAGS, footer_mode=mode, algorithm="AES_GCM_CTR_V1", bits=128)
    configure(lake.spark, policy, stock_factory=True)
    options, path = parquet_options(plan(lake, policy)), str(lake.root / "out")
    lake.sql(f"SELECT {ROW}").write.options(**options).parquet(path)
    assert_encrypted(path, policy, {**KEYS, "s.b": "fin"}, visible=())
    assert lake.spark.read.options(**options).parquet(path).head(1)[0].email == SECRET
    assert lake.spark.read.options(**read_options(policy)).parquet(path).head(1)[0].s.a == SECRET
    other = with_keys(policy, lake.root / "other", swapped("arn:aws:kms;1,a", "fin"))
    configure(lake.spark, other, stock_factory=True)
    frame = lake.spark.read.options(**parquet_options(plan(lake, other))).parquet(path)
    assert "KeyServiceError" in refusal(frame.select("email").collect)


def test_two_key_services_in_one_jvm(lake: Lake) -> None:
    """Options of two policies with the same key ids share no cached client or key: each opens its own files."""
    policies = [make_policy(lake.root / f"p{number}", TAGS, footer_mode="plaintext") for number in range(2)]
    for number, policy in enumerate(policies):
        path = str(lake.root / f"out{number}")
        configure(lake.spark, policy, stock_factory=True)
        lake.sql(f"SELECT {ROW}").write.options(**parquet_options(plan(lake, policy))).parquet(path)
        assert_encrypted(path, policy, {**KEYS, "s.b": "fin"}, visible=())


@pytest.mark.parametrize("where", ["USING parquet OPTIONS", "STORED AS PARQUET TBLPROPERTIES"])
@pytest.mark.parametrize("convert", ["true", "false"])
def test_options_of_a_table(lake: Lake, policy: Policy, where: str, convert: str) -> None:
    """OPTIONS of a data source table and TBLPROPERTIES of a Hive table encrypt inserts and serve reads."""
    lake.spark.conf.set("spark.sql.hive.convertMetastoreParquet", convert)
    lake.sql("CREATE TABLE plain (id INT, email STRING) USING parquet")
    set_tags(lake.spark, "plain", {"email": ["pii"]}, policy)
    options = parquet_options(plan_table(lake.spark, "plain", policy))
    lake.sql(f"CREATE TABLE t (id INT, email STRING) {where} ({listed(options)})")
    lake.sql(f"INSERT INTO t VALUES (1, '{SECRET}')")
    assert_encrypted(lake.path("t"), policy, {"email": KEYS["email"]}, visible=())
    assert rows_of(lake.spark.table("t")) == [(1, SECRET)]


def test_save_as_table_with_options(lake: Lake, policy: Policy) -> None:
    """``saveAsTable`` with options stores them, so that a later append encrypts as well."""
    options = parquet_options(plan(lake, policy))
    lake.sql(f"SELECT {ROW}").write.options(**options).saveAsTable("t")
    lake.sql(f"INSERT INTO t SELECT {ROW}")
    assert len(assert_encrypted(lake.path("t"), policy, {**KEYS, "s.b": "fin"}, visible=())) == 2
    assert lake.spark.table("t").count() == 2


@pytest.mark.parametrize("name", ["a.b", "a,b", "a;b", "a:b", " a"])
def test_names_that_the_property_cannot_hold(lake: Lake, policy: Policy, name: str) -> None:
    """A column whose name parquet-mr's property cannot hold is refused by name, before any write."""
    frame = lake.spark.range(1).select(F.lit("x").alias(name, metadata={"tags": "pii"}))
    with pytest.raises(PlanError, match=r"cannot be written in parquet\.encryption\.column\.keys"):
        parquet_options(plan_path(frame.schema.json(), policy))


def test_plan_without_encrypted_columns(lake: Lake, policy: Policy) -> None:
    """No encrypted column, no options: parquet-mr would silently write plaintext."""
    with pytest.raises(PlanError, match="no column is encrypted"):
        parquet_options(plan_path(lake.spark.range(1).schema.json(), policy))


def test_column_that_the_file_lacks(lake: Lake, policy: Policy) -> None:
    """Options for a column that a frame lacks fail its write: they follow no change of schema."""
    options = parquet_options(plan(lake, policy))
    said = refusal(lambda: lake.spark.range(1).write.options(**options).parquet(str(lake.root / "out")))
    assert "not in file schema column list" in said
    assert data_files(lake.root / "out") == []

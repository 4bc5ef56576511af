"""Tags on tables of each kind: what is tagged reaches the writer, and tags that vanish do not make plaintext."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F

from sparkcrypt import configure, plan_table
from sparkcrypt.errors import PlanError
from sparkcrypt.names import TAGS_PREFIX
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags, tags_of_table, unset_tags
from tests.spark.support import (
    PLAIN,
    SECRET,
    Lake,
    assert_encrypted,
    assert_plaintext,
    data_files,
    make_policy,
    refusal,
    said_of,
)

pytestmark = pytest.mark.spark
KINDS = ["USING parquet", "STORED AS PARQUET", "serde"]
NESTED = "id INT, addr STRUCT<city:STRING,zip:STRING>, phones ARRAY<STRUCT<n:STRING,k:INT>>, props MAP<STRING,STRING>"
NESTED_ROW = f"1, struct('{SECRET}', 'z'), array(struct('{SECRET}', 1)), map('k', '{SECRET}')"


def create(lake: Lake, kind: str, columns: str) -> None:
    """Make table ``t``; kind ``serde`` is a Hive table written by Hive's own SerDe."""
    lake.spark.conf.set("spark.sql.hive.convertMetastoreParquet", str(kind != "serde").lower())
    lake.sql(f"CREATE TABLE t ({columns}) {'STORED AS PARQUET' if kind == 'serde' else kind}")


@pytest.mark.parametrize("kind", KINDS)
def test_nested_tags_reach_the_writer(lake: Lake, kind: str) -> None:
    """Tags on a struct's field, an array's element and a map's value encrypt those leaves, in the very next write."""
    policy = lake.policy()
    create(lake, kind, NESTED)
    set_tags(lake.spark, "t", {"addr.city": ["pii"], "phones.element.n": ["pii"], "props.value": ["fin"]}, policy)
    lake.sql(f"INSERT INTO t SELECT {NESTED_ROW}")
    group = {"serde": ("phones.bag.array_element.n", "props.key_value.value")}
    phones, props = group.get(kind, ("phones.list.element.n", "props.key_value.value"))
    assert_encrypted(lake.path("t"), policy, {"addr.city": "pii", phones: "pii", props: "fin"}, visible=())
    (row,) = lake.spark.table("t").collect()
    assert (row.addr.city, row.phones[0].n, row.props) == (SECRET, SECRET, {"k": SECRET})


@pytest.mark.parametrize("kind", KINDS)
def test_change_of_tags_counts_in_the_next_write(lake: Lake, kind: str) -> None:
    """A new tag changes the key of the next file, and after ``unset_tags`` the column is written in clear."""
    policy = lake.policy()
    create(lake, kind, "id INT, email STRING, other STRING")
    set_tags(lake.spark, "t", {"email": ["pii"], "other": ["fin"]}, policy)
    set_tags(lake.spark, "t", {"EMAIL": ["fin"]}, policy)
    lake.sql(f"INSERT OVERWRITE t VALUES (1, '{SECRET}', '{SECRET}')")
    assert_encrypted(lake.path("t"), policy, {"email": "fin", "other": "fin"}, visible=())
    unset_tags(lake.spark, "t", ["email"])
    assert {column.path for column in tags_of_table(lake.spark, Catalog(lake.spark).table("t"))} == {("other",)}
    lake.sql(f"INSERT OVERWRITE t VALUES (1, 'CANARY-plain-value', '{SECRET}')")
    assert_encrypted(lake.path("t"), policy, {"other": "fin"})
    assert plan_table(lake.spark, "t", policy).differences == ()


def test_partition_column_cannot_be_tagged(lake: Lake) -> None:
    """Tagging a partition column is a PlanError that says what to do, and changes nothing."""
    policy = lake.policy()
    lake.sql("CREATE TABLE t (id INT, email STRING, p STRING) USING parquet PARTITIONED BY (p)")
    for tags in ({"p": ["pii"]}, {"email": ["pii"], "P": ["pii"]}):
        with pytest.raises(PlanError, match=r"is a partition column .* partition by a column that is not sensitive"):
            set_tags(lake.spark, "t", tags, policy)
    assert tags_of_table(lake.spark, Catalog(lake.spark).table("t")) == ()


ODD = [
    "a.b",
    "a,b",
    "a;b",
    "a:b",
    "a b",
    "UPPER",
    "größe",
    "名前",
    "per%cent",
    "tick`s",
    "quote'd",
    'dou"ble',
    "$x",
    "a=b",
]


def test_columns_with_odd_names(lake: Lake) -> None:
    """Names with dots, commas, semicolons, colons, spaces, upper case or other scripts are encrypted and read back."""
    policy = lake.policy(footer_mode="plaintext")
    values = [f"CANARY-{number:02}-secret" for number in range(len(ODD))]
    frame = lake.spark.range(1).select(*(F.lit(value).alias(name) for name, value in zip(ODD, values, strict=True)))
    frame.write.saveAsTable("t")
    assert_plaintext(lake.path("t"))
    escaped = {name: name.replace("%", "%25").replace(".", "%2E") for name in ODD}
    set_tags(lake.spark, "t", {escaped[name]: ["pii"] for name in ODD}, policy)
    lake.sql("INSERT OVERWRITE t SELECT " + ", ".join(f"'{value}'" for value in values))
    assert_encrypted(lake.path("t"), policy, {escaped[name]: "pii" for name in ODD}, hidden=values, visible=())
    (row,) = lake.spark.table("t").collect()
    assert list(row) == values
    for name in ODD:
        quoted = "`" + name.replace("`", "``") + "`"
        assert lake.sql(f"SELECT {quoted} FROM t").count() == 1


@pytest.mark.parametrize("kind", ["STORED AS PARQUET", "serde"])
def test_hive_columns_with_odd_names(lake: Lake, kind: str) -> None:
    """What Hive lets stand in a name is encrypted and read back on both ways of writing a Hive table."""
    policy = lake.policy()
    names = ["UPPER", "größe", "a.b"] + (["a b", "per%cent"] if kind != "serde" else [])
    create(lake, kind, ", ".join(f"`{name}` STRING" for name in names))
    escaped = {name: name.replace("%", "%25").replace(".", "%2E") for name in names}
    set_tags(lake.spark, "t", {escaped[name]: ["pii"] for name in names}, policy)
    lake.sql("INSERT INTO t SELECT " + ", ".join(f"'{SECRET}'" for _ in names))
    assert_encrypted(lake.path("t"), policy, dict.fromkeys(escaped.values(), "pii"), visible=())
    assert list(lake.spark.table("t").collect()[0]) == [SECRET] * len(names)


def test_names_that_hive_s_own_writer_cannot_take_are_refused_before_any_task(lake: Lake) -> None:
    """Spark itself refuses a blank in a name on the SerDe's way, by the column's name and before a task starts."""
    policy = lake.policy()
    create(lake, "serde", "`a b` STRING")
    set_tags(lake.spark, "t", {"a b": ["pii"]}, policy)
    said = refusal(lambda: lake.sql(f"INSERT INTO t SELECT '{SECRET}'"))
    assert "INVALID_COLUMN_NAME_AS_PATH" in said
    assert "`a b`" in said


def hive_ddl(lake: Lake, statement: str) -> None:
    """Run DDL through Hive's own client, as a tool that is not Spark would."""
    catalog = lake.spark._jsparkSession.sharedState().externalCatalog().unwrapped()
    properties = lake.jvm.java.lang.System
    properties.setProperty("spark.testing", "true")  # Spark lends its Hive client for tests only
    try:
        catalog.client().runSqlHive(statement)
    finally:
        properties.clearProperty("spark.testing")
    lake.spark.catalog.refreshTable("t")


@pytest.mark.parametrize("convert", ["true", "false"])
def test_hive_side_add_columns_drops_one_form_and_the_other_still_encrypts(lake: Lake, convert: str) -> None:
    """After Hive's ADD COLUMNS the schema's tags are gone; the property's encrypt, and the plan reports the loss."""
    lake.spark.conf.set("spark.sql.hive.convertMetastoreParquet", convert)
    policy = lake.policy()
    lake.sql("CREATE TABLE t (id INT, email STRING) STORED AS PARQUET")
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    assert plan_table(lake.spark, "t", policy).differences == ()
    hive_ddl(lake, f"ALTER TABLE {lake.name('t')} ADD COLUMNS (extra STRING)")
    lake.sql(f"INSERT INTO t VALUES (1, '{SECRET}', 'CANARY-plain-value')")
    assert_encrypted(lake.path("t"), policy, {"email": "pii"})
    assert plan_table(lake.spark, "t", policy).differences == (
        "email: schema metadata has none, table properties have pii",
    )


def test_table_of_a_tagged_frame_has_its_tags_in_both_places(lake: Lake) -> None:
    """A table made from a tagged frame has its tags in schema and properties, and no difference is named."""
    policy = lake.policy()
    frame = lake.spark.range(1).select(F.lit(SECRET).alias("email", metadata={"tags": ["pii"]}))
    frame.write.saveAsTable("t")
    plan = plan_table(lake.spark, "t", policy)
    assert [(column.leaf.dotted, column.sources) for column in plan.encrypted] == [
        ("email", ("schema metadata", "table property"))
    ]
    assert plan.differences == ()


def test_table_made_again_without_tags_is_never_plaintext_where_encryption_is_required(lake: Lake) -> None:
    """``saveAsTable`` with overwrite of an untagged frame is refused, or encrypts by the tags of the earlier table."""
    tables = f"  {lake.name('t')}: {{require_encryption: true}}\n"
    lake.policy(tables=tables)
    lake.spark.range(1).select(F.lit(SECRET).alias("email", metadata={"tags": ["pii"]})).write.saveAsTable("t")
    untagged = lake.spark.range(1).select(F.lit(SECRET).alias("email"))
    try:
        untagged.write.mode("overwrite").saveAsTable("t")
    except Exception as refused:  # noqa: BLE001  # the test looks at what it says
        assert "requires encryption, but no column carries a tag" in said_of(refused)
    assert {file.read_bytes()[-4:] for file in data_files(lake.path("t"))} <= {b"PARE"}


def test_overlay_outlives_a_table_made_again(lake: Lake) -> None:
    """Tags that the policy lays over a table encrypt it also after it was made again without tags of its own."""
    policy = lake.policy(tables=f"  {lake.name('t')}: {{require_encryption: true, tags: {{email: [pii]}}}}\n")
    untagged = lake.spark.range(1).select(F.lit(SECRET).alias("email"))
    for mode in ("errorifexists", "overwrite"):
        untagged.write.mode(mode).saveAsTable("t")
        assert_encrypted(lake.path("t"), policy, {"email": "pii"}, visible=())


@pytest.mark.parametrize("kind", KINDS)
def test_stale_schema_in_a_second_session_makes_no_plaintext(lake: Lake, kind: str) -> None:
    """A session that cached the relation before it was tagged is refused on a table that requires encryption."""
    policy = lake.policy(tables=f"  {lake.name('t')}: {{require_encryption: true}}\n")
    create(lake, kind, "id INT, email STRING")
    other = lake.spark.newSession()
    other.sql(f"USE {lake.database}")
    other.conf.set("spark.sql.hive.convertMetastoreParquet", str(kind != "serde").lower())
    configure(other, policy)
    assert other.table("t").count() == 0
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    try:
        other.sql(f"INSERT INTO t VALUES (1, '{SECRET}')")
    except Exception as error:  # noqa: BLE001  # Spark wraps the refusal in several types
        assert "requires encryption" in said_of(error)
        assert data_files(lake.path("t")) == []
    else:
        assert_encrypted(lake.path("t"), policy, {"email": "pii"}, visible=())
    other.catalog.refreshTable("t")
    other.sql(f"INSERT INTO t VALUES (1, '{SECRET}')")
    assert_encrypted(lake.path("t"), policy, {"email": "pii"}, visible=())


def test_tags_that_are_set_replace_those_by_a_name_in_another_case(lake: Lake) -> None:
    """A column has what was set last, whatever property named it before, and the key of that."""
    policy = lake.policy()
    lake.sql("CREATE TABLE t (id INT, email STRING, note STRING) USING parquet")
    lake.sql(f"ALTER TABLE t SET SERDEPROPERTIES ('{TAGS_PREFIX}EMAIL' = 'pii')")
    set_tags(lake.spark, "t", {"email": ["fin"]}, policy)
    tags = tags_of_table(lake.spark, Catalog(lake.spark).table("t"))
    assert {(tag.path, tag.tags) for tag in tags} == {(("email",), ("fin",))}
    lake.sql(f"INSERT INTO t VALUES (1, '{SECRET}', '{PLAIN}')")
    assert_encrypted(lake.path("t"), policy, {"email": "fin"})


def test_tags_name_columns_of_the_avro_schema_of_a_table(lake: Lake) -> None:
    """A table whose ``avro.schema.literal`` tags a field is planned by it."""
    literal = (
        '{"type":"record","name":"r","fields":[{"name":"email","type":["null","string"],"confluent:tags":["pii"]}]}'
    )
    policy = make_policy(lake.root / "p")
    lake.sql(
        f"CREATE TABLE t (id INT, email STRING) STORED AS PARQUET TBLPROPERTIES ('avro.schema.literal'='{literal}')"
    )
    plan = plan_table(lake.spark, "t", policy)
    assert [(column.leaf.dotted, column.sources) for column in plan.encrypted] == [("email", ("avro schema",))]

"""Values of tagged columns in what is written beside the data: names of columns and files, metadata, the catalog."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sparkcrypt import load_policy
from sparkcrypt.cli.setup.doctor import check_names
from sparkcrypt.files.parquet import inspect_file, verify_file
from sparkcrypt.spark.tables.planning import plan_table
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.support import SECRET, Lake, data_files, refusal, retriever

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = pytest.mark.spark
LABELS = {"ml_attr": {"type": "nominal", "name": "ix", "vals": [SECRET]}}
"""What Spark ML's StringIndexer stores at the column that it makes."""


@pytest.fixture(params=["plaintext", "encrypted"])
def people(lake: Lake, request: pytest.FixtureRequest) -> Iterator[Lake]:
    """A lake whose table ``people`` has a tagged column, with either mode of footers."""
    policy = lake.policy(footer_mode=request.param)
    lake.sql("CREATE TABLE people (id INT, email STRING, born DATE) USING parquet")
    set_tags(lake.spark, "people", {"email": ["pii"], "born": ["pii"]}, policy)
    lake.sql(f"INSERT INTO people VALUES (1, '{SECRET}', DATE'1980-02-03'), (2, 'b', DATE'1990-02-03')")
    yield lake


def labelled(lake: Lake) -> DataFrame:
    """Return a frame with a column that is computed of the tagged one and has its values in its metadata."""
    from pyspark.sql import functions as F

    return lake.sql("SELECT id, length(email) AS made FROM people").select(
        "id", F.col("made").alias("ix", metadata=LABELS)
    )


def says(lake: Lake, folder: Path) -> str:
    """Return all that the schema of a folder says, as a reader of its footers has it."""
    return str(lake.spark.read.parquet(folder.as_uri()).schema.json())


@pytest.mark.parametrize(
    "write",
    [
        lambda frame, lake: frame.write.parquet((lake.root / "out").as_uri()),
        lambda frame, lake: frame.write.saveAsTable("made"),
        lambda frame, lake: frame.writeTo("made").using("parquet").create(),
        lambda frame, lake: frame.write.format("hive").saveAsTable("made"),
        lambda frame, lake: lake.spark.catalog.createTable("made", source="parquet", schema=frame.schema),
    ],
    ids=["path", "saveAsTable", "writeTo", "hive", "createTable"],
)
def test_labels_of_spark_ml(people: Lake, write: Callable[[DataFrame, Lake], Any]) -> None:
    """Spark ML's labels of a column are refused by name; neither the catalog nor a footer gets them."""
    said = refusal(write, labelled(people), people)
    assert "ml_attr" in said
    assert "column ix" in said
    assert "parquet.sparkcrypt.field_metadata" in said
    assert not people.spark.catalog.tableExists("made")
    assert not data_files(people.root / "out")


def test_string_indexer(people: Lake) -> None:
    """What Spark ML itself makes of a tagged column is refused, and written without its labels when told."""
    from pyspark.ml.feature import StringIndexer

    table = people.spark.table("people")
    frame = StringIndexer(inputCol="email", outputCol="ix").fit(table).transform(table).select("id", "ix")
    assert "column ix has a tag that encrypts" in refusal(frame.write.saveAsTable, "made")
    frame.write.option("parquet.sparkcrypt.field_metadata", "drop").saveAsTable("made")
    assert SECRET in frame.schema.json() and SECRET not in people.spark.table("made").schema.json()


def test_labels_inside_a_struct(people: Lake) -> None:
    """Metadata of fields inside a tagged column's type are refused too, and cannot be dropped."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructField, StructType

    inside = StructType([StructField("x", StringType(), metadata=LABELS)])
    rows = people.spark.createDataFrame([((SECRET,),)], StructType([StructField("s", inside)]))
    frame = rows.select(F.col("s").alias("s", metadata={"tags": ["pii"]}))
    for options in ({}, {"parquet.sparkcrypt.field_metadata": "drop"}):
        said = refusal(frame.write.options(**options).parquet, (people.root / "out").as_uri())
        assert "column s.x" in said


def test_labels_are_dropped_when_told(people: Lake) -> None:
    """The option of a write leaves them out; comments, tags and lineage stay."""
    from pyspark.sql import functions as F

    frame = labelled(people).select(
        "id", F.col("ix").alias("ix", metadata={**LABELS, "comment": "length", "tags": ["pii"]})
    )
    frame.write.option("parquet.sparkcrypt.field_metadata", "drop").parquet((people.root / "out").as_uri())
    frame.write.option("parquet.sparkcrypt.field_metadata", "drop").saveAsTable("made")
    for schema in (says(people, people.root / "out"), people.spark.table("made").schema.json()):
        metadata = {field["name"]: field["metadata"] for field in json.loads(schema)["fields"]}["ix"]
        assert SECRET not in schema
        assert metadata["tags"] == ["pii"]
        assert metadata["comment"] == "length"
        assert people.spark.table("made").count() == 2


def test_defaults_are_in_no_footer(people: Lake) -> None:
    """The catalog keeps a DEFAULT as its statement says it; files of the table, and tables made of it, have none."""
    people.sql(f"CREATE TABLE d (id INT, email STRING DEFAULT '{SECRET}') USING parquet")
    people.sql("ALTER TABLE d SET SERDEPROPERTIES ('parquet.sparkcrypt.tags.email'='pii')")
    people.sql("INSERT INTO d (id) VALUES (1)")
    people.spark.table("d").write.saveAsTable("made")
    assert people.spark.table("d").collect() == [(1, SECRET)] == people.spark.table("made").collect()
    assert SECRET not in says(people, people.path("d")) + people.spark.table("made").schema.json()
    assert not [file for file in data_files(people.root / "db") if SECRET.encode() in file.read_bytes()]


def test_metadata_of_plain_columns_stay(people: Lake) -> None:
    """Columns whose tags mean plaintext, or that have none, keep all of their metadata."""
    from pyspark.sql import functions as F

    frame = people.sql("SELECT email, 1 AS a, 2 AS b FROM people").select(
        "email", F.col("a").alias("a", metadata=LABELS), F.col("b").alias("b", metadata={**LABELS, "tags": ["public"]})
    )
    frame.write.saveAsTable("made")
    assert people.spark.table("made").schema.json().count(SECRET) == 2


def test_writer_refuses_labels_that_the_driver_did_not_see(people: Lake) -> None:
    """A column that only the policy's rule tags is refused by the writer of the file."""
    from pyspark.sql import functions as F

    people.policy(
        tables=f"  {people.database}.ruled: {{location: {(people.root / 'ruled').as_uri()}, tags: {{ix: pii}}}}\n"
    )
    frame = people.sql("SELECT 1 AS ix").select(F.col("ix").alias("ix", metadata=LABELS))
    assert "ml_attr" in refusal(frame.write.parquet, (people.root / "ruled").as_uri())


@pytest.mark.parametrize("kind", ["GEOMETRY(0)", "GEOGRAPHY(4326)"])
def test_bounding_boxes(lake: Lake, kind: str) -> None:
    """Parquet-mr leaves the bounding box of an encrypted column in a plaintext footer: refused on the driver."""
    lake.spark.conf.set("spark.sql.geospatial.enabled", "true")
    make = "st_geomfromwkb" if "METRY" in kind else "st_geogfromwkb"
    point = "X'0101000000000000000000F03F0000000000000040'"
    for mode in ("plaintext", "encrypted"):
        lake.policy(footer_mode=mode)
        lake.sql("DROP TABLE IF EXISTS places")
        lake.sql(f"CREATE TABLE places (id INT, g {kind}) USING parquet OPTIONS ('parquet.sparkcrypt.tags.g'='pii')")
        insert = f"INSERT INTO places SELECT 1, {make}({point})"
        if mode == "plaintext":
            said = refusal(lake.sql, insert)
            assert "column g" in said
            assert "footer" in said
            assert "Task failed" not in said
            assert not data_files(lake.path("places"))
        else:
            lake.sql(insert)
            assert lake.spark.table("places").count() == 1


def test_sizes_of_values(lake: Lake) -> None:
    """A plaintext footer of Spark's own writer has the bytes of all values of an encrypted column, and nothing else."""
    policy = lake.policy(footer_mode="plaintext")
    lake.sql("CREATE TABLE t (id INT, email STRING) USING parquet OPTIONS ('parquet.sparkcrypt.tags.email'='pii')")
    lake.sql(f"INSERT INTO t VALUES (1, '{SECRET}')")
    (file,) = data_files(lake.path("t"))
    assert verify_file(file, retrieve_key=retriever(policy)).in_clear == ("size statistics of column email",)


@pytest.mark.parametrize("mode", ["plaintext", "encrypted"])
def test_keys_of_a_variant(lake: Lake, mode: str) -> None:
    """Keys of a tagged VARIANT's objects never become names of leaves; those of an untagged one may."""
    policy = lake.policy(footer_mode=mode)
    lake.sql("CREATE TABLE v (id BIGINT, v VARIANT) USING parquet OPTIONS ('parquet.sparkcrypt.tags.v'='pii')")
    lake.sql("CREATE TABLE w (id BIGINT, v VARIANT) USING parquet")
    for table in ("v", "w"):
        lake.sql(f"INSERT INTO {table} SELECT id, parse_json(concat('{{\"{SECRET}', id, '\":1}}')) FROM range(3)")
        names = [
            ".".join(path)
            for file in data_files(lake.path(table))
            for path in inspect_file(file, retrieve_key=retriever(policy)).columns or {}
        ]
        assert any(SECRET in name for name in names) == (table == "w"), names
        assert lake.sql(f"SELECT * FROM {table} WHERE v IS NOT NULL").count() == 3


@pytest.mark.parametrize(
    "make",
    [
        lambda lake: lake.spark.table("people").write.bucketBy(1000, "born").saveAsTable("made"),
        lambda lake: lake.sql(
            "CREATE TABLE made USING parquet CLUSTERED BY (born) INTO 1000 BUCKETS AS SELECT * FROM people"
        ),
        lambda lake: lake.sql(
            "CREATE TABLE made (id INT, born DATE) USING parquet OPTIONS ('parquet.sparkcrypt.tags.born'='pii') "
            "CLUSTERED BY (born) INTO 1000 BUCKETS"
        ),
    ],
    ids=["bucketBy", "CTAS", "CREATE"],
)
def test_buckets_of_new_tables(people: Lake, make: Callable[[Lake], Any]) -> None:
    """Names of files of a bucketed table are a hash of the column without a key: a tagged one is refused."""
    said = refusal(make, people)
    assert "column born" in said
    assert "bucket" in said
    assert not people.spark.catalog.tableExists("made")


def test_buckets_of_a_table_that_is_there(people: Lake) -> None:
    """Such a table still takes rows, until the policy's ``bucketing`` denies it; other bucket columns are allowed."""
    with people.stranger() as stranger:
        stranger.sql("CREATE TABLE old (id INT, born DATE) USING parquet CLUSTERED BY (born) INTO 4 BUCKETS")
    people.sql("ALTER TABLE old SET SERDEPROPERTIES ('parquet.sparkcrypt.tags.born'='pii')")
    people.sql("INSERT INTO old SELECT id, born FROM people")
    policy = load_policy(max(people.root.glob("policy-*")) / "policy.yaml")
    assert "in clear: " in plan_table(people.spark, "old", policy).table_text()
    assert "bucketed by column born" in refusal(check_names, people.spark, "old", policy)
    assert check_names(people.spark, "people", policy)
    people.changed("untagged: plaintext", "untagged: plaintext\nbucketing: deny")
    said = refusal(people.sql, "INSERT INTO old SELECT id, born FROM people")
    assert "column born" in said
    assert people.spark.table("old").count() == 2
    people.spark.table("people").write.bucketBy(4, "id").saveAsTable("made")
    assert people.spark.table("made").count() == 2


@pytest.mark.parametrize(
    "frame",
    [
        lambda lake: lake.spark.table("people").groupBy("id").pivot("email").count(),
        lambda lake: lake.spark.table("people").crosstab("id", "email"),
        lambda lake: lake.sql("SELECT email, id FROM people").transpose("email"),
    ],
    ids=["pivot", "crosstab", "transpose"],
)
def test_columns_named_by_values(people: Lake, frame: Callable[[Lake], DataFrame]) -> None:
    """A query whose columns are named by values of a tagged column is refused."""
    said = refusal(lambda: frame(people).write.saveAsTable("made"))
    assert "email" in said
    assert not people.spark.catalog.tableExists("made")


def test_pivot_by_listed_values(people: Lake) -> None:
    """Names that the query lists are its author's own words; so are pivots of untagged columns."""
    people.spark.table("people").groupBy("id").pivot("email", ["b", "c"]).count().write.saveAsTable("made")
    assert people.spark.table("made").columns == ["id", "b", "c"]
    people.spark.table("people").groupBy().pivot("id").count().write.saveAsTable("plain")
    assert people.spark.table("plain").columns == ["1", "2"]
    people.spark.table("people").crosstab("email", "id").write.saveAsTable("crossed")
    assert people.spark.table("crossed").columns == ["email_id", "1", "2"]
    assert not [file for file in data_files(people.path("crossed")) if SECRET.encode() in file.read_bytes()]


def test_analyze_leaves_tagged_columns_out(people: Lake) -> None:
    """ANALYZE computes no bounds of tagged columns, by name or for all columns."""
    seen = []
    for text in ("FOR ALL COLUMNS", "FOR COLUMNS email, id", "FOR COLUMNS born"):
        plan = people.sql(f"EXPLAIN EXTENDED ANALYZE TABLE people COMPUTE STATISTICS {text}").collect()[0][0]
        seen.append(plan.split("== Analyzed Logical Plan ==")[1].split("== Optimized")[0])
        people.sql(f"ANALYZE TABLE people COMPUTE STATISTICS {text}")
    assert not [plan for plan in seen if "email" in plan or "born" in plan], seen
    shown = people.sql("DESCRIBE EXTENDED people id").collect()
    assert {row[0]: row[1] for row in shown}["max"] == "2"

"""What ``configure`` sets for one session holds for every session of the application, or the write fails."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from sparkcrypt import configure
from sparkcrypt.names import CRYPTO_FACTORY, STOCK_CRYPTO_FACTORY_CLASS, STREAM_COMMIT_PROTOCOL
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.support import SECRET, Lake, assert_encrypted, data_files, make_policy, quiet, refusal

pytestmark = pytest.mark.spark


def other_session(lake: Lake, kind: str) -> SparkSession:
    """Return a session that no program has put under the policy."""
    if kind == "new":
        session = lake.spark.newSession()
    else:
        session = lake.spark
        session.sql("RESET")
    session.sql(f"USE {lake.database}")
    quiet(session)
    return session


def stream_line(session: SparkSession, lake: Lake, number: int = 0) -> None:
    """Append a line to table ``t`` by a stream of a session."""
    (lake.root / "in").mkdir(exist_ok=True)
    (lake.root / "in" / f"{number}.txt").write_text(f"{SECRET}{number}\n")
    rows = session.readStream.text(str(lake.root / "in")).select(F.col("value").alias("email"), F.lit(1).alias("n"))
    writer = rows.writeStream.option("checkpointLocation", str(lake.root / "checkpoint")).format("parquet")
    writer.trigger(availableNow=True).toTable("t").awaitTermination(120)


def running_stream(session: SparkSession, lake: Lake) -> StreamingQuery:
    """Start a stream into table ``t`` that goes on until it is stopped."""
    (lake.root / "in").mkdir()
    rows = session.readStream.text(str(lake.root / "in")).select(F.col("value").alias("email"), F.lit(1).alias("n"))
    return rows.writeStream.option("checkpointLocation", str(lake.root / "checkpoint")).format("parquet").toTable("t")


def tagged_table(lake: Lake, name: str = "t") -> None:
    """Make a table with a tagged column, and put the session under the policy of the tag."""
    lake.sql(f"CREATE TABLE {name} (email STRING, n INT) USING parquet")
    set_tags(lake.spark, name, {"email": ["pii"]}, make_policy(lake.root / "p"))


@pytest.mark.parametrize("kind", ["new", "reset"])
def test_stream_of_another_session(lake: Lake, kind: str) -> None:
    """A stream into a tagged table encrypts in a new session, and after RESET; so does an INSERT."""
    policy = make_policy(lake.root / "p")
    tagged_table(lake)
    configure(lake.spark, policy)
    session = other_session(lake, kind)
    stream_line(session, lake)
    session.sql(f"INSERT INTO t VALUES ('{SECRET}', 2)")
    assert len(assert_encrypted(lake.path("t"), policy, {"email": "pii"}, visible=())) >= 2
    assert session.table("t").count() == 1  # the sink's own list of files knows no INSERT


def test_stream_of_a_session_that_lived_before(lake: Lake) -> None:
    """A session whose settings were read before ``configure`` writes no stream whose table is not known."""
    policy = make_policy(lake.root / "p")
    tagged_table(lake)
    earlier = other_session(lake, "new")
    configure(lake.spark, policy)
    earlier.conf.unset(STREAM_COMMIT_PROTOCOL)
    said = refusal(lambda: stream_line(earlier, lake))
    assert "tags of its table are not known" in said
    assert data_files(lake.path("t")) == []
    configure(earlier, policy)
    stream_line(earlier, lake)
    assert_encrypted(lake.path("t"), policy, {"email": "pii"}, visible=())


@pytest.mark.parametrize("kind", ["same", "other"])
def test_stream_that_ran_before(lake: Lake, kind: str) -> None:
    """A stream that was started before ``configure``, in whatever session, encrypts its next micro-batch."""
    policy = make_policy(lake.root / "p")
    tagged_table(lake)
    query = running_stream(lake.spark if kind == "same" else other_session(lake, "new"), lake)
    try:
        query.processAllAvailable()
        configure(lake.spark, policy)
        (lake.root / "in" / "0.txt").write_text(f"{SECRET}\n")
        query.processAllAvailable()
    finally:
        query.stop()
    assert_encrypted(lake.path("t"), policy, {"email": "pii"}, visible=())
    assert [row["email"] for row in lake.spark.table("t").collect()] == [SECRET]


def test_foreach_batch_that_ran_before(lake: Lake) -> None:
    """What ``foreachBatch`` of an earlier stream writes is under its own session's policy, though others differ."""
    policy = make_policy(lake.root / "p")
    tagged_table(lake)
    (lake.root / "in").mkdir()
    rows = lake.spark.readStream.text(str(lake.root / "in")).select(F.col("value").alias("email"), F.lit(1).alias("n"))
    writer = rows.writeStream.option("checkpointLocation", str(lake.root / "checkpoint"))
    query = writer.foreachBatch(lambda frame, _: frame.write.mode("append").parquet(str(lake.path("t")))).start()
    try:
        query.processAllAvailable()
        Lake(lake.spark.newSession(), lake.database, lake.root / "other").policy()  # with another key service
        configure(lake.spark, policy)
        (lake.root / "in" / "0.txt").write_text(f"{SECRET}\n")
        query.processAllAvailable()
    finally:
        query.stop()
    assert_encrypted(lake.path("t"), policy, {"email": "pii"}, visible=())


def test_foreach_batch_goes_on(lake: Lake) -> None:
    """What ``foreachBatch`` writes is staged like any batch, and is no stream's sink."""
    policy = lake.policy()
    (lake.root / "in").mkdir()
    (lake.root / "in" / "0.txt").write_text(f"{SECRET}\n")
    email = F.col("value").alias("email", metadata={"tags": ["pii"]})

    def write(frame: DataFrame, number: int) -> None:
        frame.write.mode("append").parquet(str(lake.root / "out"))

    rows = lake.spark.readStream.text(str(lake.root / "in")).select(email)
    writer = rows.writeStream.option("checkpointLocation", str(lake.root / "checkpoint")).foreachBatch(write)
    assert writer.trigger(availableNow=True).start().awaitTermination(120)
    assert_encrypted(lake.root / "out", policy, {"email": "pii"}, visible=())


@pytest.mark.parametrize("kind", ["new", "reset", "earlier"])
def test_statistics_of_another_session(lake: Lake, kind: str) -> None:
    """ANALYZE in any session of the application leaves no statistics of an encrypted column in the metastore."""
    policy = make_policy(lake.root / "p")
    lake.sql("CREATE TABLE t (id INT, salary INT) USING parquet")
    set_tags(lake.spark, "t", {"salary": ["fin"]}, policy)
    earlier = other_session(lake, "new")
    earlier.sql("ANALYZE TABLE t COMPUTE STATISTICS")
    configure(lake.spark, policy)
    lake.sql("INSERT INTO t VALUES (1, 4711), (2, 815)")
    session = earlier if kind == "earlier" else other_session(lake, kind)
    session.catalog.refreshTable("t")
    session.sql("ANALYZE TABLE t COMPUTE STATISTICS FOR COLUMNS id, salary")
    assert_statistics_of_id_alone(lake)


def assert_statistics_of_id_alone(lake: Lake) -> None:
    """Assert that the metastore has statistics of column ``id`` and none of ``salary``."""
    lake.spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    lake.spark.catalog.refreshTable("t")
    statistics = Catalog(lake.spark).statistics(Catalog(lake.spark).table(lake.name("t")))
    assert "salary" not in str(statistics.colStats())
    assert "id" in str(statistics.colStats())
    assert "4711" not in str(lake.sql("SHOW TBLPROPERTIES t").collect())


@pytest.mark.parametrize("where", ["table", "frame", "stream"])
def test_other_factory_by_set(lake: Lake, where: str) -> None:
    """SET of another crypto factory turns no tags off: tables and frames are encrypted, streams refused by name."""
    policy = make_policy(lake.root / "p")
    tagged_table(lake)
    configure(lake.spark, policy)
    lake.sql(f"SET {CRYPTO_FACTORY}={STOCK_CRYPTO_FACTORY_CLASS}")
    frame = lake.spark.range(1).select("id", F.lit(SECRET).alias("email", metadata={"tags": ["pii"]}))
    if where == "table":
        lake.sql(f"INSERT INTO t VALUES ('{SECRET}', 1)")
        assert_encrypted(lake.path("t"), policy, {"email": "pii"}, visible=())
    elif where == "frame":
        frame.write.parquet(str(lake.root / "out"))
        assert_encrypted(lake.root / "out", policy, {"email": "pii"}, visible=())
    else:
        assert f"{CRYPTO_FACTORY} is {STOCK_CRYPTO_FACTORY_CLASS}" in refusal(stream_line, lake.spark, lake)
        assert data_files(lake.root) == []
    lake.spark.range(1).write.parquet(str(lake.root / "plain"))
    lake.sql(f"RESET {CRYPTO_FACTORY}")
    lake.sql(f"INSERT INTO t VALUES ('{SECRET}', 1)")
    assert_encrypted(lake.path("t"), policy, {"email": "pii"}, visible=())


def test_session_without_a_policy_among_several(lake: Lake) -> None:
    """Where sessions of one application have different key services, one that was given none writes nothing."""
    lake.policy()
    other = Lake(lake.spark.newSession(), lake.database, lake.root / "other")
    other.policy()
    third = lake.spark.newSession()
    frame = third.range(1).select(F.lit(SECRET).alias("email", metadata={"tags": ["pii"]}))
    assert "call it with this session" in refusal(lambda: frame.write.parquet(str(lake.root / "out")))
    assert data_files(lake.root / "out") == []

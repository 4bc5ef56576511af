"""Denied columns: an error, or typed nulls, by every route."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest
from pyspark.sql import functions as F

import sparkcrypt
from sparkcrypt import configure, masked_columns, names, read_table
from sparkcrypt.errors import ConfigError, KeyNotFoundError
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.setup.read import ReadReport
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.fixtures import new_lake
from tests.spark.support import Lake, data_files, make_policy, refusal, rows_of, with_keys, without_keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

IS_METADATA_HIDDEN = pyspark.__version__ < "4.2"
"""Whether Spark looks for columns of metadata below aliases of tables alone."""
TAGS = """
  pii: {key: pii}
  pay: {key: "pay-{day:%Y-%m}"}
  strict: {key: strict, on_denied: error}
  soft: {key: soft, on_denied: mask}
"""
ASK = "write to keys@example.org"
NESTED = "s STRUCT<a:INT,b:INT>, l ARRAY<STRUCT<x:INT,y:INT>>, m MAP<STRING,STRUCT<x:INT,y:INT>>"
VALUES = "(1, 'a', struct(1, 2), array(struct(1, 2), null), map('k', struct(5, 6))), (2, 'b', null, null, null)"
FULL = [(1, "a", (1, 2), [(1, 2), None], {"k": (5, 6)}), (2, "b", None, None, None)]
MASKED = [(1, None, (None, 2), [(None, 2), None], {"k": (None, 6)}), (2, None, None, None, None)]
LEAVES = {"email": ["pii"], "s.a": ["pii"], "l.element.x": ["pii"], "m.value.x": ["pii"]}


class Readers:
    """Two sessions of one application: one whose keys are all there, one who lacks some, and their tables."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.policy = lake.policy(TAGS, keys=("pay-2026-01", "pay-2026-02"), more=f"ask_for_access: {ASK}\n")
        poor = with_keys(self.policy, lake.root / "poor", without_keys("pii", "pay-2026-02", "strict", "soft"))
        self.poor_policy = poor
        self.rich = self._session(self.policy, None)
        self.poor = self._session(poor, "mask")

    def _session(self, policy: Policy, on_denied: Any) -> SparkSession:
        session = sparkcrypt.session(policy, on_denied=on_denied)
        session.sql(f"USE {self.lake.database}")
        return session

    def make(self, name: str, columns: str, tags: dict[str, list[str]], values: str) -> None:
        """Make a table with tags and rows, as the reader who may."""
        self.rich.sql(f"CREATE TABLE {name} {columns}")
        set_tags(self.rich, name, tags, self.policy)
        self.rich.sql(f"INSERT INTO {name} VALUES {values}")

    def ask(self, query: str) -> list[Any]:
        """Return what the poor reader gets of a query."""
        return self.poor.sql(query).collect()


@pytest.fixture
def readers(lake: Lake) -> Readers:
    """Both readers, beside each other."""
    return Readers(lake)


def of_metadata(session: SparkSession) -> DataFrame:
    """Return the rows of table ``t`` by a condition on its files."""
    return session.table("t").where("_metadata.file_size > 0").orderBy("id")


def routes(readers: Readers) -> dict[str, Callable[[], Any]]:
    """Return ways to the same rows of table ``t``, ordered by id."""
    poor, path = readers.poor, str(readers.lake.path("t"))
    shown = F.udf(lambda text: text)

    def streamed() -> list[Any]:
        rows = poor.readStream.schema(poor.read.parquet(path).schema).parquet(path)
        query = rows.writeStream.format("memory").queryName("streamed").trigger(availableNow=True).start()
        query.awaitTermination(120)
        return poor.table("streamed").orderBy("id").collect()

    return {
        "table": lambda: readers.ask("SELECT * FROM t ORDER BY id"),
        "path": lambda: poor.read.parquet(path).orderBy("id").collect(),
        "SQL path": lambda: readers.ask(f"SELECT * FROM parquet.`{path}` ORDER BY id"),
        "view": lambda: readers.ask("SELECT * FROM v ORDER BY id"),
        "another's global view": lambda: readers.ask("SELECT * FROM global_temp.of_rich ORDER BY id"),
        "self join": lambda: readers.ask(
            "SELECT x.id, x.email, y.s, x.l, y.m FROM t x JOIN t y USING (id) ORDER BY id"
        ),
        "subquery": lambda: readers.ask(
            "SELECT id, (SELECT max(email) FROM t) email, s, l, m FROM t WHERE id IN (SELECT id FROM t WHERE email IS "
            "NULL) AND EXISTS (SELECT 1 FROM t x WHERE x.id = t.id AND t.email IS NULL) ORDER BY id"
        ),
        "UDF": lambda: poor.table("t").withColumn("email", shown("email")).orderBy("id").collect(),
        "_metadata": lambda: of_metadata(poor).collect(),
        "stream": streamed,
    }


@pytest.mark.sparks
def test_routes_give_the_same_rows(readers: Readers) -> None:
    """Denied leaves are null and their siblings keep their values, whichever way a reader comes."""
    readers.make("t", f"(id INT, email STRING, {NESTED}) USING parquet", LEAVES, VALUES)
    readers.rich.sql("CREATE VIEW v AS SELECT * FROM t")
    readers.rich.table("t").createOrReplaceGlobalTempView("of_rich")
    asked = routes(readers)
    if IS_METADATA_HIDDEN:
        del asked["_metadata"]
        assert "`_metadata`.`file_size` cannot be resolved" in refusal(lambda: of_metadata(readers.poor).collect())
    found = {name: route() for name, route in asked.items()}
    assert found == dict.fromkeys(found, MASKED)
    readers.rich.table("t").cache().count()  # what it caches is nobody else's
    assert readers.rich.table("t").orderBy("id").collect() == FULL
    assert readers.ask("SELECT * FROM t ORDER BY id") == MASKED
    assert readers.ask("SELECT count(email) c FROM t") == [(0,)]
    frame = readers.poor.table("t")
    assert masked_columns(frame) == dict.fromkeys(
        ["email", "s.a", "l.element.x", "m.value.x"], "key pii of tag pii is missing"
    )
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "null AS email" in plan
    assert "ReadSchema: struct<id:int,s:struct<b:int>,l:array<struct<y:int>>,m:map<string,struct<y:int>>>" in plan


@pytest.mark.sparks
def test_hive_tables(readers: Readers) -> None:
    """A ``STORED AS PARQUET`` table is masked whether Spark converts it or Hive's SerDe reads it."""
    columns, values = "(id INT, email STRING, s STRUCT<a:INT,b:INT>) STORED AS PARQUET", "(1, 'a', struct(1, 2))"
    readers.make("h", columns, {"email": ["pii"], "s.a": ["pii"]}, values)
    assert readers.ask("SELECT * FROM h") == [(1, None, (None, 2))]
    readers.poor.conf.set("spark.sql.hive.convertMetastoreParquet", "false")
    assert readers.ask("SELECT id, email FROM h") == [(1, None)]
    said = refusal(lambda: readers.ask("SELECT s FROM h"))  # the SerDe reads whole structs
    assert "column s.a of table" in said


@pytest.mark.sparks
def test_partitions_and_tags(readers: Readers) -> None:
    """A template's key hides its month alone; a tag's ``error`` holds where a session masks, its ``mask`` elsewhere."""
    columns = "(id INT, pay INT, day STRING) USING parquet PARTITIONED BY (day)"
    values = "(1, 10, '2026-01-05'), (2, 20, '2026-02-07'), (3, 30, '2026-02-08')"
    readers.make("d", columns, {"pay": ["pay"]}, values)
    expected = [(1, 10), (2, None), (3, None)]
    assert readers.ask("SELECT id, pay FROM d ORDER BY id") == expected
    by_path = readers.poor.read.parquet(str(readers.lake.path("d"))).orderBy("id").select("id", "pay")
    assert by_path.collect() == expected
    assert masked_columns(by_path) == {"pay": "key pay-2026-02 of tag pay is missing in some partitions"}
    assert readers.ask("SELECT sum(pay) p FROM d WHERE day < '2026-02'") == [(10,)]
    readers.make("z", "(id INT, x STRING, y STRING) USING parquet", {"x": ["strict"], "y": ["soft"]}, "(1, 'q', 'r')")
    assert readers.ask("SELECT id, y FROM z") == [(1, None)]
    said = refusal(lambda: readers.ask("SELECT x FROM z"))
    assert "column x of table" in said
    assert f"To get access, {ASK}" in said
    readers.poor.conf.unset(names.ON_DENIED)
    assert readers.ask("SELECT y FROM z") == [(None,)]
    readers.poor.conf.set(names.ON_DENIED, "error")
    assert "column y of table" in refusal(lambda: readers.ask("SELECT y FROM z"))


@pytest.mark.sparks
def test_nothing_of_another_reader(readers: Readers) -> None:
    """Rows that another reader has made, and his nulls, are refused; each goes on reading what he may."""
    readers.make("t", "(id INT, email STRING) USING parquet", {"email": ["pii"]}, "(1, 'a')")
    readers.rich.table("t").localCheckpoint().createOrReplaceGlobalTempView("kept")
    readers.poor.table("t").createOrReplaceGlobalTempView("nulls")
    columns = "(id INT, pay INT, day STRING) USING parquet PARTITIONED BY (day)"
    readers.make("d", columns, {"pay": ["pay"]}, "(1, 10, '2026-01-05'), (2, 20, '2026-02-07')")
    readers.poor.table("d").createOrReplaceGlobalTempView("nulls_of_a_month")
    for session, view in ((readers.poor, "kept"), (readers.rich, "nulls"), (readers.rich, "nulls_of_a_month")):
        said = refusal(lambda session, view: session.table(f"global_temp.{view}").collect(), session, view)
        assert "reads with other keys" in said
    assert readers.rich.table("global_temp.kept").collect() == [(1, "a")]
    assert readers.poor.table("global_temp.nulls").collect() == [(1, None)]


@pytest.mark.sparks
def test_cached_rows_are_their_readers_own(readers: Readers) -> None:
    """Nobody is served what another reader cached, though he takes the other's mark; it is no step of the plan."""
    readers.make("t", "(id INT, email STRING) USING parquet", {"email": ["pii"]}, "(1, 'a')")
    path = str(readers.lake.path("t"))
    cached = [readers.rich.table("t"), readers.rich.read.parquet(path)]
    for frame in cached:
        assert frame.cache().count() == 1
        assert "InMemoryTableScan" in frame.select("email")._jdf.queryExecution().executedPlan().toString()
    leaf = cached[1]._jdf.queryExecution().analyzed().collectLeaves().head()
    options = leaf.relation().options()
    readers.poor.conf.set(names.ON_DENIED, "error")
    marked = readers.poor.read.option("sparkcrypt.reader", options.get("sparkcrypt.reader").get())
    for frame in (readers.poor.table("t"), readers.poor.read.parquet(path), marked.parquet(path)):
        assert "Filter" not in frame._jdf.queryExecution().analyzed().toString()
        said = refusal(frame.select("email").collect)
        assert "column email" in said
        assert "cannot be read by" in said
    for frame in cached:
        frame.unpersist()


@pytest.mark.sparks
def test_masked_nulls_are_not_stored(readers: Readers) -> None:
    """A write that masked columns decide on is refused by their names, and stores nothing; others go on."""
    columns = "(id INT, email STRING, s STRUCT<a:INT,b:INT>) USING parquet"
    readers.make("t", columns, {"email": ["pii"], "s.a": ["pii"]}, "(1, 'a', struct(1, 2))")
    readers.rich.sql("CREATE TABLE into (id INT, email STRING) USING parquet")
    queries = {
        "as it is": "CREATE TABLE c1 USING parquet AS SELECT * FROM t",
        "computed": "CREATE TABLE c2 USING parquet AS SELECT coalesce(email, '0') e FROM t",
        "condition": "CREATE TABLE c3 USING parquet AS SELECT id FROM t WHERE email IS NULL",
        "insert": "INSERT INTO into SELECT id, email FROM t",
        "union": "INSERT INTO into SELECT 1, 'x' UNION ALL SELECT id, email FROM t",
        "subquery": "INSERT INTO into SELECT 1, (SELECT max(email) FROM t)",
        "Hive": "CREATE TABLE c4 STORED AS PARQUET AS SELECT email FROM t",
        "CSV": f"INSERT OVERWRITE DIRECTORY '{readers.lake.root}/csv' USING csv SELECT email FROM t",
        "view": "CREATE VIEW kept AS SELECT email FROM t",
        "without repeats": "CREATE TABLE c6 USING parquet AS SELECT count(*) c FROM (SELECT DISTINCT email FROM t)",
        "taken away": "CREATE TABLE c7 USING parquet AS SELECT 'x' e EXCEPT SELECT email FROM t",
        "script": "CREATE TABLE c8 USING json AS SELECT TRANSFORM(email) USING 'cat' AS (e STRING) FROM t",
        "several tables": "FROM t INSERT INTO numbers SELECT id INSERT INTO into SELECT 1, coalesce(email, '0')",
    }
    readers.rich.sql("CREATE TABLE numbers (id INT) USING parquet")
    said = {name: refusal(readers.ask, query) for name, query in queries.items()}
    assert {name for name, text in said.items() if "column email (key pii of tag pii is missing)" not in text} == set()
    assert data_files(readers.lake.path("into")) == []
    readers.ask("CREATE TABLE c5 USING parquet AS SELECT id, s.b FROM (SELECT *, upper(email) u FROM t)")
    assert readers.ask("SELECT * FROM c5") == [(1, 2)]
    readers.ask(f"SET {names.ALLOW_MASKED}=true")
    readers.ask("INSERT INTO into SELECT id, 'known' FROM t WHERE email IS NULL")
    assert readers.ask("SELECT * FROM into") == [(1, "known")]


@pytest.mark.sparks
def test_rows_of_a_checkpoint_are_masked_still(readers: Readers) -> None:
    """Masked nulls that a checkpoint has kept decide on no write; its other columns can be written."""
    columns = "(id INT, email STRING, s STRUCT<a:INT,b:INT>) USING parquet"
    readers.make("t", columns, {"email": ["pii"], "s.a": ["pii"]}, "(1, 'a', struct(1, 2))")
    kept = readers.poor.table("t").localCheckpoint()
    folder = str(readers.lake.root / "kept")
    frames = {
        "condition": kept.where("email IS NULL").select("id"),
        "aggregate": kept.select(F.count("email").alias("c")),
        "computed": kept.select(F.coalesce("email", F.lit("0")).alias("e")),
        "struct": kept.select(F.to_json("s").alias("j")),
    }
    said = {name: refusal(frame.write.json, folder) for name, frame in frames.items()}
    assert {name for name, text in said.items() if "nulls in place of values" not in text} == set()
    kept.select("id", "s.b").write.json(folder)
    assert readers.rich.read.json(folder).collect() == [(2, 1)]


WHOLE = """id INT, s STRUCT<a:INT,b:INT>, l ARRAY<STRUCT<x:INT,y:INT>>, m MAP<STRING,STRUCT<x:INT,y:INT>>,
  k MAP<STRING,STRUCT<x:INT>>, n STRUCT<c:INT,t:STRUCT<d:INT>>, p STRUCT<a:INT,b:INT>, z INT"""
WHOLE_LEAVES = {
    path: ["pii"]
    for path in ("s.a", "s.b", "l.element.x", "l.element.y", "m.value.x", "m.value.y", "k.key", "n.t.d", "p.a")
}
WHOLE_VALUES = """(1, struct(1, 2), array(struct(1, 2)), map('k', struct(1, 2)), map('k', struct(1)),
  struct(1, struct(2)), struct(1, 2), 3)"""
BY_FIELDS = {
    "struct": ("s.a", "SELECT id FROM w WHERE s.a IS NULL"),
    "array": ("l.x", "SELECT id FROM w WHERE l.x IS NULL"),
    "item of an array": ("l.y", "SELECT id FROM w WHERE l[0].y IS NULL"),
    "element of an array": ("l.y", "SELECT id FROM w WHERE element_at(l, 1).y IS NULL"),
    "map": ("m.x", "SELECT id FROM w WHERE m['k'].x IS NULL"),
    "map without keys": ("k.x", "SELECT id FROM w WHERE k['k'].x IS NULL"),
    "struct in a struct": ("n.t.d", "SELECT id FROM w WHERE n.t.d IS NULL"),
    "order": ("s.a", "SELECT id FROM w ORDER BY s.a LIMIT 1"),
    "join": ("s.a", "SELECT w.id FROM w JOIN w o ON w.s.a <=> o.id"),
    "group": ("s.b", "SELECT count(*) c FROM w GROUP BY s.b"),
    "window": ("s.a", "SELECT row_number() OVER (ORDER BY s.a) r FROM w"),
    "subquery": ("s.a", "SELECT id FROM w WHERE id NOT IN (SELECT s.a FROM w WHERE s.a IS NOT NULL)"),
    "renamed": ("s.a", "SELECT id FROM (SELECT id, s AS q FROM w) WHERE q.a IS NULL"),
    "field renamed": ("n.t.d", "SELECT id FROM (SELECT id, n.t AS q FROM w) WHERE q.d IS NULL"),
    "union": ("s.b", "SELECT id FROM (SELECT id, s FROM w UNION ALL SELECT id, s FROM w) WHERE s.b IS NULL"),
    "view": ("s.a", "SELECT id FROM whole WHERE s.a IS NULL"),
    "view of a part": ("p.a", "SELECT id FROM whole WHERE p.a IS NULL"),
    "place in an array": ("p.a", "SELECT array(struct(id))[p.a].id i FROM w"),
    "least by a denied field": ("p", "SELECT min(p).b b FROM w"),
}
"""Queries that masked nulls decide on by a field, and the field."""


@pytest.fixture(scope="module")
def by_fields(spark: SparkSession, private_jar: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Readers]:
    """A table of structs, lists and maps without a readable leaf, and one in which a month's leaf is denied."""
    with new_lake(spark, tmp_path_factory.mktemp("fields")) as lake:
        readers = Readers(lake)
        readers.make("w", f"({WHOLE}) USING parquet", WHOLE_LEAVES, WHOLE_VALUES)
        readers.rich.sql("CREATE VIEW whole AS SELECT * FROM w")
        columns = "(id INT, s STRUCT<a:INT,b:INT>, day STRING) USING parquet PARTITIONED BY (day)"
        values = "(1, struct(1, 2), '2026-01-05'), (2, struct(3, 4), '2026-02-07')"
        readers.make("d", columns, {"s.a": ["pay"]}, values)
        yield readers


@pytest.mark.sparks
@pytest.mark.parametrize("name", BY_FIELDS)
def test_fields_of_a_masked_column_decide_on_no_write(by_fields: Readers, name: str) -> None:
    """A value without a readable leaf is null as a whole: none of its fields may choose or make a stored row."""
    column, query = BY_FIELDS[name]
    by_fields.ask("DROP TABLE IF EXISTS f")
    said = refusal(by_fields.ask, f"CREATE TABLE f USING parquet AS {query}")
    assert f"column {column} (" in said
    assert "nulls in place of values" in said


@pytest.mark.sparks
def test_fields_of_a_month_decide_on_no_write(by_fields: Readers) -> None:
    """A field that is denied in some partitions is guarded, its sibling is not."""
    by_fields.ask("DROP TABLE IF EXISTS f")
    said = refusal(by_fields.ask, "CREATE TABLE f USING parquet AS SELECT id FROM d WHERE s.a IS NULL")
    assert "column s.a (" in said
    by_fields.ask("CREATE TABLE of_month USING parquet AS SELECT id FROM d WHERE s.b > 0")
    assert by_fields.ask("SELECT * FROM of_month ORDER BY id") == [(1,), (2,)]


@pytest.mark.sparks
def test_readable_fields_are_written(by_fields: Readers) -> None:
    """Readable fields of partly denied structs can be stored and used, through views and under other names too."""
    for query in (
        "SELECT id, p.b FROM w WHERE n.c = 1 AND p.b = 2",
        "SELECT id, 2 b FROM whole WHERE n.c = 1 ORDER BY p.b",
        "SELECT id, 2 b FROM (SELECT id, p AS q FROM w UNION ALL SELECT id, p FROM w WHERE id < 0) WHERE q.b = 2",
        "SELECT id, array(p.b)[0] b FROM w",
    ):
        by_fields.ask("DROP TABLE IF EXISTS readable")
        by_fields.ask(f"CREATE TABLE readable USING parquet AS {query}")
        assert by_fields.ask("SELECT * FROM readable") == [(1, 2)]


@pytest.mark.sparks
def test_fields_of_a_checkpoint_decide_on_no_write(by_fields: Readers) -> None:
    """A checkpoint keeps which columns are masked as a whole."""
    kept = by_fields.poor.table("w").localCheckpoint()
    folder = str(by_fields.lake.root / "kept")
    for condition in ("s.a IS NULL", "l.x IS NULL", "m['k'].x IS NULL", "n.t.d IS NULL"):
        assert "nulls in place of values" in refusal(kept.where(condition).select("id").write.json, folder)
    kept.where("n.c = 1").select("id", "p.b").write.json(folder)
    assert by_fields.rich.read.json(folder).collect() == [(2, 1)]


@pytest.mark.sparks
def test_masks_need_rules(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that was made without the rules cannot mask; the message names the line, and nothing was set."""
    monkeypatch.setattr(
        "sparkcrypt.spark.setup.session.has_rules", lambda _: False
    )  # as of one that lived before the jar
    policy = make_policy(lake.root / "p")
    with pytest.raises(ConfigError, match=r"--conf spark\.sql\.extensions=io\.sparkcrypt\.SparkcryptExtensions"):
        configure(lake.spark, policy, on_denied="mask")
    assert lake.spark.conf.get(names.POLICY, None) is None
    with pytest.raises(ConfigError, match="allowed: error, mask"):
        configure(lake.spark, policy, on_denied="drop")  # type: ignore[arg-type]


@pytest.fixture
def policy(lake: Lake) -> Policy:
    """The policy of a partitioned table with two encrypted columns, one of them in a struct."""
    policy = lake.policy()
    lake.sql("CREATE TABLE t (id INT, email STRING, s STRUCT<a:INT,b:INT>, p INT) USING parquet PARTITIONED BY (p)")
    set_tags(lake.spark, "t", {"email": ["pii"], "s.a": ["fin"]}, policy)
    lake.sql("INSERT INTO t VALUES (1, 'a', struct(1, 2), 0), (2, 'b', struct(3, 4), 1)")
    return policy


def test_all_keys_there(lake: Lake, policy: Policy) -> None:
    """With every key both modes give what was written, and a report without a denied column."""
    expected = [(1, "a", (1, 2), 0), (2, "b", (3, 4), 1)]
    reports: list[ReadReport] = []
    for mode in ("error", "mask"):
        assert rows_of(read_table(lake.spark, "t", policy, on_denied=mode, report=reports.append)) == expected
    assert [(report.on_denied, report.denied) for report in reports] == [("error", ()), ("mask", ())]


def test_denied_column_is_an_error_by_default(lake: Lake, policy: Policy) -> None:
    """A query that touches a denied column fails and names its key; other columns stay readable."""
    poor = with_keys(policy, lake.root / "poor", without_keys("pii"))
    frame = read_table(lake.spark, "t", poor)
    assert rows_of(frame.select("id")) == [(1,), (2,)]
    said = refusal(frame.select("email").collect)
    assert "KeyNotFoundError: column email of table" in said
    assert "its key 'pii' is not there. To get access, ask whoever" in said
    assert rows_of(lake.sql("SELECT email FROM t")) == [("a",), ("b",)]  # the session is as it was


def test_denied_columns_are_null_where_asked_for(lake: Lake, policy: Policy) -> None:
    """``on_denied="mask"`` gives typed nulls for denied leaves alone, and reports them; ``drop`` leaves out columns."""
    poor = with_keys(policy, lake.root / "poor", without_keys("fin"))
    frame = read_table(lake.spark, "t", poor, on_denied="mask")
    assert rows_of(frame) == [(1, "a", (None, 2), 0), (2, "b", (None, 4), 1)]
    assert frame.schema["s"].dataType.simpleString() == "struct<a:int,b:int>"
    without, reports = with_keys(policy, lake.root / "without", without_keys("pii")), list[ReadReport]()
    nulls = read_table(lake.spark, "t", without, on_denied="mask", report=reports.append)
    assert rows_of(nulls) == [(1, None, (1, 2), 0), (2, None, (3, 4), 1)]
    assert (nulls.schema["email"].dataType.simpleString(), nulls.schema["email"].metadata["tags"]) == (
        "string",
        ["pii", "!masked"],
    )
    assert masked_columns(nulls) == {"email": "key pii of tag pii is missing"}
    assert [report.to_dict() for report in reports] == [{"table": "t", "on_denied": "mask", "denied": ["email"]}]
    assert rows_of(read_table(lake.spark, "t", without, on_denied="drop")) == [(1, (1, 2), 0), (2, (3, 4), 1)]
    assert rows_of(lake.sql("SELECT * FROM t")) == [(1, "a", (1, 2), 0), (2, "b", (3, 4), 1)]


def test_denied_footer_key_is_always_an_error(lake: Lake, policy: Policy) -> None:
    """Without the footer key nothing can be read, in either mode."""
    poor = with_keys(policy, lake.root / "poor", without_keys("footer"))
    with pytest.raises(KeyNotFoundError, match="'footer'"):
        read_table(lake.spark, "t", poor, on_denied="mask")
    assert "KeyNotFoundError" in refusal(lambda: read_table(lake.spark, "t", poor).collect())


def test_other_modes_are_refused(lake: Lake, policy: Policy) -> None:
    """Only ``error``, ``mask`` and ``drop`` are modes."""
    with pytest.raises(ConfigError, match="allowed: error, mask, drop"):
        read_table(lake.spark, "t", policy, on_denied="null")  # type: ignore[arg-type]

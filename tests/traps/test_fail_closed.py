"""Traps of writing: each ends in an error that names what is wrong and leaves no file, never in plaintext."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sparkcrypt import configure, plan_table, verify_table
from sparkcrypt.errors import BridgeError, ConfigError, PlanError
from sparkcrypt.names import PYTHON, REQUIRE_ENCRYPTION, TAGS_PREFIX
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.setup.options import launch_conf, write_options
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.identity import ensure_identity
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.support import (
    SECRET,
    Lake,
    assert_encrypted,
    assert_plaintext,
    data_files,
    make_policy,
    read_options,
    refusal,
    rows_of,
    with_keys,
    without_keys,
)

pytestmark = pytest.mark.spark


def tagged(lake: Lake, tag: str = "pii", name: str = "email") -> DataFrame:
    """One row with a tagged column."""
    return lake.spark.range(1).select("id", F.lit(SECRET).alias(name, metadata={"tags": [tag]}))


def assert_refused(lake: Lake, frame: DataFrame, *words: str, **options: str) -> None:
    """Assert that a write is refused in these words, and leaves no file."""
    path = lake.root / "refused"
    said = refusal(lambda: frame.write.mode("overwrite").options(**options).parquet(str(path)))
    assert [word for word in words if word not in said] == []
    assert data_files(path) == []
    assert SECRET.encode() not in b"".join(file.read_bytes() for file in path.rglob("*") if file.is_file())


def test_unknown_tag(lake: Lake) -> None:
    """A tag that the policy does not define refuses the write, naming column, tag and the allowed ones."""
    lake.policy()
    assert_refused(
        lake, tagged(lake, "pi"), "PlanError", "column email carries the tag 'pi'", "allowed: pii, fin, public"
    )


def test_absent_key(lake: Lake) -> None:
    """A key that the key service lacks refuses the write, naming it."""
    policy = lake.policy()
    configure(lake.spark, with_keys(policy, lake.root / "poor", without_keys("pii")))
    assert_refused(lake, tagged(lake), "KeyNotFoundError", "'pii'")


def test_absent_footer_key(lake: Lake) -> None:
    """The footer key is needed as well."""
    policy = lake.policy()
    configure(lake.spark, with_keys(policy, lake.root / "poor", without_keys("footer")))
    assert_refused(lake, tagged(lake), "KeyNotFoundError", "'footer'")


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("parquet.encryption.colum.keys", "did you mean parquet.encryption.column.keys?"),
        ("parquet.encryption.footer.keys", "did you mean parquet.encryption.footer.key?"),
        ("parquet.sparkcrypt.tgas.x", "did you mean parquet.sparkcrypt.tags."),
        ("parquet.sparkcrypt.tag.x", "did you mean parquet.sparkcrypt.tags."),
        ("parquet.sparkcrypt.require_encription", "did you mean parquet.sparkcrypt.require_encryption?"),
    ],
)
def test_misspelt_option(lake: Lake, option: str, hint: str) -> None:
    """A misspelt option refuses the write and says the right one, whether any tag is there or not."""
    lake.policy()
    assert_refused(lake, tagged(lake), "ConfigError", f"option {option} is not known", hint, **{option: "pii"})
    assert_refused(lake, lake.spark.range(1).toDF("id"), "ConfigError", hint, **{option: "pii"})


@pytest.mark.parametrize("option", ["column.keys", "footer.key", "uniform.key", "complete.columns"])
def test_keys_set_by_hand(lake: Lake, option: str) -> None:
    """Parquet's own key properties beside the policy are refused: two masters would differ."""
    lake.policy()
    name = f"parquet.encryption.{option}"
    assert_refused(lake, tagged(lake), "ConfigError", f"{name} is set by hand", **{name: "pii:email"})
    lake.spark.conf.set(name, "pii:email")
    assert_refused(lake, tagged(lake), "ConfigError", f"{name} is set by hand")


def test_tblproperties_of_a_using_parquet_table(lake: Lake) -> None:
    """TBLPROPERTIES of a data source table reach no writer: CREATE refuses them; after ALTER the plan has no tag."""
    policy = lake.policy()
    properties = f"TBLPROPERTIES ('{TAGS_PREFIX}email'='pii', '{REQUIRE_ENCRYPTION}'='true')"
    create = "CREATE TABLE t (id INT, email STRING) USING parquet"
    assert "reach no writer" in refusal(lake.sql, f"{create} {properties}")
    lake.sql(create)
    lake.sql(f"ALTER TABLE t SET {properties}")
    assert plan_table(lake.spark, "t", policy).encrypted == ()
    required = make_policy(lake.root / "strict", tables=f"  {lake.name('t')}: {{require_encryption: true}}\n")
    configure(lake.spark, required)
    with pytest.raises(PlanError, match="requires encryption, but no column carries a tag"):
        plan_table(lake.spark, "t", required)
    assert "requires encryption" in refusal(lambda: lake.sql(f"INSERT INTO t VALUES (1, '{SECRET}')"))
    assert data_files(lake.path("t")) == []
    set_tags(lake.spark, "t", {"email": ["pii"]}, required)
    lake.sql(f"INSERT INTO t VALUES (1, '{SECRET}')")
    assert_encrypted(lake.path("t"), required, {"email": "pii"}, visible=())


@pytest.mark.parametrize("convert", ["true", "false"])
def test_hive_table_whose_tags_are_in_metadata_alone(lake: Lake, convert: str) -> None:
    """Tags that are in the stored schema alone reach Spark's own writer, and by the extension Hive's SerDe as well."""
    policy = lake.policy(tables=f"  {lake.name('t')}: {{require_encryption: true}}\n")
    lake.spark.conf.set("spark.sql.hive.convertMetastoreParquet", convert)
    lake.sql("CREATE TABLE t (id INT, email STRING) STORED AS PARQUET")
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    lake.sql(f"ALTER TABLE t UNSET TBLPROPERTIES ('{TAGS_PREFIX}email')")
    lake.spark.catalog.refreshTable("t")
    lake.sql(f"INSERT INTO t VALUES (1, '{SECRET}')")
    assert_encrypted(lake.path("t"), policy, {"email": "pii"}, visible=())


def test_table_property_alone_requires_encryption(lake: Lake) -> None:
    """``require_encryption`` as a table's own option refuses a write in which no tag arrives."""
    lake.policy()
    lake.sql(f"CREATE TABLE t (id INT, email STRING) USING parquet OPTIONS ('{REQUIRE_ENCRYPTION}' 'true')")
    assert "requires encryption" in refusal(lambda: lake.sql(f"INSERT INTO t VALUES (1, '{SECRET}')"))
    assert data_files(lake.path("t")) == []


@pytest.mark.parametrize(
    ("name", "value"), [("parquet.summary.metadata.level", "ALL"), ("parquet.enable.summary-metadata", "true")]
)
def test_summary_files(lake: Lake, name: str, value: str) -> None:
    """Summary files would hold statistics of encrypted columns in clear: asking for them refuses the write."""
    lake.policy()
    assert_refused(lake, tagged(lake), "PlanError", "minimum and maximum of encrypted columns", **{name: value})
    lake.spark.conf.set(name, value)
    assert_refused(lake, tagged(lake), "PlanError", "summary")
    lake.spark.range(1).write.parquet(str(lake.root / "plain"))  # nothing is encrypted, so nothing leaks


def test_ignore_corrupt_files_refuses_configure(lake: Lake) -> None:
    """``configure`` refuses a session that skips unreadable files, and changes nothing in it."""
    policy = make_policy(lake.root / "p")
    lake.spark.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    with pytest.raises(ConfigError, match="ignoreCorruptFiles is true"):
        configure(lake.spark, policy)
    assert lake.spark.conf.get("parquet.crypto.factory.class", None) is None


def test_ignore_corrupt_files_gives_no_silent_nothing(lake: Lake) -> None:
    """Switched on later, by SET or by option, with a denied key: an error, never fewer rows."""
    policy = lake.policy()
    path = str(lake.root / "out")
    tagged(lake).write.parquet(path)
    poor = with_keys(policy, lake.root / "poor", without_keys("pii"))
    schema = "id LONG, email STRING"
    for options in ({"ignoreCorruptFiles": "true"}, {"IgnoreCorruptFiles": "TRUE"}):
        read = lake.spark.read.schema(schema).options(**read_options(poor), **options)
        assert "ignoreCorruptFiles" in refusal(read.parquet(path).collect)
    lake.spark.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    for vectorized in ("true", "false"):
        lake.spark.conf.set("spark.sql.parquet.enableVectorizedReader", vectorized)
        frame = lake.spark.read.schema(schema).options(**read_options(poor)).parquet(path)
        assert "ignoreCorruptFiles" in refusal(frame.collect)
        assert "ignoreCorruptFiles" in refusal(frame.count)


def test_analyze_leaves_no_statistics_of_encrypted_columns(lake: Lake) -> None:
    """ANALYZE … FOR COLUMNS keeps the statistics of plaintext columns only; row counts stay."""
    policy = lake.policy()
    lake.spark.conf.set("spark.sql.statistics.histogram.enabled", "true")
    for table, kind in (("t", "USING parquet"), ("h", "STORED AS PARQUET")):
        lake.sql(f"CREATE TABLE {table} (id INT, salary INT) {kind}")
        set_tags(lake.spark, table, {"salary": ["fin"]}, policy)
        lake.sql(f"INSERT INTO {table} VALUES (1, 4711), (2, 815)")
        for columns in ("FOR COLUMNS id, salary", "FOR ALL COLUMNS"):
            lake.sql(f"ANALYZE TABLE {table} COMPUTE STATISTICS {columns}")
            lake.spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
            statistics = Catalog(lake.spark).statistics(Catalog(lake.spark).table(table))
            assert "salary" not in str(statistics.colStats())
            assert "id" in str(statistics.colStats())
            assert statistics.rowCount().get() == 2
        properties = str(lake.sql(f"SHOW TBLPROPERTIES {table}").collect())
        assert "4711" not in properties


def test_session_that_was_never_configured(lake: Lake) -> None:
    """It writes plaintext into a tagged table, which only a look at the files can find: verify does, reads refuse."""
    policy = lake.policy(tables=f"  {lake.name('t')}: {{require_encryption: true}}\n")
    lake.sql("CREATE TABLE t (id INT, email STRING) USING parquet")
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    lake.sql(f"INSERT INTO t VALUES (1, '{SECRET}')")
    assert verify_table(lake.spark, lake.name("t"), policy).ok
    with lake.stranger() as stranger:
        stranger.sql("INSERT INTO t VALUES (2, 'in clear')")
    found = verify_table(lake.spark, lake.name("t"), policy)
    assert [drift.kind for drift in found.drift] == ["plaintext"]
    lake.spark.catalog.refreshTable("t")
    for query in ("SELECT * FROM t", "SELECT count(*) FROM t", "SELECT max(id) FROM t"):
        assert "requires encryption" in refusal(lambda query: lake.sql(query).collect(), query)


def test_factory_without_policy(lake: Lake) -> None:
    """The crypto factory without a policy refuses writes and reads: nothing says what may be in clear."""
    policy = lake.policy()
    lake.spark.range(3).write.parquet(str(lake.root / "plain"))
    for value in ("", " "):
        lake.spark.conf.set("parquet.sparkcrypt.policy", value)
        tagged(lake).write.mode("overwrite").parquet(str(lake.root / "out"))  # the session is under its policy still
        assert_encrypted(lake.root / "out", policy, {"email": "pii"}, visible=())
        lake.spark.conf.set("parquet.sparkcrypt.session_token", value)
        assert_refused(lake, lake.spark.range(1).toDF("id"), "ConfigError", "parquet.sparkcrypt.policy")
        assert "parquet.sparkcrypt.policy" in refusal(
            lambda: lake.spark.read.parquet(str(lake.root / "plain")).collect()
        )
        configure(lake.spark, policy)


def test_policy_that_cannot_be_read(lake: Lake) -> None:
    """A policy that was cut or edited by hand refuses the write."""
    policy = lake.policy()
    for text in (
        policy.canonical()[:-20],
        "{}",
        policy.canonical().replace('"untagged":"plaintext"', '"untagged":"yes"'),
    ):
        lake.spark.conf.set("parquet.sparkcrypt.policy", text)
        assert_refused(lake, tagged(lake), "ConfigError")


def test_session_does_not_choose_the_interpreter(lake: Lake) -> None:
    """SET of any spelling of the interpreter's name executes nothing, also through ``configure``."""
    evil = lake.root / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {lake.root / 'executed'}\n")
    evil.chmod(0o755)
    for name in (PYTHON, "sparkcrypt.python", "spark.hadoop.sparkcrypt.python", "parquet.sparkcrypt.python"):
        if name.startswith("parquet."):
            continue  # refused as an option that is not known
        lake.sql(f"SET {name}={evil}")
    policy = lake.policy()
    tagged(lake).write.option("sparkcrypt.python", str(evil)).parquet(str(lake.root / "out"))
    assert_encrypted(lake.root / "out", policy, {"email": "pii"}, visible=())
    assert not (lake.root / "executed").exists()
    assert_refused(
        lake, tagged(lake), "parquet.sparkcrypt.python is not known", **{"parquet.sparkcrypt.python": str(evil)}
    )


def test_access_token_of_a_session_is_overridden(lake: Lake) -> None:
    """Two tenants that set one token share no key: each file opens with its own tenant's keys and no other's."""
    token = {"parquet.encryption.key.access.token": "the same for both"}
    lake.policy()
    tenants = [make_policy(lake.root / f"tenant{number}") for number in range(2)]
    for number, policy in enumerate(tenants):
        tagged(lake).write.options(**read_options(policy), **token).parquet(str(lake.root / f"out{number}"))
    for number, own in enumerate(tenants):
        path, other = str(lake.root / f"out{number}"), tenants[1 - number]
        mine = lake.spark.read.options(**read_options(own), **token).parquet(path)
        assert rows_of(mine) == [(0, SECRET)]
        theirs = lake.spark.read.options(**read_options(other), **token)
        assert "KeyServiceError" in refusal(lambda read, path: read.parquet(path).collect(), theirs, path)


def test_other_crypto_factory_is_found_by_configure(lake: Lake) -> None:
    """``configure`` wins over a stock factory that was set before, and the session encrypts by tag."""
    stock = "org.apache.parquet.crypto.keytools.PropertiesDrivenCryptoFactory"
    lake.spark.conf.set("parquet.crypto.factory.class", stock)
    policy = lake.policy()
    tagged(lake).write.parquet(str(lake.root / "out"))
    assert_encrypted(lake.root / "out", policy, {"email": "pii"}, visible=())


def test_throw_away_key_service_is_no_policy_s(lake: Lake) -> None:
    """The key service of probes, whose keys stand in its configuration, is refused wherever a policy is set."""
    made = make_policy(lake.root / "p")
    service = KeyServiceConfig.from_dict({"type": "ephemeral", "secret": "ab" * 32})
    policy = replace(made, key_service=service)
    with pytest.raises(ConfigError, match="'ephemeral' holds its keys in its own configuration"):
        configure(lake.spark, policy)
    with pytest.raises(ConfigError, match="'ephemeral' holds its keys in its own configuration"):
        launch_conf(policy, "any.jar")
    assert lake.spark.conf.get("parquet.crypto.factory.class", None) is None


def test_untagged_deny(lake: Lake) -> None:
    """With ``untagged: deny`` a column without a tag refuses the write."""
    lake.policy(untagged="deny")
    assert_refused(lake, tagged(lake), "column id carries no tag", "untagged: deny")


def test_tag_of_a_column_that_is_not_there(lake: Lake) -> None:
    """A tag option for a column that the file lacks is an error: a misspelt column would stay in clear."""
    lake.policy()
    assert_refused(lake, tagged(lake), "column emial", "no such column", **{f"{TAGS_PREFIX}emial": "pii"})


def test_tag_lost_by_an_rdd_is_refused_where_encryption_is_required(lake: Lake) -> None:
    """Rows that went through an RDD carry no tag: a table that requires encryption takes them by path neither.

    Rows with tags that the table lacks are taken where the policy says so, and encrypted.
    """
    policy = lake.policy(tables=f"  {lake.name('t')}: {{require_encryption: true, inherit: observe}}\n")
    lake.sql("CREATE TABLE t (id LONG, email STRING) USING parquet")
    ensure_identity(lake.spark, "t")
    configure(lake.spark, policy)
    rows = tagged(lake).select("id", F.upper("email").alias("email"))
    frame = lake.spark.createDataFrame(rows.rdd, "id LONG, email STRING")
    said = refusal(lambda: frame.write.mode("append").parquet(str(lake.path("t"))))
    assert "requires encryption" in said
    assert data_files(lake.path("t")) == []
    rows.write.mode("append").parquet(str(lake.path("t")))
    assert_encrypted(lake.path("t"), policy, {"email": "pii"}, visible=())


def test_enforce_false_only_observes(lake: Lake) -> None:
    """``enforce: false`` writes plaintext on purpose, for that table alone."""
    policy = lake.policy(tables=f"  {lake.name('t')}: {{enforce: false}}\n")
    tagged(lake).write.saveAsTable("t")
    assert_plaintext(lake.path("t"))
    tagged(lake).write.saveAsTable("u")
    assert_encrypted(lake.path("u"), policy, {"email": "pii"}, visible=())


def test_probe_says_when_nothing_is_encrypted(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session whose writes come out in clear is a BridgeError at ``configure``."""
    from sparkcrypt.spark.setup import session

    policy = make_policy(lake.root / "p")

    def stripped(policy: Policy) -> dict[str, str]:
        return {name: value for name, value in write_options(policy).items() if "factory" not in name}

    monkeypatch.setattr(session, "write_options", stripped)
    monkeypatch.setattr(session, "_probed", set())
    with pytest.raises(BridgeError, match="another crypto factory is in force"):
        configure(lake.spark, policy)

"""Access events: what readers of a real table leave in the log of their policy, and what happens without the log."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from sparkcrypt import configure
from sparkcrypt.decide.access_log import Record, read_accesses
from sparkcrypt.policy.model import AccessLogRule, Policy
from tests.conftest import FreshJvm
from tests.spark.fixtures import new_lake
from tests.spark.fresh_scripts import START, run
from tests.spark.sessions import run_command
from tests.spark.support import Lake, make_policy, refusal, with_keys, without_keys

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
TAGS = """
  pii: {key: pii}
  fin: {key: fin}
  soft: {key: soft, on_denied: mask}
"""
FILES = 2
WAIT_SECONDS = 30.0
QUIET_SECONDS = 4.0
VALUE = "needle-7"


class Logged:
    """A session under a policy with a log, and a table of two files."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.table = lake.name("t")
        self.policy = lake.policy(TAGS, more="access_log: {location: log/}\n")
        columns = [("a", "pii"), ("b", "pii"), ("c", "fin"), ("d", "soft")]
        value = F.concat(F.lit("needle-"), "id")
        tagged = [value.alias(name, metadata={"tags": [tag]}) for name, tag in columns]
        rows = lake.spark.range(10).repartition(FILES).select("id", *tagged)
        rows.write.saveAsTable("t")

    @property
    def log(self) -> Path:
        """The folder of the log."""
        assert self.policy.access_log is not None
        return Path(self.policy.access_log.location)

    def under(self, policy: Policy, on_denied: Any = None) -> SparkSession:
        """Return a further session under a policy."""
        session = self.lake.spark.newSession()
        configure(session, policy, on_denied=on_denied)
        session.sql(f"USE {self.lake.database}")
        return session

    def accesses(self, column: str, log: Path | None = None) -> list[Record]:
        """Return what the log has of a column."""
        folder = log or self.log
        today = datetime.now(timezone.utc).date()
        return read_accesses(folder, f"{self.table}.{column}", today).accesses if folder.is_dir() else []

    def heard(self, column: str, action: Callable[[], Any], log: Path | None = None, count: int = 1) -> Record:
        """Return the one access of a column that an action leaves, once *count* of its keys are written.

        What earlier accesses still have to say, of their last task or of their query, is none of it.
        """
        before = {_identity(access) for access in self.accesses(column, log)}
        action()
        deadline = time.monotonic() + WAIT_SECONDS
        found: list[Record] = []
        while time.monotonic() < deadline and sum(access["count"] for access in found) < count:
            time.sleep(0.2)
            found = [access for access in self.accesses(column, log) if _identity(access) not in before]
        assert len(found) == 1, f"accesses of {column} that were written: {found}"
        return found[0]

    def settled(self, column: str) -> list[Record]:
        """Return the accesses of a column when nothing was added to them for longer than a JVM keeps its events."""
        deadline, quiet_since, last = time.monotonic() + WAIT_SECONDS, time.monotonic(), self.accesses(column)
        while time.monotonic() < min(deadline, quiet_since + QUIET_SECONDS):
            time.sleep(0.2)
            if (now := self.accesses(column)) != last:
                quiet_since, last = time.monotonic(), now
        return last


def _identity(access: Record) -> tuple[Any, ...]:
    """Return what never changes of an access: the record of its query may come later, and then names its route."""
    names = ("application", "execution", "principal", "table", "key", "outcome", "why")
    return (*(access[name] for name in names), access["route"] if access["execution"] is None else None)


@pytest.fixture(scope="module")
def logged(spark: SparkSession, private_jar: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Logged]:
    """One table and one log for all tests of this module."""
    with new_lake(spark, tmp_path_factory.mktemp("access")) as lake:
        yield Logged(lake)


def stream(logged: Logged) -> None:
    """Read column ``a`` by a stream over the table's folder."""
    table = logged.lake.spark.table("t")
    rows = logged.lake.spark.readStream.schema(table.schema).parquet(str(logged.lake.path("t"))).select("a")
    rows.writeStream.format("noop").trigger(availableNow=True).start().awaitTermination(120)


ROUTES: dict[str, tuple[Callable[[Logged], Any], str]] = {
    "collect": (lambda logged: logged.lake.sql("SELECT a FROM t").collect(), "sql"),
    "rdd.collect": (lambda logged: logged.lake.sql("SELECT a FROM t").rdd.collect(), "rdd"),
    "toLocalIterator": (lambda logged: list(logged.lake.sql("SELECT a FROM t").toLocalIterator()), "sql"),
    "foreach": (lambda logged: logged.lake.sql("SELECT a FROM t").foreach(lambda row: None), "rdd"),
    "by path": (lambda logged: logged.lake.spark.read.parquet(str(logged.lake.path("t"))).select("a").collect(), "sql"),
    "a stream": (stream, "stream"),
}


@pytest.mark.parametrize("name", ROUTES)
def test_each_route_leaves_one_event(logged: Logged, name: str) -> None:
    """One execution that reads a column of two files is one access of two keys, with who, where, what and when."""
    action, route = ROUTES[name]
    access = logged.heard("a", lambda: action(logged), count=FILES)
    context = logged.lake.spark.sparkContext
    assert (access["principal"], access["application"]) == (context.sparkUser(), context.applicationId)
    assert (access["table"], access["columns"], access["key"]) == (logged.table, ["a"], "pii")
    assert (access["outcome"], access["why"], access["count"], access["route"]) == ("opened", None, FILES, route)
    assert access["execution"] is not None and access["time"] <= access["last"]


def test_executions_and_columns_are_counted_apart(logged: Logged) -> None:
    """Two executions are two accesses, whose columns under one key are told; what is not read is not there."""
    first = logged.heard("b", lambda: logged.lake.sql("SELECT a, b FROM t").collect(), count=2 * FILES)
    second = logged.heard("b", lambda: logged.lake.sql("SELECT b FROM t").collect(), count=FILES)
    assert first["execution"] != second["execution"]
    assert (first["count"], second["count"]) == (2 * FILES, FILES)
    assert {entry["execution"] for entry in logged.accesses("c")} & {first["execution"], second["execution"]} == set()


def test_a_read_from_cache_is_no_event(logged: Logged) -> None:
    """A key is opened when the cache is filled, and by no query that it serves."""
    frame = logged.lake.sql("SELECT c FROM t")
    logged.heard("c", lambda: frame.cache().count(), count=FILES)
    before = {_identity(access): access["count"] for access in logged.accesses("c")}
    assert len(frame.collect()) == 10
    logged.heard("a", lambda: logged.lake.sql("SELECT a FROM t").collect())  # written after it, if it were written
    assert {_identity(access): access["count"] for access in logged.accesses("c")} == before
    frame.unpersist()


def test_the_listener_adds_a_digest_that_tells_equal_texts(logged: Logged) -> None:
    """Two executions of one text have one digest, another text another; nothing of any text or value is in the log."""
    texts = [f"SELECT a FROM t WHERE a = '{VALUE}'", f"SELECT a FROM t WHERE a = '{VALUE}'", "SELECT a FROM t LIMIT 1"]
    executions = [logged.heard("a", logged.lake.sql(text).collect)["execution"] for text in texts]
    deadline = time.monotonic() + WAIT_SECONDS
    digests: list[str | None] = [None]
    while None in digests and time.monotonic() < deadline:
        by_execution = {access["execution"]: access["query_digest"] for access in logged.accesses("a")}
        digests = [by_execution[execution] for execution in executions]
        time.sleep(0.2)
    assert digests[0] == digests[1] != digests[2]
    assert all(digest and len(digest) == 64 for digest in digests)
    written = b"".join(file.read_bytes() for file in logged.log.rglob("*.jsonl"))
    assert b"needle" not in written and b"SELECT" not in written


@pytest.mark.parametrize("key", ["pii", "footer"])
def test_a_refusal_is_an_event(logged: Logged, key: str) -> None:
    """Who is refused a column's key, or the footer's, is in the log with the key and the reason."""
    poor = logged.under(with_keys(logged.policy, logged.lake.root / f"poor-{key}", without_keys(key)))
    access = logged.heard("a", lambda: refusal(lambda: poor.sql("SELECT a FROM t").collect()))
    assert (access["outcome"], access["why"], access["key"]) == ("refused", "missing", key)
    assert access["columns"] == (["a"] if key == "pii" else [])
    assert access["execution"] is not None or key == "footer"


def test_a_masked_column_is_an_event(logged: Logged) -> None:
    """Whoever gets nulls in place of a column is in the log, with the column, its key and the reason."""
    poor = logged.under(with_keys(logged.policy, logged.lake.root / "soft", without_keys("soft")), "mask")
    access = logged.heard("d", lambda: poor.sql("SELECT id, d FROM t").collect())
    assert (access["outcome"], access["why"], access["key"]) == ("masked", "missing", "soft")
    assert (access["table"], access["columns"]) == (logged.table, ["d"])


def with_log(policy: Policy, place: Path, *, required: bool = False) -> Policy:
    """Return a policy whose log is elsewhere."""
    return replace(policy, access_log=AccessLogRule(str(place), required))


def test_a_lost_log_stops_no_read_and_is_made_up_for(logged: Logged) -> None:
    """A log that cannot be written lets reads go on; what was kept is written when it can be, once."""
    place = logged.lake.root / "broken"
    place.write_text("no folder")
    session = logged.under(with_log(logged.policy, place))

    def read_and_mend() -> None:
        assert len(session.sql("SELECT a FROM t").collect()) == 10
        time.sleep(4)  # longer than a period, so that a batch has failed
        place.unlink()

    access = logged.heard("a", read_and_mend, place, count=FILES)
    assert access["count"] == FILES


def test_a_required_log_that_cannot_be_written_fails_the_read(logged: Logged) -> None:
    """With ``required`` no key is handed out that is not in the log; the error names folder, column and file."""
    place = logged.lake.root / "required"
    session = logged.under(with_log(logged.policy, place, required=True))
    place.write_text("no folder")
    said = refusal(session.sql("SELECT a FROM t").collect)
    assert "StorageError" in said and str(place) in said
    assert "access_log is required, so column a of" in said
    assert len(session.sql("SELECT id FROM t").collect()) == 10
    place.unlink()
    assert len(session.sql("SELECT a FROM t").collect()) == 10
    access = logged.accesses("a", place)[-1]  # there before the rows were
    assert (access["outcome"], access["count"]) == ("opened", 1)


def test_a_session_cannot_choose_the_log(logged: Logged) -> None:
    """A policy that is set by SQL is refused, and so is a read under it: the log is the application's."""
    session = logged.under(logged.policy)
    elsewhere = with_log(logged.policy, logged.lake.root / "chosen")
    session.conf.set("parquet.sparkcrypt.policy", elsewhere.canonical())
    assert "differs from what this session is under in access_log" in refusal(
        lambda: session.sql("SELECT a FROM t").collect()
    )
    assert not (logged.lake.root / "chosen").exists()


def test_the_commands_say_who_read_and_what_one_would_get(logged: Logged) -> None:
    """`audit access` shows the reads of a day, `access explain` what one would get, and no more."""
    logged.heard("a", lambda: logged.lake.sql("SELECT a FROM t").collect())
    written = logged.settled("a")
    file = str(max(logged.lake.root.glob("policy-*")) / "policy.yaml")
    today = datetime.now(timezone.utc).date().isoformat()
    shown = run_command(
        logged.lake, "audit", "access", "--column", f"{logged.table}.a", "--on", today, "--policy", file, "--json"
    )
    assert json.loads(shown.stdout)["accesses"] == written
    user = logged.lake.spark.sparkContext.sparkUser()
    arguments = ("access", "explain", "--table", logged.table, "--policy", file, "--json")
    told = json.loads(run_command(logged.lake, *arguments, "--principal", user).stdout)
    assert {entry["column"]: entry["result"] for entry in told["columns"]} == dict.fromkeys("abcd", "values") | {
        "id": "values"
    }
    refused = run_command(logged.lake, *arguments, "--principal", "somebody else")
    assert refused.exit_code == 78 and "cannot be said" in refused.output
    with_keys(logged.policy, logged.lake.root / "else", without_keys("pii"))
    other = logged.lake.root / "else.yaml"
    other.write_text(Path(file).read_text().replace("path: keys/", "path: else/"))
    theirs = ("--principal", "somebody else", "--principal-policy", str(other))
    told = json.loads(run_command(logged.lake, *arguments, *theirs).stdout)
    found = {entry["column"]: (entry["right"], entry["result"]) for entry in told["columns"]}
    assert (found["a"], found["c"]) == (("missing", "error"), ("allowed", "values"))
    assert told["credential_of"] == str(other)


LAST = (
    START
    + """
sparkcrypt.configure(spark, sparkcrypt.load_policy(sys.argv[1]))
if sys.argv[3] == "write":
    spark.range(10).select(F.col("id").alias("a", metadata={"tags": ["pii"]})).write.parquet(sys.argv[2])
else:
    assert spark.read.parquet(sys.argv[2]).agg(F.sum("a")).collect() == [(45,)]
"""
)


@pytest.mark.slow
def test_events_are_written_as_the_jvm_ends(fresh_jvm: FreshJvm, private_jar: Path, tmp_path: Path) -> None:
    """A program that ends right after its read leaves its events."""
    make_policy(tmp_path / "p", TAGS, more="access_log: {location: log/}\n")
    arguments = (tmp_path / "p" / "policy.yaml", tmp_path / "out")
    for what in ("write", "read"):
        run(fresh_jvm, LAST, *arguments, what, SPARKCRYPT_JAR=str(private_jar))
    today = datetime.now(timezone.utc).date()
    found = read_accesses(tmp_path / "p" / "log", f"file:{tmp_path / 'out'}.a", today).accesses
    assert [(access["outcome"], access["key"]) for access in found] == [("opened", "pii")]

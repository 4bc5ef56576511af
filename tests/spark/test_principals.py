"""Users of one server who have credentials of their own: nobody sees a value, or a null, that is another's."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

from sparkcrypt.errors import ConfigError
from sparkcrypt.names import HELPER_ENVIRONMENT
from sparkcrypt.policy.key_service import PRINCIPAL, KeyServiceConfig
from sparkcrypt.policy.load import load_policy
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.setup.options import launch_conf
from tests.attacks.listener import listening
from tests.conftest import or_skip
from tests.services.connect import start_connect_server
from tests.services.thrift import ThriftServer, start_thrift_server
from tests.spark.support import make_policy, with_keys, without_keys

pytestmark = [pytest.mark.spark, pytest.mark.sparks, pytest.mark.services, pytest.mark.slow]
TABLES = {"people": "parquet", "orc_people": "orc"}
RULES = "".join(f"  default.{name}: {{tags: {{email: pii}}}}\n" for name in TABLES)
EVENTS_SECONDS = 5
"""Longer than access events wait in memory."""
MASK = "SET spark.sparkcrypt.on_denied=mask"


@dataclass(frozen=True)
class Site:
    """A policy whose key service is another for each principal: ann has every key, eve lacks that of one column."""

    folder: Path
    policy: Policy
    conf: dict[str, str]


@pytest.fixture(scope="module")
def site(java: dict[str, str], private_jar: Path, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Make the keys of ann, of eve and of nobody else."""
    folder = tmp_path_factory.mktemp("principals")
    made = make_policy(folder, tables=RULES, more="formats: [parquet, orc]\naccess_log: {location: log}\n")
    with_keys(made, folder / "own" / "ann", lambda _: None)
    with_keys(made, folder / "own" / "eve", without_keys("pii"))
    shutil.rmtree(folder / "keys")
    text = (folder / "policy.yaml").read_text().replace("path: keys/", f"path: 'own/{PRINCIPAL}'")
    (folder / "policy.yaml").write_text(text)
    policy = load_policy(folder / "policy.yaml", principal=PRINCIPAL)
    return Site(folder, policy, launch_conf(policy, str(private_jar), sys.executable))


@pytest.fixture(scope="module")
def thrift(site: Site) -> Iterator[ThriftServer]:
    """A Thrift server of all of them, with tables that ann has written and cached; its event log redacts nothing."""
    events = site.folder / "events"
    events.mkdir()
    log = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri(), "spark.eventLog.compress": "false"}
    log |= {"spark.eventLog.rolling.enabled": "false", "spark.redaction.regex": "nothing"}
    server = or_skip(start_thrift_server, site.folder / "thrift", {**site.conf, **log})
    try:
        for people, table_format in TABLES.items():
            made = server.ask(
                f"CREATE TABLE {people} (id INT, email STRING) USING {table_format}",
                f"INSERT INTO {people} VALUES (1, 'a@x'), (2, 'b@x')",
                f"CACHE TABLE {people}",
                f"CREATE GLOBAL TEMPORARY VIEW seen_{people} AS SELECT id, upper(email) AS shout FROM {people}",
                f"SELECT concat('as ann: ', email) FROM {people}",
            )
            assert "as ann: a@x" in made.stdout, made.stderr
        yield server
    finally:
        server.stop()


@pytest.mark.parametrize("people", TABLES)
def test_each_user_of_a_thrift_server_has_his_own_keys(thrift: ThriftServer, people: str) -> None:
    """Neither what another has cached, nor another's view, nor a right that a session had before it was reset."""
    read = f"SELECT concat('read: ', email) FROM {people}"
    asked = thrift.ask(read, f"SELECT concat('id: ', id) FROM {people}", "RESET", read, user="eve")
    assert "read: " not in asked.stdout
    assert "id: 1" in asked.stdout
    assert asked.stderr.count("its key 'pii' is not there") >= 2
    assert "cannot be read by eve" in asked.stderr
    view = thrift.ask(f"SELECT shout FROM global_temp.seen_{people}", user="eve")
    assert "A@X" not in view.stdout
    nulls = f"SELECT concat('null: ', id, email IS NULL) FROM {people}"
    masked = thrift.ask(MASK, f"CACHE TABLE {people}", nulls, user="eve")
    assert {"null: 1true", "null: 2true"} <= set(masked.stdout.split("\n")), masked.stderr
    again = thrift.ask(MASK, f"SELECT concat('as ann: ', email) FROM {people}", user="ann")
    assert {"as ann: a@x", "as ann: b@x"} <= set(again.stdout.split("\n")), again.stderr


@pytest.mark.parametrize("people", TABLES)
def test_no_user_chooses_another_name(thrift: ThriftServer, site: Site, people: str) -> None:
    """Not by SET of a policy, a principal or a token; and nobody reads who has no keys, or no sound name."""
    read = f"SELECT concat('read: ', email) FROM {people}"
    other = site.policy.for_principal("ann").canonical().replace("'", "\\'")
    for setting in (
        f"SET parquet.sparkcrypt.policy={other}",
        f"SET parquet.sparkcrypt.key_service={site.policy.for_principal('ann').key_service.canonical()}",
        "SET spark.sparkcrypt.principal=ann",
        "SET parquet.sparkcrypt.session_token=ann",
    ):
        assert "read: " not in thrift.ask(setting, read, user="eve").stdout, setting
    for user in ("bob", "../own/ann"):  # of the latter the server itself leaves ".."
        asked = thrift.ask(read, user=user)
        assert "read: " not in asked.stdout, user
        assert "ConfigError" in asked.stderr or "KeyNotFoundError" in asked.stderr or "not there" in asked.stderr


@dataclass(frozen=True)
class Leak:
    """What the server's event log shows of ann's session."""

    token: str
    provider: str


@pytest.fixture(scope="module")
def leak(thrift: ThriftServer, site: Site) -> Leak:
    """Read ann's settings from the event log, which shows tokens only since nothing is redacted."""
    assert "1" in thrift.ask("SELECT count(*) FROM people", user="ann").stdout
    text = "".join(file.read_text() for file in (site.folder / "events").iterdir())
    found = {
        name: re.findall(rf'"{re.escape(name)}":"([^"]+)"', text)
        for name in ("parquet.sparkcrypt.session_token", "orc.key.provider")
    }
    return Leak(found["parquet.sparkcrypt.session_token"][0], found["orc.key.provider"][-1])


def test_no_setting_but_the_redacted_one_has_the_token(leak: Leak) -> None:
    """ORC's setting has a digest, which no redaction removes."""
    assert leak.provider.startswith("sparkcrypt:")
    assert leak.token not in leak.provider


@pytest.mark.parametrize("people", TABLES)
@pytest.mark.parametrize("way", ["set", "login", "options", "version 2"])
def test_the_token_of_another_opens_nothing(
    thrift: ThriftServer, site: Site, leak: Leak, people: str, way: str
) -> None:
    """Nor does it in a session's settings, from its first statement on, nor in the options of a read."""
    policy = site.policy.for_principal("ann")
    settings = {
        "parquet.sparkcrypt.policy": policy.canonical(),
        "parquet.sparkcrypt.key_service": policy.key_service.canonical(),
        "parquet.sparkcrypt.session_token": leak.token,
        "orc.key.provider": leak.provider,
    }
    read = f"SELECT concat('read: ', email) FROM {people}"
    if way == "login":
        asked = thrift.ask("SELECT concat('in: ', current_user())", read, user="eve", conf=settings)
        assert "in: eve" in asked.stdout, asked.stderr
    elif way == "set":
        asked = thrift.ask(*(f"SET {name}={value}" for name, value in settings.items()), read, user="eve")
    else:
        where = next((site.folder / "thrift").rglob(f"*warehouse*/{people}"))
        options = ", ".join(f"'{name}' '{value}'" for name, value in [*settings.items(), ("path", str(where))])
        view = f"CREATE TEMPORARY VIEW v (id INT, email STRING) USING {TABLES[people]} OPTIONS ({options})"
        version = ["SET spark.sql.sources.useV1SourceList="] if way == "version 2" else []
        asked = thrift.ask(*version, view, read.replace(people, "v"), user="eve")
    assert "read: a@x" not in asked.stdout, asked.stdout
    assert "Error" in asked.stderr


def test_a_provider_of_another_opens_nothing_with_ones_own_token(thrift: ThriftServer, leak: Leak) -> None:
    """ORC keeps providers of all sessions by this setting, which everybody may read."""
    read = "SELECT concat('read: ', email) FROM orc_people"
    for more in ((), ("SET spark.sql.hive.convertMetastoreOrc=false",), ("SET spark.sql.sources.useV1SourceList=",)):
        excluded = "SET spark.sql.optimizer.excludedRules=io.sparkcrypt.TableOptionsRule"
        for rules in ((), (excluded,)):
            asked = thrift.ask(*more, *rules, f"SET orc.key.provider={leak.provider}", read, user="eve")
            assert "read: a@x" not in asked.stdout, (more, rules)
            assert "Error" in asked.stderr


def test_no_user_signs_reads_with_the_name_of_another(thrift: ThriftServer, site: Site) -> None:
    """Neither by SET nor at the login can a session state the names that a server gives its jobs."""
    forged = {
        "spark.job.tags": "SparkConnect_OperationTag_User_boss_Session_x_Operation_y",
        "spark.sql.execution.id": "77777",
        "spark.jobGroup.id": "77777",
    }
    read = "SELECT max(email) FROM people"
    thrift.ask(*(f"SET {name}={value}" for name, value in forged.items()), read, user="eve")
    for name, value in forged.items():
        thrift.ask(read, user="eve", conf={name: value})
    assert "b@x" in thrift.ask(read, user="ann").stdout
    time.sleep(EVENTS_SECONDS)
    assert "connect" not in {event.get("route") for event in assert_no_name_is_forged(site)}


def assert_no_name_is_forged(site: Site) -> list[dict[str, str]]:
    """Assert that the access events have the users and executions that servers had, and return the events."""
    events = [
        json.loads(line) for file in (site.folder / "log").rglob("*.jsonl") for line in file.read_text().splitlines()
    ]
    assert {event.get("session_user") for event in events} <= {None, "ann", "eve", "bob"}
    assert "77777" not in {event.get("execution") for event in events}
    return events


SQL_OF_SERVERS = {
    "transform": ["SELECT TRANSFORM(1) USING 'echo ran' AS (a STRING)"],
    "reflect": [
        "SELECT reflect('java.lang.String', 'valueOf', 'ran')",
        "SELECT java_method('java.lang.String', 'valueOf', 'ran')",
        *["SELECT try_reflect('java.lang.String', 'valueOf', 'ran')"] * (not pyspark.__version__.startswith("3.")),
        "SELECT max(a) FROM (SELECT (SELECT reflect('java.lang.String', 'valueOf', 'ran')) AS a)",
    ],
    "resources": [
        "ADD JAR '{file}'",
        "ADD FILE '{file}'",
        "ADD ARCHIVE '{file}'",
        "CREATE FUNCTION mine AS 'org.apache.hadoop.hive.ql.udf.generic.GenericUDFReflect' USING JAR '{file}'",
    ],
    "local_files": [
        "SELECT * FROM text.`{file}`",
        "SELECT * FROM text.`file:{file}`",
        "CREATE TABLE outside (a STRING) USING text LOCATION '{folder}/outside'",
        "CREATE TEMPORARY VIEW outer_view USING text OPTIONS (path '{file}')",
        "INSERT OVERWRITE LOCAL DIRECTORY '{folder}/made' USING text SELECT 'x'",
        "LOAD DATA LOCAL INPATH '{file}' INTO TABLE notes",
        "CREATE DATABASE outer_base LOCATION '{folder}/base'",
    ],
    "org.apache.hadoop.hive.ql.udf.generic.GenericUDFReflect": [
        "CREATE TEMPORARY FUNCTION mine AS 'org.apache.hadoop.hive.ql.udf.generic.GenericUDFReflect'",
    ],
}


def refusals(asked: subprocess.CompletedProcess[str], text: str) -> int:
    """Return how many statements ended with an error of this text."""
    return sum(line.startswith("Error: ") and text in line for line in asked.stderr.splitlines())


def test_the_files_of_a_server_are_out_of_reach(thrift: ThriftServer, site: Site) -> None:
    """The keys of others and one's own, the access log, and the event log."""
    thrift.ask("SELECT max(email) FROM people")
    time.sleep(EVENTS_SECONDS)
    assert list((site.folder / "log").rglob("*.jsonl"))
    for place in ("own/ann", "own", "own/eve", "log", "events"):
        asked = thrift.ask(
            f"SELECT concat('read: ', path) FROM binaryFile.`{site.folder}/{place}/*`",
            f"SELECT concat('read: ', value) FROM text.`{site.folder}/{place}/*/*`",
            f"INSERT OVERWRITE DIRECTORY '{site.folder}/{place}' USING text SELECT 'x'",
            user="eve",
        )
        assert "read: " not in asked.stdout, place
        assert refusals(asked, "neither read nor write there") >= 2, asked.stderr
    assert list((site.folder / "own" / "ann").iterdir())
    assert list((site.folder / "log").rglob("*.jsonl"))


def test_no_user_runs_a_program_or_reads_local_files(thrift: ThriftServer, site: Site) -> None:
    """Tables of the warehouse stay as they are."""
    file = site.folder / "notes.txt"
    file.write_text("ran")
    assert "Error" not in thrift.ask("CREATE TABLE notes (a STRING) USING text", user="eve").stderr
    for statements in SQL_OF_SERVERS.values():
        texts = [text.format(file=file, folder=site.folder) for text in statements]
        asked = thrift.ask(*texts, user="eve")
        assert refusals(asked, "is refused: users of this server have keys of their own") == len(texts), asked.stderr
        assert "ran" not in asked.stdout.split("\n")
    usual = ["CREATE TABLE mine USING csv AS SELECT 'usual' AS a", "INSERT INTO mine VALUES ('more')"]
    usual += ["SELECT concat('read: ', a) FROM mine", "INSERT OVERWRITE mine SELECT 'x'", "DROP TABLE mine"]
    asked = thrift.ask(*usual, user="eve")
    assert "read: usual" in asked.stdout
    assert "Error" not in asked.stderr, asked.stderr


def test_a_launch_allows_programs_and_local_files(site: Site) -> None:
    """What it names, and no more."""
    folder = site.folder / "allowing"
    folder.mkdir()
    (folder / "notes.txt").write_text("ran")
    names = [name for name in SQL_OF_SERVERS if name != "resources"]
    server = or_skip(
        start_thrift_server, folder / "thrift", {**site.conf, "spark.sparkcrypt.allow_on_server": ", ".join(names)}
    )
    try:
        for name, statements in SQL_OF_SERVERS.items():
            texts = [text.format(file=folder / "notes.txt", folder=folder) for text in statements]
            asked = server.ask("CREATE TABLE IF NOT EXISTS notes (a STRING) USING hive", *texts, user="eve")
            expected = len(texts) if name == "resources" else 0
            assert refusals(asked, "is refused") == expected, asked.stderr
            assert ("ran" in asked.stdout.split("\n")) == (name in ("transform", "reflect", "local_files"))
    finally:
        server.stop()


TOKEN = "hvs.CANARY-of-the-helper"


def test_a_credential_in_the_environment_of_a_server(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a server serves nobody; from a file the helper alone has it, and no process shows it."""
    insert = "INSERT INTO people VALUES (1, 'a@x')"
    with listening() as vault:
        text = re.sub(
            r"key_service: .*",
            f"key_service: {{type: vault, address: '{vault.address}', namespace: 'of/{PRINCIPAL}', max_retries: 0}}",
            (site.folder / "policy.yaml").read_text(),
        )
        (tmp_path / "policy.yaml").write_text(text)
        conf = launch_conf(
            load_policy(tmp_path / "policy.yaml", principal=PRINCIPAL),
            site.conf["spark.jars"],
            sys.executable,
        )
        file = tmp_path / "helper.env"
        file.write_text(f"# of helpers alone\nVAULT_TOKEN={TOKEN}\n")
        for with_file in (False, True):
            if with_file:
                monkeypatch.delenv("VAULT_TOKEN")
                conf[HELPER_ENVIRONMENT] = str(file)
            else:
                monkeypatch.setenv("VAULT_TOKEN", TOKEN)
            server = or_skip(start_thrift_server, tmp_path / f"thrift{with_file}", conf)
            try:
                asked = server.ask("CREATE TABLE people (id INT, email STRING) USING parquet", insert)
                if not with_file:
                    assert refusals(asked, "VAULT_TOKEN is in the environment of a server's JVM") == 2, asked.stderr
                    assert vault.requests == 0
                    continue
                assert TOKEN in vault.tokens, asked.stderr
                for environment in Path("/proc").glob("[0-9]*/environ"):
                    with contextlib.suppress(OSError):  # processes of others, or ended ones
                        assert TOKEN.encode() not in environment.read_bytes(), environment
                asked = server.ask(f"SELECT concat('read: ', value) FROM text.`{file}`")
                assert refusals(asked, "the helper's environment") == 1
            finally:
                server.stop()


CONNECT = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
people, table_format = sys.argv[3:]
if sys.argv[2] == "write":
    spark.sql(f"CREATE TABLE {people} (id INT, email STRING) USING {table_format}")
    spark.sql(f"INSERT INTO {people} VALUES (1, 'a@x')")
    spark.table(people).cache().count()
try:
    print("READ", spark.table(people).collect())
    print("PATH", spark.read.parquet(spark.sql("DESCRIBE DETAIL people").collect()[0].location).count())
except Exception as error:
    print("ERROR", str(error))
spark.conf.set("spark.sparkcrypt.on_denied", "mask")
print("MASKED", spark.table(people).collect())
forged = "SparkConnect_OperationTag_User_boss_Session_{0}_Operation_{0}".format("0" * 36)
for name, value in {"spark.job.tags": forged, "spark.sql.execution.id": "77777", "spark.jobGroup.id": "77777"}.items():
    for set_it in (
        lambda: spark.conf.set(name, value),
        lambda: spark.sql(f"SET `{name}` = `{value}`"),
        lambda: spark.sql(f"EXECUTE IMMEDIATE 'SET {name}={value}'"),
        lambda: spark.sql(f"BEGIN SET {name}={value}; END"),
    ):
        try:
            set_it()
        except Exception:
            print("KEPT", name)
    try:
        spark.sql(f"RESET {name}")
    except Exception:
        pass  # of a static setting
if hasattr(spark, "addTag"):
    spark.addTag(forged)
print("FORGED", len(spark.table(people).selectExpr("max(email)").collect()))
"""


def test_each_user_of_a_connect_server_has_his_own_keys(site: Site, fresh_jvm: object) -> None:
    """The user is the one that the server has; whoever answers for that is in front of it."""
    server = or_skip(start_connect_server, site.folder / "connect", site.conf)
    try:
        run = fresh_jvm  # a new interpreter; it starts no JVM for a remote session
        for people, table_format in TABLES.items():
            made = run(CONNECT, f"{server.url}/;user_id=ann", "write", people, table_format)  # type: ignore[operator]
            assert "READ [Row(id=1, email='a@x')]" in made.stdout, made.stderr
            assert "MASKED [Row(id=1, email='a@x')]" in made.stdout
            assert made.stdout.count("KEPT spark.") == 12 and "FORGED 1" in made.stdout, made.stdout + made.stderr
            asked = run(CONNECT, f"{server.url}/;user_id=eve", "read", people, table_format)  # type: ignore[operator]
            assert "a@x" not in asked.stdout
            # Spark 3.5 cuts what its client is told before the cause.
            cut = {"parquet": "error while reading file", "orc": "Job aborted due to stage failure"}[table_format]
            assert (cut if pyspark.__version__ < "4" else "its key 'pii' is not there") in asked.stdout
            assert "MASKED [Row(id=1, email=None)]" in asked.stdout, asked.stdout + asked.stderr
        time.sleep(EVENTS_SECONDS)
    finally:
        server.stop()
    assert_no_name_is_forged(site)


def test_a_policy_of_principals_is_loaded_for_one(site: Site) -> None:
    """The commands and jobs run for the user of their process; a name that would lead elsewhere is refused."""
    path = site.folder / "policy.yaml"
    assert load_policy(path, principal="eve").key_service.options["path"].endswith("own/eve")
    assert not load_policy(path).key_service.options["path"].endswith(PRINCIPAL)
    for name in ("", "a/b", "..", "a..b", "a b", "-a", "a" * 129):
        with pytest.raises(ConfigError, match="cannot stand in an option"):
            KeyServiceConfig.from_dict({"type": "local", "path": f"/k/{PRINCIPAL}"}).for_principal(name)

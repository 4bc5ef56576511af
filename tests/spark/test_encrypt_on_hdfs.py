"""The job on a real HDFS: data, state, policy and report there, and who may read the new files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sparkcrypt import encrypt_table, load_policy
from sparkcrypt.cli.main import cli
from sparkcrypt.errors import ConfigError, SparkcryptError, StorageError, VerificationError
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.rewrite.options import Engine
from sparkcrypt.runs.rewrite.run_report import Report
from sparkcrypt.spark.files.access_rights import Storage, storage_of
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags
from tests.conftest import FreshJvm
from tests.services.hdfs import Hdfs
from tests.spark.sessions import active
from tests.spark.support import SECRET, Lake, assert_encrypted, assert_plaintext, make_policy, refusal, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.slow]

HTTP_ADDRESS = "dfs.namenode.http-address"
PARTITIONED = "CREATE TABLE t (id INT, email STRING, note STRING, p INT) USING parquet PARTITIONED BY (p) LOCATION '{}'"
UNPARTITIONED = "CREATE TABLE t (id INT, email STRING, note STRING) USING parquet LOCATION '{}'"


class Shore:
    """A table ``t`` of a lake whose folder is on HDFS, and a look at that folder."""

    def __init__(self, lake: Lake, hdfs: Hdfs) -> None:
        self.lake, self.files = lake, HadoopFiles(lake.spark)
        self.root = f"{hdfs.uri}/{lake.database}"
        self.folder = f"{self.root}/t"

    def fill(self, create: str) -> list[Any]:
        """Make the table in clear, two files a partition or two files; return its rows."""
        with self.lake.stranger() as stranger:
            stranger.sql(create.format(self.folder))
            for first in (0, 2):
                tail = ["", ", 0", ", 1"] if "PARTITIONED" in create else [""]
                rows = [
                    f"({n}, '{SECRET}-{n}', 'note {n}'{tail[n % 2 + 1] if tail[1:] else ''})"
                    for n in (first, first + 1)
                ]
                stranger.sql(f"INSERT INTO t VALUES {', '.join(rows)}")
            return rows_of(stranger.table("t"))

    def give(self, path: str, owner: str, group: str, mode: str, acl: str = "") -> None:
        """Set owner, group, mode and, with Hadoop's words, the whole ACL of a folder or file."""
        system, where = self.files.locate(path)
        permission = self.lake.jvm.org.apache.hadoop.fs.permission
        if acl:
            system.setAcl(where, permission.AclEntry.parseAclSpec(acl, True))
        else:
            system.setPermission(where, permission.FsPermission(mode))
        system.setOwner(where, owner, group)

    def parquet(self, path: str) -> list[str]:
        """Return the data files below a folder."""
        return [file.path for file in self.files.data_files(path)]

    def local(self, path: str, to: Path) -> Path:
        """Copy the data files below a folder into a local one."""
        for file in self.parquet(path):
            copy = to / file.removeprefix(path).lstrip("/")
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(self.files.read(file))
        return to

    def state(self) -> str:
        """Where runs keep their state."""
        return f"{self.root}/state"


@pytest.fixture
def shore(lake: Lake, hdfs: Hdfs) -> Iterator[Shore]:
    """A folder of HDFS of this test's own."""
    shore = Shore(lake, hdfs)
    lake.spark.conf.set(HTTP_ADDRESS, hdfs.http)  # where executors without libhdfs reach it
    shore.files.make_folder(shore.root)
    yield shore
    shore.files.delete_tree(shore.root)


def policy_on_hdfs(shore: Shore) -> tuple[Policy, str]:
    """Make a policy with local keys whose file and state are on HDFS; return it with the file's URI."""
    local = make_policy(shore.lake.root / "p")
    text = (shore.lake.root / "p" / "policy.yaml").read_text()
    text = text.replace("path: keys/", f"path: {local.key_service.options['path']}")
    uri = f"{shore.root}/policy.yaml"
    shore.files.write_new(uri, text.encode())
    return local, uri


def encrypted(shore: Shore, tags: dict[str, list[str]], engine: Engine = "native") -> tuple[Policy, Report]:
    """Tag the table and run the job with its state on HDFS."""
    policy = make_policy(shore.lake.root / "p")
    file = shore.lake.root / "p" / "policy.yaml"
    file.write_text(file.read_text().replace("run_state: state/", f"run_state: '{shore.state()}'"))
    policy = load_policy(file)
    set_tags(shore.lake.spark, "t", tags, policy)
    return policy, encrypt_table(shore.lake.spark, "t", policy, engine=engine)


def assert_by(engine: Engine, report: Report) -> None:
    """Assert which engine rewrote all units, proven, with no word of another."""
    assert report.engine == engine and report.verified and report.units
    assert {unit["engine"] for unit in report.units} == {engine}
    assert not [text for text in report.warnings if "engine" in text]


def test_owner_group_mode_and_acl_are_kept(shore: Shore) -> None:
    """The new folders have what the old ones had, and the new files what the old files had, ACLs included."""
    shore.fill(PARTITIONED)
    folders = {f"{shore.folder}/p={p}": f"analyst{p}" for p in (0, 1)}
    for folder, user in folders.items():
        shore.give(
            folder,
            "alice",
            "hr",
            "",
            f"user::rwx,group::r-x,other::---,user:{user}:r-x,mask::r-x,default:user:{user}:r-x",
        )
        for file in shore.parquet(folder):
            shore.give(file, "alice", "hr", "", f"user::rw-,group::---,other::---,user:{user}:r--,mask::r--")
    assert_by("native", encrypted(shore, {"email": ["pii"]})[1])
    catalog = Catalog(shore.lake.spark)
    partitions = catalog.partitions(catalog.table("t"))
    assert len(partitions) == 2
    by_partition = sorted(
        (partition.location for partition in partitions), key=lambda location: location.rpartition("/")[2]
    )
    for old, new in zip(sorted(folders), by_partition, strict=True):
        assert old != new
        assert shore.files.access(new) == shore.files.access(old)
        assert "default:user:analyst" in shore.files.access(new).acl
        files = shore.parquet(new)
        assert files
        assert {shore.files.access(file) for file in files} == {shore.files.access(shore.parquet(old)[0])}
        assert shore.files.access(files[0]).mode == "0640"


def test_files_are_kept_on_the_media_of_the_old_ones(shore: Shore) -> None:
    """Storage policy and erasure coding of each partition's folder, its own or inherited, are those of the new one."""
    shore.files.make_folder(f"{shore.folder}/p=0")
    shore.files.make_folder(f"{shore.folder}/p=1")
    system, _ = shore.files.locate(shore.root)
    path = shore.files.path
    system.setStoragePolicy(path(f"{shore.folder}/p=0"), "ONE_SSD")
    system.enableErasureCodingPolicy("XOR-2-1-1024k")
    system.setErasureCodingPolicy(path(f"{shore.folder}/p=1"), "XOR-2-1-1024k")
    before = shore.fill(PARTITIONED)
    kept = {p: storage_of(shore.files, f"{shore.folder}/p={p}") for p in (0, 1)}
    assert (kept[0].policy, kept[1].policy, kept[1].erasure_coding) == ("ONE_SSD", "HOT", "XOR-2-1-1024k")
    assert storage_of(shore.files, f"{shore.root}/not/there") == Storage("HOT", "", "")
    assert_by("spark", encrypted(shore, {"email": ["pii"]}, "spark")[1])
    catalog = Catalog(shore.lake.spark)
    for partition in catalog.partitions(catalog.table("t")):
        assert "/.sparkcrypt/" in partition.location
        assert storage_of(shore.files, partition.location) == kept[int(partition.values[0][1])]
        for file in shore.parquet(partition.location):
            coded = system.getErasureCodingPolicy(path(file))
            assert (coded is not None) == (partition.values[0][1] == "1")
    assert rows_of(shore.lake.spark.table("t")) == before


def test_new_files_do_not_leave_an_encryption_zone(shore: Shore) -> None:
    """A table that is a zone of its own is refused before anything is written; in a zone above it, it is done."""
    system, _ = shore.files.locate(shore.root)
    path = shore.files.path
    shore.files.make_folder(shore.folder)
    system.createEncryptionZone(path(shore.folder), "zone")
    before = shore.fill(UNPARTITIONED)
    said = rf"lies in the encryption zone /{shore.lake.database}/t, and .*, in no enc"
    with pytest.raises(VerificationError, match=said):
        encrypted(shore, {"email": ["pii"]})
    assert not shore.parquet(f"{shore.root}/.sparkcrypt")
    assert rows_of(shore.lake.spark.table("t")) == before
    shore.lake.sql("DROP TABLE t")
    shore.files.delete_tree(shore.folder)
    above = f"{shore.root}/zone"
    shore.files.make_folder(above)
    system.createEncryptionZone(path(above), "zone")
    shore.folder = f"{above}/t"
    assert shore.fill(UNPARTITIONED) == before
    assert_by("native", encrypted(shore, {"email": ["pii"]})[1])
    location = Catalog(shore.lake.spark).table("t").location
    assert storage_of(shore.files, location).zone == f"/{shore.lake.database}/zone"
    assert rows_of(shore.lake.spark.table("t")) == before


def test_narrow_files_do_not_become_wide(shore: Shore) -> None:
    """Files that only their owner and group may read stay so, in a folder that all may list."""
    shore.fill(UNPARTITIONED)
    shore.give(shore.folder, "alice", "hr", "0755")
    for file in shore.parquet(shore.folder):
        shore.give(file, "alice", "hr", "0640")
    assert_by("native", encrypted(shore, {"email": ["pii"]})[1])
    location = Catalog(shore.lake.spark).table("t").location
    assert shore.files.access(location).mode == "0755"
    found = {(access.owner, access.group, access.mode) for access in map(shore.files.access, shore.parquet(location))}
    assert found == {("alice", "hr", "0640")}


def test_other_keys_and_no_keys_on_hdfs(shore: Shore) -> None:
    """A tag that changes its key, and one that says plaintext, are followed without decoding a page."""
    before = shore.fill(PARTITIONED)
    _, report = encrypted(shore, {"email": ["pii"]})
    assert_by("native", report)
    lake, file = shore.lake, shore.lake.root / "p" / "policy.yaml"
    told = file.read_text()
    for name, tag, columns in (
        ("fin", "pii: {key: fin, history: [pii]}", {"email": "fin"}),
        ("clear", "pii: {key: null, history: [fin]}", {}),
    ):
        file.write_text(told.replace("pii: {key: pii}", tag))
        changed = load_policy(file)
        report = encrypt_table(lake.spark, "t", changed, engine="native", allow_decrypt=not columns)
        assert_by("native", report)
        assert rows_of(lake.spark.table("t")) == before
        table = Catalog(lake.spark).partitions(Catalog(lake.spark).table("t"))
        for number, partition in enumerate(table):
            copy = shore.local(partition.location, lake.root / f"{name}-{number}")
            if columns:
                assert_encrypted(copy, changed, columns, visible=[])
            else:
                assert_plaintext(copy)


@pytest.mark.parametrize("how", ["nobody there", "kerberos"])
def test_hdfs_that_python_cannot_reach_is_left_to_spark(shore: Shore, how: str) -> None:
    """Where no NameNode answers over HTTP, or asks for Kerberos, Spark's engine does it, and the report says why."""
    before = shore.fill(UNPARTITIONED)
    name, value, said = {
        "nobody there": (HTTP_ADDRESS, "127.0.0.1:9", "http://127.0.0.1:9 cannot be reached"),
        "kerberos": ("hadoop.security.authentication", "kerberos", "hadoop.security.authentication is kerberos"),
    }[how]
    with shown_to_workers(shore.lake, name, value):
        _, report = encrypted(shore, {"email": ["pii"]})
    assert (report.outcome, report.verified) == ("done", True)
    assert {unit["engine"] for unit in report.units} == {"spark"}
    assert [text for text in report.warnings if "staged by Spark's engine" in text and said in text], report.warnings
    assert rows_of(shore.lake.spark.table("t")) == before


@contextmanager
def shown_to_workers(lake: Lake, name: str, value: str) -> Iterator[None]:
    """Set a property of the session, which Spark's own HDFS client has read already."""
    before = lake.spark.conf.get(name, None)
    lake.spark.conf.set(name, value)
    try:
        yield
    finally:
        lake.spark.conf.unset(name) if before is None else lake.spark.conf.set(name, before)


def test_files_that_differ_in_access_are_refused(shore: Shore) -> None:
    """Which of them a new file should be like cannot be told; the table is as it was."""
    before = shore.fill(UNPARTITIONED)
    shore.give(shore.parquet(shore.folder)[0], "alice", "hr", "0600")
    with pytest.raises(VerificationError, match="differ in who may read them"):
        encrypted(shore, {"email": ["pii"]})
    assert_unchanged(shore, before)


def assert_unchanged(shore: Shore, before: list[Any]) -> None:
    """Assert that the table has its old place and rows, and that nothing of the run is left there."""
    table = Catalog(shore.lake.spark).table("t")
    assert table.location.rstrip("/") == shore.folder
    with shore.lake.stranger() as stranger:
        stranger.catalog.refreshTable("t")
        assert rows_of(stranger.table("t")) == before
    assert not shore.files.exists(f"{shore.root}/.sparkcrypt") or not shore.parquet(f"{shore.root}/.sparkcrypt/t")


NOT_SUPERUSER = """
import sys
from pyspark.sql import SparkSession
import sparkcrypt
from sparkcrypt.errors import SparkcryptError
spark = (SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
         .config("spark.sql.warehouse.dir", sys.argv[1] + "/warehouse").getOrCreate())
spark.sparkContext.setLogLevel("OFF")
policy = sparkcrypt.load_policy(sys.argv[2])
try:
    sparkcrypt.encrypt_table(spark, None, policy, path=sys.argv[3], output=sys.argv[3] + "-new", engine="spark",
                             avro=sparkcrypt.tags.avro.read_avro_file(sys.argv[4]))
except SparkcryptError as error:
    print("refused", type(error).__name__, error)
"""


def test_access_that_this_user_may_not_give_is_refused(shore: Shore, fresh_jvm: FreshJvm, private_jar: Path) -> None:
    """Who is not HDFS's superuser cannot keep another owner's: nothing is swapped, nothing staged is left."""
    lake = shore.lake
    shore.fill(UNPARTITIONED)
    shore.give(shore.root, "etl", "hr", "0777")
    shore.give(shore.folder, "alice", "hr", "0755")
    make_policy(lake.root / "p")
    tagged = {"name": "email", "type": ["null", "string"], "confluent:tags": ["pii"]}
    others = [{"name": "id", "type": ["null", "int"]}, {"name": "note", "type": ["null", "string"]}]
    (lake.root / "t.avsc").write_text(
        json.dumps({"type": "record", "name": "t", "fields": [others[0], tagged, others[1]]})
    )
    script = NOT_SUPERUSER.replace("import sparkcrypt\n", "import sparkcrypt, sparkcrypt.tags.avro\n", 1)
    done = fresh_jvm(
        script, lake.root, lake.root / "p" / "policy.yaml", shore.folder, lake.root / "t.avsc",
        env={"HADOOP_USER_NAME": "etl", "SPARKCRYPT_JAR": str(private_jar)},
    )  # fmt: skip
    assert "refused StorageError cannot set the owner of" in done.stdout, done.stdout + done.stderr[-3000:]
    assert "AccessControlException" in done.stdout
    assert not shore.files.exists(f"{shore.folder}-new")
    assert not shore.files.exists(f"{shore.root}/.sparkcrypt") or not shore.parquet(f"{shore.root}/.sparkcrypt")
    assert len(shore.parquet(shore.folder)) >= 2


def test_policy_and_report_on_hdfs(shore: Shore) -> None:
    """``--policy`` and ``--report`` take URIs; a report replaces the one before, and tells of a failure too."""
    shore.fill(UNPARTITIONED)
    policy, uri = policy_on_hdfs(shore)
    lake, report = shore.lake, f"{shore.root}/report.json"
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    command = ["encrypt", "--table", lake.name("t"), "--policy", uri, "--report", report]
    with active(lake):
        done = CliRunner().invoke(cli, command)
        assert done.exit_code == 0, done.output
        first = json.loads(shore.files.read(report))
        assert (first["outcome"], first["rows"], first["verified"]) == ("done", 4, True)
        # run_state of a policy on HDFS is relative to it.
        assert shore.files.exists(f"{shore.root}/state")
        failed = CliRunner().invoke(cli, [*command[:2], lake.name("nowhere"), *command[3:]])
        assert failed.exit_code != 0
    second = json.loads(shore.files.read(report))
    assert (second["outcome"], second["table"]) == ("failed", lake.name("nowhere"))


def test_report_that_names_a_folder_deletes_nothing(shore: Shore) -> None:
    """A folder in the place of the report stays, with what is in it: it may be a table's."""
    shore.fill(UNPARTITIONED)
    _, uri = policy_on_hdfs(shore)
    before = shore.parquet(shore.folder)
    command = ["encrypt", "--table", shore.lake.name("nowhere"), "--policy", uri, "--report", shore.folder]
    with active(shore.lake):
        done = CliRunner().invoke(cli, command)
    assert shore.parquet(shore.folder) == before != []
    assert done.exit_code != 0
    assert f"{shore.folder}: is a folder" in done.output


def test_policy_that_is_not_on_hdfs_is_refused_by_its_uri(shore: Shore) -> None:
    """A URI that names nothing is told as such, with the configuration's exit code."""
    with active(shore.lake):
        done = CliRunner().invoke(cli, ["plan", "--table", "t", "--policy", f"{shore.root}/nosuch.yaml"])
    assert done.exit_code == ConfigError.exit_code
    assert f"{shore.root}/nosuch.yaml: is not there" in done.output
    assert issubclass(ConfigError, SparkcryptError)


def test_table_of_a_nameservice(shore: Shore, hdfs: Hdfs) -> None:
    """What a job writes or reads by its NameNode's address is the table's, where the policy says that both are one."""
    lake, name, address = shore.lake, shore.lake.database, hdfs.uri.removeprefix("hdfs://")
    conf = lake.spark.sparkContext._jsc.hadoopConfiguration()
    conf.set("dfs.nameservices", name)
    conf.set(f"dfs.ha.namenodes.{name}", "nn1")
    conf.set(f"dfs.namenode.rpc-address.{name}.nn1", address)
    conf.set(f"dfs.namenode.http-address.{name}.nn1", hdfs.http)
    proxy = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
    conf.set(f"dfs.client.failover.proxy.provider.{name}", proxy)
    try:
        by_address, shore.folder = shore.folder, shore.folder.replace(hdfs.uri, f"hdfs://{name}")
        before = shore.fill(UNPARTITIONED)
        rule = f"  {lake.name('t')}:\n    require_encryption: true\n    tags: {{email: pii}}\n"
        policy = lake.policy(tables=rule, more=f"aliases:\n  {hdfs.uri}: hdfs://{name}\n")
        assert "requires encryption" in refusal(lambda: lake.spark.read.parquet(by_address).collect())
        report = encrypt_table(lake.spark, "t", policy, adopt=True)
        assert_by("native", report)
        assert Catalog(lake.spark).table("t").location.startswith(f"hdfs://{name}/")
        assert rows_of(lake.spark.table("t")) == before
        rows, moved = lake.spark.table("t"), Catalog(lake.spark).table("t").location
        said = refusal(lambda: rows.write.mode("append").parquet(by_address))
        assert f"lived here until run {report.run_id}" in said
        rows.localCheckpoint().write.mode("append").parquet(moved.replace(f"hdfs://{name}", hdfs.uri))
        lake.spark.catalog.refreshTable("t")
        assert rows_of(lake.spark.table("t")) == sorted(before * 2)
        assert_encrypted(shore.local(moved, lake.root / "now"), policy, {"email": "pii"}, visible=["note 1"])
    finally:
        for key in ("dfs.nameservices", f"dfs.ha.namenodes.{name}"):
            conf.unset(key)


def test_output_on_another_file_system_is_refused(shore: Shore) -> None:
    """A directory cannot be renamed from one file system to another: that is said before anything is written."""
    policy = shore.lake.policy()
    source = shore.lake.root / "source"
    shore.lake.sql("SELECT 1 AS id, 'x' AS email").write.parquet(str(source))
    with pytest.raises(ConfigError, match="is on another file system than --path"):
        encrypt_table(shore.lake.spark, None, policy, path=str(source), output=f"{shore.root}/copy")
    assert not shore.files.exists(f"{shore.root}/copy")
    assert not (shore.lake.root / ".sparkcrypt").exists()


def test_free_space_of_a_cluster_is_looked_at(shore: Shore, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is what the cluster has left, also for a folder that is not there yet; a unit that does not fit is refused."""
    shore.fill(PARTITIONED)
    free = shore.files.free_bytes(f"{shore.folder}/nowhere/below")
    assert free is not None and 0 < free < 2**60
    monkeypatch.setattr(HadoopFiles, "free_bytes", lambda *_: 10)
    with pytest.raises(StorageError, match=rf"the disk of {shore.root} is full: its new files need .*10 B are free"):
        encrypted(shore, {"email": ["pii"]})
    assert not shore.files.data_files(f"{shore.root}/.sparkcrypt")

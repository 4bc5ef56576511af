"""Where files are: schemes, NameNodes, and what lies beside data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkcrypt.errors import ConfigError, PlanError
from sparkcrypt.files.listing import Entry, Kind, data_files, find_beside
from sparkcrypt.files.open_places import place, worker_settings
from sparkcrypt.files.webhdfs.client import HADOOP_USER, NameNodes, hdfs_settings, name_nodes

S3 = {
    "fs.s3a.access.key": "all",
    "fs.s3a.secret.key": "all",
    "fs.s3a.endpoint": "http://127.0.0.1:1",
    "fs.s3a.endpoint.region": "r",
    "fs.s3a.bucket.own.endpoint": "https://127.0.0.2:2",
    "fs.s3a.bucket.own.endpoint.region": "s",
}


@pytest.mark.parametrize("path", ["/a b/c%20", "file:/a b/c%20", "file:///a b/c%20", "file://localhost/a b/c%20"])
def test_local_paths(path: str) -> None:
    """They are what the system opens, with nothing unescaped."""
    assert place(path, {}) == "/a b/c%20"


def test_a_file_of_another_machine_is_refused() -> None:
    """Its path names another file here."""
    with pytest.raises(ConfigError, match=r"^file://other/lake/f: is on another machine; allowed: "):
        place("file://other/lake/f", {})


def opened(uri: str, settings: dict[str, str]) -> tuple[Any, str]:
    """Return the file system of a URI, and the path there."""
    found = place(uri, settings)
    assert not isinstance(found, str)
    return found


@pytest.mark.parametrize("path", ["/t/ts=10:00/f", "ts=10:00/f", "day=10:00/f", "a:b", "10:/f", "f"])
def test_a_name_with_a_colon_is_a_path(path: str) -> None:
    """Only what begins with a scheme and a slash after it is a URI; other paths stay as they are, relative ones too."""
    assert place(path, {}) == path


def test_buckets_have_their_own_settings() -> None:
    """A bucket's settings win over those of all, and file systems of different settings are not shared."""
    system, path = opened("s3a://own/t/a b", S3)
    other, other_path = opened("s3a://any/t", S3)
    assert (path, other_path) == ("own/t/a b", "any/t")
    assert (system.region, other.region) == ("s", "r")
    assert opened("s3a://own/t/c", S3)[0] is system
    assert opened("s3a://own/t", {**S3, "fs.s3a.access.key": "other"})[0] is not system


def test_other_file_systems_are_fsspecs() -> None:
    """Their paths begin as fsspec says, be it with what stands where a URI has its authority."""
    system, path = opened("memory://box/t/f", {})
    assert path == "/box/t/f" and system.type_name == "py::fsspec+memory"


def test_unknown_scheme() -> None:
    """The message names it, and the engine that may know it."""
    with pytest.raises(ConfigError, match=r"nosuch://x: its file system cannot be opened .* --engine spark"):
        place("nosuch://x/y", {})


HEX = "0123456789abcdef" * 2
FILES: dict[str, Kind] = {
    "_SUCCESS": "written",
    "._SUCCESS.crc": "written",
    ".a.parquet.crc": "written",
    f".a.parquet.{HEX}.partial": "written",
    "_KEY_MATERIAL_FOR_a.parquet.json": "written",
    "_TMP_KEY_MATERIAL_FOR_a.parquet.json": "written",
    "_KEY_MATERIAL_FOR_gone.parquet.json": "foreign",
    "_metadata": "summary",
    "_common_metadata": "summary",
    "_metadata.bak": "foreign",
    "_SUCCESS.old": "foreign",
    "_README": "foreign",
    ".env": "foreign",
    ".hoodie_partition_metadata": "format",
}
FOLDERS: dict[str, Kind] = {
    "_temporary": "writer",
    ".spark-staging-1": "writer",
    ".hive-staging_1": "writer",
    "__magic_job-1": "writer",
    "_delta_log": "format",
    ".hoodie": "format",
    "_spark_metadata": "format",
    ".sparkcrypt": "staging",
    "_checkpoint": "foreign",
    ".backup": "foreign",
    "_SUCCESS": "foreign",
    "_metadata": "foreign",
    ".a.parquet.crc": "foreign",
}


@pytest.mark.parametrize("below", ["", "p=1/", "_p=1/q=2/"])
@pytest.mark.parametrize(
    ("name", "is_folder", "kind"),
    [*((name, False, kind) for name, kind in FILES.items()), *((name, True, kind) for name, kind in FOLDERS.items())],
)
def test_each_entry_has_a_kind(below: str, name: str, is_folder: bool, kind: Kind) -> None:
    """A name counts at any depth, and a folder of a file's name is not that file."""
    listed = [Entry(f"{below}a.parquet", length=3), Entry(f"{below}{name}", is_folder, 7)]
    (found,) = find_beside(listed)
    assert (found.path, found.kind, found.length) == (f"{below}{name}", kind, 7)


def test_hidden_folder_is_one_entry() -> None:
    """Whatever is in it, also files named like data or like other formats, and whether it is listed itself or not."""
    inside = ["_archive/part-0.parquet", "_archive/_delta_log/0.json", "_archive/.x/_SUCCESS"]
    for entries in (inside, ["_archive", *inside], [*inside, "_archive"]):
        (found,) = find_beside(Entry(path) for path in entries)
        assert (found.path, found.kind) == ("_archive", "foreign")


def test_data_files_have_nothing_beside_them() -> None:
    """Visible files, folders of partitions whose names begin with an underscore, and visible folders."""
    assert find_beside([Entry("a.parquet"), Entry("_p=1/a"), Entry("empty", is_folder=True)]) == ()


@pytest.mark.parametrize(
    "mark",
    [
        "_delta_log/0.json",
        "sub/_delta_log/0.json",
        ".hoodie/hoodie.properties",
        "sub/.hoodie_partition_metadata",
        "_spark_metadata/0",
        "metadata/1.metadata.json",
    ],
)
def test_folder_with_a_list_of_its_files_is_not_listed(tmp_path: Path, mark: str) -> None:
    """Which files are the table's is in that list alone: files that it removed would be read, or be rewritten."""
    for name in ("sub/a.parquet", mark):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(PlanError, match="keeps its own list of files"):
        data_files(str(tmp_path), {})
    assert data_files(str(tmp_path / "sub" / "a.parquet"), {}) == ("",)


def test_partition_of_a_table_with_a_list_of_its_files_is_not_listed(tmp_path: Path) -> None:
    """The list is above the partitions; above other folders it is another table's."""
    for folder in (tmp_path / "t" / "p=1" / "q=2", tmp_path / "t" / "other"):
        folder.mkdir(parents=True)
        (folder / "a.parquet").write_bytes(b"x")
    (tmp_path / "t" / "_delta_log").mkdir()
    for folder in (tmp_path / "t" / "p=1", tmp_path / "t" / "p=1" / "q=2"):
        with pytest.raises(PlanError, match=f"{tmp_path}/t: has _delta_log: a Delta table"):
            data_files(str(folder), {})
    assert data_files(str(tmp_path / "t" / "other"), {}) == ("a.parquet",)


def test_file_of_no_bytes_is_left_out(tmp_path: Path) -> None:
    """Spark reads no row of it, whatever the table's format; a file that is named itself is one."""
    for name in ("a.parquet", "p=1/000000_0"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "p=1" / "000001_0").touch()
    assert data_files(str(tmp_path), {}) == ("a.parquet", "p=1/000000_0")
    assert data_files(str(tmp_path / "p=1" / "000001_0"), {}) == ("",)


@pytest.mark.parametrize("folder", ["t", "t/data", "t/data/p=1", "t/data/p=1/q=2", "."])
@pytest.mark.parametrize("name", ["v1.metadata.json", "v1.metadata.json.gz"])
def test_iceberg_is_told_from_any_folder_of_it(tmp_path: Path, folder: str, name: str) -> None:
    """Its list is beside its folder of data, and below the folder above it."""
    for file in (f"t/metadata/{name}", "t/data/p=1/q=2/a.parquet", "data/metadata/x.parquet", "data/data/x.parquet"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_bytes(b"x")
    with pytest.raises(PlanError, match=f"{tmp_path}.*: an Iceberg table keeps its own list of files"):
        data_files(str(tmp_path / folder), {})
    assert data_files(str(tmp_path / "data" / "data"), {}) == ("x.parquet",)


HTTP, HTTPS, RPC = (f"dfs.namenode.{kind}-address" for kind in ("http", "https", "rpc"))
HA = {
    "fs.defaultFS": "hdfs://lake",
    "dfs.nameservices": "lake, other",
    "dfs.ha.namenodes.lake": "nn1, nn2",
    f"{RPC}.lake.nn1": "one:8020",
    f"{RPC}.lake.nn2": "two:8020",
    f"{HTTP}.lake.nn1": "one:50070",
    f"{HTTP}.lake.nn2": "0.0.0.0:50071",
    f"{HTTPS}.lake.nn1": "one:50470",
    f"{HTTPS}.lake.nn2": "two:50470",
    f"{RPC}.other": "third",
}
"""A nameservice of two NameNodes, and one of one."""
DEFAULT = {"fs.defaultFS": "hdfs://nn:9000"}


def addresses(authority: str, **settings: str) -> tuple[str, ...]:
    """Return the addresses of an authority."""
    return name_nodes(authority, settings).addresses


@pytest.mark.parametrize(
    ("authority", "settings", "expected"),
    [
        ("nn", {}, "http://nn:9870"),
        ("nn:9000", {}, "http://nn:9870"),
        ("nn:9000", {HTTP: "0.0.0.0:9870"}, "http://nn:9870"),
        ("nn:9000", {HTTP: "0.0.0.0:50070"}, "http://nn:50070"),
        ("nn:9000", {HTTP: ":50070"}, "http://nn:50070"),
        ("nn:9000", {HTTP: "nn:1"}, "http://nn:1"),
        ("nn:9000", DEFAULT | {HTTP: "web:1"}, "http://web:1"),
        ("nn:9000", DEFAULT | {HTTP: "web"}, "http://web:9870"),
        ("nn", {RPC: "nn:8020", HTTP: "web:1"}, "http://web:1"),
        ("far:9000", DEFAULT | {HTTP: "web:1"}, "http://far:9870"),
        ("far:9000", DEFAULT | {HTTP: "nn:1"}, "http://far:9870"),
        ("nn:8020", DEFAULT | {HTTP: "web:1"}, "http://nn:9870"),
        ("[::1]:9000", {}, "http://[::1]:9870"),
    ],
)
def test_address_of_one_name_node(authority: str, settings: dict[str, str], expected: str) -> None:
    """The configured address counts for the file system that it belongs to, and for no other; else its host's own."""
    assert addresses(authority, **settings) == (expected,)


@pytest.mark.parametrize(
    ("authority", "expected"),
    [
        ("lake", ("http://one:50070", "http://two:50071")),
        ("one:8020", ("http://one:50070",)),
        ("two", ("http://two:50071",)),
        ("other", ("http://third:9870",)),
        ("third:8020", ("http://third:9870",)),
        ("elsewhere", ("http://elsewhere:9870",)),
    ],
)
def test_addresses_of_nameservices(authority: str, expected: tuple[str, ...]) -> None:
    """A nameservice has all its NameNodes; one of them, named by its RPC address, has its own."""
    assert addresses(authority, **HA) == expected


def test_address_of_the_only_nameservice() -> None:
    """Without a suffix the address is that of the one nameservice that there is."""
    assert addresses("solo", **{"dfs.nameservices": "solo", HTTP: "web:1"}) == ("http://web:1",)


def test_name_node_whose_address_is_nowhere() -> None:
    """The message names the property that is missing; another nameservice's address is not taken."""
    settings = {"dfs.nameservices": "lake,other", "dfs.ha.namenodes.lake": "nn1", HTTP: "web:1"}
    with pytest.raises(ConfigError, match=r"dfs\.namenode\.http-address\.lake\.nn1 is not set"):
        name_nodes("lake", settings)
    with pytest.raises(ConfigError, match="names a NameNode"):
        name_nodes("", {})


@pytest.mark.parametrize(
    ("policy", "encrypted", "expected"),
    [
        ("HTTP_ONLY", "false", "http://nn:9870"),
        ("HTTP_AND_HTTPS", "false", "http://nn:9870"),
        ("HTTPS_ONLY", "false", "https://nn:9871"),
        ("HTTPS_ONLY", "true", "https://nn:9871"),
        ("HTTP_AND_HTTPS", "true", "https://nn:9871"),
    ],
)
def test_https(policy: str, encrypted: str, expected: str) -> None:
    """HTTPS is spoken where nothing else is, and where HDFS's own protocol would be encrypted."""
    assert addresses("nn", **{"dfs.http.policy": policy, "dfs.encrypt.data.transfer": encrypted}) == (expected,)


def test_https_of_nameservices() -> None:
    """Each NameNode's address for HTTPS is taken."""
    assert addresses("lake", **HA, **{"dfs.http.policy": "HTTPS_ONLY"}) == ("https://one:50470", "https://two:50470")


def test_data_are_not_shown_in_clear_that_hdfs_encrypts() -> None:
    """HDFS that encrypts transfers and serves HTTP alone is refused, with what to set."""
    with pytest.raises(ConfigError, match=r"set dfs\.http\.policy to HTTPS_ONLY"):
        name_nodes("nn", {"dfs.encrypt.data.transfer": "true"})


def test_kerberos_is_refused() -> None:
    """The message names the property."""
    with pytest.raises(ConfigError, match=r"hadoop\.security\.authentication is kerberos"):
        name_nodes("nn", {"hadoop.security.authentication": "kerberos"})


def test_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """The session's user wins; without a session it is Hadoop's variable, else this process's user."""
    monkeypatch.setenv("HADOOP_USER_NAME", "by-variable")
    assert name_nodes("nn", {HADOOP_USER: "by-session"}).user == "by-session"
    assert name_nodes("nn", {}) == NameNodes(("http://nn:9870",), "by-variable")
    monkeypatch.delenv("HADOOP_USER_NAME")
    monkeypatch.setenv("LOGNAME", "by-login")
    assert name_nodes("nn", {}).user == "by-login"


def test_settings_that_are_sent_to_workers() -> None:
    """All that the addresses depend on is sent, and of S3 what is told of single buckets; nothing else is."""
    more = {
        "fs.s3a.access.key": "a",
        "fs.s3a.bucket.b.c.access.key": "b",
        "fs.s3a.bucket.b.c.committer.name": "magic",
        "dfs.replication": "3",
        f"{HTTP}.unknown": "x:1",
    }
    conf = HA | more
    sent = worker_settings(conf.get, conf)
    assert sent == HA | {name: conf[name] for name in ("fs.s3a.access.key", "fs.s3a.bucket.b.c.access.key")}
    assert hdfs_settings(conf.get) == HA
    assert addresses("lake", **sent) == addresses("lake", **conf)

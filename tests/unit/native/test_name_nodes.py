from __future__ import annotations

import pytest

from sparkcrypt.errors import ConfigError
from sparkcrypt.files.open_places import worker_settings
from sparkcrypt.files.webhdfs.client import HADOOP_USER, NameNodes, hdfs_settings, name_nodes

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

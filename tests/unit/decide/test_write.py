"""What is decided for a file that is written: keys by tag, identity by path, and every refusal."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt.decide.file import encrypted_columns, resolve_write
from sparkcrypt.errors import ConfigError, PlanError
from tests.unit.decide.requests import JOB, NAME, PREFIX, RANDOM, TABLE, UUID, policy, schema, write

TEMPORARY = f"file:/w/t/{JOB}/{NAME}"


def prefix(request: dict[str, Any]) -> str:
    """Return the AAD prefix that a request is answered with."""
    return base64.b64decode(resolve_write(request)["aad_prefix"]).decode()


def keys(request: dict[str, Any]) -> dict[str, str | None]:
    """Return the keys that a request is answered with."""
    return {".".join(column["path"]): column["key"] for column in resolve_write(request)["columns"]}


def test_answer_holds_all_that_a_writer_needs() -> None:
    """Tagged columns get their keys, percent-encoded; footer, algorithm and length are the policy's."""
    answer = resolve_write(write(TEMPORARY))
    assert {name: answer[name] for name in ("encrypt", "footer_key", "plaintext_footer", "algorithm", "data_key_bits")} == {  # noqa: E501  # one message, one line
        "encrypt": True, "footer_key": "footer", "plaintext_footer": False, "algorithm": "AES_GCM_V1", "data_key_bits": 256,  # noqa: E501  # one message, one line
    }  # fmt: skip
    assert keys(write(TEMPORARY)) == {"ssn": "pii", "pay": "fin%3A1"}


def test_untagged_file_is_not_encrypted_at_all() -> None:
    """A file without a tagged column is plaintext, and still notes the policy."""
    answer = resolve_write(write(TEMPORARY, ("id",), properties={}))
    assert answer["encrypt"] is False
    assert len(answer["policy_digest"]) == 64


def test_tags_of_the_schema_and_the_properties_are_united() -> None:
    """Tags arrive by the Spark schema, by properties, or both; the policy's order decides."""
    tagged = write(TEMPORARY, schema=schema(id=[], ssn=[], pay=["pii"]))
    assert keys(tagged) == {"ssn": "pii", "pay": "pii"}


def test_footer_key_takes_untagged_columns() -> None:
    """Under `untagged: footer_key` every column is listed, untagged ones with no key of their own."""
    assert keys(write(TEMPORARY, policy=policy(untagged="footer_key"))) == {"id": None, "ssn": "pii", "pay": "fin%3A1"}


IDENTITIES = {
    "usual": (f"file:/w/t/{JOB}/{NAME}", f"{UUID}/{NAME}"),
    "partition": (f"file:/w/t/{JOB}/p=0/q=a%3Ab/{NAME}", f"{UUID}/p=0/q=a%3Ab/{NAME}"),
    "dynamic overwrite": (f"file:/w/t/.spark-staging-{RANDOM}/{JOB}/p=0/{NAME}", f"{UUID}/p=0/{NAME}"),
    "dynamic overwrite, committed by rename": (f"file:/w/t/.spark-staging-{RANDOM}/p=0/{NAME}", f"{UUID}/p=0/{NAME}"),
    "Hive serde": (f"hdfs://n/w/t/.hive-staging_hive_2026-01-01_1-1/-ext-10000/{JOB}/p=0/{NAME}", f"{UUID}/p=0/{NAME}"),
    "custom location": (f"file:/w/t/.spark-staging-{RANDOM}/{RANDOM}-{NAME}", f"{UUID}/*/{NAME}"),
    "custom location, bucketed": (f"file:/w/t/.spark-staging-1/{RANDOM}-00001_0_{NAME}", f"{UUID}/*/00001_0_{NAME}"),
    "streaming": (f"file:/w/t/p=0/{NAME}", f"{UUID}/p=0/{NAME}"),
    "UUID before the name elsewhere": (f"file:/w/t/{RANDOM}-{NAME}", f"{UUID}/{RANDOM}-{NAME}"),
    "UUID before the name in a job's folder": (f"file:/w/t/{JOB}/{RANDOM}-{NAME}", f"{UUID}/{RANDOM}-{NAME}"),
    "UUID below staging": (f"file:/w/t/.spark-staging-1/p=0/{RANDOM}-{NAME}", f"{UUID}/p=0/{RANDOM}-{NAME}"),
    "a folder like staging": (f"file:/w/t/_spark-staging-1/{RANDOM}-{NAME}", f"{UUID}/{RANDOM}-{NAME}"),
    "another folder like staging": (f"file:/w/t/.spark-staging/{RANDOM}-{NAME}", f"{UUID}/{RANDOM}-{NAME}"),
    "upper case is no UUID of Spark's": (
        f"file:/w/.spark-staging-1/{RANDOM.upper()}-{NAME}",
        f"{UUID}/{RANDOM.upper()}-{NAME}",
    ),
    "table root like a partition": (f"file:/w/run=7/{JOB}/{NAME}", f"{UUID}/{NAME}"),
    "table root like a partition, partitioned": (f"file:/w/run=7/{JOB}/p=0/{NAME}", f"{UUID}/p=0/{NAME}"),
    "empty value": (f"file:/w/t/{JOB}/p=/{NAME}", f"{UUID}/p=/{NAME}"),
    "null value": (
        f"file:/w/t/{JOB}/p=__HIVE_DEFAULT_PARTITION__/{NAME}",
        f"{UUID}/p=__HIVE_DEFAULT_PARTITION__/{NAME}",
    ),
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_identity_from_a_temporary_path(name: str) -> None:
    """Every way in which Spark stages a file gives the identity that the file will have, 0x00-terminated."""
    path, expected = IDENTITIES[name]
    assert prefix(write(path)) == expected + "\0"


def test_final_path_wins_where_the_commit_protocol_tells_it() -> None:
    """A custom partition location's final folder gives the identity, as readers will see it."""
    staged = f"file:/w/t/.spark-staging-1/{RANDOM}-{NAME}"
    assert prefix(write(staged, target=f"file:/far/run7/p=0/{NAME}")) == f"{UUID}/p=0/{NAME}\0"
    assert prefix(write(staged, target=f"file:/far/2026/{NAME}")) == f"{UUID}/{NAME}\0"


def test_stated_partition_wins() -> None:
    """A writer that was told its partition says so, whatever the folder."""
    assert prefix(write(TEMPORARY, properties={**TABLE, PREFIX + "partition": "p=0/q=1"})) == f"{UUID}/p=0/q=1/{NAME}\0"


def test_bare_path_has_no_table() -> None:
    """Without a UUID the table's place holds a dash."""
    assert prefix(write(TEMPORARY, properties={PREFIX + "tags.ssn": "pii"})) == f"-/{NAME}\0"


@pytest.mark.parametrize("path", ["file:/w/t/", "file:/w/a\0b", "\ud800"])
def test_path_without_a_file_is_refused(path: str) -> None:
    """A path that cannot be a file's is refused, so that no prefix has a second terminator."""
    with pytest.raises(PlanError):
        resolve_write(write(path))


def test_key_template_takes_the_partition_of_the_file() -> None:
    """Two partitions of one write get two keys; a static partition's folder above the staging area counts too."""
    tagged = {**TABLE, PREFIX + "tags.ssn": "monthly"}
    for day, month in (("2026-01-31", "2026-01"), ("2026-02-01", "2026-02")):
        for path in (f"file:/w/t/{JOB}/day={day}/{NAME}", f"file:/w/t/day={day}/.hive-staging_1/-ext-1/{NAME}"):
            assert keys(write(path, properties=tagged))["ssn"] == f"m-{month}"


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        ("", "column ssn: key 'm-{day:%Y-%m}' needs the value of partition column 'day'"),
        ("day=..%2Ffooter/", "column ssn: partition day='../footer' cannot stand in key"),
        ("day=__HIVE_DEFAULT_PARTITION__/", "column ssn: partition day='__HIVE_DEFAULT_PARTITION__' is not a date"),
        ("DAY=2026-01-01/", "needs the value of partition column 'day'"),
    ],
)
def test_partition_that_gives_no_key_is_refused(folder: str, message: str) -> None:
    """A partition without a key is refused with the column's name."""
    with pytest.raises(PlanError) as caught:
        resolve_write(write(f"file:/w/t/{JOB}/{folder}{NAME}", properties={**TABLE, PREFIX + "tags.ssn": "monthly"}))
    assert message in str(caught.value)


REFUSED = {
    "unknown tag": ({PREFIX + "tags.ssn": "pi"}, PlanError, "column ssn carries the tag 'pi' .* allowed: pii, finance"),
    "tag of no column": ({PREFIX + "tags.phone": "pii"}, PlanError, "the schema has no such column; allowed: id, ssn, pay"),  # noqa: E501  # one message, one line
    "no tag on a strict table": (
        {PREFIX + "require_encryption": "true", PREFIX + "table": "a.b"},
        PlanError,
        "a.b requires encryption, but no column carries a tag that encrypts",
    ),
    "flag no boolean": ({PREFIX + "require_encryption": "yes"}, ConfigError, "is 'yes'; allowed: true, false"),
    "misspelt flag": (
        {PREFIX + "require_encrypton": "true"}, ConfigError, r"did you mean parquet\.sparkcrypt\.require_encryption\?",
    ),
    "misspelt tag": ({PREFIX + "tag.ssn": "pii"}, ConfigError, r"did you mean parquet\.sparkcrypt\.tags\.<column>\?"),
    "misspelt history": ({PREFIX + "histroy.ssn": "k"}, ConfigError, r"did you mean parquet\.sparkcrypt\.history\.<column>\?"),  # noqa: E501  # one message, one line
    "unknown option": ({PREFIX + "zzz": "1"}, ConfigError, r"zzz is not known, .* allowed: parquet\.sparkcrypt\.policy"),  # noqa: E501  # one message, one line
    "misspelt upstream": (
        {"parquet.encryption.colum.keys": "k:ssn"}, ConfigError, r"did you mean parquet\.encryption\.column\.keys\?",
    ),
    "unknown upstream": ({"parquet.encryption.zzz": "1"}, ConfigError, "misspelt option would leave data in clear"),
    "footer key by hand": ({"parquet.encryption.footer.key": "k"}, ConfigError, r"footer\.key is set by hand"),
    "column keys by hand": ({"parquet.encryption.column.keys": "k:ssn"}, ConfigError, r"column\.keys is set by hand"),
    "uniform key by hand": ({"parquet.encryption.uniform.key": "k"}, ConfigError, r"uniform\.key is set by hand"),
    "complete columns by hand": ({"parquet.encryption.complete.columns": "true"}, ConfigError, "is set by hand"),
    "summary level": ({"parquet.summary.metadata.level": "ALL"}, PlanError, "summary file would hold .* such as ssn"),
    "summary level in part": ({"parquet.summary.metadata.level": "common_only"}, PlanError, "level is COMMON_ONLY"),
    "summary flag": ({"parquet.enable.summary-metadata": "TRUE "}, PlanError, r"summary-metadata is true"),
    "UUID with a slash": ({PREFIX + "table.uuid": "u/p=0"}, ConfigError, "allowed: a UUID"),
    "UUID that stands for none": ({PREFIX + "table.uuid": "-"}, ConfigError, "allowed: a UUID"),
    "UUID with a terminator": ({PREFIX + "table.uuid": "u\0"}, ConfigError, "allowed: a UUID"),
    "partition that is none": ({PREFIX + "partition": "p=0/x"}, ConfigError, "allowed: folders such as p=0/q=1"),
    "partition unknown": ({PREFIX + "partition": "*"}, ConfigError, "allowed: folders such as p=0/q=1"),
    "locations no JSON": ({PREFIX + "locations": "{"}, ConfigError, "locations is not JSON"),
    "locations no mapping": ({PREFIX + "locations": "[]"}, ConfigError, r"locations is \[\]"),
    "tags of other tables no list": ({PREFIX + "owner.schemas": "7"}, ConfigError, r"owner.schemas is 7"),
    "locations of texts": ({PREFIX + "locations": '{"/w/t": "a.b"}'}, ConfigError, "leave it to sparkcrypt.configure"),
    "tags with an empty name": ({PREFIX + "tags.ssn": "pii,,x"}, PlanError, r"table property parquet\.sparkcrypt\.tags\.ssn"),  # noqa: E501  # one message, one line
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_write_is_refused(name: str) -> None:
    """What could leave data in clear, or cannot be understood, is refused by its name, with the way out."""
    properties, error, message = REFUSED[name]
    if name not in ("no tag on a strict table", "misspelt tag"):
        properties = {PREFIX + "tags.ssn": "pii", **properties}
    with pytest.raises(error, match=message):
        resolve_write(write(TEMPORARY, properties=properties))


def test_blank_options_by_hand_are_none() -> None:
    """An option that was blanked, since Spark cannot remove it, is no option."""
    assert resolve_write(write(TEMPORARY, properties={**TABLE, "parquet.encryption.footer.key": ""}))["encrypt"]


def test_summary_files_of_plaintext_are_none_of_ours() -> None:
    """Where nothing is encrypted, summary files may be written."""
    assert not resolve_write(write(TEMPORARY, ("id",), properties={"parquet.summary.metadata.level": "ALL"}))["encrypt"]


def test_observed_table_is_not_encrypted() -> None:
    """`enforce: false` writes plaintext, whatever tags, and its require_encryption is without effect."""
    rules = {"a.b": {"enforce": False, "require_encryption": True}}
    assert resolve_write(write(TEMPORARY, policy=policy(tables=rules)))["encrypt"] is False
    lost = write(TEMPORARY, policy=policy(tables=rules), properties={PREFIX + "table": "A.B"})
    assert resolve_write(lost)["encrypt"] is False


def strict(*locations: str) -> str:
    """Return a policy that requires encryption at these locations."""
    return policy(
        tables={f"a.t{n}": {"location": location, "require_encryption": True} for n, location in enumerate(locations)}
    )


LOCATED = {
    "path": ("/w/t", "/w/t/x", True),
    "file forms": ("file:///w/t", "file:/w/t/x", True),
    "file forms, turned": ("file:/w/t/", "file:///w/t/x", True),
    "path on any file system": ("/w/t", "hdfs://nn:8020/w/t/x", True),
    "path for a URI": ("hdfs://nn/w/t", "/w/t/x", True),
    "default authority": ("hdfs:///w/t", "hdfs://nn/w/t/x", True),
    "default port": ("hdfs://NN/w/t", "hdfs://nn:8020/w/t/x", True),
    "object store's names": ("s3://b/t", "s3a://b/t/x", True),
    "double slashes": ("/w//t//", "file:/w/t/x", True),
    "root": ("/", "file:/w/t/x", True),
    "escaped location": ("file:/w%20x/t", "file:/w x/t/x", True),
    "escapes in the folder's name": ("/w/a%3Ab", "file:/w/a%3Ab/x", True),
    "hash in the folder's name": ("/w/t#1", "file:/w/t#1/x", True),
    "sibling with a longer name": ("/w/t", "file:/w/t2/x", False),
    "sibling with a hash": ("/w/t", "file:/w/t#1/x", False),
    "sibling with a question mark": ("/w/t", "file:/w/t?1/x", False),
    "parent": ("/w/t/u", "file:/w/t/x", False),
    "other case": ("/w/T", "file:/w/t/x", False),
    "other host": ("hdfs://a/w/t", "hdfs://b/w/t/x", False),
    "other bucket": ("s3a://a/t", "s3a://b/t/x", False),
    "other scheme": ("hdfs://a/w/t", "file:/w/t/x", False),
}


@pytest.mark.parametrize("name", LOCATED)
def test_table_is_known_by_location(name: str) -> None:
    """A file belongs to the table in whose location it is, in whatever form the two are written."""
    location, path, inside = LOCATED[name]
    request = write(path, ("id",), properties={}, policy=strict(location))
    if inside:
        with pytest.raises(PlanError, match=r"a\.t0 requires encryption"):
            resolve_write(request)
    else:
        assert resolve_write(request)["encrypt"] is False


@pytest.mark.parametrize("location", ["hdfs://nn1:8020/w/t", "hdfs://prod/w/t", "hdfs://router/t"])
@pytest.mark.parametrize("path", ["hdfs://NN1/w/t", "hdfs://prod/w/t/", "hdfs://router/t"])
def test_table_is_known_by_aliases(location: str, path: str) -> None:
    """A file belongs to the table in whose location it is by the policy's aliases, whichever of them names it."""
    aliases = {"hdfs://nn1:8020": "hdfs://prod", "hdfs://router/t": "hdfs://prod/w/t"}
    rules = {"a.b": {"location": location, "tags": {"ssn": "pii"}}}
    request = write(f"{path}/{JOB}/{NAME}", properties={}, policy=policy(tables=rules, aliases=aliases))
    assert resolve_write(request)["encrypt"] is True
    assert resolve_write({**request, "path": f"hdfs://nn2/w/t/{NAME}"})["encrypt"] is False


def test_table_is_known_by_links(tmp_path: Path) -> None:
    """A file belongs to the table of the folder to which links lead, and to no second one by the links' own folder."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for location, folder in (("real", "link"), ("link", "real"), ("link", "link")):
        rules = {"a.b": {"location": str(tmp_path / location), "tags": {"ssn": "pii"}}}
        path = f"file:{tmp_path}/{folder}/{JOB}/{NAME}"
        assert resolve_write(write(path, properties={}, policy=policy(tables=rules)))["encrypt"] is True
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "link").symlink_to(tmp_path / "real")
    both = {"a.b": {"location": str(tmp_path / "in")}, "c": {"location": str(tmp_path / "real")}}
    with pytest.raises(ConfigError, match=r"belongs to a\.b, and leads by links to c"):
        resolve_write(write(f"file:{tmp_path}/in/link/{NAME}", properties={}, policy=policy(tables=both)))


def test_tags_of_other_tables_count() -> None:
    """What tables require in whose folders another lies is encrypted, also where Hive's SerDe escaped their schemas."""
    others = f"[{schema(ssn=['pii'])},{schema(pay=['finance'])}]"
    for text in (others, others.replace('"', '\\"')):
        answer = resolve_write(write(f"file:/w/u/{NAME}", properties={PREFIX + "owner.schemas": text}))
        assert [column["path"] for column in answer["columns"]] == [["ssn"], ["pay"]]


def test_partition_of_a_link_is_that_of_its_folder(tmp_path: Path) -> None:
    """A file that is written through a link is bound to the partition in which it is, or which the link names."""
    (tmp_path / "t" / "p=0").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    for link, folder in (("hidden", "t/p=0"), ("t/p=1", "other")):
        (tmp_path / link).symlink_to(tmp_path / folder)
    for place, partition in (("hidden", "p=0/"), ("hidden/q=2", "p=0/q=2/"), ("t/p=1", "p=1/"), ("other", "")):
        assert prefix(write(f"file:{tmp_path}/{place}/{NAME}")) == f"{UUID}/{partition}{NAME}\0"


def test_nearest_location_wins() -> None:
    """Of nested locations the longest counts, from the policy or from the session's map."""
    locations = json.dumps({"file:/w/t/in": {"table": "x.y", "uuid": UUID}, "file:/w": {"table": "z.z", "uuid": None}})
    request = write(f"file:/w/t/in/{NAME}", properties={PREFIX + "tags.ssn": "pii", PREFIX + "locations": locations})
    assert prefix({**request, "policy": strict("/w/t")}) == f"{UUID}/{NAME}\0"
    escaped = {**request["properties"], PREFIX + "locations": locations.replace('"', '\\"')}  # by Hive's SerDe
    assert prefix({**request, "properties": escaped}) == f"{UUID}/{NAME}\0"


def test_stated_table_may_not_pass_over_its_location() -> None:
    """A writer that names another table than the one it writes into, and so another rule, is refused."""
    request = write("file:/w/t/x", policy=strict("/w/t"), properties={PREFIX + "table": "free.table"})
    with pytest.raises(ConfigError, match=r"table is 'free.table', but file:/w/t/x belongs to a\.t0"):
        resolve_write(request)


def test_overlay_of_a_located_dataset_encrypts() -> None:
    """A dataset that the policy knows by location takes its overlay's tags."""
    rules = {"clicks": {"location": "/w/c", "tags": {"ssn": ["pii"]}, "footer_mode": "plaintext"}}
    answer = resolve_write(write(f"file:/w/c/{JOB}/{NAME}", properties={}, policy=policy(tables=rules)))
    assert answer["plaintext_footer"] is True
    assert [column["path"] for column in answer["columns"]] == [["ssn"]]


def test_encrypted_columns_are_told_by_top_level_name() -> None:
    """The columns whose statistics may not stay in the catalog are told."""
    request = {
        "policy": policy(),
        "path": "/",
        "table": "a.b",
        "schema": schema(id=[], ssn=["pii"], Pay=[]),
        "properties": TABLE,
    }
    assert encrypted_columns(request) == {"columns": ["Pay", "ssn"]}

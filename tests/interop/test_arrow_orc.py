"""ORC files by pyarrow under a policy: rows, denials, nulls, access events, and how little of a file is decrypted."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc
import pytest

from sparkcrypt.arrow import GuardedOrc, open_orc
from sparkcrypt.arrow.orc import find_hidden
from sparkcrypt.decide.access_log import read_accesses
from sparkcrypt.decide.identity import FileIdentity
from sparkcrypt.errors import (
    ConfigError,
    FormatError,
    KeyAccessDeniedError,
    KeyNotFoundError,
    KeyServiceUnavailableError,
    SourceChangedError,
    UnsupportedFileError,
    VerificationError,
)
from sparkcrypt.files.open_places import place
from sparkcrypt.files.orc import OrcEncryption, OrcKey, read_tail, rewrap_orc, rewrite_orc
from sparkcrypt.files.orc.read.stripe_streams import find_columns, read_type
from sparkcrypt.files.orders import EncryptionOrder, FileOrder, KeySettings
from sparkcrypt.files.parquet import KeyRequest
from sparkcrypt.files.rewrite import rewrite
from sparkcrypt.keys.datakeys import DataKeyMaker
from sparkcrypt.keys.local.service import LocalKeyService
from sparkcrypt.keys.material import parse_key_material
from sparkcrypt.policy.model import AccessLogRule, Policy
from sparkcrypt.schema import split_dotted
from tests.spark.support import key_service, make_policy, with_keys, without_keys
from tests.unit.orc.corpus import file
from tests.unit.orc.decrypted_bytes import count_decrypted

TAGS = """
  pii: {key: pii}
  fin: {key: fin}
  strict: {key: strict, on_denied: error}
"""
ROWS = 200_000
CODECS = ("uncompressed", "zlib", "snappy", "lz4", "zstd")


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    """A policy of three keys."""
    return make_policy(tmp_path / "policy", TAGS, more="ask_for_access: write to keys@example.org\n")


def encrypt(source: Path, target: Path, policy: Policy, columns: dict[str, str], uuid: str | None = None) -> str:
    """Encrypt columns of a file of a table under master keys, and return its path."""
    maker = DataKeyMaker(key_service(policy), data_key_bits=128)
    bound = FileIdentity(uuid, "", target.name).to_aad_prefix()
    keys = {
        split_dotted(name): OrcKey(*maker.make(key_id, is_footer_key=False, file_identity=bound), key_id)
        for name, key_id in columns.items()
    }
    rewrite_orc(source, target, encryption=OrcEncryption(keys))
    return str(target)


def lacking(policy: Policy, folder: Path, *key_ids: str) -> Policy:
    """Return the policy of somebody whose key service lacks keys."""
    return with_keys(policy, folder / f"without-{'-'.join(key_ids)}", without_keys(*key_ids))


@pytest.fixture
def small(tmp_path: Path, policy: Policy) -> str:
    """A file of the Java writer, of which a text, a field, elements and a decimal are encrypted."""
    columns = {"name": "pii", "st.y": "pii", "li._elem": "fin", "dec": "strict"}
    return encrypt(file("java_zlib"), tmp_path / "small.orc", policy, columns)


def large_rows() -> pa.Table:
    """Return rows whose ids go up by no rule, and of which each text is another."""
    chance = random.Random(7)
    ids = pa.array([number << 40 | chance.getrandbits(40) for number in range(ROWS)], pa.int64())
    return pa.table({"id": ids, "name": [f"{chance.getrandbits(48):012x}" for _ in range(ROWS)]})


def test_rows_are_those_of_the_plaintext_file(policy: Policy, small: str) -> None:
    """By every way out: batches, tables, streams, in the order of columns that is asked for."""
    plain = pa.orc.ORCFile(file("java_zlib")).read()
    assert open_orc(small, policy).to_table().equals(plain)
    opened = open_orc(small, policy, ["name", "id"], pc.field("id") >= 2400)
    expected = plain.filter(pc.field("id") >= 2400).select(["name", "id"])
    assert opened.schema == expected.schema
    assert opened.to_table().equals(expected) and opened.scan().read_all().equals(expected)
    assert len(pl.from_arrow(opened.to_table())) == pa.table(opened).num_rows == 100
    with duckdb.connect() as connection:
        connection.register("stream", opened.scan())
        assert connection.sql("SELECT count(*), min(id) FROM stream").fetchall() == [(100, 2400)]
    assert sum(batch.num_rows for batch in open_orc(small, policy, ["id"]).to_batches()) == 2500


@pytest.mark.parametrize("codec", CODECS)
def test_a_lookup_decrypts_a_tenth_of_a_column_at_most(tmp_path: Path, policy: Policy, codec: str) -> None:
    """Counted in bytes at the cipher, row indexes and dictionaries included; the row is the same."""
    rows = large_rows()
    pa.orc.write_table(rows, tmp_path / "p", compression=codec, row_index_stride=2000, compression_block_size=65_536)
    path = encrypt(tmp_path / "p", tmp_path / "e", policy, {"id": "pii", "name": "fin"})
    with count_decrypted() as counted:
        assert open_orc(path, policy).to_table().equals(rows)
        whole = dict(counted)
        for wanted in rows.take([0, 123_456, ROWS - 1]).to_pylist():
            counted.clear()
            opened = open_orc(path, policy, ["name"], pc.field("id") == wanted["id"])
            assert opened.to_table()["name"].to_pylist() == [wanted["name"]]
            assert (opened.groups.read, opened.groups.seen) == (1, 100)
            assert 0 < counted[1] <= whole[1] / 10, (whole, counted)
            assert 0 < counted[2] <= whole[2] / 10, (whole, counted)


def test_denied_columns_are_errors_by_name(policy: Policy, small: str, tmp_path: Path) -> None:
    """Read or filtered by, nested too; columns that are not read ask for no key."""
    poor = lacking(policy, tmp_path, "pii")
    why = rf"column {{}} of table db\.t cannot be read by ann: its key 'pii' is not there.*write to keys.*{small}"
    cases: tuple[tuple[str, dict[str, Any]], ...] = (
        ("name", {}),
        ("name", {"columns": ["name"]}),
        ("name", {"columns": ["id"], "filter": pc.field("name") == "v1"}),
        (r"st\.y", {"columns": ["st"]}),
    )
    for column, asked in cases:
        with pytest.raises(KeyNotFoundError, match=why.format(column)):
            open_orc(small, poor, table="db.t", principal="ann", **asked)
    assert open_orc(small, poor, ["id", "li"]).to_table().num_rows == 2500


def test_nulls_in_place_of_denied_columns(policy: Policy, small: str, tmp_path: Path) -> None:
    """Denied leaves are null and their siblings stay; in filters too; a tag's error outranks nulls."""
    plain, poor = pa.orc.ORCFile(file("java_zlib")).read(), lacking(policy, tmp_path, "pii", "fin")
    opened = open_orc(small, poor, ["id", "name", "st", "li"], on_denied="mask")
    assert opened.masked == {
        "name": "key pii of tag pii is missing",
        "st.y": "key pii of tag pii is missing",
        "li._elem": "key fin of tag fin is missing",
    }
    found = opened.to_table()
    assert found["name"].null_count == 2500 and found["id"].equals(plain["id"])
    assert opened.schema.field("name").metadata
    structs, lists = found["st"].combine_chunks(), found["li"].combine_chunks()
    assert structs.field("x").equals(plain["st"].combine_chunks().field("x"))
    assert (structs.field("y").null_count, structs.null_count) == (2500, plain["st"].null_count)
    assert pc.list_value_length(lists).equals(pc.list_value_length(plain["li"].combine_chunks()))
    assert lists.values.null_count == len(lists.values) > 0
    masked = pc.field("name")
    for condition, count in (
        (masked == "v1", 0),
        (masked.is_null(), 2500),
        (masked.is_null() & (pc.field("id") < 9), 9),
    ):
        assert open_orc(small, poor, ["id"], condition, on_denied="mask").to_table().num_rows == count
    with pytest.raises(KeyNotFoundError, match="column dec cannot be read"):
        open_orc(small, lacking(policy, tmp_path, "strict"), on_denied="mask")


def test_a_map_without_its_keys_is_null_as_a_whole() -> None:
    """Maps have no null keys; the values alone can be null."""
    tail = read_tail(file("java_types"))
    (kept,) = (read_type(tail, column) for column in find_columns(tail) if column.path == ("kv",))
    key, value = (child.number for child in kept.children)
    assert set(find_hidden([kept], {key})) == {kept.number, key}
    assert set(find_hidden([kept], {value})) == {value}


def test_strict_projection_refuses_names_of_masked_columns(policy: Policy, small: str, tmp_path: Path) -> None:
    """In columns and filters; without a list of columns they are null."""
    poor = replace(lacking(policy, tmp_path, "pii"), strict_projection=True)
    assert open_orc(small, poor, on_denied="mask").to_table()["name"].null_count == 2500
    for asked in ({"columns": ["name"]}, {"columns": ["id"], "filter": pc.field("name").is_null()}):
        with pytest.raises(KeyNotFoundError, match="column name cannot be named by"):
            open_orc(small, poor, on_denied="mask", **asked)


@pytest.mark.parametrize(
    ("error", "is_null"), [(KeyAccessDeniedError, True), (KeyServiceUnavailableError, False)], ids=["denied", "down"]
)
def test_only_a_denial_gives_nulls(
    policy: Policy, small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception], is_null: bool
) -> None:
    """A key service that refuses gives nulls where they are asked for; one that does not answer is an error."""

    def refuse(*_: object) -> bytes:
        raise error("no")

    fresh = with_keys(policy, tmp_path / "fresh", without_keys())
    monkeypatch.setattr(LocalKeyService, "unwrap", refuse)
    with pytest.raises(error, match="no"):
        open_orc(small, fresh, ["name"])
    if is_null:
        opened = open_orc(small, fresh, ["name"], on_denied="mask")
        assert opened.masked == {"name": "key pii of tag pii is denied"}
        assert opened.to_table()["name"].null_count == 2500
    else:
        with pytest.raises(error, match="no"):
            open_orc(small, fresh, ["name"], on_denied="mask")


@pytest.mark.parametrize("required", [False, True])
def test_each_opening_leaves_access_events(policy: Policy, small: str, tmp_path: Path, required: bool) -> None:
    """Who opened, was refused or got nulls for which column, under which key."""
    (tmp_path / "log").mkdir()
    logged = replace(policy, access_log=AccessLogRule(str(tmp_path / "log"), required))
    poor = lacking(logged, tmp_path, "pii")
    open_orc(small, logged, ["name"], table="db.t", principal="ann")
    open_orc(small, poor, ["name"], table="db.t", principal="bob", on_denied="mask")
    with pytest.raises(KeyNotFoundError):
        open_orc(small, poor, ["name"], table="db.t", principal="eve")
    found = read_accesses(tmp_path / "log", "db.t.name", datetime.now(timezone.utc).date()).accesses
    assert {(event["principal"], event["outcome"], event["key"]) for event in found} == {
        ("ann", "opened", "pii"),
        ("bob", "masked", "pii"),
        ("eve", "refused", "pii"),
    }


def test_what_cannot_be_asked_is_refused(policy: Policy, small: str, tmp_path: Path) -> None:
    """Columns that are not there or named twice, filters that do not fit, and other words of on_denied."""
    cases: tuple[tuple[str, dict[str, Any]], ...] = (
        ("column 'nam' is not in .*small.orc; allowed: id, name, st", {"columns": ["nam"]}),
        ("columns id, id: one is named twice; allowed: each once", {"columns": ["id", "id"]}),
        ("on_denied is 'null'; allowed: error, mask", {"on_denied": "null"}),
        ("the filter .* does not fit .*small.orc", {"filter": pc.field("nam") == 1}),
    )
    for why, asked in cases:
        with pytest.raises(ConfigError, match=why):
            open_orc(small, policy, **asked)
    asked_of_tables: Any = {"tags": {"name": ["pii"]}}
    with pytest.raises(TypeError, match=r"option 'tags' is not known; allowed: lifetime_seconds, on_denied"):
        open_orc(small, policy, **asked_of_tables)
    with pytest.raises(UnsupportedFileError, match=r"java_types.orc: column un is of kind union.*leave it out"):
        open_orc(str(file("java_types")), policy)
    with pytest.raises(VerificationError, match=r"java_zlib_encrypted\.orc: .*key material"):
        open_orc(str(file("java_zlib_encrypted")), policy)
    assert open_orc(str(file("java_types")), policy, ["id"], pc.field("l").is_valid()).to_table().num_rows > 0


def test_a_file_that_changed_since_is_refused(policy: Policy, small: str, tmp_path: Path) -> None:
    """Rows are read by the end that was opened, so another file in its place is an error."""
    opened: GuardedOrc = open_orc(small, policy, ["id"])
    encrypt(file("java_zlib"), tmp_path / "other", policy, {"name": "pii"})
    (tmp_path / "other").replace(small)
    with pytest.raises(SourceChangedError, match=r"small\.orc: was written again since it was opened; open it again"):
        opened.to_table()


def test_a_local_key_of_another_master_key_is_refused(policy: Policy, tmp_path: Path) -> None:
    """The file names one master key, and another wrapped the local key: somebody altered the file."""
    maker = DataKeyMaker(key_service(policy), data_key_bits=128)
    keys = {split_dotted("name"): OrcKey(*maker.make("fin", is_footer_key=False), "pii")}
    rewrite_orc(file("java_zlib"), tmp_path / "e", encryption=OrcEncryption(keys))
    with pytest.raises(VerificationError, match="a local key is wrapped by master key 'fin', and the file names 'pii'"):
        open_orc(str(tmp_path / "e"), policy, ["name"])


REQUIRED = {"parquet.sparkcrypt.table.uuid": "u-1", "parquet.sparkcrypt.require_encryption": "true"}


def test_a_file_that_was_moved_is_refused(policy: Policy, small: str, tmp_path: Path) -> None:
    """To another name; one of another table where the table's UUID is told."""
    moved = Path(shutil.copy(small, tmp_path / "other.orc"))
    with pytest.raises(VerificationError, match=r"other\.orc: was written as 'small\.orc' and renamed"):
        open_orc(str(moved), policy)
    own = encrypt(file("java_zlib"), tmp_path / "own.orc", policy, {"name": "pii"}, "u-1")
    assert open_orc(own, policy, ["name"], properties=REQUIRED).to_table().num_rows
    others = {**REQUIRED, "parquet.sparkcrypt.table.uuid": "u-2"}
    with pytest.raises(VerificationError, match=r"own\.orc: belongs to table u-1, not to u-2"):
        open_orc(own, policy, ["id"], properties=others)
    with pytest.raises(VerificationError, match="with no table's identity"):
        open_orc(small, policy, ["id"], properties=REQUIRED)


def test_local_keys_of_another_file_are_refused(policy: Policy, small: str, tmp_path: Path) -> None:
    """Whether all of them or one were put there, also under the name of the file that they come from."""
    other = encrypt(file("java_zlib"), tmp_path / "other.orc", policy, {"name": "pii"})
    foreign = read_tail(other).encryption
    assert foreign is not None
    target = tmp_path / "made" / "small.orc"
    target.parent.mkdir()

    def transplant(request: KeyRequest, key: bytes) -> tuple[bytes, str]:
        material = request.key_metadata or b""
        return (foreign.variants[0].encrypted_key, "pii") if request.column == ("name",) else (material, "fin")

    source = encrypt(file("java_zlib"), tmp_path / "two.orc", policy, {"name": "pii", "st.y": "fin"})
    rewrap_orc(source, target, retrieve_key=lambda _: bytes(16), wrap_key=transplant)
    for name in ("small.orc", "two.orc", "other.orc"):
        target = target.rename(target.parent / name)
        with pytest.raises(VerificationError, match=r"was written as '(other|two)\.orc' and renamed or copied"):
            open_orc(str(target), policy, ["id"])


def test_a_forged_identity_opens_nothing(policy: Policy, small: str, tmp_path: Path) -> None:
    """Whoever writes another file's name into key material, or takes it away, gets no key by it."""
    target = tmp_path / "forged.orc"

    def forge(request: KeyRequest, key: bytes) -> tuple[bytes, str]:
        material = parse_key_material(request.key_metadata or b"")
        identity = FileIdentity(None, "", "forged.orc").to_aad_prefix()
        return replace(material, file_identity=identity).to_bytes(), material.master_key_id

    rewrap_orc(small, target, retrieve_key=lambda _: bytes(16), wrap_key=forge)
    with pytest.raises(FormatError, match="its data key is not one that its KEK wrapped"):
        open_orc(str(target), policy, ["name"])


def test_plaintext_is_refused_where_encryption_is_required(policy: Policy, tmp_path: Path) -> None:
    """A file without encryption, and a column in plaintext that a tag encrypts."""
    orc = replace(policy, formats=("parquet", "orc"))
    tagged = {**REQUIRED, "parquet.sparkcrypt.tags.name": "pii"}
    with pytest.raises(VerificationError, match=r"java_zlib\.orc: is plaintext, and t requires encryption"):
        open_orc(str(file("java_zlib")), orc, ["id"], table="t", properties=tagged)
    half = encrypt(file("java_zlib"), tmp_path / "half.orc", policy, {"st.y": "fin"}, "u-1")
    with pytest.raises(VerificationError, match=r"column name is plaintext, and the tag 'pii' of t encrypts it"):
        open_orc(half, orc, ["id"], table="t", properties=tagged)
    assert open_orc(half, policy, ["id"]).to_table().num_rows


@pytest.mark.services
@pytest.mark.newest
@pytest.mark.parametrize("system", ["s3", "hdfs"])
def test_files_on_remote_storage(system: str, policy: Policy, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The native engine encrypts, rewraps and decrypts there, and rows and denials are as on a local disk."""
    uri, settings = request.getfixturevalue(f"{system}_place")
    where = place(uri, settings)
    assert not isinstance(where, str)
    storage, name = where
    storage.create_dir(name, recursive=True)
    with storage.open_output_stream(f"{name}/plain.orc") as stream:
        stream.write(file("java_zlib").read_bytes())
    keys, bound = KeySettings(policy.key_service.canonical(), 128), FileIdentity(None, "", "f.orc").to_aad_prefix()
    encryption = EncryptionOrder({("name",): "pii", ("st", "y"): "fin"}, bound)
    orders = (
        FileOrder(f"{uri}/plain.orc", f"{uri}/e/f.orc", "encrypt", encryption, format="orc"),
        FileOrder(f"{uri}/e/f.orc", f"{uri}/r/f.orc", "rewrap", encryption, bound, format="orc"),
        FileOrder(f"{uri}/r/f.orc", f"{uri}/p/f.orc", "decrypt", None, bound, format="orc"),
    )
    for order in orders:
        outcome = rewrite(order, keys, settings)
        assert (outcome.error, outcome.refused, outcome.rows) == (None, None, 2500)
    plain = pa.orc.ORCFile(file("java_zlib")).read()
    for order in orders:
        assert open_orc(order.target, policy, settings=settings).to_table().equals(plain)
    found = open_orc(orders[0].target, policy, ["name"], pc.field("id") >= 2400, settings=settings)
    assert found.to_table().equals(plain.filter(pc.field("id") >= 2400).select(["name"]))
    poor = lacking(policy, tmp_path, "pii")
    with pytest.raises(KeyNotFoundError, match=f"column name .*its key 'pii' is not there.*{uri}/r/f.orc"):
        open_orc(orders[1].target, poor, settings=settings)
    with pytest.raises(FormatError, match=r"absent\.orc"):
        open_orc(f"{uri}/absent.orc", policy, settings=settings)

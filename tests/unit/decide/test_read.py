"""What a reader refuses: attacks on a file's place, footer and columns, each as the footer that it would show."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkcrypt.decide import read_checks
from sparkcrypt.decide.context import table_context
from sparkcrypt.decide.file import encrypted_columns, resolve_read, resolve_write
from sparkcrypt.decide.read_checks import FileRead, check_footer
from sparkcrypt.errors import KeyAccessDeniedError, KeyServiceError, SparkcryptError, VerificationError
from sparkcrypt.keys.sealed_history import seal_history
from sparkcrypt.keys.service import KeyService
from tests.unit.decide.requests import (
    JOB,
    NAME,
    OTHER_UUID,
    PREFIX,
    RANDOM,
    STRICT,
    TABLE,
    UUID,
    footer_of,
    material,
    policy,
    read,
    schema,
    write,
)
from tests.unit.schema.message_types import group, leaf, message_type, repeated
from tests.unit.schema.strategies import spark_schemas

PLACE = f"file:/w/t/p=0/{NAME}"
STAGED = f"file:/w/t/{JOB}/p=0/{NAME}"
LOOSE = TABLE


def written(path: str = STAGED, **changes: Any) -> dict[str, Any]:
    """Return the footer of a file that was just written."""
    return footer_of(resolve_write(write(path, **changes)))


def b64(data: bytes) -> str:
    """Return base64 text."""
    return base64.b64encode(data).decode()


class PlainService:
    """A key service whose wrapped keys hold the key; it refuses the key ``denied``."""

    def wrap(self, key_id: str, key: bytes) -> str:
        """Wrap."""
        return f"{key_id} {key.hex()}"

    def unwrap(self, key_id: str, wrapped: str) -> bytes:
        """Unwrap what `wrap` wrapped under this key."""
        if key_id == "denied":
            raise KeyAccessDeniedError("denied")
        owner, _, key = wrapped.rpartition(" ")
        if owner != key_id:
            raise KeyServiceError("not mine")
        return bytes.fromhex(key)


SERVICE = cast("KeyService", PlainService())


def sealed(entries: str, key_id: str = "pii", uuid: str = UUID, column: str = "ssn") -> dict[str, str]:
    """Return the property of a column's history, sealed under a key."""
    entry = seal_history(SERVICE, key_id, uuid, (column,), entries.split(","))
    return {PREFIX + f"history.{column}": ",".join(entry)}


def accepted(path: str, footer: dict[str, Any], **changes: Any) -> bool:
    """Tell whether a file is read."""
    try:
        resolve_read(read(path, footer, **changes), SERVICE.unwrap)
    except VerificationError:
        return False
    return True


def test_file_in_its_place_is_read() -> None:
    """A file as it was written is read, and the answer holds the key service and the prefix that must be seen."""
    footer = written()
    assert resolve_read(read(PLACE, footer)) == {
        "key_service": '{"type":"own"}',
        "aad_prefix": footer["aad_prefix"],
        "table": "a.b",
    }


GOOD = f"{UUID}/p=0/{NAME}".encode()
PREFIXES = {
    "no prefix": None,
    "empty": b"",
    "no terminator": GOOD,
    "another byte for the terminator": GOOD + b"1",
    "two terminators": GOOD + b"\0\0",
    "border moved into the file-unique": GOOD + b"\0" + b"1",
    "border moved into the prefix": GOOD[:-1],
    "terminator inside": GOOD.replace(b"/p=0", b"\0p=0") + b"\0",
    "not UTF-8": GOOD.replace(b"p=0", b"p=\xff") + b"\0",
    "no table": NAME.encode() + b"\0",
    "other writer's": b"tableAAD",
    "other table": GOOD.replace(UUID.encode(), OTHER_UUID.encode()) + b"\0",
    "no table's identity": GOOD.replace(UUID.encode(), b"-") + b"\0",
    "other partition": GOOD.replace(b"p=0", b"p=1") + b"\0",
    "deeper partition": GOOD.replace(b"p=0", b"p=0/q=1") + b"\0",
    "longer than the path": GOOD.replace(b"p=0", b"/".join([b"p=0"] * 20)) + b"\0",
    "other name": GOOD.replace(b"part-00000", b"part-00001") + b"\0",
    "name with a folder": GOOD + b"/x\0",
    "empty name": f"{UUID}/p=0/".encode() + b"\0",
}


@pytest.mark.parametrize("name", PREFIXES)
def test_prefix_that_does_not_belong_here_is_refused(name: str) -> None:
    """A table that requires encryption takes a file only under the prefix of this table, partition and name."""
    prefix = PREFIXES[name]
    footer = {**written(), "aad_prefix": None if prefix is None else b64(prefix)}
    with pytest.raises(VerificationError, match=NAME):
        resolve_read(read(PLACE, footer))


def test_second_terminator_is_refused_where_the_table_has_no_uuid() -> None:
    """A dataset known by location alone has no UUID to compare, and still takes no prefix that is framed twice."""
    known = policy(tables={"clicks": {"location": "/w/t", "require_encryption": True}})
    for prefix, good in ((b"-", True), (b"-\0", False), (b"\0", False)):
        footer = {**written(), "aad_prefix": b64(prefix + f"/p=0/{NAME}".encode() + b"\0")}
        assert accepted(PLACE, footer, properties={}, policy=known) == good
    footer = {**written(), "aad_prefix": b64(f"-\0/p=0/{NAME}x".encode())}
    assert not accepted(PLACE, footer, properties={}, policy=known)


@pytest.mark.parametrize(
    "name", ["other table", "other partition", "deeper partition", "other name", "name with a folder"]
)
def test_moved_file_is_refused_on_any_table(name: str) -> None:
    """A file of ours that was moved is refused even where encryption is not required."""
    prefix = PREFIXES[name]
    assert prefix is not None
    assert not accepted(PLACE, {**written(), "aad_prefix": b64(prefix)}, properties=LOOSE)


@pytest.mark.parametrize("name", ["no prefix", "other writer's", "no table's identity"])
def test_weaker_identity_is_taken_where_encryption_is_not_required(name: str) -> None:
    """Files by other writers, or by path, are read on tables that do not require encryption."""
    prefix = PREFIXES[name]
    assert accepted(PLACE, {**written(), "aad_prefix": None if prefix is None else b64(prefix)}, properties=LOOSE)


def test_file_is_read_by_links_that_show_no_other_partition(tmp_path: Path) -> None:
    """A link hides a file's partition, and the file is read; one that claims another partition is refused."""
    (tmp_path / "t" / "p=0" / "q=1").mkdir(parents=True)
    (tmp_path / "x=1").mkdir()
    links = {"hidden": "t/p=0/q=1", "above": "t", "upper": "t/p=0", "p=1": "t/p=0", "x=1/link": "t/p=0/q=1"}
    for link, folder in links.items():
        (tmp_path / link).symlink_to(tmp_path / folder)
    footer = written(f"file:{tmp_path}/t/{JOB}/p=0/q=1/{NAME}")
    for place in ("hidden", "above/p=0/q=1", "upper/q=1"):
        assert accepted(f"file:{tmp_path}/{place}/{NAME}", footer)
    for place in ("p=1/q=1", "x=1/link", "above/p=0", "upper"):
        assert not accepted(f"file:{tmp_path}/{place}/{NAME}", footer)
    assert not accepted(f"file:{tmp_path}/hidden/x{NAME}", footer)


MOVES = {
    "to another partition": f"file:/w/t/p=1/{NAME}",
    "out of its partition": f"file:/w/t/{NAME}",
    "below another partition": f"file:/w/t/p=0/q=1/{NAME}",
    "renamed": f"file:/w/t/p=0/x{NAME}",
    "with its UUID in front": f"file:/w/t/p=0/{RANDOM}-{NAME}",
    "with another ending": f"file:/w/t/p=0/{NAME}.bak",
    "to another spelling": f"file:/w/t/p=%30/{NAME}",
}


@pytest.mark.parametrize("name", MOVES)
def test_moved_file_is_refused(name: str) -> None:
    """A file is read only where it was written, on any table."""
    assert accepted(PLACE, written())
    for properties in (STRICT, LOOSE):
        with pytest.raises(VerificationError, match=r"renamed or copied|moved to another"):
            resolve_read(read(MOVES[name], written(), properties=properties))


def test_file_of_another_table_is_refused() -> None:
    """A file written under another table's UUID is refused, by both UUIDs."""
    footer = written(properties={**TABLE, PREFIX + "table.uuid": OTHER_UUID})
    with pytest.raises(VerificationError, match=f"belongs to table {OTHER_UUID}, not to {UUID}"):
        resolve_read(read(PLACE, footer))


@pytest.mark.parametrize(
    ("staged", "place"),
    [
        (f"file:/w/t/{JOB}/{NAME}", f"file:/w/t/{NAME}"),
        (f"file:/w/run=7/{JOB}/{NAME}", f"file:/w/run=7/{NAME}"),
        (f"file:/w/run=7/{JOB}/p=0/{NAME}", f"file:/w/run=7/p=0/{NAME}"),
        (f"file:/w/run=7/p=0/{NAME}", f"file:/w/run=7/p=0/{NAME}"),
        (f"file:/w/t/.spark-staging-1/{JOB}/p=a%2Fb/{NAME}", f"file:/w/t/p=a%2Fb/{NAME}"),
        (f"file:/w/t/.spark-staging-1/{RANDOM}-{NAME}", f"file:/far/run7/p=0/{NAME}"),
        (f"file:/w/t/.spark-staging-1/{RANDOM}-{NAME}", f"file:/far/2026/{NAME}"),
        (f"file:/w/t/.hive-staging_1/-ext-10000/{NAME}", f"file:/w/t/p=0/{NAME}"),
    ],
)
def test_every_way_of_spark_is_read_back(staged: str, place: str) -> None:
    """A file that Spark staged and committed is read where it lands, SET LOCATION and custom locations included."""
    assert accepted(place, written(staged))


def test_custom_location_is_read_by_its_final_folder() -> None:
    """A custom location that the commit protocol told is bound to its folder."""
    staged, target = f"file:/w/t/.spark-staging-1/{RANDOM}-{NAME}", f"file:/far/run7/p=0/{NAME}"
    footer = written(staged, target=target)
    assert accepted(target, footer)
    assert not accepted(target.replace("p=0", "p=1"), footer)


@pytest.mark.parametrize("length", [0, 7, 9, 16])
@pytest.mark.parametrize("properties", [STRICT, LOOSE])
def test_file_unique_has_eight_bytes(length: int, properties: dict[str, str]) -> None:
    """A file-unique of any other length is refused on any table, since its border with the prefix could be moved."""
    with pytest.raises(VerificationError, match=f"file-unique has {length} bytes; allowed: 8"):
        resolve_read(read(PLACE, {**written(), "aad_file_unique": b64(b"1" * length)}, properties=properties))


@pytest.mark.parametrize("algorithm", ["AES_GCM_CTR_V1", None, "", "aes_gcm_v1", "AES_GCM_V2", 7])
@pytest.mark.parametrize("mode", ["encrypted", "plaintext_signed"])
def test_other_algorithm_is_refused(algorithm: Any, mode: str) -> None:
    """The algorithm is no one's word but the policy's, which names those of the past."""
    footer = {**written(), "algorithm": algorithm, "mode": mode}
    with pytest.raises(VerificationError, match=r"its algorithm is .* allowed: AES_GCM_V1"):
        resolve_read(read(PLACE, footer, properties=LOOSE))
    known = policy(algorithm_history=["AES_GCM_CTR_V1"])
    assert accepted(PLACE, footer, policy=known) == (algorithm == "AES_GCM_CTR_V1")


@pytest.mark.parametrize("key", ["other", "pii", "FOOTER", "footer "])
def test_foreign_footer_key_is_refused(key: str) -> None:
    """A footer under any key but the policy's, or its history's, is refused on any table."""
    footer = {**written(), "footer_key_metadata": material(key, footer=True)}
    with pytest.raises(VerificationError, match=r"its footer key is .*; allowed: 'footer'; .*\(footer\.history\)"):
        resolve_read(read(PLACE, footer, properties=LOOSE))
    assert accepted(PLACE, footer, policy=policy(footer={"key": "footer", "history": [key]}))


@pytest.mark.parametrize("metadata", [None, "", b64(b"{}"), b64(b"\xff"), b64(b"x" * 100)])
def test_key_metadata_of_another_writer_is_refused(metadata: str | None) -> None:
    """Key metadata that is not parquet-mr's is refused with what it belongs to."""
    with pytest.raises(VerificationError, match="key metadata of the footer cannot be read"):
        resolve_read(read(PLACE, {**written(), "footer_key_metadata": metadata}))
    if metadata is not None:
        with pytest.raises(VerificationError, match="key metadata of column ssn cannot be read"):
            resolve_read(read(PLACE, changed(written(), "ssn", key_metadata=metadata)))


def changed(footer: dict[str, Any], name: str, **changes: Any) -> dict[str, Any]:
    """Return a footer with one column changed."""
    columns = [{**column, **changes} if column["path"] == [name] else column for column in footer["columns"]]
    return {**footer, "columns": columns}


COLUMN_ATTACKS: dict[str, dict[str, Any]] = {
    "plaintext": {"encrypted": False, "key_metadata": None},
    "footer key": {"encrypted": True, "key_metadata": None},
    "another tag's key": {"encrypted": True, "key_metadata": material("fin:1")},
    "the footer's key as its own": {"encrypted": True, "key_metadata": material("footer")},
    "a template's key": {"encrypted": True, "key_metadata": material("m-2026-01")},
    "a foreign key": {"encrypted": True, "key_metadata": material("attacker")},
    "its key, encoded twice": {"encrypted": True, "key_metadata": material("p%69i")},
}


@pytest.mark.parametrize("name", COLUMN_ATTACKS)
@pytest.mark.parametrize("mode", ["encrypted", "plaintext_signed"])
def test_column_not_as_the_policy_wants_is_refused(name: str, mode: str) -> None:
    """On a table that requires encryption each column has its own key and no other, by the column's name."""
    footer = {**changed(written(), "ssn", **COLUMN_ATTACKS[name]), "mode": mode}
    with pytest.raises(VerificationError, match=r"column ssn is (plaintext|encrypted with)"):
        resolve_read(read(PLACE, footer))


@pytest.mark.parametrize("name", COLUMN_ATTACKS)
def test_drift_is_read_where_encryption_is_not_required(name: str) -> None:
    """Elsewhere a column under another key of the policy, or in clear, is drift; a foreign key is refused always."""
    assert accepted(PLACE, changed(written(), "ssn", **COLUMN_ATTACKS[name]), properties=LOOSE) == (
        name not in ("a foreign key", "its key, encoded twice")
    )


@pytest.mark.parametrize(
    ("history", "attack"),
    [
        ("plaintext", "plaintext"),
        ("fin%3A1", "another tag's key"),
        ("attacker", "a foreign key"),
        ("footer", "footer key"),
    ],
)
def test_history_of_a_column_is_taken(history: str, attack: str) -> None:
    """What a sealed history names for a column is read until a backfill has replaced it, for this column alone."""
    footer = changed(written(), "ssn", **COLUMN_ATTACKS[attack])
    assert not accepted(PLACE, footer, properties={**STRICT, **sealed(history, "fin:1", column="pay")})
    assert accepted(PLACE, footer, properties={**STRICT, **sealed(f"old,{history}")})
    assert accepted(PLACE, footer, properties={**STRICT, **sealed(history, column="SSN")})


def test_history_that_nobody_with_the_columns_key_has_sealed_is_not_taken() -> None:
    """Raw entries, altered seals, and those of another key, table or column count where encryption is not required."""
    footer = changed(written(), "ssn", **COLUMN_ATTACKS["plaintext"])
    name, good = next(iter(sealed("plaintext").items()))
    moved = {PREFIX + "history.ssn": sealed("plaintext", column="pay")[PREFIX + "history.pay"]}
    body = json.loads(base64.urlsafe_b64decode(sealed("old")[name].split("!")[1]))
    altered = base64.urlsafe_b64encode(json.dumps({**body, "entries": ["plaintext"]}).encode()).decode()
    for forged in (
        {name: "plaintext"},
        {name: f"plaintext,{good.split(',')[0]}"},
        {name: f"plaintext,!{altered}"},
        {name: f"plaintext,!{'A' * 40}"},
        {name: "plaintext,!W10="},
        sealed("plaintext", "fin:1"),
        sealed("plaintext", uuid=UUID.replace("1", "2")),
        moved,
    ):
        assert not accepted(PLACE, footer, properties={**STRICT, **forged}), forged
        assert accepted(PLACE, footer, properties={**LOOSE, **forged})
    assert accepted(PLACE, footer, properties={**STRICT, name: good})


def test_reader_without_the_new_key_reads_the_other_columns_of_old_files() -> None:
    """A seal that he cannot open counts for a column that he does not read, and for no other."""
    tags = {"pii": {"key": "denied"}, "finance": {"key": "fin:1"}}
    footer = changed(written(), "ssn", key_metadata=material("pii"))
    history = {**STRICT, **sealed("pii", "denied")}
    for column, good in (("pay", True), ("ssn", False)):
        requested = json.dumps(
            {"type": "struct", "fields": [{"name": column, "type": "string", "nullable": True, "metadata": {}}]}
        )
        found = accepted(PLACE, footer, properties=history, policy=policy(tags=tags), requested_schema=requested)
        assert found is good, column


def test_history_of_a_tag_is_taken() -> None:
    """What the policy's history names for a tag is read, as raw key ids."""
    tags = {"pii": {"key": "pii", "history": ["old/%41:1", "plaintext"]}, "finance": {"key": "fin:1"}}
    old = changed(written(), "ssn", key_metadata=material("old/%41:1"))
    for footer, good in ((old, True), (changed(written(), "ssn", **COLUMN_ATTACKS["plaintext"]), True)):
        assert accepted(PLACE, footer, policy=policy(tags=tags)) == good
    assert not accepted(PLACE, changed(written(), "ssn", key_metadata=material("old/A:1")), policy=policy(tags=tags))


def test_columns_that_overlap_are_refused() -> None:
    """A column whose path is also a group's would hide what is below it from the check."""
    for path in (["ssn", "x"], ["id", "y"]):
        footer = written()
        footer["columns"].append({"path": path, "encrypted": False, "key_metadata": None})
        assert not accepted(PLACE, footer)


def test_plaintext_file_is_refused_unless_history_allows_every_column() -> None:
    """A plaintext file on a strict table is read only while every encrypted column's history says plaintext."""
    columns = [{"path": [name], "encrypted": False, "key_metadata": None} for name in ("id", "ssn", "pay")]
    footer = {"mode": "plaintext", "columns": columns}
    with pytest.raises(VerificationError, match=r"is plaintext, and a\.b requires encryption"):
        resolve_read(read(PLACE, footer))
    with_history = {**STRICT, **sealed("plaintext")}
    assert not accepted(PLACE, footer, properties=with_history)
    both = {**with_history, **sealed("plaintext", "fin:1", column="pay")}
    assert accepted(PLACE, footer, properties=both)
    assert not accepted(PLACE, {**footer, "columns": []}, properties=with_history)
    assert accepted(PLACE, footer, properties=LOOSE)


def test_tags_may_be_lost_and_plaintext_stays_refused() -> None:
    """A plaintext file on a strict table is refused also when no tag reaches the reader."""
    lost = {PREFIX + "table": "a.b", PREFIX + "require_encryption": "true"}
    footer = {"mode": "plaintext", "columns": [{"path": ["ssn"], "encrypted": False, "key_metadata": None}]}
    assert not accepted(PLACE, footer, properties=lost)


@pytest.mark.parametrize("untagged", ["plaintext", "footer_key", "deny"])
def test_projection_does_not_make_other_columns_fail(untagged: str) -> None:
    """A reader of one column is not told the tags of the others, and takes them as they are."""
    tags = schema(id=["public"], ssn=["pii"], pay=["finance"])
    known = policy(untagged=untagged, tables={"clicks": {"location": "/w/t", "require_encryption": True}})
    footer = written(properties={}, policy=known, schema=tags)
    for requested in (None, tags, schema(ssn=["pii"]), schema(id=["public"])):
        assert accepted(PLACE, footer, properties={}, policy=known, requested_schema=requested)
    forged = changed(footer, "ssn", **COLUMN_ATTACKS["plaintext"])
    assert not accepted(PLACE, forged, properties={}, policy=known, requested_schema=schema(ssn=["pii"]))


def test_untagged_column_in_clear_is_refused_where_the_footer_key_covers_it() -> None:
    """Under `untagged: footer_key` a column that is read may not be in clear without a tag that says so."""
    known = policy(untagged="footer_key")
    forged = changed(written(policy=known), "id", **COLUMN_ATTACKS["plaintext"])
    assert not accepted(PLACE, forged, policy=known, requested_schema=schema(ID=[]))
    assert accepted(PLACE, forged, policy=known, requested_schema=schema(id=["public"]))


def test_parts_in_place_of_a_variant_are_the_variant() -> None:
    """Spark reads fields without names of the table's where a query takes parts of a VARIANT: its leaves are judged."""
    known, parts = policy(untagged="footer_key"), ({"name": "0", "type": "int", "metadata": {read_checks._PART: "{}"}},)
    document = {"type": "struct", "fields": [{"name": "v", "type": {"type": "struct", "fields": parts}}]}
    leaves = [{"name": name, "kind": "leaf", "repetition": "optional"} for name in ("metadata", "value")]
    fields = [{"name": "v", "kind": "group", "repetition": "optional", "children": leaves}]
    for clear in ("metadata", "value"):
        columns = [{"path": ["v", name], "encrypted": name != clear} for name in ("metadata", "value")]
        footer = {**written(policy=known), "fields": fields, "columns": columns}
        assert not accepted(PLACE, footer, policy=known, requested_schema=json.dumps(document))
        assert accepted(PLACE, footer, policy=known, requested_schema=schema(id=[]))


def test_key_of_a_template_belongs_to_the_partition() -> None:
    """Another month's key is refused; where the folder does not show the month, any key of the template is taken."""
    tagged = {**STRICT, PREFIX + "tags.ssn": "monthly"}
    staged = f"file:/w/t/{JOB}/day=2026-01-31/{NAME}"
    footer = written(staged, properties=tagged)
    place = f"file:/w/t/day=2026-01-31/{NAME}"
    assert accepted(place, footer, properties=tagged)
    assert not accepted(place, changed(footer, "ssn", key_metadata=material("m-2026-02")), properties=tagged)
    custom = {**footer, "aad_prefix": b64(f"{UUID}/*/{NAME}".encode() + b"\0")}
    assert accepted(f"file:/far/{NAME}", custom, properties=tagged)
    assert not accepted(f"file:/far/{NAME}", changed(custom, "ssn", key_metadata=material("m-x")), properties=tagged)
    assert not accepted(f"file:/far/{NAME}", changed(custom, "ssn", key_metadata=material("pii")), properties=tagged)


def test_partition_that_gives_no_key_is_judged_by_history() -> None:
    """Rows without a date, written before the tag had a template, are read by the policy's history of the tag alone."""
    tagged = {**STRICT, PREFIX + "tags.ssn": "monthly"}
    place = f"file:/w/t/day=__HIVE_DEFAULT_PARTITION__/{NAME}"
    footer = written(place)
    assert not accepted(place, footer, properties=tagged)
    assert not accepted(place, footer, properties={**tagged, PREFIX + "history.ssn": "pii"})
    tags = {
        "pii": {"key": "pii"},
        "finance": {"key": "fin:1"},
        "monthly": {"key": "m-{day:%Y-%m}", "history": ["pii"]},
    }
    assert accepted(place, footer, properties=tagged, policy=policy(tags=tags))


def test_observed_table_is_read_whatever_its_files_are() -> None:
    """`enforce: false` refuses nothing."""
    rules = policy(tables={"a.b": {"enforce": False, "require_encryption": True}})
    assert accepted(
        f"file:/elsewhere/{NAME}", changed(written(), "ssn", **COLUMN_ATTACKS["a foreign key"]), policy=rules
    )
    assert accepted(PLACE, {"mode": "plaintext", "columns": []}, policy=rules)


def test_unknown_tag_at_the_reader_is_refused() -> None:
    """A table whose tags make no plan cannot be checked, and says why."""
    with pytest.raises(VerificationError, match=r"cannot be checked, .* carries the tag 'pi'"):
        resolve_read(read(PLACE, written(), properties={**STRICT, PREFIX + "tags.ssn": "pi"}))


def test_file_without_any_encrypted_column_is_refused_also_without_tags() -> None:
    """On a strict table an encrypted footer over plaintext columns is refused even when no tag reaches the reader."""
    columns = [{"path": [name], "encrypted": False, "key_metadata": None} for name in ("id", "ssn")]
    with pytest.raises(VerificationError, match="has no encrypted column"):
        resolve_read(
            read(PLACE, {**written(), "columns": columns}, properties={**STRICT_ONLY, PREFIX + "table.uuid": UUID})
        )


def test_check_footer_takes_the_facts_alone() -> None:
    """The footer's check needs no column."""
    check_footer(FileRead(PLACE, {**written(), "columns": []}, table_context(policy(), PLACE, STRICT)))


@settings(max_examples=150)
@given(
    spark_schemas(["a", "b", "list", "element", "array", "bag", "key_value", "key", "value", "map", "x.y"]), st.data()
)
def test_what_was_written_is_read_and_no_column_less(document: dict[str, Any], data: st.DataObject) -> None:
    """Whatever the nesting and names, a strict table reads what it wrote, and refuses any one column in clear."""
    answer = resolve_write(
        write(
            STAGED,
            message_type=message_type(document),
            schema=json.dumps(document),
            properties={PREFIX + "table.uuid": UUID},
        )
    )
    if not answer["encrypt"]:
        return
    keys = {tuple(column["path"]): column["key"] for column in answer["columns"]}
    footer = footer_of(answer, (), fields=message_type(document))
    for path in _leaves(message_type(document), ()):
        metadata = material(keys[path].replace("%3A", ":")) if keys.get(path) else None
        footer["columns"].append({"path": list(path), "encrypted": path in keys, "key_metadata": metadata})
    request = read(
        PLACE, footer, requested_schema=json.dumps(document), properties={**STRICT_ONLY, PREFIX + "table.uuid": UUID}
    )
    resolve_read(request)
    victim = data.draw(st.sampled_from([column for column in footer["columns"] if column["encrypted"]]))
    victim |= {"encrypted": False, "key_metadata": None}
    with pytest.raises(VerificationError, match=r"is plaintext|has no encrypted column"):
        resolve_read(request)


STRICT_ONLY = {PREFIX + "require_encryption": "true"}


def _leaves(fields: list[dict[str, Any]], above: tuple[str, ...]) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for field in fields:
        path = (*above, field["name"])
        found += _leaves(field["children"], path) if field["kind"] == "group" else [path]
    return found


LEGACY = [
    ("people.element.ssn", ["people", "array", "ssn"], ["people", "array", "n"]),
    ("people.element.ssn", ["people", "bag", "array", "ssn"], ["people", "bag", "array", "n"]),
    ("people.element.ssn", ["people", "bag", "array_element", "ssn"], ["people", "bag", "array_element", "n"]),
    ("people.element.ssn", ["people", "list", "item", "ssn"], ["people", "list", "item", "n"]),
    ("people.element.ssn", ["people", "people_tuple", "ssn"], ["people", "people_tuple", "n"]),
    ("people.element", ["people", "array"], ["id"]),
    ("people.element", ["people", "bag", "array"], ["id"]),
    ("people.value.ssn", ["people", "map", "value", "ssn"], ["people", "map", "key"]),
    ("people.value", ["people", "key_value", "value"], ["people", "key_value", "key"]),
    ("people.list.element.ssn", ["people", "array", "ssn"], ["people", "array", "n"]),
    ("people.list", ["people", "list", "element"], ["id"]),
    ("people", ["people", "anything", "ssn"], ["id"]),
]


@pytest.mark.parametrize(("tagged", "path", "other"), LEGACY)
def test_tag_is_found_in_every_writers_form(tagged: str, path: list[str], other: list[str]) -> None:
    """A plaintext leaf is refused whichever form its writer gave its lists and maps."""
    columns = [{"path": place, "encrypted": False, "key_metadata": None} for place in (other, path)]
    columns.append({"path": ["anything"], "encrypted": True, "key_metadata": None})
    properties = {**STRICT_ONLY, PREFIX + "table.uuid": UUID, PREFIX + f"tags.{tagged}": "pii"}
    footer = {**written(), "columns": columns}
    with pytest.raises(VerificationError, match=f"column {'.'.join(path)} is plaintext"):
        resolve_read(read(PLACE, footer, properties=properties))


PEOPLE = {
    "type": "struct",
    "fields": [
        {
            "name": "people",
            "type": {
                "type": "array",
                "elementType": {
                    "type": "struct",
                    "fields": [
                        {"name": "ssn", "type": "string", "metadata": {"tags": ["pii"]}},
                        {"name": "n", "type": "long"},
                    ],
                },
            },
        }
    ],
}


@pytest.mark.parametrize(
    "groups", [("foo", "bar"), ("list", "zz"), ("people", "people"), ("foo",), ("key_value", "value")]
)
def test_other_names_of_a_list_s_groups_hide_no_column(groups: tuple[str, ...]) -> None:
    """A forged list whose groups have names that no writer gives is judged as the list that it is read as."""
    paths = [["people", *groups, "ssn"], ["people", *groups, "n"]]
    columns = [{"path": path, "encrypted": False, "key_metadata": None} for path in paths]
    columns.append({"path": ["anything"], "encrypted": True, "key_metadata": None})
    inside = [leaf("ssn"), leaf("n")]
    repeats = repeated(groups[0], *(inside if len(groups) == 1 else [group(groups[1], *inside)]))
    fields = [group("people", repeats, annotation="LIST"), leaf("anything")]
    properties = {**STRICT_ONLY, PREFIX + "table.uuid": UUID}
    footer = {**written(), "columns": columns, "fields": fields}
    with pytest.raises(VerificationError, match=r"ssn is plaintext"):
        resolve_read(read(PLACE, footer, properties=properties, requested_schema=json.dumps(PEOPLE)))


def test_column_that_is_no_list_is_refused_where_a_list_is_read() -> None:
    """A group with two columns where a list is read is refused on a strict table, and taken as it is elsewhere."""
    columns = [{"path": ["people", name], "encrypted": True, "key_metadata": None} for name in ("ssn", "n")]
    footer = {**written(), "columns": columns}
    with pytest.raises(VerificationError, match="column people is read as a list, but"):
        resolve_read(read(PLACE, footer, requested_schema=json.dumps(PEOPLE)))
    assert accepted(PLACE, footer, properties=LOOSE, requested_schema=json.dumps(PEOPLE))


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=6)
    | st.sampled_from(["p=0", "\0", "\ud800", "a.b", "YQ=="]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.slow
@settings(max_examples=300)
@given(st.data())
def test_malformed_requests_are_refused_in_our_tree(data: st.DataObject) -> None:
    """A request with any part missing or replaced by any JSON is answered, or refused with an error of our tree."""
    good: list[tuple[Any, dict[str, Any]]] = [
        (resolve_write, json.loads(json.dumps(write(STAGED, schema=schema(id=[], ssn=["pii"], pay=[]))))),
        (resolve_read, json.loads(json.dumps(read(PLACE, written(), requested_schema=schema(ssn=["pii"]))))),
        (encrypted_columns, {"policy": policy(), "table": "a.b", "schema": schema(ssn=[]), "properties": dict(TABLE)}),
    ]
    resolve, request = data.draw(st.sampled_from(good))
    place: Any = request
    while True:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            break
        place = place[key]
    if isinstance(place, dict) and data.draw(st.booleans()):
        del place[key]
    else:
        place[key] = data.draw(JUNK)
    try:
        json.dumps(resolve(request))
    except SparkcryptError as error:
        assert str(error)


@settings(max_examples=100)
@given(st.dictionaries(st.sampled_from(["policy", "path", "properties", "footer", "message_type", "schema"]), JUNK))
def test_junk_is_refused_in_our_tree(request: dict[str, Any]) -> None:
    """Requests of junk are refused with an error of our tree."""
    for resolve in (resolve_write, resolve_read, encrypted_columns):
        with pytest.raises(SparkcryptError):
            resolve(request)

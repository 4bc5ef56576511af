"""Columns without a key: masks, and keys that were shredded."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt.bridge.operations import Operations
from sparkcrypt.decide.denied import refused_key
from sparkcrypt.decide.file import refuse_masked
from sparkcrypt.errors import (
    BridgeError,
    ConfigError,
    KeyAccessDeniedError,
    KeyNotFoundError,
    KeyServiceError,
    PlanError,
)
from sparkcrypt.keys.datakeys import DataKeyMaker
from sparkcrypt.keys.ids import key_digest
from sparkcrypt.keys.local.service import LocalKeyService
from sparkcrypt.keys.tombstones import tombstone_name
from sparkcrypt.names import ALLOW_MASKED
from sparkcrypt.policy.build import policy_from_document
from sparkcrypt.policy.load import policy_from_text
from sparkcrypt.policy.model import Policy
from sparkcrypt.schema import schema_from_spark

TAGS = {
    "pii": {"key": "pii"},
    "month": {"key": "pay-{day:%Y-%m}"},
    "strict": {"key": "pii", "on_denied": "error"},
    "soft": {"key": "pii", "on_denied": "mask"},
}


def field(name: str, *tags: str, kind: Any = "string") -> dict[str, Any]:
    """Return a field of Spark's schema JSON."""
    return {"name": name, "type": kind, "nullable": True, "metadata": {"tags": list(tags)} if tags else {}}


SCHEMA = {
    "type": "struct",
    "fields": [
        field("id"),
        field("email", "pii"),
        field("s", kind={"type": "struct", "fields": [field("a", "pii"), field("b")]}),
        field("pay", "month"),
        field("x", "pii", "strict"),
        field("y", "soft"),
    ],
}


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    """A policy of which no key is there but the footer's and one month's."""
    document = {
        "version": 1,
        "key_service": {"type": "local", "path": str(tmp_path)},
        "footer": {"key": "footer"},
        "untagged": "plaintext",
        "run_state": "/state",
        "tags": TAGS,
        "ask_for_access": "write to keys@example.org",
    }
    made = policy_from_document(document, locate=lambda _: "here")
    for key_id in ("footer", "pay-2026-01"):
        LocalKeyService(made.key_service).create(key_id)
    return made


def request(policy: Policy, on_denied: str, **more: Any) -> dict[str, Any]:
    """Return a request as the jar makes it."""
    told = {"policy": policy.canonical(), "path": "/t", "properties": {}, "schema": json.dumps(SCHEMA)}
    return {"op": "decide", "on_denied": on_denied, **told, **more}


def test_shredded_is_said_of_keys_with_a_tombstone_alone(policy: Policy, tmp_path: Path) -> None:
    """Any other key that is not there is missing, as one is that nobody made or that was deleted by mistake."""
    policy = replace(policy, run_state=str(tmp_path / "state"))
    file = tmp_path / "state" / tombstone_name(key_digest("pay-2025-01"))
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"key_id": "pay-2025-01", "time": "2026-11-23T04:51:08Z", "reason": "over"}))
    partitions = [{"day": "2025-01-05"}, {"day": "2025-02-05"}, {"day": "2026-01-05"}]
    answer = Operations().answer(request(policy, "mask", partitions=partitions))
    why = {(column["column"], column["key"]): column["why"] for column in answer["columns"]}
    assert (why["pay", "pay-2025-01"], why["pay", "pay-2025-02"]) == ("shredded", "missing")
    assert why["email", "pii"] == "missing"
    assert ("pay", "pay-2026-01") not in why


@pytest.mark.parametrize(("said", "masked"), [("mask", ["email", "s.a", "y"]), ("", ["y"]), ("error", [])])
def test_the_session_asks_and_tags_have_the_last_word(policy: Policy, said: str, masked: list[str]) -> None:
    """``error`` of any of a column's tags keeps it from being masked; ``mask`` masks where the session says nothing."""
    answer = Operations().answer(request(policy, said))
    assert [column["column"] for column in answer["columns"]] == masked
    assert {column["why"] for column in answer["columns"]} <= {"missing"}
    assert answer["partition_columns"] == (["day"] if said == "mask" else [])


def test_a_variant_is_masked_as_one_value(policy: Policy) -> None:
    """Its leaves are one answer, at any depth, and by partition under a template."""
    variants = [field("v", "pii", kind="variant"), field("m", "month", kind="variant")]
    inner = field("s", "pii", kind={"type": "array", "elementType": {"type": "struct", "fields": variants[:1]}})
    schema = json.dumps({"type": "struct", "fields": [field("id"), *variants, inner]})
    days = [{"day": day} for day in ("2026-01-05", "2026-02-07")]
    answer = Operations().answer(request(policy, "mask", schema=schema, partitions=days))
    found = [(column["path"], column["column"], column["partitions"]) for column in answer["columns"]]
    inner_path = ["s", "element", "v"]
    assert found == [(["v"], "v", None), (inner_path, "s.element.v", None), (["m"], "m", [1])]


def test_a_template_is_decided_by_partition(policy: Policy) -> None:
    """The numbers of partitions whose keys are denied come with the column; a value without a key stays an error."""
    days = [{"day": day} for day in ("2026-01-05", "2026-02-07", "2026-02-08", "never")]
    answer = Operations().answer(request(policy, "mask", partitions=days))
    assert [(column["key"], column["partitions"]) for column in answer["columns"] if column["column"] == "pay"] == [
        ("pay-2026-02", [1, 2])
    ]


def test_a_lost_footer_key_is_an_error(policy: Policy, tmp_path: Path) -> None:
    """Nothing is masked of a table whose footer cannot be opened: nothing of it can be read."""
    (file,) = (path for path in tmp_path.iterdir() if "footer" in path.name)
    file.unlink()
    with pytest.raises(KeyNotFoundError, match=r"the footer .*To get access, write to keys@example\.org"):
        Operations().answer(request(policy, "mask"))
    with pytest.raises(BridgeError, match="allowed: error, mask"):
        Operations().answer(request(policy, "null"))


def test_a_refused_key_says_whose_it_is(policy: Policy) -> None:
    """A column's refusal names column, table, principal, key and how to ask; one that names no owner is as it came."""
    service = LocalKeyService(policy.key_service)
    service.create("pii")
    _, key_metadata = DataKeyMaker(service, data_key_bits=256).make("pii", is_footer_key=False)
    service.delete_key("pii")
    asked = {"op": "open_key", "policy": policy.canonical(), "key_metadata": base64.b64encode(key_metadata).decode()}
    told = {"owner": "column email", "table": "db.t", "principal": "alice", "path": "/t/f"}
    with pytest.raises(
        KeyNotFoundError, match=r"column email of table db\.t cannot be read by alice: its key 'pii' is"
    ):
        Operations().answer({**asked, **told})
    with pytest.raises(KeyNotFoundError, match=r"^key 'pii'"):
        Operations().answer(asked)


def test_masked_columns_are_not_written() -> None:
    """A marked column, nested or not, is refused by name unless the write says that nulls may be stored."""
    schema = schema_from_spark(
        json.dumps(
            {
                "type": "struct",
                "fields": [field("s", kind={"type": "struct", "fields": [field("a", "pii", "!masked")]})],
            }
        )
    )
    with pytest.raises(PlanError, match=r"/t: column s\.a holds nulls"):
        refuse_masked(schema, {}, "/t")
    refuse_masked(schema, {ALLOW_MASKED: "true"}, "/t")
    with pytest.raises(ConfigError, match="allowed: true, false"):
        refuse_masked(schema, {ALLOW_MASKED: "yes"}, "/t")


KEY = "contact-2025-01"


def request_of(state: str) -> dict[str, Any]:
    """Return what the jar sends of a column."""
    text = (
        "version: 1\nkey_service: {type: local, path: /keys}\nfooter: {key: footer}\nuntagged: plaintext\n"
        f"run_state: {state}\ntags: {{contact: {{key: 'contact-{{d:%Y-%m}}'}}}}\n"
    )
    policy = policy_from_text(text, where="policy", base="/").canonical()
    return {"owner": "column email", "path": "/t/f.parquet", "table": "db.t", "policy": policy}


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state directory with a tombstone."""
    file = tmp_path / tombstone_name(key_digest(KEY))
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"key_id": KEY, "time": "2026-11-23T04:51:08.619284+00:00", "reason": "case 4711"}))
    return tmp_path


def test_reader_is_told_when_and_why(state: Path) -> None:
    """The column, the key, the time and the reason; no advice to make the key again, and none to ask for it."""
    absent = KeyNotFoundError("it is not there; make it with `sparkcrypt keys create`")
    told = str(refused_key(request_of(str(state)), KEY, absent))
    assert told == (
        "column email of table db.t cannot be read by anybody any more: its key 'contact-2025-01' is not there, and "
        "the state directory says that it was shredded on 2026-11-23T04:51:08: 'case 4711'. Other columns can be read "
        "(file /t/f.parquet)"
    )


@pytest.mark.parametrize(
    ("place", "key_id", "error"),
    [
        ("there", KEY, KeyAccessDeniedError("denied")),
        ("there", "contact-2025-02", KeyNotFoundError("absent")),
        ("elsewhere", KEY, KeyNotFoundError("absent")),
        ("s3a://bucket/state", KEY, KeyNotFoundError("absent")),
    ],
)
def test_other_refusals_are_told_as_before(state: Path, place: str, key_id: str, error: KeyServiceError) -> None:
    """A denied key, a key without a tombstone, a state directory that this process cannot read: each has its words."""
    where = {"there": str(state), "elsewhere": str(state / "none")}.get(place, place)
    told = refused_key(request_of(where), key_id, error)
    assert type(told) is type(error)
    assert "shredded" not in str(told)
    assert (f"its key {key_id!r} is denied to " in str(told)) == isinstance(error, KeyAccessDeniedError)
    assert (f"its key {key_id!r} is not there" in str(told)) == isinstance(error, KeyNotFoundError)
    assert "To get access, " in str(told)

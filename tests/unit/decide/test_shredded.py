"""What a reader is told of a column whose key was shredded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt.decide.denied import refused_key
from sparkcrypt.errors import KeyAccessDeniedError, KeyNotFoundError, KeyServiceError
from sparkcrypt.keys.ids import key_digest
from sparkcrypt.keys.tombstones import tombstone_name
from sparkcrypt.policy.load import policy_from_text

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
    file.parent.mkdir()
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
    """A denied key, a key without a tombstone, and a state directory that this process cannot read."""
    where = {"there": str(state), "elsewhere": str(state / "none")}.get(place, place)
    told = refused_key(request_of(where), key_id, error)
    assert type(told) is type(error)
    assert "shredded" not in str(told)
    assert "To get access, " in str(told)

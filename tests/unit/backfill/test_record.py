from __future__ import annotations

import hashlib
from typing import Any

import pytest

from sparkcrypt.errors import VerificationError
from sparkcrypt.ledger.record import Fields, RecordText, decode_line
from sparkcrypt.ledger.state.store import decode_record, encode_record

LONG = [["", [[f"hdfs://nn/t/p=0/part-{number:05d}", 7, 8] for number in range(200)]]]
FIELDS: dict[str, dict[str, Any]] = {
    "none": {},
    "short": {"unit": "p=$é", "staged": "/s", "zz": None},
    "lists": {"unit": "p=1", "files": LONG, "made": [], "location": "/t", "summaries": []},
    "evidence": {"evidence": {"changes": LONG, "digests": {"by": "é"}}, "rows": 3, "unit": "p=1"},
    "left out": {"files": {"sha256": "0" * 64}, "made": LONG, "unit": "p=1"},
}
MAC = "a" * 64


def body_of(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the members of a record, without a MAC."""
    return {"version": 1, "fields": fields, "kind": "unit_listed", "number": 2, "who": "ü@h", "fencing_token": 1}


def shortened(body: dict[str, Any]) -> dict[str, Any]:
    """Return members with the SHA-256 of each list in its place, as the format says."""
    fields = {
        name: {"sha256": hashlib.sha256(encode_record({"list": value})).hexdigest()}
        if name in ("files", "made") and isinstance(value, list)
        else value
        for name, value in body["fields"].items()
    }
    return {**body, "fields": fields}


@pytest.mark.parametrize("fields", FIELDS.values(), ids=FIELDS)
def test_texts_are_those_of_the_format(fields: dict[str, Any]) -> None:
    """Whole, short, authenticated, and digest, of members in any order."""
    body = body_of(fields)
    text = RecordText(dict(reversed(body.items())))
    assert text.whole(MAC) == encode_record({**body, "mac": MAC})
    assert text.short(MAC) == encode_record({**shortened(body), "mac": MAC})
    assert text.authenticated() == encode_record(shortened(body))
    assert text.digest(None) == hashlib.sha256(encode_record({**shortened(body), "mac": None})).hexdigest()


@pytest.mark.parametrize("fields", FIELDS.values(), ids=FIELDS)
def test_record_is_decoded_as_it_was_written(fields: dict[str, Any]) -> None:
    """By its texts, and by the values in it."""
    line = encode_record({**body_of(fields), "mac": MAC})
    body, text = decode_line("x", line)
    assert body == decode_record("x", line) and text.whole(MAC) == line
    found = Fields.pack(body["fields"], text.long)
    assert found == fields and list(found) == list(body["fields"]) and ("made" in found) == ("made" in fields)


@pytest.mark.parametrize(
    "change",
    [
        (b'"number":2', b'"number":2e0'),
        (b'"number":2', b'"number": 2'),
        (b'"kind"', b'"":1,"kind"'),
        (b'"who"', b'"\xf4\x8f\xbf\xbfx":1,"who"'),
        (b"}\n", b"}"),
        (b"}\n", b',"version":1}\n'),
        (b'"fields":{', b'"fields":{"files":[ ],'),
        (b"{", b"[{"),
        (b'"number":2', b'"number":NaN'),
    ],
)
def test_other_spellings_of_a_record_are_refused(change: tuple[bytes, bytes]) -> None:
    """Only the canonical text is a record, wherever it differs."""
    line = encode_record({**body_of(FIELDS["short"]), "mac": MAC})
    with pytest.raises(VerificationError, match=r"^x: is not a record as it was written"):
        decode_line("x", line.replace(*change))


def test_long_fields_are_kept_packed() -> None:
    """A log of millions of files fits into memory; what is short is not packed, and each value is as it was."""
    body, text = decode_line("x", encode_record({**body_of(FIELDS["lists"]), "mac": MAC}))
    found = Fields.pack(body["fields"], text.long)
    assert isinstance(found._values["files"], bytes) and len(found._values["files"]) < len(str(LONG)) / 4
    assert found._values["made"] == [] and found["files"] == LONG
    later = found.updated(Fields({"made": [1], "rows": 3}))
    assert isinstance(later._values["files"], bytes)
    assert later == {**FIELDS["lists"], "made": [1], "rows": 3}
    assert "part-" not in repr(later)

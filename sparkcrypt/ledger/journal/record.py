"""The bytes of a journal record, and their checks.

A record is one line of canonical JSON: ``version``, ``table_id``, ``number``, ``time`` (UTC), ``kind``, ``run_id``,
``fencing_token``, ``fields``, ``previous`` (SHA-256 of the bytes of the record before), ``supersedes`` (SHA-256 of the
torn record whose number it takes, else null), ``mac`` (of the table's audit, over a purpose and the canonical JSON of
all these; null if the writer had no MAC key) and ``checksum`` (SHA-256 of the record without it).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from sparkcrypt.errors import VerificationError
from sparkcrypt.ledger.state.mac import CheckMac, Mac
from sparkcrypt.ledger.state.store import decode_record, encode_decoded, encode_record

VERSION = 2
UNIT_KINDS = (
    *("unit_listed", "unit_staged", "unit_verified", "unit_swapping", "unit_swapped", "unit_moved", "unit_failed"),
    *("unit_carrying", "unit_carried", "unit_resolved", "unit_relocated", "unit_rolling_back", "unit_rolled_back"),
)
RUN_KINDS = (
    *("run_started", "run_resumed", "run_paused", "run_finished", "run_rolled_back", "run_expiring", "run_expired"),
)
KINDS = RUN_KINDS + UNIT_KINDS
DAMAGED = "the state directory was damaged; restore it, or look at the table and start a new run"

_PURPOSE = b"sparkcrypt journal record\n"
"""The prefix of authenticated bytes: the same MAC key authenticates other kinds of records, with other prefixes."""
_NAME = re.compile(r"(?P<number>\d{6}|[1-9]\d{6,})(?:-retry(?P<attempt>[1-9]\d*))?\.json")


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a journal, stored in the state directory under ``name``.

    ``digest`` is the SHA-256 of its bytes; ``generation`` is the number of the MAC key of the table's audit that made
    its MAC, counted from 1, and 0 if the MAC was not checked or there is none.
    """

    name: str
    number: int
    time: str
    kind: str
    run_id: str
    fencing_token: int
    fields: Mapping[str, Any]
    previous: str
    supersedes: str | None
    checksum: str
    digest: str
    generation: int = 0

    @property
    def authenticated(self) -> bool:
        """Whether its MAC was checked and is correct."""
        return self.generation > 0

    @property
    def unit(self) -> str | None:
        """The name of the record's unit; None for a record of the whole run."""
        unit = self.fields.get("unit")
        return unit if isinstance(unit, str) else None

    @property
    def staged(self) -> str | None:
        """The folder where new files are made, if the record names it."""
        return str(self.fields["staged"]) if "staged" in self.fields else None


def make_record(body: Mapping[str, Any], mac: Mac | None) -> bytes:
    """Return the bytes of a record.

    Args:
        body: ``table_id``, ``number``, ``kind``, ``run_id``, ``fencing_token``, ``fields``, ``previous`` and
            ``supersedes``.
        mac: the MAC of the table's audit; a record made with None is refused wherever MACs are checked.
    """
    fields = {"version": VERSION, "time": datetime.now(timezone.utc).isoformat(), **body}
    whole = {**fields, "mac": None if mac is None else mac(_PURPOSE + encode_record(fields))}
    return encode_record({**whole, "checksum": digest_of(encode_record(whole))})


def parse_record(name: str, content: bytes, table_id: str, check_mac: CheckMac | None) -> Record:
    """Return the record that bytes encode.

    Args:
        name: its name in the state directory.
        content: its bytes.
        table_id: the table to which it must belong.
        check_mac: returns the number of the MAC key that made a MAC; with None the record is not authenticated.

    Raises:
        VerificationError: the record is damaged, of an unknown version or kind, of another table, or not authentic.
    """
    body = decode_record(name, content)
    version, checksum = body.get("version"), body.pop("checksum", None)
    if version != VERSION:
        raise VerificationError(f"{name}: has version {version!r}; allowed: {VERSION}; use the release that wrote it")
    if checksum != digest_of(encode_decoded(body)):
        raise VerificationError(f"{name}: its checksum is wrong; {DAMAGED}")
    generation = _generation(name, body, check_mac)
    del body["version"]
    if body.pop("table_id", None) != table_id:
        raise VerificationError(f"{name}: belongs to another table than {table_id}; {DAMAGED}")
    try:
        record = Record(name=name, checksum=checksum, digest=digest_of(content), generation=generation, **body)
    except TypeError as error:
        raise VerificationError(f"{name}: has fields {sorted(body)}, which are not a record's; {DAMAGED}") from error
    if record.kind not in KINDS or (record.kind in UNIT_KINDS and "unit" not in record.fields):
        raise VerificationError(f"{name}: its kind {record.kind!r} is not known; use the release that wrote it")
    return record


def _generation(name: str, body: dict[str, Any], check_mac: CheckMac | None) -> int:
    """Remove the MAC from a record, and return the number of the key that made it; 0 if ``check_mac`` is None.

    Raises:
        VerificationError: no key made it.
    """
    mac = body.pop("mac", None)
    if check_mac is None:
        return 0
    generation = check_mac(_PURPOSE + encode_decoded(body), mac) if isinstance(mac, str) else 0
    if not generation:
        raise VerificationError(
            f"{name}: does not authenticate: it was edited, or written by someone else; nothing is done on its word; "
            "compare the state directory with a backup"
        )
    return generation


def place_of(name: str) -> tuple[int, int]:
    """Return the number and the attempt in a record's name.

    Raises:
        VerificationError: this is not the name of a record.
    """
    match = _NAME.fullmatch(name.rpartition("/")[2])
    if match is None:
        raise VerificationError(f"{name}: is not the name of a journal record; {DAMAGED}")
    return int(match["number"]), int(match["attempt"] or 0)


def is_torn(content: bytes) -> bool:
    """Return whether bytes are a record that was cut off before its only line feed, the last byte.

    Bytes that contain a line feed, or continue after a complete JSON value, are not torn.
    """
    if b"\n" in content:
        return False
    try:
        return json.JSONDecoder().raw_decode(content.decode("latin-1"))[1] == len(content)
    except (ValueError, RecursionError):
        return True


def digest_of(content: bytes) -> str:
    """Return the SHA-256 of bytes, in hex."""
    return hashlib.sha256(content).hexdigest()

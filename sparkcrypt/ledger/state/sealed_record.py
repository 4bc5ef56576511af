"""Records with the MAC of their table's audit: write access to the state directory alone is not enough to forge one.

    {…the record's members…, "mac": MAC over a purpose and the canonical JSON of the members}

The purpose separates the kinds of records that one MAC key authenticates: a record of one kind is never accepted as
another kind.  A record's members must contain what it is about (table, run, number), and the code that opens it passes
the expected values: a MAC shows that a record is authentic, not that it is stored under the name of its writer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkcrypt.errors import VerificationError
from sparkcrypt.ledger.state.mac import CheckMac, Mac
from sparkcrypt.ledger.state.store import decode_record, encode_decoded, encode_record


def seal_record(purpose: bytes, members: Mapping[str, Any], mac: Mac) -> bytes:
    """Return the bytes of a record with its MAC.

    Args:
        purpose: the kind of record; ends with a line feed.
        members: JSON values, without ``mac``.
        mac: makes the MAC, with the newest MAC key of the table's audit.
    """
    return encode_record({**members, "mac": mac(purpose + encode_record(members))})


def open_sealed(
    purpose: bytes, name: str, content: bytes, check_mac: CheckMac, expected: Mapping[str, Any]
) -> dict[str, Any]:
    """Authenticate a record and return its members.

    Args:
        purpose: the purpose with which it was sealed.
        name: the record's name, for messages.
        content: its bytes.
        check_mac: returns the number of the MAC key that made a MAC, 0 if none did.
        expected: members that it must have: the version, and what the record is about.

    Raises:
        VerificationError: it was edited, moved or forged; the message names it.
    """
    members = decode_record(name, content)
    mac = members.pop("mac", None)
    if not isinstance(mac, str) or not check_mac(purpose + encode_decoded(members), mac):
        raise VerificationError(
            f"{name}: does not authenticate: it was edited, or written by someone else; nothing is done on its word; "
            "restore the state directory's copy of it"
        )
    for key, value in expected.items():
        if members.get(key) != value:
            raise VerificationError(
                f"{name}: has {key} {members.get(key)!r}, where {value!r} is expected, so it was moved or copied; "
                "restore the state directory's copy of it"
            )
    return members

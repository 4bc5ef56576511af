"""Records that bear the MAC of their table's audit: write access to the state directory alone cannot make one.

    {…the record's members…, "mac": MAC over a purpose and the canonical JSON of the members}

The purpose keeps kinds of records apart that one MAC key authenticates: a record of one kind never passes for another.
What a record is about (table, run, number) must stand in its members, and whoever opens it says what they expect there:
a MAC shows that a record is authentic, not that it stands where it was written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkcrypt.backfill.state.mac import CheckMac, Mac
from sparkcrypt.backfill.state.store import decode_record, encode_decoded, encode_record
from sparkcrypt.errors import VerificationError


def seal_record(purpose: bytes, members: Mapping[str, Any], mac: Mac) -> bytes:
    """Return the bytes of a record with its MAC.

    Args:
        purpose: what kind of record it is, which ends with a line feed.
        members: JSON values, without ``mac``.
        mac: under the newest MAC key of the table's audit.
    """
    return encode_record({**members, "mac": mac(purpose + encode_record(members))})


def open_sealed(
    purpose: bytes, name: str, content: bytes, check_mac: CheckMac, expected: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a record's members, once they are seen to be authentic.

    Args:
        purpose: as it was sealed.
        name: of the record, for messages.
        content: its bytes.
        check_mac: tells which MAC key made a MAC, 0 when none did.
        expected: what must stand in it: the version, and what the record is about.

    Raises:
        VerificationError: it was edited, moved, or written by someone else; the message names it.
    """
    members = decode_record(name, content)
    told = members.pop("mac", None)
    if not isinstance(told, str) or not check_mac(purpose + encode_decoded(members), told):
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

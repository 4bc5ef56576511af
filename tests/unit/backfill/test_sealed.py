"""Records that bear the MAC of their table's audit: what is authentic, what is not, and what stands elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from sparkcrypt.errors import VerificationError
from sparkcrypt.ledger.state.mac import TableMac, open_sealed, seal_record
from sparkcrypt.ledger.state.store import encode_record

MAC = TableMac(b"k" * 32)
PURPOSE = b"a test's record\n"
MEMBERS = {"version": 1, "table_id": "t", "said": "x"}


def opened(content: bytes, mac: TableMac = MAC, purpose: bytes = PURPOSE, **expected: Any) -> dict[str, Any]:
    """Open a record."""
    return open_sealed(purpose, "problems/t/1.json", content, mac.check, {"version": 1, "table_id": "t"} | expected)


def test_a_sealed_record_comes_back() -> None:
    """Its members are what was sealed, also under the successor of the key that sealed it."""
    content = seal_record(PURPOSE, MEMBERS, MAC)
    assert opened(content) == MEMBERS == opened(content, TableMac(b"k" * 32, b"n" * 32))


@pytest.mark.parametrize(
    "content",
    [
        encode_record(MEMBERS),
        encode_record({**MEMBERS, "mac": None}),
        encode_record({**MEMBERS, "mac": "0" * 64}),
        seal_record(PURPOSE, MEMBERS, TableMac(b"o" * 32)),
        seal_record(b"another purpose\n", MEMBERS, MAC),
        seal_record(PURPOSE, MEMBERS, MAC).replace(b'"x"', b'"y"'),
        b"torn",
    ],
)
def test_what_is_not_authentic_is_refused_by_name(content: bytes) -> None:
    """No MAC, another key's, another purpose's, an edited or torn record: none is believed."""
    with pytest.raises(VerificationError, match=r"problems/t/1\.json"):
        opened(content)


def test_an_authentic_record_in_anothers_place_is_refused() -> None:
    """What it says of its table must be what is expected there."""
    with pytest.raises(VerificationError, match="has table_id 't', where 'u' is expected"):
        opened(seal_record(PURPOSE, MEMBERS, MAC), table_id="u")


@pytest.mark.parametrize("number", range(0, 80, 7))
def test_every_changed_byte_is_found(number: int) -> None:
    """A byte that differs anywhere is refused."""
    content = bytearray(seal_record(PURPOSE, MEMBERS, MAC))
    content[number] ^= 1
    with pytest.raises(VerificationError):
        opened(bytes(content))

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkcrypt.errors import FormatError
from sparkcrypt.files.orc.file.protobuf import Message, decode, encode_packed, message

U64 = (1 << 64) - 1


def test_known_and_unknown_fields_are_written_back_as_they_were() -> None:
    """Varints, fixed widths and bytes, in their order, known to nobody or not."""
    wire = b"\x08\x96\x01\x12\x03abc\x19" + bytes(range(8)) + b"\x25abcd\xaa\xf4\x03\x01z"
    found = decode(wire, "a message")
    assert found.encode() == wire
    assert (found.integer(1), found.data(2), found.data(8005)) == (150, b"abc", b"z")
    assert sorted({key >> 3 for key, _ in found.fields}) == [1, 2, 3, 4, 8005]


@given(st.lists(st.tuples(st.integers(1, 1 << 28), st.one_of(st.integers(0, U64), st.binary(max_size=9)))))
def test_what_is_encoded_is_decoded(fields: list[tuple[int, int | bytes]]) -> None:
    """Any message comes back."""
    made = message("a message", *fields)
    assert decode(made.encode(), "a message") == made


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_one_error(data: bytes) -> None:
    """Nothing else than `FormatError` is raised."""
    try:
        found = decode(data, "a message")
    except FormatError as error:
        assert "expected" in str(error)
    else:
        assert decode(found.encode(), "again") == Message("again", found.fields)


@pytest.mark.parametrize(
    ("wire", "told"),
    [
        (b"\x12\x05abc", "5 bytes; expected at most the 3 left"),
        (b"\x08", "ends inside a varint"),
        (b"\x08" + b"\xff" * 10 + b"\x01", "too large"),
        (b"\x0b\x0c", "wire type 3"),
        (b"\x00\x01", "field number 0"),
        (b"\x08\x01" * 9, "too many fields"),
    ],
)
def test_damaged_bytes_are_told(wire: bytes, told: str) -> None:
    """Each damage says what was expected."""
    with pytest.raises(FormatError, match=told):
        decode(wire, "a message", max_fields=8)


def test_a_field_that_stands_twice_is_refused() -> None:
    """Some readers take the first, some the last."""
    with pytest.raises(FormatError, match="field 1 stands twice"):
        decode(b"\x08\x01\x08\x02", "a message").integer(1)


def test_repeated_integers_are_read_packed_and_not() -> None:
    """Both forms may even stand in one message; larger ones than the field has bits are refused."""
    found = decode(b"\x0a\x03\x01\x96\x01\x08\x07", "a message")
    assert found.integers(1) == [1, 150, 7]
    assert encode_packed([1, 150]) == b"\x01\x96\x01"
    with pytest.raises(FormatError, match="larger integer"):
        message("a message", (1, 1 << 40)).integers(1)


def test_a_replaced_field_keeps_its_place() -> None:
    """New values stand where the first old one stood, others stay."""
    found = message("a message", (1, 1), (2, b"a"), (3, 3), (2, b"b")).replace_field(2, [b"x", b"y", b"z"])
    assert found == message("a message", (1, 1), (2, b"x"), (2, b"y"), (2, b"z"), (3, 3))
    assert found.replace_field(9, [4]).integer(9) == 4
    assert not found.replace_field(1, []).has(1)

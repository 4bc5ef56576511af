"""How key ids are written: in Parquet, as file names and as Vault key names."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparkcrypt.errors import ConfigError, FormatError
from sparkcrypt.keys.ids import decode_key_id, encode_key_id
from sparkcrypt.keys.local.keystore import file_name
from sparkcrypt.keys.vault.session import decode_key_name, encode_key_name

KEY_IDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=80)
TRICKY = st.text("aA_.-%/25ef\u00e9 ~+", min_size=1, max_size=8)
ANY = KEY_IDS | TRICKY


def test_arn_is_written_without_what_parquet_gives_a_meaning() -> None:
    """Colons, slashes and commas are escaped, what is safe stays readable."""
    assert encode_key_id("arn:aws:kms:x/y,z") == "arn%3Aaws%3Akms%3Ax%2Fy%2Cz"
    assert encode_key_id("contact-2024_01.a~b") == "contact-2024_01.a~b"


@given(ANY)
@example("%")
@example("\0")
def test_encoded_key_id_decodes_to_itself(key_id: str) -> None:
    """Encoding loses nothing and gives nothing that Parquet's properties, JSON or shells give a meaning."""
    text = encode_key_id(key_id)
    assert decode_key_id(text) == key_id
    assert re.fullmatch(r"([A-Za-z0-9_.~-]|%[0-9A-F]{2})+", text)


@pytest.mark.parametrize("text", ["", "%", "a%2", "%zz", "%ff", "a%80b", "%C3"])
def test_text_that_is_not_percent_encoded_is_refused(text: str) -> None:
    """A stray percent sign or bytes that are not UTF-8 are a FormatError."""
    with pytest.raises(FormatError):
        decode_key_id(text)


def test_key_id_of_a_writer_that_does_not_encode_is_taken() -> None:
    """Key material of other writers holds key ids as they are."""
    assert decode_key_id("arn:aws:kms:x") == "arn:aws:kms:x"


@pytest.mark.parametrize("key_id", ["", "a\ud800"])
@pytest.mark.parametrize("encode", [encode_key_id, encode_key_name, file_name])
def test_impossible_key_id_is_refused(encode: object, key_id: str) -> None:
    """Empty text and lone surrogates cannot be written."""
    with pytest.raises(ConfigError):
        encode(key_id)  # type: ignore[operator]


@given(ANY)
@example("..")
@example("a..b")
@example("_")
def test_vault_name_is_allowed_and_decodes(key_id: str) -> None:
    """A Vault name matches transit's own pattern, holds no '..', and gives the key id back."""
    name = encode_key_name(key_id)
    assert re.fullmatch(r"\w([\w.-]*\w)?", name, re.ASCII)
    assert ".." not in name
    assert decode_key_name(name) == key_id


@given(ANY, ANY)
def test_different_key_ids_have_different_names(key_id: str, other: str) -> None:
    """Neither Vault names nor file names of two key ids are the same."""
    assert (
        (key_id == other)
        == (encode_key_name(key_id) == encode_key_name(other))
        == (file_name(key_id) == file_name(other))
    )


@given(st.text("abc_2ef.-", max_size=10))
def test_vault_name_that_no_key_id_has_is_not_decoded(name: str) -> None:
    """A name that somebody else gave decodes only when it is exactly some key id's name."""
    key_id = decode_key_name(name)
    assert key_id is None or encode_key_name(key_id) == name


@pytest.mark.parametrize("name", ["my_key", "_2F", "_61", "a_", "é", "_ff", "", "-a"])
def test_foreign_vault_names_are_passed_over(name: str) -> None:
    """Names with a bare underscore, an escape that was not needed or upper-case hex stand for no key id."""
    assert decode_key_name(name) is None


def test_vault_name_that_is_too_long_is_refused() -> None:
    """A key id whose name would exceed the limit is refused with both numbers."""
    with pytest.raises(ConfigError, match=r"1500.*1024"):
        encode_key_name("/" * 500)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=60, max_size=400))
def test_file_name_fits_a_file_system(key_id: str) -> None:
    """A file name is at most 255 bytes, has no slash and does not begin a hidden temporary file."""
    name = file_name(key_id)
    assert len(name.encode()) <= 255
    assert "/" not in name
    assert name.endswith(".json")


def test_long_key_ids_that_begin_alike_have_different_files() -> None:
    """Beyond the limit the digest of the whole id tells names apart, and no short id has such a name."""
    assert file_name("k" * 300) != file_name("k" * 301)
    assert file_name("k" * 300).removesuffix(".json") != file_name(file_name("k" * 300).removesuffix(".json"))

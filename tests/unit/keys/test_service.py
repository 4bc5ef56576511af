"""What every key service takes and tells: key ids, tokens, versions."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparkcrypt.errors import ConfigError, FormatError, KeyNotFoundError, KeyServiceUnavailableError
from sparkcrypt.keys import open_service as opening
from sparkcrypt.keys.ids import decode_key_id, encode_key_id
from sparkcrypt.keys.local.ephemeral import EphemeralKeyService
from sparkcrypt.keys.local.keystore import file_name
from sparkcrypt.keys.local.service import LocalKeyService
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.opened import LoggingKeyService, access_token
from sparkcrypt.keys.vault.session import decode_key_name, encode_key_name
from sparkcrypt.policy.key_service import KeyServiceConfig
from tests.unit.keys.conftest import opened


def config(**document: Any) -> KeyServiceConfig:
    """Return the configuration of a policy's ``key_service`` document."""
    return KeyServiceConfig.from_dict(document)


def test_unknown_type_names_the_allowed_ones() -> None:
    """A type that is neither built in nor installed is a ConfigError."""
    with pytest.raises(ConfigError, match=r"'valt' is not known; allowed: aws.* vault.*sparkcrypt\.key_services"):
        open_key_service(config(type="valt"))


def test_entry_point_is_opened_with_its_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed provider is a callable that takes the configuration; a built-in name cannot be taken over."""
    group = opening.ENTRY_POINT_GROUP
    points = [EntryPoint("mine", "builtins:repr", group), EntryPoint("local", "builtins:repr", group)]
    monkeypatch.setattr(opening, "entry_points", lambda group: points)
    mine = config(type="mine", option=1)
    assert str(open_key_service(mine)) == f"DelegatingKeyService({repr(mine)!r})"
    assert isinstance(open_key_service(config(type="local", path="/keys")), LocalKeyService)


class Unreliable:
    """A key service of users over a network, which extends nothing, and whose first call fails."""

    retries_itself = False

    def __init__(self, _: KeyServiceConfig) -> None:
        self.calls = 0

    def unwrap(self, key_id: str, wrapped: str) -> bytes:
        """Fail once."""
        self.calls += 1
        if self.calls == 1:
            raise KeyServiceUnavailableError("down")
        return f"{key_id} {wrapped}".encode()


def test_a_class_that_extends_nothing_is_guarded_and_refuses_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its calls are retried as it asks; a verb that it lacks is refused by name, or has the usual answer."""
    monkeypatch.setattr(opening, "_factory", lambda _: Unreliable)
    service = open_key_service(config(type="mine"))
    assert service.unwrap("pii", "w") == b"pii w"
    assert not service.offers("rotate") and not service.offers("may")
    assert (service.may(["pii"]), service.credential_identity()) == ({}, b"")
    with pytest.raises(ConfigError, match="has no 'rotate', which was asked of key 'pii'"):
        service.rotate("pii")


@pytest.mark.parametrize(
    ("kind", "library"), [("vault", "hvac"), ("local", "cryptography"), ("ephemeral", "cryptography")]
)
def test_missing_library_is_named(kind: str, library: str) -> None:
    """An interpreter without the provider's library says which one to install."""
    script = f"""
import sys
sys.modules[{library!r}] = None
from sparkcrypt.errors import ConfigError
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.policy.key_service import KeyServiceConfig
try:
    open_key_service(KeyServiceConfig.from_dict({{"type": {kind!r}, "path": "/keys", "address": "http://v"}}))
except ConfigError as error:
    print(error)
"""
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert f"{kind!r} needs {library}" in shown
    assert "install it" in shown


def test_opening_imports_only_what_the_type_needs(tmp_path: Path) -> None:
    """A helper that serves the local key service loads no HTTP library, no YAML and no Arrow."""
    script = f"""
import sys
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.policy.key_service import KeyServiceConfig
open_key_service(KeyServiceConfig.from_dict({{"type": "local", "path": {str(tmp_path)!r}}})).create("pii")
import sparkcrypt.keys.datakeys, sparkcrypt.keys.material, sparkcrypt.keys.opened, sparkcrypt.keys.opened
print([name for name in ("hvac", "requests", "yaml", "pyarrow", "click", "rich") if name in sys.modules])
"""
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


@pytest.mark.parametrize("secret", [None, "", "ab", "zz" * 32, "ab" * 31, 7])
def test_ephemeral_secret_must_be_right(secret: object) -> None:
    """The throw-away key service takes exactly 32 bytes in hex, and shows none of them."""
    with pytest.raises(ConfigError, match="64 hex digits") as raised:
        opened(type="ephemeral", secret=secret)
    assert not secret or str(secret) * 4 not in str(raised.value)


def test_ephemeral_keys_follow_from_the_secret() -> None:
    """Two services of one secret open each other's wraps, one of another secret does not."""
    first, same, other = (opened(type="ephemeral", secret=text * 32) for text in ("ab", "ab", "cd"))
    wrapped = first.wrap("pii", b"k" * 16)
    assert same.unwrap("pii", wrapped) == b"k" * 16
    with pytest.raises(Exception, match="throw-away"):
        other.unwrap("pii", wrapped)
    assert isinstance(first, EphemeralKeyService)


def test_calls_are_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log of key calls holds one line a call, failures too, and no bytes."""
    log = tmp_path / "calls.jsonl"
    monkeypatch.setenv("SPARKCRYPT_KEY_LOG", str(log))
    service = LoggingKeyService(opened(type="local", path=str(tmp_path / "keys")))
    service.create("pii")
    wrapped = service.wrap("pii", b"CANARYCANARY1234")
    service.unwrap("pii", wrapped)
    with pytest.raises(KeyNotFoundError):
        service.wrap("absent", b"k" * 16)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(line["op"], line["key_id"], line["outcome"]) for line in lines] == [
        ("create", "pii", "ok"),
        ("wrap", "pii", "ok"),
        ("unwrap", "pii", "ok"),
        ("wrap", "absent", "KeyNotFoundError"),
    ]
    assert wrapped not in log.read_text()
    assert "CANARY" not in log.read_text()


def test_key_log_that_cannot_be_written_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks for a log of calls gets one, or an error that names the variable."""
    service = LoggingKeyService(opened(type="local", path=str(tmp_path / "keys")))
    monkeypatch.setenv("SPARKCRYPT_KEY_LOG", str(tmp_path / "no" / "such"))
    with pytest.raises(ConfigError, match="SPARKCRYPT_KEY_LOG"):
        service.create("pii")


def test_access_token_is_stable_and_long(tmp_path: Path) -> None:
    """The same key service and credential have one value, base64 of 32 bytes, also through the log of calls."""
    local = config(type="local", path=str(tmp_path))
    first, second = open_key_service(local), open_key_service(local)
    token = access_token(local, first)
    assert token == access_token(local, second) == access_token(local, LoggingKeyService(first))
    assert len(base64.b64decode(token, validate=True)) == 32


def test_access_tokens_differ_by_key_service_and_credential(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another configuration, or another token for the same one, has another value."""
    vault = config(type="vault", address="http://127.0.0.1:1")
    service = open_key_service(vault)
    tokens = set()
    for credential in ("one", "two"):
        monkeypatch.setenv("VAULT_TOKEN", credential)
        tokens.add(access_token(vault, service))
    for mount in ("transit", "other"):
        other = config(type="vault", address="http://127.0.0.1:1", mount_point=mount)
        tokens.add(access_token(other, open_key_service(other)))
    assert len(tokens) == 4


def test_access_token_is_of_this_process(tmp_path: Path) -> None:
    """Another process has another value: nobody can compute it from what a policy holds."""
    script = """
import sys
from sparkcrypt.keys.opened import access_token
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.policy.key_service import KeyServiceConfig
config = KeyServiceConfig.from_dict({"type": "local", "path": sys.argv[1]})
print(access_token(config, open_key_service(config)))
"""
    command = [sys.executable, "-c", script, str(tmp_path)]
    values = {subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2)}
    assert len(values) == 2


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

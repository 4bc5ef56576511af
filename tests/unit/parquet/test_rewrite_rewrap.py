from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt.errors import ConfigError, FormatError, VerificationError
from sparkcrypt.files.parquet import (
    FOOTER_KEY,
    KeyRequest,
    KnownColumns,
    NewKeys,
    inspect_file,
    read_footer,
    rewrap_file,
    rewrite_file,
    verify_file,
    verify_keys,
)
from sparkcrypt.files.parquet.file.footer import ColumnCrypto, check_dark
from sparkcrypt.files.parquet.file.modules import ModuleCipher, ModuleType, module_aad
from sparkcrypt.files.parquet.thrift.compact import List, Struct, decode_struct, encode_struct
from sparkcrypt.files.parquet.thrift.metadata import (
    ColumnChunk,
    EncryptionWithColumnKey,
    FileCryptoMetaData,
    FileMetaData,
)
from sparkcrypt.keys.material import KeyMaterial
from tests.unit.parquet.rewriting import (
    AMOUNT,
    NAME,
    SSN,
    arrow_read,
    left_over,
    metadata_of,
    new_encryption,
    write_plain,
)
from tests.unit.parquet.writers import ALGORITHMS, Keys, table, write_encrypted

MODES = ("encrypted", "plaintext")
PREFIX = b"table\x00"


def wrap(request: KeyRequest, key: bytes) -> bytes:
    """Wrap a data key under a new master key of the tests' key service."""
    wrapped = base64.b64encode(key).decode() + "@moved"
    instance = "DEFAULT" if request.column is None else None
    return KeyMaterial(request.column is None, instance, instance, "moved", wrapped, None, None).to_bytes()


def only_new(request: KeyRequest, key: bytes) -> bytes:
    """Refuse key metadata of before."""
    assert b'"masterKeyID":"moved"' in (request.key_metadata or b"")
    return key


def encrypted(folder: Path, **options: Any) -> Path:
    """Return an encrypted file with own keys, a column under the footer's, indexes and a Bloom filter."""
    plain = write_plain(folder / "plain", bloom_filter_options={"ssn": {"ndv": 300}})
    rewrite_file(plain, folder / "src", encryption=new_encryption(SSN, NAME, columns={AMOUNT: FOOTER_KEY}, **options))
    return folder / "src"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("prefix", [{}, {"aad_prefix": PREFIX}, {"aad_prefix": PREFIX, "store_aad_prefix": False}])
def test_data_stays_and_keys_are_wrapped_anew(
    tmp_path: Path, mode: str, algorithm: str, prefix: dict[str, Any]
) -> None:
    """All before the footer is copied byte for byte; new key metadata alone opens the copy, which says the same."""
    source = encrypted(tmp_path, footer_mode=mode, algorithm=algorithm, **prefix)
    supplied = PREFIX if "store_aad_prefix" in prefix else None
    asked: list[KeyRequest] = []

    def wrapping(request: KeyRequest, key: bytes) -> bytes:
        asked.append(request)
        return wrap(request, key)

    keys = Keys()
    result = rewrap_file(
        source,
        tmp_path / "out",
        retrieve_key=keys,
        aad_prefix=supplied,
        new_keys=NewKeys(wrapping, key_values={"k": "v"}),
    )
    assert [request.column for request in asked] == [None, SSN, NAME] == [request.column for request in keys.asked]
    made = inspect_file(tmp_path / "out", retrieve_key=Keys(), aad_prefix=supplied)
    assert result.unauthenticated and made.footer == ("encrypted" if mode == "encrypted" else "plaintext_signed")
    assert {path for path, column in (made.columns or {}).items() if column.encrypted} == {SSN, NAME, AMOUNT}
    old, new = (read_footer(path, retrieve_key=Keys(), aad_prefix=supplied) for path in (source, tmp_path / "out"))
    data, copied = source.read_bytes(), (tmp_path / "out").read_bytes()
    assert old.offset == new.offset and data[: old.offset] == copied[: new.offset]
    assert data[old.offset :] != copied[new.offset :] and b"moved" in copied and b"moved" not in data
    assert (old.aad_file_unique, old.aad_prefix, old.algorithm) == (new.aad_file_unique, new.aad_prefix, new.algorithm)
    before = verify_file(source, retrieve_key=Keys(), aad_prefix=supplied)
    parts = {part: digest for part, digest in before.digests.items() if part != "key_value_metadata"}
    after = verify_file(tmp_path / "out", retrieve_key=Keys(change=only_new), aad_prefix=supplied, equal_to=parts)
    assert (after.authenticated, after.modules) == (before.authenticated, before.modules)
    assert new.metadata is not None and "v" in [pair.value for pair in new.metadata.key_value_metadata or ()]
    if supplied is None:
        assert arrow_read(tmp_path / "out") == table()
    rewrap_file(
        tmp_path / "out",
        tmp_path / "again",
        retrieve_key=Keys(change=only_new),
        aad_prefix=supplied,
        new_keys=NewKeys(wrap),
    )


@pytest.mark.parametrize("plaintext_footer", [True, False])
def test_files_of_arrow(tmp_path: Path, plaintext_footer: bool) -> None:
    """Files that pyarrow encrypted are wrapped anew, and pyarrow reads them."""
    source = write_encrypted(tmp_path / "src", plaintext_footer=plaintext_footer)
    rewrap_file(source, tmp_path / "out", retrieve_key=Keys(), new_keys=NewKeys(wrap))
    digest = verify_file(source, retrieve_key=Keys()).digest
    assert verify_file(tmp_path / "out", retrieve_key=Keys(change=only_new), equal_to=digest).authenticated == "all"
    assert arrow_read(tmp_path / "out") == table()


def test_footer_gets_a_nonce_of_its_own(tmp_path: Path) -> None:
    """The footer is encrypted, or signed, under a fresh nonce, though its key and AAD stay."""
    for mode in MODES:
        folder = tmp_path / mode
        folder.mkdir()
        source = encrypted(folder, footer_mode=mode)
        for name in "ab":
            rewrap_file(source, folder / name, retrieve_key=Keys(), new_keys=NewKeys(wrap))
        contents = [(folder / name).read_bytes() for name in ("src", "a", "b")]
        if mode == "plaintext":
            nonces = {content[-36:-24] for content in contents}
        else:
            starts = [read_footer(content).offset for content in contents]
            ends = [start + decode_struct(content[start:])[1] for start, content in zip(starts, contents, strict=True)]
            nonces = {content[end + 4 : end + 16] for content, end in zip(contents, ends, strict=True)}
        assert len(nonces) == 3


def test_plaintext_source_is_refused(tmp_path: Path) -> None:
    """A file that is not encrypted has no keys to wrap."""
    source = write_plain(tmp_path / "src")
    with pytest.raises(ConfigError, match="src: the file is not encrypted"):
        rewrap_file(source, tmp_path / "out", retrieve_key=Keys(), new_keys=NewKeys(wrap))
    assert left_over(tmp_path) == ["src"]


def test_prefix_is_verified_before_keys(tmp_path: Path) -> None:
    """``aad_prefix`` sees the stored prefix before any key is asked for, and ends it."""
    source, keys = encrypted(tmp_path, aad_prefix=PREFIX), Keys()

    def refuse(prefix: bytes) -> None:
        assert prefix == PREFIX
        raise VerificationError("not this one")

    with pytest.raises(VerificationError, match="not this one"):
        rewrap_file(source, tmp_path / "out", retrieve_key=keys, aad_prefix=refuse, new_keys=NewKeys(wrap))
    assert keys.asked == [] and not (tmp_path / "out").exists()


def change_footer(source: Path, change: Callable[[Struct], None]) -> None:
    """Rewrite an encrypted footer, as whoever holds the footer key can."""
    data, footer = source.read_bytes(), read_footer(source, retrieve_key=Keys())
    crypto, end = decode_struct(data[footer.offset : -8])
    metadata = FileCryptoMetaData(crypto).key_metadata
    cipher = ModuleCipher(Keys()(KeyRequest("", None, metadata)))
    assert footer.metadata is not None and footer.file_aad is not None
    change(footer.metadata.struct)
    sealed = cipher.encrypt(encode_struct(footer.metadata.struct), module_aad(footer.file_aad, ModuleType.FOOTER))
    wire = data[footer.offset : footer.offset + end] + sealed
    source.write_bytes(data[: footer.offset] + wire + len(wire).to_bytes(4, "little") + b"PARE")


def key_metadata_of(chunk: ColumnChunk) -> Struct:
    """Return the struct that holds a chunk's key metadata."""
    crypto = chunk.crypto_metadata
    assert crypto is not None and crypto.encryption_with_column_key is not None
    return crypto.encryption_with_column_key.struct


@pytest.mark.parametrize("from_file", ["same", "other"])
def test_key_material_of_another_place_is_refused(tmp_path: Path, from_file: str) -> None:
    """Key material copied from another column, or from the same column of another file, is not wrapped anew."""
    source = encrypted(tmp_path)
    other = source
    if from_file == "other":
        (tmp_path / "more").mkdir()
        other = encrypted(tmp_path / "more")
    footer = read_footer(other, retrieve_key=Keys())
    assert footer.columns is not None
    stolen = next(
        column.key_metadata for column in footer.columns if column.path == (NAME if from_file == "same" else SSN)
    )
    assert stolen is not None

    def copy_key(metadata: Struct) -> None:
        for group in FileMetaData(metadata).row_groups:
            key_metadata_of(group.columns[1])[EncryptionWithColumnKey.key_metadata.key] = stolen

    change_footer(source, copy_key)
    wrapped: list[KeyRequest] = []

    def wrapping(request: KeyRequest, key: bytes) -> bytes:
        wrapped.append(request)
        return wrap(request, key)

    with pytest.raises(VerificationError, match="column ssn in row group 0 does not authenticate"):
        rewrap_file(source, tmp_path / "out", retrieve_key=Keys(), new_keys=NewKeys(wrapping))
    with pytest.raises(VerificationError, match="column ssn in row group 0 does not authenticate"):
        rewrite_file(source, tmp_path / "out", retrieve_key=Keys())
    assert wrapped == [] and not (tmp_path / "out").exists()


def test_key_material_of_another_file_for_the_footer_is_refused(tmp_path: Path) -> None:
    """A footer key that does not open this footer is not wrapped."""
    source = encrypted(tmp_path)
    (tmp_path / "more").mkdir()
    other = read_footer(encrypted(tmp_path / "more")).footer_key_metadata
    data, start = source.read_bytes(), read_footer(source).offset
    crypto, end = decode_struct(data[start:-8])
    assert other is not None
    crypto[FileCryptoMetaData.key_metadata.key] = other
    wire = encode_struct(crypto) + data[start + end : -8]
    source.write_bytes(data[:start] + wire + len(wire).to_bytes(4, "little") + b"PARE")
    with pytest.raises(VerificationError, match="the footer does not authenticate"):
        rewrap_file(source, tmp_path / "out", retrieve_key=Keys(), new_keys=NewKeys(wrap))


def test_key_metadata_that_differs_between_row_groups(tmp_path: Path) -> None:
    """A column with other key metadata in one row group than in the others is refused."""
    source = encrypted(tmp_path)

    def change(metadata: Struct) -> None:
        chunk = FileMetaData(metadata).row_groups[2].columns[1]
        key_metadata_of(chunk)[EncryptionWithColumnKey.key_metadata.key] = b"other"

    change_footer(source, change)
    for action in (rewrap, rewrite):
        with pytest.raises(FormatError, match="row group 2: column ssn is encrypted unlike"):
            action(source, tmp_path / "out")


def rewrap(source: Path, target: Path) -> None:
    """Wrap the keys of a file anew."""
    rewrap_file(source, target, retrieve_key=Keys(), new_keys=NewKeys(wrap))


def rewrite(source: Path, target: Path) -> None:
    """Decrypt a file."""
    rewrite_file(source, target, retrieve_key=Keys())


@pytest.mark.parametrize("action", [rewrap, rewrite])
def test_ordinals_that_come_twice(tmp_path: Path, action: Callable[[Path, Path], None]) -> None:
    """A footer whose holder shows the pages of one row group as another's too is refused, and not made whole."""
    source = encrypted(tmp_path)

    def repeat(metadata: Struct) -> None:
        groups = metadata[FileMetaData.row_groups.key]
        assert isinstance(groups, List)
        groups[1] = groups[0]

    change_footer(source, repeat)
    with pytest.raises(FormatError, match="ordinal 0"):
        verify_file(source, retrieve_key=Keys())
    with pytest.raises(FormatError, match="ordinal 0"):
        action(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_ordinals_that_are_not_places(tmp_path: Path) -> None:
    """Row groups that a footer lists in another order keep it; their modules open by their own ordinals."""
    source = encrypted(tmp_path)

    def turn(metadata: Struct) -> None:
        groups = metadata[FileMetaData.row_groups.key]
        assert isinstance(groups, List)
        groups[0], groups[1] = groups[1], groups[0]

    change_footer(source, turn)
    expected = table()[100:200].to_pylist() + table()[:100].to_pylist() + table()[200:].to_pylist()
    digest = verify_file(source, retrieve_key=Keys()).digest
    rewrap(source, tmp_path / "wrapped")
    verify_file(tmp_path / "wrapped", retrieve_key=Keys(), equal_to=digest)
    rewrite_file(source, tmp_path / "other", retrieve_key=Keys(), encryption=new_encryption(SSN))
    verify_file(tmp_path / "other", retrieve_key=Keys(), equal_to=digest)
    assert arrow_read(tmp_path / "other").to_pylist() == expected


def test_wrapper_that_fails(tmp_path: Path) -> None:
    """What ``wrap_key`` raises reaches the caller, and nothing is written."""
    source = encrypted(tmp_path)

    def fail(_request: KeyRequest, _key: bytes) -> bytes:
        raise ConfigError("no such master key")

    with pytest.raises(ConfigError, match="no such master key"):
        rewrap_file(source, tmp_path / "out", retrieve_key=Keys(), new_keys=NewKeys(fail))
    assert left_over(tmp_path) == ["plain", "src"]


def test_a_file_of_no_rows(tmp_path: Path) -> None:
    """Without row groups there is a footer key alone, which is wrapped anew."""
    write_plain(tmp_path / "plain", table(0))
    rewrite_file(tmp_path / "plain", tmp_path / "src", encryption=new_encryption(SSN))
    rewrap_file(tmp_path / "src", tmp_path / "out", retrieve_key=Keys(), new_keys=NewKeys(wrap))
    assert verify_file(tmp_path / "out", retrieve_key=Keys(change=only_new)).rows == 0
    assert set(metadata_of(tmp_path / "out", Keys())) == set(metadata_of(tmp_path / "src", Keys()))


@pytest.mark.parametrize("mode", MODES)
def test_dark_column_keeps_its_key_metadata(tmp_path: Path, mode: str) -> None:
    """No key of it is asked for; with the key that it had, it is what it was."""
    source, keys = encrypted(tmp_path, footer_mode=mode), Keys()
    result = rewrap_file(
        source, tmp_path / "out", retrieve_key=keys, new_keys=NewKeys(wrap), known=KnownColumns(dark={SSN})
    )
    assert [request.column for request in keys.asked] == [None, NAME]
    assert result.unauthenticated[1:] == ("column ssn: its key is gone",)
    old, new = (read_footer(path, retrieve_key=Keys()).columns or () for path in (source, tmp_path / "out"))
    kept = [column.path for before, column in zip(old, new, strict=True) if before == column and column.own_key]
    assert kept == [SSN]
    before = verify_file(source, retrieve_key=Keys())
    assert verify_file(tmp_path / "out", retrieve_key=Keys(), equal_to=before.digest).authenticated == "all"
    asked = Keys()
    assert verify_keys(tmp_path / "out", retrieve_key=asked, dark={SSN}).rows == before.rows
    assert [request.column for request in asked.asked] == [None, NAME]


def test_key_material_of_a_dark_column_is_not_looked_at(tmp_path: Path) -> None:
    """Whether a data key may stay unopened is asked only for columns that are not dark."""
    asked: list[tuple[str, ...]] = []

    def keep(column: tuple[str, ...], key_metadata: bytes) -> None:
        asked.append(column)

    rewrap_file(
        encrypted(tmp_path),
        tmp_path / "out",
        retrieve_key=Keys(),
        new_keys=NewKeys(wrap, keep=keep),
        known=KnownColumns(dark={SSN}),
    )
    assert asked == [NAME]


@pytest.mark.parametrize("column", [AMOUNT, ("id",), ("none",)])
def test_only_columns_with_own_keys_can_be_dark(tmp_path: Path, column: tuple[str, ...]) -> None:
    """One under the footer's key, in plaintext or not there at all is refused, and nothing is written."""
    source = encrypted(tmp_path)
    with pytest.raises(ConfigError, match=f"dark columns {column[0]}; allowed: .* here person.name, ssn"):
        rewrap_file(
            source, tmp_path / "out", retrieve_key=Keys(), new_keys=NewKeys(wrap), known=KnownColumns(dark={column})
        )
    with pytest.raises(ConfigError, match=f"dark columns {column[0]}"):
        verify_keys(source, retrieve_key=Keys(), dark={column})
    assert not (tmp_path / "out").exists()


def test_column_that_is_there_twice_is_never_dark() -> None:
    """Of two leaves of one path nobody can tell which is under the key that is gone."""
    twice = (ColumnCrypto(SSN, True, True, b"a"), ColumnCrypto(SSN, True, True, b"b"), ColumnCrypto(NAME, True, True))
    check_dark(twice, {NAME})
    with pytest.raises(ConfigError, match=r"dark columns ssn; allowed: .* here person\.name$"):
        check_dark(twice, {SSN})

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from sparkcrypt.errors import ConfigError, FormatError, KeyAccessDeniedError, VerificationError
from sparkcrypt.files.parquet import KeyRequest, read_footer
from sparkcrypt.files.parquet.file.modules import ModuleCipher, ModuleType, module_aad
from sparkcrypt.files.parquet.thrift.compact import Struct, decode_struct, encode_struct, field_key
from sparkcrypt.files.parquet.thrift.metadata import FileCryptoMetaData, FileMetaData
from tests.unit.parquet.writers import ALGORITHMS, FOOTER_MODES, KEY_BITS, Keys, table, write_encrypted, write_uniform

KEY = b"0123456789abcdef"


def ignore(_prefix: bytes) -> None:
    """Take any AAD prefix."""


def footer_bytes(data: bytes) -> bytes:
    """Return what lies between the data and the trailer of a file."""
    return data[-8 - int.from_bytes(data[-8:-4], "little") : -8]


def with_footer(data: bytes, footer: bytes, magic: bytes | None = None) -> bytes:
    """Return the file with another footer."""
    body = data[: len(data) - 8 - len(footer_bytes(data))]
    return body + footer + len(footer).to_bytes(4, "little") + (magic or data[-4:])


@pytest.mark.parametrize("plaintext_footer", FOOTER_MODES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("bits", KEY_BITS)
def test_arrow_footers_are_read_and_authenticated(
    tmp_path: Path, plaintext_footer: bool, algorithm: str, bits: int
) -> None:
    """Of every footer mode, algorithm and key length, the footer says the same as pyarrow and authenticates."""
    keys = Keys()
    path = write_encrypted(tmp_path / "f.parquet", plaintext_footer=plaintext_footer, algorithm=algorithm, bits=bits)
    footer = read_footer(path, retrieve_key=keys)
    assert footer.mode == ("plaintext_signed" if plaintext_footer else "encrypted")
    assert (footer.algorithm, footer.footer_authenticated) == (algorithm, True)
    assert footer.aad_file_unique is not None and len(footer.aad_file_unique) == 8
    assert footer.metadata is not None and footer.columns is not None
    assert (footer.metadata.num_rows, len(footer.metadata.row_groups)) == (300, 3)
    own = {column.path for column in footer.columns if column.own_key}
    assert own == {("ssn",), ("person", "name"), ("labels", "key_value", "value"), ("amount",)}
    assert keys.asked == [KeyRequest(str(path), None, footer.footer_key_metadata)]


@pytest.mark.parametrize("plaintext_footer", FOOTER_MODES)
def test_footers_are_written_back_byte_for_byte(tmp_path: Path, plaintext_footer: bool) -> None:
    """Plaintext, signed and decrypted footers of pyarrow encode to the bytes that they were decoded from."""
    path = write_encrypted(tmp_path / "f.parquet", plaintext_footer=plaintext_footer, write_page_index=True)
    footer = read_footer(path, retrieve_key=Keys())
    data = footer_bytes(path.read_bytes())
    struct, end = decode_struct(data)
    assert encode_struct(struct) == data[:end]
    if not plaintext_footer:
        assert footer.metadata is not None and footer.file_aad is not None
        key = Keys()(KeyRequest("", None, footer.footer_key_metadata))
        aad = module_aad(footer.file_aad, ModuleType.FOOTER)
        assert encode_struct(footer.metadata.struct) == ModuleCipher(key).decrypt(data[end:], aad, "footer")


def test_a_plain_file_is_plaintext(tmp_path: Path) -> None:
    """A file without encryption has no algorithm, every column in clear, and nothing authenticated, key or no key."""
    pq.write_table(table(), tmp_path / "f.parquet")
    for retrieve_key in (None, Keys()):
        footer = read_footer(tmp_path / "f.parquet", retrieve_key=retrieve_key)
        assert (footer.mode, footer.algorithm, footer.footer_authenticated) == ("plaintext", None, False)
        assert {column.encrypted for column in footer.columns or ()} == {False}


def test_an_encrypted_footer_hides_everything_without_a_key(tmp_path: Path) -> None:
    """Without a key only what stands in clear is told: algorithm, file-unique, key metadata."""
    footer = read_footer(write_encrypted(tmp_path / "f.parquet"))
    assert (footer.metadata, footer.columns, footer.footer_authenticated) == (None, None, False)
    assert footer.footer_key_metadata is not None and footer.algorithm == "AES_GCM_V1"


def test_a_signed_footer_without_a_key_is_not_called_authentic(tmp_path: Path) -> None:
    """A plaintext footer is readable without its key, and then nothing is promised of it."""
    footer = read_footer(write_encrypted(tmp_path / "f.parquet", plaintext_footer=True))
    assert footer.metadata is not None and not footer.footer_authenticated


def test_files_without_row_groups_do_not_say_how_columns_are_encrypted(tmp_path: Path) -> None:
    """Crypto metadata lives in row groups: a file without any says None, not False."""
    properties = pe.create_encryption_properties(KEY)
    pq.ParquetWriter(tmp_path / "f.parquet", table().schema, encryption_properties=properties).close()
    footer = read_footer(tmp_path / "f.parquet", retrieve_key=lambda _: KEY)
    assert footer.metadata is not None and not footer.metadata.row_groups
    assert {column.encrypted for column in footer.columns or ()} == {None}


@pytest.mark.parametrize("kind", ["path", "text", "filesystem", "open", "bytes"])
def test_every_kind_of_source_is_read(tmp_path: Path, kind: str) -> None:
    """Paths, (filesystem, path) pairs, open files and bytes give the same footer; open files stay open."""
    path = write_encrypted(tmp_path / "f.parquet")
    with path.open("rb") as file:
        sources: dict[str, Any] = {
            "path": path,
            "text": str(path),
            "filesystem": (pafs.LocalFileSystem(), str(path)),
            "open": file,
            "bytes": path.read_bytes(),
        }
        footer = read_footer(sources[kind], retrieve_key=Keys())
        assert (footer.size, footer.metadata is not None) == (path.stat().st_size, True)
        assert footer.file == ("<bytes>" if kind == "bytes" else str(path))
        assert not file.closed


def test_footers_longer_than_the_first_read_are_read_whole(tmp_path: Path) -> None:
    """A footer of more than 64 KiB takes a second read and says the same."""
    path = write_encrypted(tmp_path / "f.parquet", row_group_size=5)
    assert len(footer_bytes(path.read_bytes())) > 70_000
    footer = read_footer(path, retrieve_key=Keys())
    assert footer.metadata is not None and len(footer.metadata.row_groups) == 60


@pytest.mark.parametrize("name", ["absent.parquet", ".", "nul\x00.parquet"])
def test_files_that_cannot_be_opened_are_named(tmp_path: Path, name: str) -> None:
    """An absent file, a folder or an impossible name is a FormatError that names it."""
    for source in (tmp_path / name, (pafs.LocalFileSystem(), str(tmp_path / name))):
        with pytest.raises(FormatError, match="cannot be opened"):
            read_footer(source)


class TestAadPrefix:
    """Stored and supplied AAD prefixes, against what the caller expects."""

    PREFIX = b"table\x00"

    def write(self, tmp_path: Path, **options: Any) -> Path:
        """Write a file with one key."""
        return write_uniform(tmp_path / "f.parquet", KEY, **options)

    @pytest.mark.parametrize("plaintext_footer", FOOTER_MODES)
    def test_a_stored_prefix_is_verified_before_keys_are_asked_for(
        self, tmp_path: Path, plaintext_footer: bool
    ) -> None:
        """A function given as ``aad_prefix`` sees the stored prefix once, before `retrieve_key`."""
        path = self.write(tmp_path, aad_prefix=self.PREFIX, plaintext_footer=plaintext_footer)
        order: list[object] = []

        def retrieve_key(_request: KeyRequest) -> bytes:
            order.append("key")
            return KEY

        footer = read_footer(path, retrieve_key=retrieve_key, aad_prefix=order.append)
        assert order == [self.PREFIX, "key"]
        assert (footer.aad_prefix, footer.supply_aad_prefix) == (self.PREFIX, False)

    def test_what_a_check_of_the_prefix_raises_reaches_the_caller(self, tmp_path: Path) -> None:
        """A refused prefix stops the read, and no key is asked for."""
        path = self.write(tmp_path, aad_prefix=self.PREFIX)

        def refuse(_prefix: bytes) -> None:
            raise VerificationError("another table")

        with pytest.raises(VerificationError, match="another table"):
            read_footer(path, retrieve_key=lambda _: pytest.fail("asked for a key"), aad_prefix=refuse)

    def test_a_prefix_that_is_not_stored_must_be_supplied(self, tmp_path: Path) -> None:
        """The right prefix opens, a wrong one does not authenticate, none is a ConfigError that says what to pass."""
        path = self.write(tmp_path, aad_prefix=self.PREFIX, store_aad_prefix=False)
        footer = read_footer(path, retrieve_key=lambda _: KEY, aad_prefix=self.PREFIX)
        assert footer.footer_authenticated and footer.supply_aad_prefix and footer.aad_prefix is None
        with pytest.raises(VerificationError, match="does not authenticate"):
            read_footer(path, retrieve_key=lambda _: KEY, aad_prefix=b"tablf\x00")
        with pytest.raises(ConfigError, match="pass aad_prefix"):
            read_footer(path, retrieve_key=lambda _: KEY)
        with pytest.raises(VerificationError, match="no AAD prefix to verify"):
            read_footer(path, aad_prefix=ignore)
        assert read_footer(path).file_aad is None

    def test_another_prefix_than_the_stored_one_is_refused(self, tmp_path: Path) -> None:
        """A given prefix that differs from the stored one is refused without any key."""
        with pytest.raises(VerificationError, match="not the given one"):
            read_footer(self.write(tmp_path, aad_prefix=self.PREFIX), aad_prefix=b"other")

    def test_a_prefix_for_a_file_without_one_is_refused(self, tmp_path: Path) -> None:
        """A file encrypted without a prefix is not the one whose prefix is given or to be verified."""
        path = self.write(tmp_path)
        expectations: tuple[dict[str, Any], ...] = ({"aad_prefix": self.PREFIX}, {"aad_prefix": ignore})
        for expected in expectations:
            with pytest.raises(VerificationError, match="prefix"):
                read_footer(path, **expected)

    def test_a_plaintext_file_in_the_place_of_a_prefixed_one_is_refused(self, tmp_path: Path) -> None:
        """Swapping in a file that is not encrypted does not get around the prefix."""
        pq.write_table(table(), tmp_path / "plain.parquet")
        expectations: tuple[dict[str, Any], ...] = ({"aad_prefix": self.PREFIX}, {"aad_prefix": ignore})
        for expected in expectations:
            with pytest.raises(VerificationError, match="not encrypted"):
                read_footer(tmp_path / "plain.parquet", **expected)

    def test_a_prefix_altered_in_the_file_does_not_authenticate(self, tmp_path: Path) -> None:
        """The stored prefix stands in clear, but is bound to the footer."""
        data = self.write(tmp_path, aad_prefix=self.PREFIX).read_bytes()
        assert data.count(self.PREFIX) == 1
        with pytest.raises(VerificationError, match="does not authenticate"):
            read_footer(data.replace(self.PREFIX, b"tablf\x00"), retrieve_key=lambda _: KEY)


class TestKeys:
    """Wrong, missing and denied keys."""

    @pytest.mark.parametrize("plaintext_footer", FOOTER_MODES)
    def test_a_wrong_key_does_not_authenticate(self, tmp_path: Path, plaintext_footer: bool) -> None:
        """Another key of the right length is a VerificationError that names the file."""
        path = write_uniform(tmp_path / "f.parquet", KEY, plaintext_footer=plaintext_footer)
        with pytest.raises(VerificationError, match=r"f\.parquet: .*does not authenticate"):
            read_footer(path, retrieve_key=lambda _: KEY[::-1])

    def test_a_key_of_the_wrong_length_is_a_config_error(self, tmp_path: Path) -> None:
        """A key that is no AES key is told apart from a wrong one."""
        with pytest.raises(ConfigError, match="16, 24 or 32"):
            read_footer(write_uniform(tmp_path / "f.parquet", KEY), retrieve_key=lambda _: b"short")

    @pytest.mark.parametrize("plaintext_footer", FOOTER_MODES)
    def test_a_denied_key_reaches_the_caller(self, tmp_path: Path, plaintext_footer: bool) -> None:
        """What `retrieve_key` raises is not translated."""
        denial = KeyAccessDeniedError("no")

        def deny(_request: KeyRequest) -> bytes:
            raise denial

        with pytest.raises(KeyAccessDeniedError) as raised:
            read_footer(
                write_uniform(tmp_path / "f.parquet", KEY, plaintext_footer=plaintext_footer), retrieve_key=deny
            )
        assert raised.value is denial


class TestAlteredFooters:
    """Footers that were changed on purpose."""

    def signed(self, tmp_path: Path) -> tuple[bytes, Struct]:
        """Return a file with a signed plaintext footer, and that footer."""
        data = write_encrypted(tmp_path / "f.parquet", plaintext_footer=True).read_bytes()
        return data, decode_struct(footer_bytes(data))[0]

    def without(self, struct: Struct, *keys: int) -> bytes:
        """Return the footer less some fields."""
        return encode_struct(Struct({key: value for key, value in struct.items() if key not in keys}))

    def test_a_stripped_algorithm_is_found(self, tmp_path: Path) -> None:
        """A footer whose columns are encrypted is not plaintext because its algorithm and signature were removed."""
        data, struct = self.signed(tmp_path)
        algorithm, signing = FileMetaData.encryption_algorithm.key, FileMetaData.footer_signing_key_metadata.key
        with pytest.raises(FormatError, match="footer_signing_key_metadata but no encryption_algorithm"):
            read_footer(with_footer(data, self.without(struct, algorithm)))
        with pytest.raises(
            FormatError, match=r"encryption of column chunk 1 in row group 0 but no encryption_algorithm"
        ):
            read_footer(with_footer(data, self.without(struct, algorithm, signing)))

    def test_a_stripped_signature_is_found(self, tmp_path: Path) -> None:
        """An algorithm without the 28 bytes of its signature, or with other than 28, is refused."""
        data, struct = self.signed(tmp_path)
        whole = footer_bytes(data)
        for footer in (encode_struct(struct), whole[:-1], whole + b"\x00"):
            with pytest.raises(FormatError, match="expected its signature of 28"):
                read_footer(with_footer(data, footer))

    def test_bytes_after_an_unsigned_footer_are_refused(self, tmp_path: Path) -> None:
        """A signature that was left behind shows that the algorithm was removed."""
        pq.write_table(table(), tmp_path / "f.parquet")
        data = (tmp_path / "f.parquet").read_bytes()
        with pytest.raises(FormatError, match="28 bytes follow the footer"):
            read_footer(with_footer(data, footer_bytes(data) + bytes(28)))

    @pytest.mark.parametrize("plaintext_footer", FOOTER_MODES)
    def test_the_algorithm_of_an_encrypted_footer_is_reported_as_it_stands(
        self, tmp_path: Path, plaintext_footer: bool
    ) -> None:
        """Changing GCM to CTR in clear metadata is seen by the caller; a signed footer does not authenticate either."""
        data = write_encrypted(tmp_path / "f.parquet", plaintext_footer=plaintext_footer).read_bytes()
        footer = footer_bytes(data)
        struct, end = decode_struct(footer)
        view = FileMetaData if plaintext_footer else FileCryptoMetaData
        key = view.encryption_algorithm.key
        algorithm = struct[key]
        assert isinstance(algorithm, Struct)
        struct[key] = Struct({field_key(2, 12): value for value in algorithm.values()})
        changed = with_footer(data, encode_struct(struct) + footer[end:])
        assert read_footer(changed).algorithm == "AES_GCM_CTR_V1"
        if plaintext_footer:
            with pytest.raises(VerificationError, match="signature"):
                read_footer(changed, retrieve_key=Keys())

    @pytest.mark.parametrize("fields", [(), (1, 2), (3,)])
    def test_an_algorithm_must_be_exactly_one_that_is_known(self, tmp_path: Path, fields: tuple[int, ...]) -> None:
        """No algorithm, two, or one from the future are refused."""
        data = write_encrypted(tmp_path / "f.parquet").read_bytes()
        footer = footer_bytes(data)
        struct, end = decode_struct(footer)
        struct[FileCryptoMetaData.encryption_algorithm.key] = Struct({field_key(i, 12): Struct() for i in fields})
        with pytest.raises(FormatError, match="encryption algorithm"):
            read_footer(with_footer(data, encode_struct(struct) + footer[end:]))

    @pytest.mark.parametrize("unique", [None, b"", b"1234567", b"123456789"])
    def test_a_file_unique_of_another_length_is_reported(self, tmp_path: Path, unique: bytes | None) -> None:
        """What length the file-unique has is for the caller to judge, so it is told."""
        data = write_encrypted(tmp_path / "f.parquet").read_bytes()
        footer = footer_bytes(data)
        _, end = decode_struct(footer)
        fields = {} if unique is None else {field_key(2, 8): unique}
        algorithm = Struct({field_key(1, 12): Struct(fields)})
        crypto = Struct({FileCryptoMetaData.encryption_algorithm.key: algorithm})
        assert read_footer(with_footer(data, encode_struct(crypto) + footer[end:])).aad_file_unique == unique

    def test_a_column_in_another_place_is_found(self, tmp_path: Path) -> None:
        """Chunks in another order than the schema, or one too few, are refused."""
        for change in (list.reverse, list.pop):
            data, struct = self.signed(tmp_path)
            chunks: Any = FileMetaData(struct).row_groups[0].struct[field_key(1, 9)]
            change(chunks)
            with pytest.raises(FormatError, match="column chunk"):
                read_footer(with_footer(data, encode_struct(struct) + bytes(28)))

    def test_bytes_after_a_decrypted_footer_are_left_alone(self, tmp_path: Path) -> None:
        """parquet-mr encrypts its whole buffer: what follows FileMetaData in it is authentic and means nothing."""
        path = write_uniform(tmp_path / "f.parquet", KEY)
        read, data = read_footer(path), path.read_bytes()
        footer = footer_bytes(data)
        _, end = decode_struct(footer)
        assert read.file_aad is not None
        cipher, aad = ModuleCipher(KEY), module_aad(read.file_aad, ModuleType.FOOTER)
        longer = cipher.encrypt(cipher.decrypt(footer[end:], aad, "footer") + bytes(100), aad)
        found = read_footer(with_footer(data, footer[:end] + longer), retrieve_key=lambda _: KEY)
        assert found.metadata == read_footer(path, retrieve_key=lambda _: KEY).metadata

    def test_key_metadata_that_differs_between_row_groups_is_found(self, tmp_path: Path) -> None:
        """A column has one key in a file, so key material from elsewhere in one row group is refused."""
        data, struct = self.signed(tmp_path)
        crypto = FileMetaData(struct).row_groups[2].columns[1].crypto_metadata
        own = None if crypto is None else crypto.column_key()
        assert own is not None
        own.struct[field_key(2, 8)] = b"other"
        with pytest.raises(FormatError, match="row group 2: column ssn is encrypted unlike"):
            read_footer(with_footer(data, encode_struct(struct) + bytes(28)))

    def test_a_column_that_is_encrypted_in_one_row_group_only_is_found(self, tmp_path: Path) -> None:
        """A row group whose chunk was replaced by a plaintext one does not pass for the others."""
        data, struct = self.signed(tmp_path)
        chunk = FileMetaData(struct).row_groups[1].columns[1]
        del chunk.struct[type(chunk).crypto_metadata.key]
        with pytest.raises(FormatError, match="expected crypto_metadata with it"):
            read_footer(with_footer(data, encode_struct(struct) + bytes(28)))
        del chunk.struct[type(chunk).encrypted_column_metadata.key]
        with pytest.raises(FormatError, match="row group 1: column ssn is encrypted unlike in row group 0"):
            read_footer(with_footer(data, encode_struct(struct) + bytes(28)))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "at least 12"),
        (b"PAR1PAR1", "at least 12"),
        (b"PAR1" + bytes(20), "end with PAR1 or PARE"),
        (b"PAR1" + b"\xff\xff\xff\xffPAR1", "at most 0"),
        (b"PAR1" + b"\x00\x05\x00\x00\x00PAR1", "at most 1"),
        (b"PAR1" + b"\x00\x00\x00\x00PAR1", "end inside a Thrift struct"),
        (b"PAR1" + b"\x00\x01\x00\x00\x00PAR1", "FileMetaData"),
        (b"PARE" + b"\x00\x01\x00\x00\x00PARE", "footer"),
    ],
)
def test_what_is_no_parquet_file_is_refused(data: bytes, expected: str) -> None:
    """Short files, wrong magic, footers longer than the file and empty footers are refused, each with its reason."""
    with pytest.raises(FormatError, match=expected):
        read_footer(data)


def test_a_file_that_shrinks_while_it_is_read_is_refused(tmp_path: Path) -> None:
    """A file that ends before its announced size is refused, not read short."""

    class Shrinking(io.BytesIO):
        def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
            place = super().seek(offset, whence)
            return place + 100 if whence == os.SEEK_END else place

    with pytest.raises(FormatError, match="changed while it was read"):
        read_footer(Shrinking(write_encrypted(tmp_path / "f.parquet").read_bytes()))

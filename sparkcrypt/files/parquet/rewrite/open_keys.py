"""Opens each key of a file, and the part of the footer that it protects, without reading a page."""

from __future__ import annotations

from collections.abc import Collection

from sparkcrypt.errors import ConfigError
from sparkcrypt.files.parquet.file.columns import check_dark
from sparkcrypt.files.parquet.file.footer import Footer, footer_of
from sparkcrypt.files.parquet.file.keys import FileCiphers, RetrieveKey, VerifyAad
from sparkcrypt.files.parquet.file.magic import check_magic_and_unique
from sparkcrypt.files.parquet.file.schema import Path
from sparkcrypt.files.parquet.rewrite.source_chunk import source_chunks
from sparkcrypt.files.parquet.summary import FileSummary, summarise
from sparkcrypt.files.source import Input, Source, naming, open_source


def verify_keys(
    source: Source,
    *,
    retrieve_key: RetrieveKey,
    aad_prefix: bytes | None = None,
    verify_aad: VerifyAad | None = None,
    dark: Collection[Path] = (),
) -> FileSummary:
    """Authenticate the footer, and the column metadata of every column that has a key of its own.

    This proves that each key of the file, except those of dark columns, can be retrieved and is the right one.  Pages
    are not read.

    Args:
        source: as `read_footer`.
        retrieve_key: called once for every key of the file.
        aad_prefix: as `read_footer`.
        verify_aad: as `read_footer`.
        dark: columns whose keys can no longer be opened; they are left unopened.

    Raises:
        FormatError, VerificationError: as `verify_file`.
        ConfigError: the AAD prefix is not stored in the file and none was given; or a dark column has no own key.
    """
    with open_source(source) as file:
        return summarise(open_every_key(file, FileCiphers(file.name, retrieve_key), aad_prefix, verify_aad, dark))


def open_every_key(
    file: Input,
    ciphers: FileCiphers,
    aad_prefix: bytes | None = None,
    verify_aad: VerifyAad | None = None,
    dark: Collection[Path] = (),
) -> Footer:
    """Return the footer of an open file after opening each of its keys; see `verify_keys`."""
    footer = footer_of(file, ciphers, aad_prefix, verify_aad)
    with naming(file.name):
        check_magic_and_unique(file, footer)
        open_columns(file, footer, ciphers, dark)
    return footer


def open_columns(file: Input, footer: Footer, ciphers: FileCiphers, dark: Collection[Path] = ()) -> None:
    """Open the metadata of every column chunk, except those of dark columns.

    Raises:
        ConfigError: the footer is not decrypted, or a dark column has no key of its own.
        FormatError: two row groups have the same ordinal.
        VerificationError: a chunk's metadata do not authenticate under its key and place.
    """
    if footer.metadata is None or footer.columns is None:
        raise ConfigError("the footer is encrypted and no key is given; pass retrieve_key")
    check_dark(footer.columns, dark)
    for chunks in source_chunks(file, footer, ciphers, dark):
        for _ in chunks:
            pass

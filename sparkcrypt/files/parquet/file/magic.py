"""Checks a file's first magic and its file-unique against its footer."""

from __future__ import annotations

from sparkcrypt.errors import FormatError, VerificationError
from sparkcrypt.files.parquet.file.footer import ENCRYPTED_MAGIC, MAGIC_BYTES, PLAINTEXT_MAGIC, Footer
from sparkcrypt.files.parquet.file.modules import FILE_UNIQUE_BYTES
from sparkcrypt.files.source import Input


def check_magic_and_unique(file: Input, footer: Footer) -> None:
    """Check the first magic, and that an encrypted file's file-unique has the length that every writer gives it.

    Raises:
        FormatError: the file's first magic differs from its last.
        VerificationError: the file-unique is missing or has another length: a prefix could pass for part of it.
    """
    expected = ENCRYPTED_MAGIC if footer.mode == "encrypted" else PLAINTEXT_MAGIC
    if file.read(0, MAGIC_BYTES, "the start of the file") != expected:
        raise FormatError(f"offset 0: expected {expected.decode()}, with which the file ends")
    unique = footer.aad_file_unique
    if footer.mode != "plaintext" and (unique is None or len(unique) != FILE_UNIQUE_BYTES):
        found = "missing" if unique is None else f"{len(unique)} bytes"
        raise VerificationError(
            f"the file-unique is {found}; expected {FILE_UNIQUE_BYTES}, since a prefix could pass for part of it"
        )

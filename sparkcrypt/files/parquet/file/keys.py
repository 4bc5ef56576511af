"""Requests the data keys of an encrypted file from the caller, each once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from sparkcrypt.files.parquet.file.modules import ModuleCipher


@dataclass(frozen=True, slots=True)
class KeyRequest:
    """A request for one data key.

    ``file`` is the source's name, for messages.  ``column`` is None for the footer's key.  ``key_metadata`` is what the
    writer stored in the file to identify the key; it may be None or empty.
    """

    file: str
    column: tuple[str, ...] | None
    key_metadata: bytes | None


RetrieveKey: TypeAlias = Callable[[KeyRequest], bytes]
"""Returns the data key: 16, 24 or 32 bytes.  Its exceptions reach the caller unchanged."""

VerifyAad: TypeAlias = Callable[[bytes], None]
"""Raises if an AAD prefix is not the one that the caller expects."""


class FileCiphers:
    """The ciphers of one file; each key is requested once, when it is first needed."""

    __slots__ = ("_ciphers", "_retrieve_key", "file")

    def __init__(self, file: str, retrieve_key: RetrieveKey) -> None:
        self.file = file
        self._retrieve_key = retrieve_key
        self._ciphers: dict[tuple[str, ...] | None, ModuleCipher] = {}

    def cipher(self, column: tuple[str, ...] | None, key_metadata: bytes | None) -> ModuleCipher:
        """Return the cipher of a column's own key, or of the footer's key when ``column`` is None.

        A column's key metadata is the same in every row group, which `column_crypto` checks.
        """
        known = self._ciphers.get(column)
        if known is None:
            known = ModuleCipher(self._retrieve_key(KeyRequest(self.file, column, key_metadata)))
            self._ciphers[column] = known
        return known

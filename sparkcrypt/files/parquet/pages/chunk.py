"""What every reader of column chunks shares: a chunk's byte range, the key of its modules, and its pages' CRCs."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from sparkcrypt.errors import FormatError, VerificationError
from sparkcrypt.files.parquet.file.layout import FIRST_OFFSET
from sparkcrypt.files.parquet.file.modules import ModuleCipher, ModuleType, module_aad
from sparkcrypt.files.parquet.file.schema import Path
from sparkcrypt.files.parquet.thrift.metadata import ColumnMetaData
from sparkcrypt.files.source import naming
from sparkcrypt.names import AES_GCM_V1, Algorithm
from sparkcrypt.schema import join_dotted

Bytes: TypeAlias = bytes | memoryview


@dataclass(frozen=True, slots=True)
class ChunkKey:
    """The cipher of one encrypted column chunk, and the chunk's place in the file."""

    cipher: ModuleCipher
    file_aad: bytes
    algorithm: Algorithm
    path: Path
    row_group: int
    column: int

    def name(self, module: ModuleType, page: int | None = None) -> str:
        """Return the name of a module in messages."""
        number = "" if page is None else f" {page}"
        kind = module.name.lower().replace("_", " ")
        return f"{kind}{number} of column {join_dotted(self.path)} in row group {self.row_group}"

    def aad(self, module: ModuleType, *page: int) -> bytes:
        """Return the AAD of a module; for data pages and their headers, ``page`` is the number among the data pages."""
        return module_aad(self.file_aad, module, self.row_group, self.column, *page)

    def open(self, framed: Bytes, module: ModuleType, *page: int) -> bytes:
        """Return the plaintext of a GCM module, authenticated.

        Raises:
            FormatError: its length is wrong.
            VerificationError: it does not authenticate.
        """
        aad = module_aad(self.file_aad, module, self.row_group, self.column, *page)
        return self.cipher.decrypt(framed, aad, ModuleName(self, module, *page))

    def open_page(self, framed: Bytes, module: ModuleType, *page: int) -> bytes:
        """Return the plaintext of a page's body under the file's algorithm; CTR authenticates nothing.

        Raises:
            FormatError: its length is wrong.
            VerificationError: it does not authenticate.
        """
        if self.algorithm == AES_GCM_V1:
            return self.open(framed, module, *page)
        return self.cipher.decrypt_ctr(framed, ModuleName(self, module, *page))


class ModuleName(NamedTuple):
    """The name of a module in messages; its text is only built if there is a message."""

    key: ChunkKey
    module: ModuleType
    page: int | None = None

    def __str__(self) -> str:
        return self.key.name(self.module, self.page)


def chunk_range(meta_data: ColumnMetaData, limit: int, what: object) -> tuple[int, int]:
    """Return the start and end of a column chunk; a chunk without pages is empty, at `FIRST_OFFSET`.

    Args:
        meta_data: of the chunk.
        limit: the offset of the footer.
        what: its ``str`` is the chunk's name in messages.

    Raises:
        FormatError: it is not between the file's first magic and its footer, or it announces a negative number of
            values.
    """
    with naming(str(what)):
        start = meta_data.data_page_offset
        dictionary, values = meta_data.dictionary_page_offset, meta_data.num_values
        size = meta_data.total_compressed_size
    if values < 0:
        raise FormatError(f"{what} announces {values} values; expected a count")
    # Some writers set dictionary_page_offset to 0, or behind the data, if there is no dictionary.  Arrow sets
    # data_page_offset to 0 if there are no values, so that no data page follows the dictionary.
    if dictionary and (dictionary < start or (start == 0 and values == 0)):
        start = dictionary
    if not (start or size or values):
        return FIRST_OFFSET, FIRST_OFFSET
    end = start + size
    if not FIRST_OFFSET <= start <= end <= limit:
        raise FormatError(f"{what} is said to be at offset {start} to {end}; expected inside {FIRST_OFFSET} to {limit}")
    return start, end


def check_crc(crc: object, stored: memoryview, what: object) -> None:
    """Compare a page's CRC with the page's bytes as stored in the file; None if the page has no CRC.

    Raises:
        VerificationError: they differ, so the page was damaged after it was written.
    """
    if isinstance(crc, int) and crc & 0xFFFFFFFF != zlib.crc32(stored):
        raise VerificationError(
            f"{what} has a page whose CRC is not that of its bytes, so it was damaged since it was written; restore "
            "the file, or have an engine that decodes pages read it"
        )

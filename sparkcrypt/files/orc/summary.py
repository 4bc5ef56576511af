"""Summarises an ORC file's tail without a key, for reports and for comparing files with their orders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparkcrypt.errors import FormatError, VerificationError
from sparkcrypt.files.orc.file.schema import leaves
from sparkcrypt.files.orc.file.tail import SOFTWARE_VERSION, WRITER, Tail, read_tail
from sparkcrypt.files.source import Source, naming
from sparkcrypt.keys.material import parse_key_material
from sparkcrypt.schema import Path, join_dotted

WRITERS = ("ORC Java", "ORC C++", "Presto", "Scritchley Go", "Trino", "cuDF")


@dataclass(frozen=True, slots=True)
class ColumnSummary:
    """The kind and the encryption of a leaf column.

    ``key_id`` and ``key_version`` are the master key's, ``algorithm`` the column's, ``mask`` the name of the mask that
    readers without the key see, ``root`` the column that is encrypted as a whole; all None if it is not encrypted.
    """

    kind: str
    key_id: str | None = None
    key_version: int | None = None
    algorithm: str | None = None
    mask: str | None = None
    root: Path | None = None

    @property
    def encrypted(self) -> bool:
        """Whether the column is encrypted."""
        return self.algorithm is not None

    def to_dict(self) -> dict[str, Any]:
        """Return the column as JSON values."""
        return {
            "kind": self.kind,
            "encrypted": self.encrypted,
            "key_id": self.key_id,
            "key_version": self.key_version,
            "algorithm": self.algorithm,
            "mask": self.mask,
            "root": None if self.root is None else join_dotted(self.root),
        }


@dataclass(frozen=True, slots=True)
class OrcSummary:
    """The summary of an ORC file's tail; ``identity`` is what its local keys are bound to, None if they are not."""

    path: str
    compression: str
    writer: str
    rows: int
    stripes: int
    columns: Mapping[Path, ColumnSummary]
    identity: bytes | None = None

    @property
    def encrypted(self) -> bool:
        """Whether any column is encrypted."""
        return any(column.encrypted for column in self.columns.values())

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as JSON values, column paths dotted."""
        return {
            "path": self.path,
            "format": "orc",
            "compression": self.compression,
            "writer": self.writer,
            "rows": self.rows,
            "stripes": self.stripes,
            "identity": None if self.identity is None else self.identity.decode("utf-8", "backslashreplace"),
            "columns": {join_dotted(path): column.to_dict() for path, column in self.columns.items()},
        }


def inspect_orc(source: Source) -> OrcSummary:
    """Summarise a file's tail; no key is needed.

    Raises:
        FormatError: it is not an ORC file, or its tail violates the specification.
        StorageError: it cannot be reached.
    """
    tail = read_tail(source)
    with naming(tail.file):
        return summarise_orc(tail)


def summarise_orc(tail: Tail) -> OrcSummary:
    """Return the summary of a tail.

    Raises:
        VerificationError: its local keys are bound to several files.
    """
    return OrcSummary(
        path=tail.file,
        compression=tail.compression.codec,
        writer=_writer(tail),
        rows=tail.rows,
        stripes=len(tail.stripes),
        columns={column.path: _column(tail, column.number) for column in leaves(tail.columns)},
        identity=read_identity(tail),
    )


def read_identity(tail: Tail) -> bytes | None:
    """Return the identity that the wrapped local keys of a file name; None if they name none.

    It is not authenticated here, only when a key is opened.

    Raises:
        VerificationError: they are bound to several files, or only some of them are bound.
    """
    identities = {_identity_in(wrapped) for wrapped in tail.wrapped_keys()}
    if len(identities) > 1:
        raise VerificationError(
            f"{tail.file}: its local keys are not all bound to the same file: some were taken from another file; "
            "restore the file, or write it again"
        )
    return identities.pop() if identities else None


def _identity_in(wrapped: bytes) -> bytes | None:
    try:
        return parse_key_material(wrapped).file_identity
    except FormatError:
        return None  # a form of another writer


def _column(tail: Tail, number: int) -> ColumnSummary:
    kind = tail.columns[number].kind
    variant = None if tail.encryption is None else tail.encryption.variant_of(number)
    if variant is None or tail.encryption is None:
        return ColumnSummary(kind)
    mask = tail.encryption.mask_of(variant)
    return ColumnSummary(
        kind,
        variant.key.key_id,
        variant.key.version,
        variant.key.algorithm,
        None if mask is None else mask.name,
        variant.root.path,
    )


def _writer(tail: Tail) -> str:
    number = tail.footer.integer(WRITER, bits=32)
    name = WRITERS[number] if number < len(WRITERS) else f"writer {number}"
    version = tail.footer.text(SOFTWARE_VERSION)
    return f"{name} {version}" if version else name

"""Resolves references in key metadata to key material that is in a file beside the data file."""

from __future__ import annotations

from collections.abc import Mapping

from sparkcrypt.errors import FormatError
from sparkcrypt.files.source import Input
from sparkcrypt.keys.external_material import (
    inline_material,
    name_material_files,
    parse_material_file,
    read_reference,
)

LEAST_BOUND = 1 << 20
MOST_BYTES = 64 << 20
BYTES_PER_BYTE = 4
"""A file of key material may be at most this many times as long as its data file, or `LEAST_BOUND` if that is more:
each key's chunks take some hundred bytes of the data file, and its key material about twice as many."""


class KeyMaterials:
    """The key material of one open file; the file beside it is read once, when a reference to it is found.

    As with key material inside a file, nothing authenticates it.  A wrong key opens no module.

    Attributes:
        external: whether some of it is in a file beside.
    """

    __slots__ = ("_file", "_found", "_known", "external")

    def __init__(self, file: Input) -> None:
        self._file = file
        self._known: dict[bytes, bytes] = {}
        self._found: tuple[str, Mapping[str, str]] | None = None
        self.external = False

    def inline(self, key_metadata: bytes | None) -> bytes | None:
        """Return key metadata in the form with the material inside; if it is no reference, it is returned unchanged.

        Raises:
            FormatError: the file of key material is missing, too long, or not what parquet-mr writes.
            StorageError: that file cannot be reached.
        """
        reference = _reference(key_metadata)
        if key_metadata is None or reference is None:
            return key_metadata
        self.external = True
        if key_metadata not in self._known:
            if self._found is None:
                self._found = self._read()
            name, materials = self._found
            try:
                self._known[key_metadata] = inline_material(reference, materials)
            except FormatError as error:
                raise FormatError(f"its key material file {name}: {error}") from error
        return self._known[key_metadata]

    def _read(self) -> tuple[str, Mapping[str, str]]:
        beside = self._file.beside
        if beside is None:
            raise FormatError(
                "its key material stands outside of it, in a file _KEY_MATERIAL_FOR_<its name>.json, and only its "
                "bytes were given; give the path at which both are"
            )
        usual, temporary = name_material_files(beside.name)
        most = min(MOST_BYTES, max(LEAST_BOUND, BYTES_PER_BYTE * self._file.size))
        for name in (usual, temporary, usual):  # a concurrent rotation may rename one to the other
            content = beside.read(name, most)
            if content is None:
                continue
            if len(content) > most:
                raise FormatError(f"its key material file {name} has more than {most:,} bytes, which is the most here")
            try:
                return name, parse_material_file(content)
            except FormatError as error:
                raise FormatError(f"its key material file {name}: {error}") from error
        raise FormatError(
            f"its key material file {usual} is not beside it, so nothing opens it; restore that file from where the "
            "data file came from"
        )


def _reference(key_metadata: bytes | None) -> str | None:
    try:
        return read_reference(key_metadata)
    except FormatError:
        return None  # foreign key metadata: the code that opens the key decides

"""Summarises the tail of an ORC file in the form in which plans are compared with the footers of Parquet files."""

from __future__ import annotations

from collections.abc import Collection

from sparkcrypt.files.orc import ColumnSummary as OrcColumn
from sparkcrypt.files.orc import Tail, check_key_name, read_tail, summarise_orc, verify_orc_keys
from sparkcrypt.files.orc.file.tail import read_purged_note
from sparkcrypt.files.parquet import ColumnSummary, FileSummary, RetrieveKey
from sparkcrypt.files.source import Source, naming
from sparkcrypt.keys.material import KeyMaterial, wrapping_of
from sparkcrypt.schema import Path


def read_orc_footer(
    path: str, source: Source, retrieve_key: RetrieveKey | None, *, shredded: Collection[str] = ()
) -> tuple[FileSummary, str]:
    """Return the summary of an ORC file's tail, and its codec.

    Args:
        path: the file's name in what is returned.
        source: the file to open.
        retrieve_key: opens each local key; None opens none.
        shredded: master keys whose local keys are not opened.

    Raises:
        FormatError: it is no ORC file, or its tail violates the specification.
        VerificationError: a local key is wrapped by another master key than the file names, or is used twice.
    """
    if retrieve_key is None:
        tail = read_tail(source)
    else:
        tail = verify_orc_keys(source, retrieve_key=retrieve_key, shredded=shredded)
    with naming(tail.file):
        return summarise_orc_footer(path, tail), tail.compression.codec


def summarise_orc_footer(path: str, tail: Tail) -> FileSummary:
    """Return the summary of a tail.

    Raises:
        VerificationError: a local key is wrapped by another master key than the file names, or the local keys are bound
            to several files.
    """
    found = summarise_orc(tail)
    variants = () if tail.encryption is None else tail.encryption.variants
    materials: set[KeyMaterial] = set()
    foreign: set[Path] = set()
    for variant in variants:
        for wrapped in tail.keys_of(variant):
            material = check_key_name(variant, wrapped)
            if material is None:
                foreign.add(variant.root.path)
            else:
                materials.add(material)
    return FileSummary(
        path=path,
        footer="plaintext",
        algorithm=None,
        footer_key=None,
        aad_prefix=found.identity,
        supply_aad_prefix=False,
        aad_file_unique=None,
        rows=found.rows,
        row_groups=found.stripes,
        columns={place: _column(column, foreign, found.stripes) for place, column in found.columns.items()},
        wrappings=tuple(sorted(set(map(wrapping_of, materials)))),
        purged=read_purged_note(tail.footer),
        format="orc",
    )


def _column(column: OrcColumn, foreign: Collection[Path | None], stripes: int) -> ColumnSummary:
    """Return whether a column is encrypted, and its master key; None if another writer wrapped its local key."""
    if not column.encrypted:
        return ColumnSummary(False if stripes else None, None)
    return ColumnSummary(True, None if column.root in foreign else column.key_id)

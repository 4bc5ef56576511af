"""The one switch between Parquet and ORC: what is done with a file of either, and in what the two differ."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TypeAlias

from sparkcrypt.files.orc.file.tail import Tail, is_orc, read_purged_note, read_tail
from sparkcrypt.files.orc.summary import ColumnSummary as OrcColumn
from sparkcrypt.files.orc.summary import OrcSummary, inspect_orc, summarise_orc
from sparkcrypt.files.orc.verify.file import OrcVerification, check_key_name, verify_orc, verify_orc_keys
from sparkcrypt.files.parquet.file.footer import NOTHING_KNOWN, KnownColumns
from sparkcrypt.files.parquet.file.modules import AadPrefix, RetrieveKey
from sparkcrypt.files.parquet.summary import ColumnSummary, FileSummary, inspect_file
from sparkcrypt.files.parquet.verify.file import Verification, verify_file, verify_keys
from sparkcrypt.files.source import Source, naming
from sparkcrypt.keys.material import KeyMaterial, wrapping_of
from sparkcrypt.names import FileFormat
from sparkcrypt.plan import ColumnPlan, EncryptionPlan
from sparkcrypt.plan.orc import match_orc_columns, refuse_orc_plan
from sparkcrypt.schema import Path, schema_from_parquet

AnySummary: TypeAlias = FileSummary | OrcSummary
AnyVerification: TypeAlias = Verification | OrcVerification


class ParquetFormat:
    """Parquet; `OrcFormat` has the same members.

    Attributes:
        name: the format.
        title: its name in messages.
        authenticates: whether readers notice a changed value.
        names_footer_key: whether a footer names its own master key.
        carries_dark: whether new keys for a file can leave columns under shredded keys as they are.
        rewritten_by_rows: whether Spark's engine can write a file anew.
    """

    name: FileFormat = "parquet"
    title = "Parquet"
    authenticates = True
    names_footer_key = True
    carries_dark = False
    rewritten_by_rows = True

    def inspect(self, source: Source, *, retrieve_key: RetrieveKey | None = None) -> FileSummary:
        """Summarise a file's footer; no key is needed, and ``retrieve_key`` reveals what an encrypted footer hides."""
        return inspect_file(source, retrieve_key=retrieve_key)

    def read_identity(self, source: Source) -> bytes | None:
        """Return the identity that a file is bound to, which nothing has authenticated; None if it is bound to none."""
        return inspect_file(source).aad_prefix

    def verify(
        self,
        source: Source,
        *,
        retrieve_key: RetrieveKey | None = None,
        aad_prefix: AadPrefix | None = None,
        equal_to: Mapping[str, str] | None = None,
        digest_key: bytes | None = None,
        known: KnownColumns = NOTHING_KNOWN,
    ) -> Verification:
        """Verify a whole file; see `verify_file` and `verify_orc`."""
        return verify_file(
            source,
            retrieve_key=retrieve_key,
            aad_prefix=aad_prefix,
            equal_to=equal_to,
            digest_key=digest_key,
            known=known,
        )

    def open_keys(
        self,
        path: str,
        source: Source,
        retrieve_key: RetrieveKey,
        dark: Mapping[Path, str],
        unopened: Collection[Path] = (),
    ) -> FileSummary:
        """Open every key of a file, and return the summary of its footer.

        Args:
            path: the file's name in what is returned.
            source: the file to open.
            retrieve_key: opens the keys.
            dark: columns under shredded keys -> those keys, which are not opened.
            unopened: further columns whose keys are not opened.
        """
        return replace(verify_keys(source, retrieve_key=retrieve_key, dark={*dark, *unopened}), path=path)

    def match_columns(
        self, summary: FileSummary, plan: EncryptionPlan
    ) -> tuple[Mapping[Path, ColumnPlan], tuple[Path, ...]]:
        """Return the columns of a file that a table's plan has, and those that the table lacks.

        Raises:
            PlanError: a column of the file cannot be read into the table's.
        """
        leaves = schema_from_parquet(json.loads(summary.fields or "[]"), plan.schema).leaves()
        planned = {column.leaf.logical: column for column in plan.columns}
        known = {leaf.parquet: planned[leaf.logical] for leaf in leaves if leaf.logical in planned}
        columns = tuple(summary.columns or ())
        unknown = tuple(path for path in columns if path not in known)
        return {path: known[path] for path in columns if path in known}, unknown

    def refuse_plan(self, plan: EncryptionPlan) -> None:
        """Refuse a plan that no file of the format can have, by a PlanError."""

    def list_left_out(self, *, redacts: bool, purges: bool) -> tuple[str, ...]:
        """Return the parts of a file's content that its rewrite may have changed.

        Args:
            redacts: whether the rewrite leaves out what tells of encrypted columns.
            purges: whether it replaces columns by nulls.
        """
        redacted = ("key_value_metadata", "sorting_columns") if redacts else ()
        return (*redacted, *(("sorting_columns",) if purges else ()))


class OrcFormat:
    """ORC; `ParquetFormat` says what its members are."""

    name: FileFormat = "orc"
    title = "ORC"
    authenticates = False
    names_footer_key = False
    carries_dark = True
    rewritten_by_rows = False

    def inspect(self, source: Source, *, retrieve_key: RetrieveKey | None = None) -> OrcSummary:
        """Summarise a file's tail, which is never encrypted."""
        return inspect_orc(source)

    def read_identity(self, source: Source) -> bytes | None:
        """Return the identity that the local keys are bound to."""
        return inspect_orc(source).identity

    def verify(
        self,
        source: Source,
        *,
        retrieve_key: RetrieveKey | None = None,
        aad_prefix: AadPrefix | None = None,
        equal_to: Mapping[str, str] | None = None,
        digest_key: bytes | None = None,
        known: KnownColumns = NOTHING_KNOWN,
    ) -> OrcVerification:
        """Verify a whole file; what its keys are bound to is checked where they are opened."""
        return verify_orc(source, retrieve_key=retrieve_key, equal_to=equal_to, digest_key=digest_key, known=known)

    def open_keys(
        self,
        path: str,
        source: Source,
        retrieve_key: RetrieveKey,
        dark: Mapping[Path, str],
        unopened: Collection[Path] = (),
    ) -> FileSummary:
        """Open each local key."""
        return read_orc_footer(path, source, retrieve_key, shredded=set(dark.values()))[0]

    def match_columns(
        self, summary: FileSummary, plan: EncryptionPlan
    ) -> tuple[Mapping[Path, ColumnPlan], tuple[Path, ...]]:
        """Match columns by ORC's names."""
        return match_orc_columns(tuple(summary.columns or ()), plan)

    def refuse_plan(self, plan: EncryptionPlan) -> None:
        """Refuse columns that share what ORC encrypts as a whole."""
        refuse_orc_plan(plan)

    def list_left_out(self, *, redacts: bool, purges: bool) -> tuple[str, ...]:
        """Return the part of user metadata, some of which may tell of encrypted columns."""
        return ("user_metadata",) if redacts else ()


AnyFormat: TypeAlias = ParquetFormat | OrcFormat
FORMATS: Mapping[FileFormat, AnyFormat] = {"parquet": ParquetFormat(), "orc": OrcFormat()}


def format_of(source: Source) -> AnyFormat:
    """Return the format of a file by its first bytes; a file that is not ORC is taken for Parquet."""
    return FORMATS["orc" if is_orc(source) else "parquet"]


def read_orc_footer(
    path: str, source: Source, retrieve_key: RetrieveKey | None, *, shredded: Collection[str] = ()
) -> tuple[FileSummary, str]:
    """Return the summary of an ORC file's tail, in the form of Parquet's footers, and its codec.

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

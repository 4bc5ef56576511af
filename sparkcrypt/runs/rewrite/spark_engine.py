"""Staging with Spark: a unit's rows are read and written again, encrypted, into a folder that is not in use yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from sparkcrypt import names
from sparkcrypt.files.parquet.summary import NAMES
from sparkcrypt.ledger.audit.evidence import Proof
from sparkcrypt.ledger.unit import Folder, Unit
from sparkcrypt.paths import trailing_partition
from sparkcrypt.plan import EncryptionPlan
from sparkcrypt.policy.model import Policy, normalized_table
from sparkcrypt.runs.rewrite.engine import (
    FAILURES,
    StagedWork,
    Staging,
    compare_rows,
    make_fresh_folder,
    verify_footers,
)
from sparkcrypt.runs.rewrite.schedule import ENDS_THE_RUN
from sparkcrypt.runs.table.difference import refuse_dark
from sparkcrypt.runs.table.footers import RetrieveKey
from sparkcrypt.runs.table.open_table import OpenTable
from sparkcrypt.runs.table.scan import ScannedUnit
from sparkcrypt.schema import Path
from sparkcrypt.spark.jvm.gateway import cut_lineage
from sparkcrypt.spark.setup.session import registered_policy
from sparkcrypt.spark.tasks.digest import RowsDigest, digest_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OPTIONS = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false", names.FIELD_METADATA: "drop"}
"""No ``_SUCCESS``; and the files of a run may lose what the sources' schemas say of values."""
_SPARK_WRITES = frozenset(NAMES) - {"lzo", "brotli"}
"""All codecs but two, whose libraries Spark does not include."""


class SparkStager:
    """Stages and digests the units of one target with Spark's own reader and writer."""

    engine = "spark"

    def __init__(self, table: OpenTable) -> None:
        self.table, self._relaxed = table, relax_enforcement(table.policy, table.target.plan.table)
        self._is_uneven = has_uneven_tags(table.target.plan)

    def stage_all(self, several: Sequence[Staging]) -> list[StagedWork | Exception]:
        """Write the rows of units, encrypted, one unit after the other; see `Stager`.  Tasks are not files to tell."""
        found: list[StagedWork | Exception] = []
        for staging in several:
            try:
                found.append(self._stage(staging.scanned, staging.staged))
            except ENDS_THE_RUN:
                raise
            except FAILURES as error:
                found.append(error)
        return found

    def _stage(self, scanned: ScannedUnit, staged: str) -> StagedWork:
        for path, file in scanned.files.items():
            refuse_dark(path, file.dark, "reading its rows", "leave --engine spark out")
        codec, note = choose_codec(file.facts.codecs for file in scanned.files.values())
        before = self.digest(scanned.unit)
        self._write(scanned.unit, staged, codec)
        prove = partial(self._prove, scanned.unit, staged, before)
        return StagedWork(self.engine, codec, () if note is None else (note,), prove)

    def _prove(
        self,
        unit: Unit,
        staged: str,
        before: Mapping[str, RowsDigest],
        folders: tuple[Folder, ...],
        retrieve_key: RetrieveKey,
    ) -> Proof:
        """Authenticate every module, and compare the rows with the source's; see `StagedWork`."""
        verified = verify_footers(self.table, unit, folders, retrieve_key)
        after = self.digest(unit.relocate(staged, folders))
        return Proof(verified, compare_rows(unit, before, after), row_digests=before)

    def _write(self, unit: Unit, staged: str, codec: str | None) -> None:
        """Write a unit's rows, with the compression of the source's files if Spark can write it."""
        make_fresh_folder(self.table.files, unit, staged)
        with (
            registered_policy(self.table.spark, self._relaxed) as read,
            registered_policy(self.table.spark, self.table.policy) as written,
        ):
            for folder in unit.folders:
                options = {**self.table.target.options(), **written, **_OPTIONS}
                rows = self._rows(folder, read)
                writer = (cut_lineage(rows) if self._is_uneven else rows).write.options(**options)
                writer = writer.option(
                    names.PARTITION, unit.partition_path or trailing_partition(folder.relative.split("/"))
                )
                if codec:
                    writer = writer.option("compression", codec.lower().replace("uncompressed", "none"))
                writer.parquet(f"{staged}/{folder.relative}" if folder.relative else staged, mode="append")

    def digest(self, unit: Unit) -> dict[str, RowsDigest]:
        """Return folder -> digest of its rows."""
        with registered_policy(self.table.spark, self._relaxed) as pinned:
            return {folder.relative: digest_rows(self._rows(folder, pinned)) for folder in unit.folders}

    def _rows(self, folder: Folder, pinned: Mapping[str, str]) -> DataFrame:
        reader = self.table.spark.read.options(**{**self.table.target.options(), **pinned}).schema(
            self.table.target.schema
        )
        return reader.parquet(*(file.path for file in folder.files))


def relax_enforcement(policy: Policy, table: str | None) -> Policy:
    """Return a policy with which a run can read files that the table's readers refuse, in order to correct them.

    The run itself refuses files that may be forgeries, before it reads a row.
    """
    if table is None:
        return policy
    rule = replace(policy.table(table), name=table, enforce=False)
    others = tuple(other for other in policy.tables if normalized_table(other.name) != normalized_table(table))
    return replace(policy, tables=(*others, rule))


def has_uneven_tags(plan: EncryptionPlan) -> bool:
    """Tell whether a list or map of a table has leaves with different tags.

    Rows that a query reads from such a column carry all of its tags, for all of its leaves; the plan has them leaf by
    leaf.
    """
    tags, seen = {column.leaf: column.tags for column in plan.columns}, dict[Path, tuple[str, ...]]()
    for leaf, chain in plan.schema.walk_leaves():
        for place in (logical for logical, _, node in chain if node.kind in ("list", "map")):
            if seen.setdefault(place, tags.get(leaf, ())) != tags.get(leaf, ()):
                return True
    return False


def choose_codec(codecs: Iterable[Mapping[str, int]]) -> tuple[str | None, str | None]:
    """Choose the codec that most column chunks of a unit's files have.

    Args:
        codecs: codec -> number of column chunks, for each file.

    Returns:
        The codec for the new files, None if the engine chooses it; and a note for the report, if there is one.
    """
    counts: Counter[str] = Counter()
    for file_codecs in codecs:
        counts.update(file_codecs)
    if not counts:
        return None, "compression: the old files do not show theirs, so Spark chose that of the new ones"
    codec = min(counts, key=lambda name: (-counts[name], name))
    if codec not in _SPARK_WRITES:
        return None, f"compression: Spark cannot write {codec}, so it chose that of the new files"
    if len(counts) == 1:
        return codec, None
    parts = ", ".join(f"{name} ({counts[name]})" for name in sorted(counts, key=lambda name: (-counts[name], name)))
    return codec, f"compression: column chunks of the old files have {parts}; all new ones have {codec}"

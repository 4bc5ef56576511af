"""The state of a target's units against its plan, and what a run must not touch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sparkcrypt.backfill.check import partition_of
from sparkcrypt.backfill.drift import Drift, drift_by_file, drift_of_file, missing_folder, unreadable
from sparkcrypt.backfill.file_columns import file_columns, refuse_lost_columns
from sparkcrypt.backfill.footer_cache import FooterCache
from sparkcrypt.backfill.footers import (
    DriverFooters,
    FooterReader,
    Footers,
    RetrieveKey,
    TaskFooters,
    own_keys,
    sorted_out,
)
from sparkcrypt.backfill.targets import Target
from sparkcrypt.backfill.units import Unit, list_unit
from sparkcrypt.errors import UnsupportedFileError, VerificationError
from sparkcrypt.keys.ids import decode_key_id
from sparkcrypt.native.footers import Found
from sparkcrypt.parquet import FileSummary
from sparkcrypt.plan import EncryptionPlan
from sparkcrypt.policy.model import PLAINTEXT, Policy
from sparkcrypt.schema import dotted
from sparkcrypt.spark.files import HadoopFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES_AT_ONCE = 5_000


@dataclass(frozen=True, slots=True)
class ScannedUnit:
    """A unit, the footers of its files, their drift from the plan (none: nothing is to do), and their codecs."""

    unit: Unit
    summaries: Mapping[str, FileSummary]
    drift: tuple[Drift, ...]
    codecs: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


class Scanner:
    """Lists units and compares the footers of their files with the plan; a unit is forgotten once it was yielded.

    Args:
        target: whose units they are.
        files: the file system.
        reader: reads footers.
        cache: facts of files that have not changed since they were read; None reads all.
    """

    def __init__(
        self, target: Target, files: HadoopFiles, reader: FooterReader, cache: FooterCache | None = None
    ) -> None:
        self._target, self._files, self._reader, self._cache = target, files, reader, cache

    def scan(self, units: Iterable[Unit]) -> Iterator[ScannedUnit]:
        """Yield each unit with its drift, some thousand files at a time.

        Raises:
            PlanError: a partition's value cannot stand in a key template, or a unit's files belong to another format.
        """
        batch: list[Unit] = []
        files = 0
        for unit in units:
            listed = list_unit(self._files, unit)
            batch.append(listed)
            files += len(listed.files)
            if files >= FILES_AT_ONCE:
                yield from self._scan(batch)
                batch, files = [], 0
        yield from self._scan(batch)

    def _scan(self, units: Sequence[Unit]) -> Iterator[ScannedUnit]:
        cache = self._cache
        known = {unit.name: self._known(unit) for unit in units}
        unknown = [file for unit in units for file in unit.files if file.path not in known[unit.name]]
        found = self._reader.read(unknown)
        for unit in units:
            facts = {
                **known[unit.name],
                **{file.path: found[file.path] for file in unit.files if file.path in found},
            }
            if cache is not None and len(facts) > len(known[unit.name]):
                cache.keep(unit.name, unit.files, facts)
            scanned = scanned_unit(unit, sorted_out(facts, unit.files), self._target)
            if not unit.files and not self._files.exists(unit.location):
                scanned = replace(scanned, drift=(missing_folder(unit.location),))
            yield scanned

    def _known(self, unit: Unit) -> Mapping[str, Found]:
        """Return what need not be read."""
        if unit.other_format:
            why = f"its partition is not Parquet ({unit.other_format}); convert it, or leave it out by --where"
            return dict.fromkeys((file.path for file in unit.files), UnsupportedFileError(why))
        return {} if self._cache is None else self._cache.known(unit.name, unit.files)


def scanned_unit(unit: Unit, footers: Footers, target: Target) -> ScannedUnit:
    """Compare the footers of a unit's files with the plan."""
    drift: list[Drift] = []
    for folder in unit.folders:
        values = partition_of(unit, folder)
        for file in folder.files:
            if file.path in footers.errors:
                drift.append(unreadable(file.path, footers.errors[file.path]))
            else:
                drift.extend(drift_of_file(footers.summaries[file.path], target.plan, values, table_uuid=target.uuid))
    return ScannedUnit(unit, footers.summaries, tuple(drift), footers.codecs)


def scan_target(
    spark: SparkSession,
    target: Target,
    policy: Policy,
    *,
    where: str | None = None,
    retrieve_key: RetrieveKey | None = None,
    cache: FooterCache | None = None,
) -> Iterator[ScannedUnit]:
    """Scan a target's units, by tasks of Spark where there are many files.

    Args:
        spark: a classic session.
        target: what is scanned.
        policy: whose key service opens footers.
        where: a predicate over partition columns.
        retrieve_key: opens footers on the driver, and no other does; the policy's key service by default.
        cache: as `Scanner`.
    """
    files = HadoopFiles(spark)
    driver = DriverFooters(files, retrieve_key or own_keys(policy.key_service))
    reader: FooterReader = driver if retrieve_key else TaskFooters(spark, policy.key_service, driver)
    return Scanner(target, files, reader, cache).scan(target.units(where))


def refuse_unit(scanned: ScannedUnit, target: Target, policy: Policy, *, adopt: bool) -> None:
    """Refuse a unit that a run must not touch.

    Raises:
        VerificationError: a file cannot be read, is under another algorithm, holds what only lost tags would decrypt,
            or is not to be believed.
        PlanError: a file holds columns that the schema lacks.
    """
    refuse_unreadable(scanned)
    refuse_algorithms(scanned, policy)
    refuse_untagged(scanned, target.plan, policy)
    if not adopt:
        refuse_forgeries(scanned, target.plan, policy)
    refuse_lost_columns(scanned.summaries, target.plan)


def refuse_unreadable(scanned: ScannedUnit) -> None:
    """Refuse a unit whose folder is missing, or with a file whose footer could not be read.

    Raises:
        VerificationError: it names the folder, or the file and the reason.
    """
    for drift in scanned.drift:
        if drift.kind == "missing_folder":
            raise VerificationError(f"{scanned.unit.name}: {drift.file}: {drift.detail}")
        if drift.kind == "unreadable":
            raise VerificationError(f"{drift.file}: cannot be read, so its unit cannot be encrypted: {drift.detail}")


def refuse_algorithms(scanned: ScannedUnit, policy: Policy) -> None:
    """Refuse files under an algorithm that the policy never had.

    Nothing authenticates what a file says of its algorithm: pages of GCM that are read as CTR's decrypt to garbage,
    which a rewrite would make authentic.

    Raises:
        VerificationError: it names the file and what is allowed.
    """
    allowed = (policy.algorithm, *policy.algorithm_history)
    for path, summary in scanned.summaries.items():
        if summary.algorithm is not None and summary.algorithm not in allowed:
            raise VerificationError(
                f"{path}: its algorithm is {summary.algorithm}; allowed: {', '.join(allowed)}; name it under "
                "algorithm_history if it was the policy's once, else the file was altered"
            )


def refuse_untagged(scanned: ScannedUnit, plan: EncryptionPlan, policy: Policy) -> None:
    """Refuse to decrypt a column that has neither a tag nor a history: its tags may be lost.

    ADD COLUMNS through Hive, and a table that is made again, lose tags without a word; who takes them off by
    ``sparkcrypt tags unset`` leaves a history.  What is under the footer key was encrypted without a tag.

    Raises:
        VerificationError: it names the file and the column.
    """
    footer_keys = (policy.footer_key, *policy.footer_key_history)
    for path in {drift.file for drift in scanned.drift if drift.kind == "extra"}:
        columns = scanned.summaries[path].columns or {}
        planned = file_columns(columns, plan).planned
        for column, found in columns.items():
            wanted = planned.get(column)
            told = wanted is not None and (wanted.action != "plaintext" or wanted.tags or wanted.history)
            if found.encrypted and found.key_id not in footer_keys and not told:
                raise VerificationError(
                    f"{path}: column {dotted(column)} is encrypted with {found.key_id!r}, and has no tag and no "
                    "history now: its tags may be lost, and a run would decrypt it; set them again with `sparkcrypt "
                    "tags set`, and then unset them if they should go"
                )


def refuse_forgeries(scanned: ScannedUnit, plan: EncryptionPlan, policy: Policy) -> None:
    """Refuse to rewrite what readers of the table would not believe: a rewrite would make it believable.

    Raises:
        VerificationError: the table requires encryption, and a file is plaintext, was moved, or is under a key that
            neither plan nor history names.
    """
    for drift in suspicious(scanned, plan, policy):
        raise VerificationError(
            f"{drift.file}: {drift.column or 'the file'}: {drift.kind}: {drift.detail}; {plan.table or 'the table'} "
            "requires encryption, so this file may be a forgery, and rewriting would make it trusted; look at it, then "
            "run again with --adopt"
        )


def suspicious(scanned: ScannedUnit, plan: EncryptionPlan, policy: Policy) -> Iterator[Drift]:
    """Yield the drift of files that readers of a table which requires encryption would not believe."""
    if not plan.require_encryption:
        return
    encrypted = [column.history for column in plan.encrypted]
    plaintext = bool(encrypted) and all(PLAINTEXT in kept for kept in encrypted)
    for path, found in drift_by_file(scanned.drift).items():
        history = _history(scanned.summaries.get(path), plan)
        for drift in found:
            kept = history.get(drift.column or "", ())
            if drift.kind in _REFUSED and not (
                plaintext if drift.kind == "plaintext" else _accepted(drift, kept, policy)
            ):
                yield drift


_REFUSED = ("plaintext", "missing", "wrong_key", "aad_mismatch", "foreign_key")


def _accepted(drift: Drift, kept: Iterable[str], policy: Policy) -> bool:
    """Tell whether readers still take a file with this difference, by the history of its column or of the footer."""
    if drift.kind == "missing":
        return PLAINTEXT in kept
    if drift.kind == "aad_mismatch":
        return False
    if drift.column is None:
        return drift.key_id in policy.footer_key_history
    return drift.key_id in {decode_key_id(one) for one in kept if one != PLAINTEXT}


def _history(summary: FileSummary | None, plan: EncryptionPlan) -> dict[str, tuple[str, ...]]:
    """Return a file's own name of each column -> what readers still take for it."""
    planned = file_columns((summary.columns if summary else None) or (), plan).planned
    return {dotted(path): column.history for path, column in planned.items()}

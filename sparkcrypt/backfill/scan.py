"""The state of a target's units against its plan, and what a run must not touch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sparkcrypt.backfill.check import partition_of
from sparkcrypt.backfill.drift import Drift, drift_of_file, unreadable
from sparkcrypt.backfill.footers import RetrieveKey, read_footers
from sparkcrypt.backfill.units import Unit
from sparkcrypt.errors import VerificationError
from sparkcrypt.keys.ids import decode_key_id
from sparkcrypt.parquet import FileSummary
from sparkcrypt.plan import EncryptionPlan
from sparkcrypt.policy.model import PLAINTEXT, Policy
from sparkcrypt.spark.files import HadoopFiles


@dataclass(frozen=True, slots=True)
class ScannedUnit:
    """A unit, the footers of its files, their drift from the plan (none: nothing is to do), and their codecs."""

    unit: Unit
    summaries: Mapping[str, FileSummary]
    drift: tuple[Drift, ...]
    codecs: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


def scan_units(
    files: HadoopFiles, units: tuple[Unit, ...], plan: EncryptionPlan, retrieve_key: RetrieveKey, table_uuid: str | None
) -> list[ScannedUnit]:
    """Read every footer of every unit and compare it with the plan.

    Raises:
        PlanError: a partition's value cannot stand in a key template.
    """
    return [_scan(files, unit, plan, retrieve_key, table_uuid) for unit in units]


def _scan(
    files: HadoopFiles, unit: Unit, plan: EncryptionPlan, retrieve_key: RetrieveKey, table_uuid: str | None
) -> ScannedUnit:
    footers = read_footers(files, unit.files, retrieve_key)
    drift: list[Drift] = []
    for folder in unit.folders:
        values = partition_of(unit, folder)
        for file in folder.files:
            if file.path in footers.errors:
                drift.append(unreadable(file.path, footers.errors[file.path]))
            else:
                drift.extend(drift_of_file(footers.summaries[file.path], plan, values, table_uuid=table_uuid))
    return ScannedUnit(unit, footers.summaries, tuple(drift), footers.codecs)


def refuse_unreadable(scanned: ScannedUnit) -> None:
    """Refuse a unit with a file whose footer could not be read.

    Raises:
        VerificationError: it names the file and the reason.
    """
    for drift in scanned.drift:
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


def refuse_forgeries(scanned: ScannedUnit, plan: EncryptionPlan) -> None:
    """Refuse to rewrite what readers of the table would not believe: a rewrite would make it believable.

    Raises:
        VerificationError: the table requires encryption, and a file is plaintext, was moved, or is under a key that
            neither plan nor history names.
    """
    if not plan.require_encryption:
        return
    history = {column.leaf.dotted: column.history for column in plan.columns}
    for drift in scanned.drift:
        kept = history.get(drift.column or "", ())
        known = PLAINTEXT in kept if drift.kind == "missing" else drift.key_id in {decode_key_id(one) for one in kept}
        if drift.kind in ("plaintext", "missing", "wrong_key", "aad_mismatch", "foreign_key") and not known:
            raise VerificationError(
                f"{drift.file}: {drift.column or 'the file'}: {drift.kind}: {drift.detail}; "
                f"{plan.table or 'the table'} requires "
                "encryption, so this file may be a forgery, and rewriting would make it trusted; look at it, then run "
                "again "
                "with --adopt"
            )

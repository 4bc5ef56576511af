"""Checks that refuse units which a run must not change: with unreadable files, possible forgeries, or lost columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sparkcrypt.errors import PlanError, SparkcryptError, StorageError, VerificationError
from sparkcrypt.keys.ids import decode_key_id
from sparkcrypt.plan import EncryptionPlan
from sparkcrypt.policy.model import PLAINTEXT, Policy
from sparkcrypt.runs.table.columns import Inherited, ScannedFile, is_untold
from sparkcrypt.runs.table.difference import DECRYPTED, Drift, drift_by_file, refuse_other_drift
from sparkcrypt.runs.table.disposal import refuse_foreign
from sparkcrypt.runs.table.scan import ScannedUnit
from sparkcrypt.runs.table.target import Target
from sparkcrypt.schema import Path, join_dotted


def refuse_unit(
    scanned: ScannedUnit, target: Target, policy: Policy, *, adopt: bool, allow_decrypt: bool, copies: bool = False
) -> None:
    """Refuse a unit that a run must not change.

    Args:
        scanned: the scanned unit.
        target: the target with the plan.
        policy: the policy.
        adopt: accept files that may be forgeries.
        allow_decrypt: accept that columns are decrypted whose tags were taken off, or mean plaintext now.
        copies: the run writes a copy and leaves the unit where it is, so what lies beside its data stays too.

    Raises:
        StorageError: its folder cannot be listed.
        VerificationError: a file cannot be read, is under an algorithm that is not allowed, has a column that would be
            decrypted without consent or since its tags are lost, or may be a forgery; or something lies beside the
            files that the run would move; or a rotation would have to do more than rewrap.
        PlanError: a file has columns that the table lacks.
    """
    refuse_unreadable(scanned)
    if not copies:
        refuse_foreign(scanned.unit.name, scanned.unit.location, scanned.unit.beside)
    refuse_algorithms(scanned, policy)
    refuse_unknown_columns(scanned.files.values())
    refuse_untagged(scanned, policy)
    if not allow_decrypt and scanned.rotation is None:  # a rotation refuses every other difference
        refuse_decryption(scanned, "run again with --allow-decrypt")
    if not adopt:
        refuse_forgeries(scanned, target.plan, policy)
    if scanned.rotation is not None:
        refuse_other_drift(scanned.unit.name, scanned.drift, scanned.rotation)


def refuse_unreadable(scanned: ScannedUnit) -> None:
    """Refuse a unit whose folder is missing or cannot be listed, or with a file whose footer could not be read.

    Raises:
        StorageError: its folder cannot be listed.
        VerificationError: its folder is missing, or there is such a file; the message names it and the reason.
    """
    folder = error_of_folder(scanned.unit.name, scanned.drift)
    if folder is not None:
        raise folder
    for drift in scanned.drift:
        if drift.kind == "unreadable":
            raise VerificationError(f"{drift.file}: cannot be read, so its unit cannot be encrypted: {drift.detail}")


def error_of_folder(unit: str, drift: Iterable[Drift]) -> SparkcryptError | None:
    """Return the error of a unit whose folder is missing or cannot be listed; None if it is there."""
    kinds = {"missing_folder": VerificationError, "unlisted_folder": StorageError}
    found = next((difference for difference in drift if difference.kind in kinds), None)
    return None if found is None else kinds[found.kind](f"{unit}: {found.file}: {found.detail}")


def refuse_algorithms(scanned: ScannedUnit, policy: Policy) -> None:
    """Refuse files under an algorithm that the policy never had.

    The algorithm in a file is not authenticated: GCM pages that are read as CTR decrypt to garbage, which a rewrite
    would make authentic.

    Raises:
        VerificationError: there is one; the message names the file and the allowed algorithms.
    """
    allowed = policy.readable_algorithms
    for path, file in scanned.files.items():
        if file.summary.algorithm is not None and file.summary.algorithm not in allowed:
            raise VerificationError(
                f"{path}: its algorithm is {file.summary.algorithm}; allowed: {', '.join(allowed)}; name it under "
                "algorithm_history if it was the policy's once, else the file was altered"
            )


def refuse_untagged(scanned: ScannedUnit, policy: Policy) -> None:
    """Refuse to decrypt a column that has neither a tag nor a history: its tags may be lost.

    ADD COLUMNS through Hive, and re-creating a table, lose tags silently; ``sparkcrypt tags unset`` leaves a history.
    A column under the footer key was encrypted without a tag.

    Raises:
        VerificationError: there is one; the message names the file and the column.
    """
    footer_keys = (policy.footer_key, *policy.footer_key_history)
    for path, file in scanned.files.items():
        inherited = {entry.path: entry for entry in file.inherited}
        for column, found in (file.summary.columns or {}).items():
            wanted = file.columns.planned.get(column)
            declared = wanted is not None and not is_untold(wanted)
            dark = column in file.dark  # nothing can decrypt it
            if found.encrypted and found.key_id not in footer_keys and not declared and not dark:
                raise VerificationError(_untagged_text(path, column, found.key_id, inherited.get(column)))


def refuse_decryption(scanned: ScannedUnit, otherwise: str) -> None:
    """Refuse a unit with a file, or a column of one, that a run would decrypt.

    Args:
        scanned: the scanned unit.
        otherwise: what to do if the column should be decrypted, for the message.

    Raises:
        VerificationError: there is one; the message names it and the ways to go on.
    """
    for drift in scanned.drift:
        if drift.kind == DECRYPTED:
            what = f"column {drift.column}, {drift.detail}," if drift.column else _name_encrypted(scanned, drift.file)
            raise VerificationError(
                f"{scanned.unit.name}: {drift.file}: {what} would be decrypted, since by tags and policy it should be "
                "in clear; tag the column again with `sparkcrypt tags set` if it should stay encrypted, else "
                f"{otherwise}"
            )


def _name_encrypted(scanned: ScannedUnit, file: str) -> str:
    columns = scanned.files[file].summary.columns or {}
    names = [join_dotted(path) for path, found in columns.items() if found.encrypted]
    return f"column {', '.join(names)}" if names else "its footer"


def _untagged_text(path: str, column: Path, key_id: str | None, inherited: Inherited | None) -> str:
    what = f"{path}: column {join_dotted(column)} is encrypted with {key_id!r}, and has no tag and no history now"
    if inherited is not None:
        origins = ", ".join(inherited.origins) or "columns that are not known"
        return (
            f"{what}: it has the tags {','.join(inherited.lineage.inherited)} from {origins}, and a run would decrypt "
            "it; tag the column with `sparkcrypt tags set`: with these tags, or with one that means plaintext, and "
            "then run with --allow-decrypt"
        )
    return (
        f"{what}: its tags may be lost, and a run would decrypt it; set them again with `sparkcrypt tags set`, and "
        "then unset them if they should go, and run with --allow-decrypt"
    )


def refuse_unknown_columns(files: Iterable[ScannedFile]) -> None:
    """Refuse files with columns that the table's schema does not have.

    Such a column has no tag, and Spark's engine, which reads by the schema, would lose it.

    Raises:
        PlanError: there is one; the message names file and column.
    """
    for file in files:
        for column in file.columns.unknown:
            raise PlanError(
                f"{file.path}: holds column {join_dotted(column)}, which the table's schema does not, so that no tag "
                "says whether it may be read by all; add the column to the table (ALTER TABLE … ADD COLUMNS) and tag "
                "it, also where it was renamed, since files keep the former name, or move the file out of the table"
            )


def refuse_forgeries(scanned: ScannedUnit, plan: EncryptionPlan, policy: Policy) -> None:
    """Refuse to rewrite files that readers of the table would refuse: a rewrite would make them trusted.

    Raises:
        VerificationError: the table requires encryption, and a file is plaintext, was moved, or is under a key that
            neither plan nor history names.
    """
    for drift in find_suspicious(scanned, plan, policy):
        raise VerificationError(
            f"{drift.file}: {drift.column or 'the file'}: {drift.kind}: {drift.detail}; {plan.table or 'the table'} "
            "requires encryption, so this file may be a forgery, and rewriting would make it trusted; look at it, then "
            "run again with --adopt"
        )


def find_suspicious(scanned: ScannedUnit, plan: EncryptionPlan, policy: Policy) -> Iterator[Drift]:
    """Yield the drift of files that readers would refuse, if the table requires encryption."""
    if not plan.require_encryption:
        return
    encrypted = [column.history for column in plan.encrypted]
    plaintext = bool(encrypted) and all(PLAINTEXT in kept for kept in encrypted)
    for path, found in drift_by_file(scanned.drift).items():
        history = scanned.files[path].columns.history() if path in scanned.files else {}
        for drift in found:
            kept = history.get(drift.column or "", ())
            if drift.kind in _REFUSED and not (
                plaintext if drift.kind == "plaintext" else _is_accepted(drift, kept, policy)
            ):
                yield drift


_REFUSED = ("plaintext", "missing", "wrong_key", "aad_mismatch", "foreign_key")


def _is_accepted(drift: Drift, kept: Iterable[str], policy: Policy) -> bool:
    """Return whether readers accept a file with this difference, by the history of its column or of the footer."""
    if drift.kind == "missing":
        return PLAINTEXT in kept
    if drift.kind == "aad_mismatch":
        return False
    if drift.column is None:
        return drift.key_id in policy.footer_key_history
    return drift.key_id in {decode_key_id(key) for key in kept if key != PLAINTEXT}

"""The requirements of a master key's rotation on files: one KEK, under its newest version, wraps all data keys."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sparkcrypt.errors import VerificationError
from sparkcrypt.files.parquet import FileSummary
from sparkcrypt.keys.datakeys import WrappedKek
from sparkcrypt.keys.material import Wrapping, wrapping_of_kek
from sparkcrypt.runs.table.difference import OF_FOLDERS, UNKNOWN, Drift, DriftKind

OLD_VERSION: DriftKind = "old_version"
OTHER_KEK: DriftKind = "other_kek"
KINDS: tuple[DriftKind, ...] = (OLD_VERSION, OTHER_KEK)
_TAKES_PART = (*KINDS, "wrong_key", "external_material", "unreadable", *OF_FOLDERS, UNKNOWN)
"""Kinds of drift with which a unit may still be rewrapped, or for which another check refuses it."""


@dataclass(frozen=True, slots=True)
class Rotation:
    """The rotation of one master key, for one table.

    Attributes:
        key_id: the master key.
        version: the lowest version of it that may wrap keys.
        wrapping: the wrapping of the table's KEK under it; None if there is no KEK yet, so that every file under it
            has to be rewrapped.
        predecessor: another master key, which must no longer wrap any key; None for a new version of one key.
    """

    key_id: str
    version: int
    wrapping: Wrapping | None
    predecessor: str | None = None

    def drift_of(self, summary: FileSummary, found: Iterable[Drift]) -> tuple[Drift, ...]:
        """Return a file's differences from its plan, and from what the rotation requires.

        Args:
            summary: the file's footer.
            found: its differences from the plan.
        """
        drift = tuple(found)
        stale = [wrapping for wrapping in summary.wrappings if self._is_stale(wrapping)]
        if not stale:
            return drift
        bound = summary.format == "orc" or summary.aad_prefix is not None
        only_keys = bound and all(difference.only_keys for difference in drift)
        oldest = min(stale)
        return (*drift, replace(self._describe(summary.path, oldest, len(stale)), only_keys=only_keys))

    def with_keks(self, keks: Iterable[WrappedKek]) -> Rotation:
        """Return the rotation for files wrapped by these KEKs, of which there is one for each master key."""
        wrappings = {kek.master_key_id: wrapping_of_kek(kek.master_key_id, kek.kek_id, kek.wrapped_kek) for kek in keks}
        return replace(self, wrapping=wrappings.get(self.key_id, self.wrapping))

    def _is_stale(self, wrapping: Wrapping) -> bool:
        """Return whether the table's KEK has to replace what a master key wrapped.

        A later version counts too, as what another process wrote after this rotation looked: each text besides the
        table's KEK costs a reader a call.  A rewritten file has the KEK alone, so it is never stale again.
        """
        if self.predecessor is not None and wrapping.key_id == self.predecessor:
            return True
        return wrapping.key_id == self.key_id and wrapping != self.wrapping

    def _describe(self, file: str, oldest: Wrapping, count: int) -> Drift:
        if oldest.key_id == self.predecessor:
            return Drift(OTHER_KEK, file, None, f"under {oldest.key_id!r}, not {self.key_id!r}", oldest.key_id)
        if 0 < oldest.version < self.version:
            detail = f"under version {oldest.version} of {self.key_id!r}, not {self.version}"
            return Drift(OLD_VERSION, file, None, detail, self.key_id)
        wrapped = "a key that is" if count == 1 else f"{count} keys that are"
        detail = f"under {self.key_id!r} by {wrapped} not the table's KEK of version {self.version}"
        return Drift(OTHER_KEK, file, None, detail, self.key_id)


def select_drift(drift: tuple[Drift, ...]) -> tuple[Drift, ...]:
    """Return all differences of a unit if a rotation concerns it, else none.

    A rotation is not a backfill: a unit without keys to rewrap is skipped, whatever else differs there.  An unreadable
    file may be under the key, so it counts.
    """
    concerned = any(difference.kind in (*KINDS, "unreadable") for difference in drift)
    return drift if concerned else ()


def refuse_other_drift(unit: str, drift: Iterable[Drift], rotation: Rotation) -> None:
    """Refuse to rotate keys of a unit in which more differs than the keys that wrap its data keys.

    To re-encrypt files, or to give a file of another table this one's identity, the operator must run a backfill.

    Raises:
        VerificationError: there is another difference; the message names it, the file, and what to do first.
    """
    for difference in drift:
        if difference.kind not in _TAKES_PART:
            raise VerificationError(
                f"{unit}: {difference.file}: {difference.column or 'the file'}: {difference.kind}: "
                f"{difference.detail}; a rotation of {rotation.key_id!r} wraps keys anew and changes nothing else; "
                "bring the unit to its plan with `sparkcrypt backfill` first"
            )

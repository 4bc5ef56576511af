"""What a rotation of a master key asks of files: one KEK, under its newest version, wraps all that is under it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sparkcrypt.backfill.drift.difference import Drift, DriftKind
from sparkcrypt.errors import VerificationError
from sparkcrypt.keys.datakeys import WrappedKek
from sparkcrypt.keys.material import Wrapping, wrapping_of_kek
from sparkcrypt.parquet import FileSummary

OLD_VERSION: DriftKind = "old_version"
OTHER_KEK: DriftKind = "other_kek"
KINDS: tuple[DriftKind, ...] = (OLD_VERSION, OTHER_KEK)
_TAKES_PART = (*KINDS, "wrong_key", "external_material", "unreadable", "missing_folder")
"""Differences with which a unit may still be rewrapped, or which refuse it by themselves."""


@dataclass(frozen=True, slots=True)
class Rotation:
    """The rotation of one master key, for one table.

    Attributes:
        key_id: the master key.
        version: the version that is to wrap everything under it; later ones will do.
        wrapping: of the table's KEK under it; None as long as there is none, so that every file has to be rewrapped.
        predecessor: another master key, under which nothing is to stay; None for a new version of one key.
    """

    key_id: str
    version: int
    wrapping: Wrapping | None
    predecessor: str | None = None

    def drift_of(self, summary: FileSummary, found: Iterable[Drift]) -> tuple[Drift, ...]:
        """Return how a file differs from its plan, and from what the rotation asks.

        Args:
            summary: what its footer says.
            found: how it differs from the plan.
        """
        drift = tuple(found)
        stale = [wrapping for wrapping in summary.wrappings if self._is_stale(wrapping)]
        if not stale:
            return drift
        bound = summary.format == "orc" or summary.aad_prefix is not None
        only_keys = bound and all(difference.only_keys for difference in drift)
        oldest = min(stale)
        return (*drift, replace(self._describe(summary.path, oldest, len(stale)), only_keys=only_keys))

    def under(self, keks: Iterable[WrappedKek]) -> Rotation:
        """Return the rotation as it asks of files that are wrapped by these KEKs, one for each master key."""
        told = {kek.master_key_id: wrapping_of_kek(kek.master_key_id, kek.kek_id, kek.wrapped_kek) for kek in keks}
        return replace(self, wrapping=told.get(self.key_id, self.wrapping))

    def _is_stale(self, wrapping: Wrapping) -> bool:
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
    """Return the differences of a unit that a rotation has to do with: all of them, or none.

    A rotation is no backfill: a unit in which nothing is to be rewrapped is left alone, whatever else is to be done
    there.  What cannot be read may be under the key, so it is told.
    """
    concerned = any(difference.kind in (*KINDS, "unreadable") for difference in drift)
    return drift if concerned else ()


def refuse_other_drift(unit: str, drift: Iterable[Drift], rotation: Rotation) -> None:
    """Refuse to rotate keys of a unit in which more differs than what wraps its data keys.

    A run that encrypts anew, or gives a file of another table this one's identity, is asked for by its own name.

    Raises:
        VerificationError: it names the file, the difference and what to do first.
    """
    for difference in drift:
        if difference.kind not in _TAKES_PART:
            raise VerificationError(
                f"{unit}: {difference.file}: {difference.column or 'the file'}: {difference.kind}: "
                f"{difference.detail}; a rotation of {rotation.key_id!r} wraps keys anew and changes nothing else; "
                "bring the unit to its plan with `sparkcrypt backfill` first"
            )

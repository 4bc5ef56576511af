"""What a shredding did: the keys that are gone, since when that is effective, and what must still go."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sparkcrypt.backfill.shred.plan import REPORT_KIND, REPORT_VERSION, DarkTable, ShreddableKey, ShredPlan
from sparkcrypt.errors import VerificationError


@dataclass(frozen=True, slots=True)
class ShreddedKey:
    """A key that is gone.

    Attributes:
        key_id: the master key.
        effective_at: when nothing serves it any more: no cache, and nobody who could undo the deletion.
        promise: what the key service vouches for, and what not.
        dark: what went dark, table by table.
        remains: what must still go, so that the values are nowhere.
    """

    key_id: str
    effective_at: str
    promise: str
    dark: tuple[DarkTable, ...]
    remains: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "key_id": self.key_id,
            "effective_at": self.effective_at,
            "promise": self.promise,
            "dark": [table.to_dict() for table in self.dark],
            "remains": list(self.remains),
        }


@dataclass(slots=True)
class ShredReport:
    """What was done about the keys of a plan.

    Attributes:
        plan: as it was when it was confirmed.
        reason: why, as the audit has it.
        shredded: the keys that are gone.
        left: keys that came to be refused or held between the plan and their turn: key id -> why.
        head: of the audit of keys; keep it elsewhere.
    """

    plan: ShredPlan
    reason: str
    shredded: list[ShreddedKey] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    head: str = "none"

    @property
    def kept(self) -> list[ShreddableKey]:
        """The keys that were due and against which something stood."""
        return [key for key in self.plan.keys if not key.may_go]

    @property
    def outcome(self) -> str:
        """``done``, ``nothing to do``, or ``incomplete``: a key that is due was refused, or a table not looked at."""
        if self.left or any(key.refused for key in self.kept) or self.plan.not_scanned:
            return "incomplete"
        return "done" if self.shredded else "nothing to do"

    @property
    def exit_code(self) -> int:
        """What a command ends with."""
        return VerificationError.exit_code if self.outcome == "incomplete" else 0

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "kind": REPORT_KIND,
            "version": REPORT_VERSION,
            "outcome": self.outcome,
            "reason": self.reason,
            "shredded": [key.to_dict() for key in self.shredded],
            "left": [{"key_id": key_id, "reason": reason} for key_id, reason in self.left.items()],
            "kept": [key.to_dict() for key in self.kept],
            "not_scanned": self.plan.to_dict()["not_scanned"],
            "head": self.head,
            "warnings": list(self.plan.warnings),
        }

"""The report of a shredding: the deleted keys, when their deletion takes effect, and what else must be deleted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sparkcrypt.errors import VerificationError
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.runs.keys.shredding_plan import REPORT_KIND, REPORT_VERSION, DarkTable, ShreddableKey, ShredPlan


@dataclass(frozen=True, slots=True)
class ShreddedKey(JsonObject):
    """A key that was shredded.

    Attributes:
        key_id: the master key.
        effective_at: when no cache serves the key any more, and its deletion can no longer be undone.
        promise: what the key service guarantees about the deletion, and what it does not.
        dark: the data that became dark, table by table.
        remains: what must still be deleted, so that the values exist nowhere else.
    """

    key_id: str
    effective_at: str
    promise: str
    dark: tuple[DarkTable, ...]
    remains: tuple[str, ...]


@dataclass(slots=True)
class ShredReport:
    """The result of shredding the keys of a plan.

    Attributes:
        plan: the plan, as it was when it was confirmed.
        reason: the reason, as the audit records it for keys that this command began to shred.
        shredded: the keys that were shredded.
        left: key id -> why, of keys that could no longer be shredded when it was their turn.
        head: the head of the audit of keys, to be kept elsewhere.
    """

    plan: ShredPlan
    reason: str
    shredded: list[ShreddedKey] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    head: str = "none"

    @property
    def kept(self) -> list[ShreddableKey]:
        """The keys that were due but held or refused."""
        return [key for key in self.plan.keys if not key.may_go]

    @property
    def outcome(self) -> str:
        """``incomplete`` if a key was refused or a table not surveyed, else ``done`` or ``nothing to do``."""
        if self.left or any(key.refused for key in self.kept) or self.plan.not_scanned:
            return "incomplete"
        return "done" if self.shredded else "nothing to do"

    @property
    def exit_code(self) -> int:
        """The exit code: 74 if the outcome is ``incomplete``, else 0."""
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

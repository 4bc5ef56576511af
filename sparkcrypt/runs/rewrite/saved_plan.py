"""A plan that was saved to be applied later, and whether what it was made from is still so.

It has the digest of each unit as it was surveyed: where the unit is, the paths, lengths and times of its files, and how
each differs from the plan.  A run that applies it compares its own survey, under the table's lock and before it begins
a unit.  Nothing of the saved plan is applied itself: tags, policy and files decide, as for any run, so a saved plan
that somebody altered can only be refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkcrypt.errors import ConfigError, RunConflictError
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.plan import EncryptionPlan
from sparkcrypt.text import count_of

if TYPE_CHECKING:
    from sparkcrypt.ledger.journal.journal import RunRecord
    from sparkcrypt.runs.table.target import Target
    from sparkcrypt.runs.table.unit_survey import UnitSurvey

VERSION = 1
_SHOWN = 3
_OF_PLAN = ("footer_key", "footer_mode", "algorithm", "data_key_bits", "require_encryption", "enforce")


@dataclass(frozen=True, slots=True)
class SavedPlan(JsonObject):
    """The plan of one table or folder, with what it was made from.

    It has no key and no value of a row; ``where`` is the predicate as it was typed.

    Attributes:
        sparkcrypt_plan: the version of this format.
        table: the table, ``db.table``; None for a bare folder.
        path: the folder; None for a table.
        where: the predicate that chose its partitions, if any.
        avro_schema: the place of the Avro schema whose tags were used as well, if any.
        made: when it was made, for people.
        uuid: the table's UUID; None if it had none.
        plan: the key of each column, as `EncryptionPlan.to_dict` returns it.
        units: the digests of the units, sorted.
        units_left: the number of units that differ from the plan.
        files_left: the number of their files that do.
        bytes_left: the total length of these files.
    """

    sparkcrypt_plan: int
    table: str | None
    path: str | None
    where: str | None
    avro_schema: str | None
    made: str
    uuid: str | None
    plan: Mapping[str, Any]
    units: tuple[str, ...]
    units_left: int
    files_left: int
    bytes_left: int

    @classmethod
    def parse(cls, text: str, where: str) -> SavedPlan:
        """Return the plan that a file holds.

        Args:
            text: the file's text.
            where: its place, for messages.

        Raises:
            ConfigError: it is no saved plan, or one of a later version.
        """
        advice = "name a file that `sparkcrypt plan --out FILE` wrote"
        try:
            values = json.loads(text)
            version = values["sparkcrypt_plan"]
            saved = cls.from_dict(values) if version == VERSION else None
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{where}: is no saved plan; {advice}") from error
        if saved is None:
            raise ConfigError(f"{where}: is a saved plan of version {version!r}; allowed: {VERSION}; {advice}")
        return saved

    def to_text(self) -> str:
        """Return the text of its file."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n"

    @property
    def name(self) -> str:
        """The table or the folder."""
        return self.table or self.path or ""

    @property
    def digest(self) -> str:
        """The digest of the whole, by which a journal names the plan that its run applies."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()

    def refuse_other_plan(self, target: Target) -> None:
        """Refuse a target whose policy, identity, tags or columns are no longer those of the plan, or another one.

        Raises:
            ConfigError: it is the plan of another table or folder.
            RunConflictError: the message names what has changed.
        """
        if target.name != self.name:
            raise ConfigError(f"the saved plan is of {self.name}, not of {target.name}; make one of {target.name}")
        changed = list(self._compare(target.plan))
        if self.uuid is not None and target.uuid != self.uuid:
            changed.insert(0, "it was dropped and made anew under its name, or lost its identity")
        self._refuse(changed)

    def refuse_other_units(self, surveys: Iterable[UnitSurvey], done: Collection[str] = ()) -> None:
        """Refuse units that are no longer as they were surveyed for the plan.

        Args:
            surveys: the present surveys of all units.
            done: the names of the units that the run, which applies this plan, has swapped already.

        Raises:
            RunConflictError: the message names units that have changed.
        """
        left, swapped, names = set(self.units), 0, list[str]()
        for survey in surveys:
            if survey.digest in left:
                left.remove(survey.digest)
            elif survey.name in done:
                swapped += 1
            else:
                names.append(survey.name)
        gone = len(left) - swapped - len(names)
        more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
        changed = [f"files or partitions are new or differ: {', '.join(names[:_SHOWN])}{more}"] if names else []
        self._refuse([*changed, *([f"{count_of(gone, 'unit')} of it {_are(gone)} gone"] if gone > 0 else [])])

    def refuse_other_run(self, run: RunRecord) -> None:
        """Refuse to continue an unfinished run that does not apply this plan.

        Raises:
            RunConflictError: the message names the run.
        """
        if run.options.get("plan") != self.digest:
            raise RunConflictError(
                f"{self.name}: run {run.run_id} is unfinished, and does not apply this plan; finish it with the "
                "command that began it, make the plan anew, and apply that"
            )

    def _compare(self, plan: EncryptionPlan) -> Iterable[str]:
        """Yield what of a plan differs from the saved one, each as a part of a sentence."""
        now = plan.to_dict()
        if now["policy_digest"] != self.plan.get("policy_digest"):
            yield "the policy was changed"
        for name in _OF_PLAN:
            if now[name] != self.plan.get(name):
                yield f"{name.replace('_', ' ')} was {self.plan.get(name)} and is {now[name]}"
        if now["partition_columns"] != self.plan.get("partition_columns"):
            yield "the partition columns differ"
        before, after = _by_column(self.plan), _by_column(now)
        columns = [column for column in {**before, **after} if before.get(column) != after.get(column)]
        if columns:
            more = f" and {len(columns) - _SHOWN:,} more" if len(columns) > _SHOWN else ""
            yield f"the tags or keys of {', '.join(columns[:_SHOWN])}{more} differ"

    def _refuse(self, changed: Iterable[str]) -> None:
        reasons = "; ".join(changed)
        if reasons:
            option = f"--table {self.table}" if self.path is None else f"--path {self.path}"
            raise RunConflictError(
                f"{self.name}: what the plan of {self.made} was made from has changed: {reasons}; no further unit was "
                f"begun; make the plan anew with `sparkcrypt plan {option} --out FILE`, look at it, and apply that"
            )


def _by_column(plan: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Return column -> what decides how it is written.

    Where tags come from does not: the run itself puts those of the policy's rule into the table's properties.
    """
    return {
        str(column["column"]): (column["action"], column["key_id"], sorted(column["tags"]))
        for column in plan.get("columns", ())
    }


def _are(number: int) -> str:
    return "is" if number == 1 else "are"

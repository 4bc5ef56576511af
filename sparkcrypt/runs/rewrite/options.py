"""The options of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypedDict

from sparkcrypt.errors import ConfigError
from sparkcrypt.plan import EncryptionPlan
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.rewrite.run_report import Report
from sparkcrypt.runs.rewrite.saved_plan import SavedPlan
from sparkcrypt.runs.table.progress import Progress

Engine = Literal["native", "spark"]
ENGINES: tuple[Engine, ...] = ("native", "spark")


class RunKeywords(TypedDict, total=False):
    """The fields of `RunOptions` by name, for functions that take single options as keyword arguments."""

    engine: Engine
    where: str | None
    output: str | None
    exclusive: bool
    dry_run: bool
    adopt: bool
    allow_decrypt: bool
    resume: str
    move_old: bool
    keep_going: bool
    parallelism: int
    rewrap: bool
    rotate_key: str | None
    rotate_to: int | None
    rotate_from: str | None
    purge: bool
    home: bool
    plan: SavedPlan | None
    progress: Progress | None
    on_plan: Callable[[EncryptionPlan], None]
    on_failure: Callable[[Report], None]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of a run.

    Attributes:
        engine: ``native``, which rewrites files page by page, or ``spark``, which reads and writes rows.
        where: a predicate over partition columns.
        output: for a bare folder: the folder for the encrypted copy.
        exclusive: for a bare folder: rename it; the operator states that nothing reads or writes it.
        dry_run: report what would be done, and change nothing.
        adopt: also rewrite files that readers refuse because the table requires encryption.
        allow_decrypt: also rewrite files of which a column would be decrypted, since its tags were taken off or mean
            plaintext now; an unfinished run is continued with the consent of the command that continues it.
        resume: ``auto`` (continue an unfinished run), a run id, or ``never``.
        move_old: move old files out of the table's folder after the swap; readers in flight fail, and no command
            brings the files back.
        keep_going: quarantine a unit that fails, and continue with the others; otherwise its error ends the run.
        parallelism: how many batches of units are processed concurrently; with two or more, units are staged while
            others are swapped.
        rewrap: if only master keys differ, rewrap the data keys and leave the data unchanged; anyone who had the old
            key and kept a footer can still read the data.
        rotate_key: a master key whose rotation is the run's only purpose: see `sparkcrypt.runs.table.difference`.
            Without ``rewrap``, files under it get new data keys.
        rotate_to: the lowest version of it that may wrap.
        rotate_from: another master key, which ``rotate_key`` succeeds; None if ``rotate_key`` gets a version.
        purge: replace columns whose keys were shredded by nulls.
        home: bring the units that runs have taken away from their folders back there, whether they differ from the plan
            or not, and leave the others.
        plan: a saved plan, which is all that the run applies: it begins no unit if what the plan was made from has
            changed since.  Its predicate is the run's.
        progress: receives progress updates.
        on_plan: called with the plan before any data are read or written; an error that it raises ends the run.
        on_failure: called with the partial report before an error that ends a run with a journal is re-raised.
    """

    engine: Engine = "native"
    where: str | None = None
    output: str | None = None
    exclusive: bool = False
    dry_run: bool = False
    adopt: bool = False
    allow_decrypt: bool = False
    resume: str = "auto"
    move_old: bool = False
    keep_going: bool = False
    parallelism: int = 2
    rewrap: bool = False
    rotate_key: str | None = None
    rotate_to: int | None = None
    rotate_from: str | None = None
    purge: bool = False
    home: bool = False
    plan: SavedPlan | None = None
    progress: Progress | None = None
    on_plan: Callable[[EncryptionPlan], None] = lambda _: None
    on_failure: Callable[[Report], None] = lambda _: None

    def check(self) -> None:
        """Check that the options are valid and can be combined.

        Raises:
            ConfigError: they are not; the message names the option and what is allowed.
        """
        if self.move_old and self.output:
            raise ConfigError(
                "--move-old goes with a swap, and --output makes a copy: the source folder stays as it is, for "
                "whoever reads it; leave one of the two out"
            )
        if self.engine not in ENGINES:
            raise ConfigError(f"engine {self.engine!r} is not known; allowed: {', '.join(ENGINES)}")
        if self.rewrap and self.engine != "native":
            raise ConfigError(
                "--rewrap leaves pages as they are, and --engine spark writes them anew; leave one of the two out"
            )
        if self.purge and self.engine != "native":
            raise ConfigError(
                "--purge leaves out pages that nobody can open, and --engine spark reads every row; leave one out"
            )
        if self.home and (self.engine != "native" or self.rotate_key is not None):
            raise ConfigError(
                "--home brings files back as they are, and --engine spark and a rotation write them anew; leave one out"
            )
        if self.plan is not None and (self.purge or self.home or self.rewrap or self.rotate_key is not None):
            raise ConfigError(
                "a saved plan goes with no --purge, --home, --rewrap or rotation, which it was not made for; leave one "
                "of the two out"
            )
        if self.plan is not None and self.where not in (None, self.plan.where):
            raise ConfigError(
                f"--where {self.where!r} is not that of the saved plan, {self.plan.where!r}; leave it out: the plan's "
                "own counts"
            )
        if self.parallelism < 1:
            raise ConfigError(f"parallelism {self.parallelism} is not possible; allowed: 1 and more units at a time")

    def to_dict(self) -> dict[str, Any]:
        """Return the options that the journal records; all but the consent stay the same when the run is continued."""
        rotation = {} if self.rotate_key is None else {"rotate_key": self.rotate_key, "rotate_to": self.rotate_to}
        moved = {} if self.rotate_from is None else {"rotate_from": self.rotate_from}
        consent = {"allow_decrypt": True} if self.allow_decrypt else {}
        home = {"home": True} if self.home else {}
        plan = {} if self.plan is None else {"plan": self.plan.digest}
        return {
            **home,
            **plan,
            **rotation,
            **moved,
            **consent,
            "engine": self.engine,
            "where": self.where,
            "output": self.output,
            "exclusive": self.exclusive,
            "move_old": self.move_old,
            "rewrap": self.rewrap,
            "purge": self.purge,
        }

    def apply_policy(self, policy: Policy, *, of_table: bool) -> RunOptions:
        """Return these options as a policy changes them: with a grace of zero, a table's old files are moved."""
        return replace(self, move_old=self.move_old or (of_table and policy.grace_seconds == 0))

    def as_begun(self, began: Mapping[str, Any]) -> RunOptions:
        """Return these options, but with those that the journal of an unfinished run has recorded."""
        return replace(
            self,
            engine=began["engine"],
            where=began["where"],
            output=began["output"],
            exclusive=began["exclusive"],
            move_old=began["move_old"],
            rewrap=began["rewrap"],
            rotate_key=began.get("rotate_key"),
            rotate_to=began.get("rotate_to"),
            rotate_from=began.get("rotate_from"),
            purge=began["purge"],
            home=began.get("home", False),
        )

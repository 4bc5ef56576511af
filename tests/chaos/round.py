"""One round: a table is made, writers, drivers and a fault are let loose on it, and what is left is judged."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.draw import Phase, draw
from tests.chaos.drivers import Drivers
from tests.chaos.faults import Fault
from tests.chaos.judge import Judge
from tests.chaos.model import Wrong
from tests.chaos.readers import Readers
from tests.chaos.site import Site
from tests.chaos.world import World
from tests.chaos.writers import Writers

_PHASE_SECONDS = 180.0


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a round.

    Attributes:
        seed: which repeats it.
        kind: of table.
        fault: that came.
        wrong: what was wrong; nothing where it held.
        reported: partitions whose rows the tool itself said to be in question, and why it refused to go on.
        uses: how often each thing was done.
        seconds: how long it took.
        account: plan, log and crashes.
    """

    seed: int
    kind: str
    fault: str
    wrong: Sequence[Wrong]
    reported: Sequence[str]
    uses: dict[str, int]
    seconds: float
    account: dict[str, Any] = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values; the account only where rows were wrong, or in question."""
        return {
            "seed": self.seed,
            "kind": self.kind,
            "fault": self.fault,
            "wrong": [finding.to_dict() for finding in self.wrong],
            "reported": list(self.reported),
            "seconds": round(self.seconds, 1),
            **({"account": self.account} if self.wrong or self.reported else {}),
        }


def play(world: World, seed: int, faults: Sequence[str], keep: Path | None = None) -> Result:
    """Play the round of a seed.

    Args:
        world: in which.
        seed: of the round.
        faults: those that this machine can have.
        keep: where the folder of a wrong round is copied to, with its account.
    """
    began = time.monotonic()
    plan = draw(seed, faults)
    site = Site(world, plan, world.folder / f"round-{seed}")
    judge = None
    try:
        site.prepare()
        fault = Fault(site)
        site.model.settle()
        readers = Readers(site)
        for number, phase in enumerate(plan.phases):
            if number:
                fault.between()
            _run(site, phase, readers, fault if number == 0 else None)
        fault.at_end()
        driver = world.drivers.take()
        judge = Judge(site, driver)
        wrong = [*readers.wrong, *judge.judge()]
        world.drivers.give_back(driver)
        wrong += [Wrong("unexpected error", None, (crash,)) for crash in site.crashes]
        if wrong and keep is not None:
            shutil.copytree(site.folder, keep / f"round-{seed}", dirs_exist_ok=True)
            account = {"wrong": [finding.to_dict() for finding in wrong], **site.describe()}
            (keep / f"round-{seed}.json").write_text(json.dumps(account, indent=1, default=str))
    finally:
        world.allow()
        world.unseal()
        world.renew_writer()
        site.remove()
        shutil.rmtree(site.folder, ignore_errors=True)
    reported = [*sorted(map(str, judge.reported)), *filter(None, [judge.refused])]
    return Result(seed, plan.kind, plan.fault, wrong, reported, site.uses, time.monotonic() - began, site.describe())


def _run(site: Site, phase: Phase, readers: Readers, fault: Fault | None) -> None:
    """Run a phase; readers and the fault come to the first alone."""
    writers = Writers(site, phase.lanes)
    drivers = Drivers(site, phase.drivers)
    threads = [*writers.threads, *drivers.threads, *([fault.during(drivers)] if fault else [])]
    reading = readers.threads if fault else []
    for thread in [*threads, *reading]:
        thread.start()
    for thread in [*threads, *reading]:
        if thread in reading:
            readers.end()
        thread.join(_PHASE_SECONDS)
        if thread.is_alive():
            raise TimeoutError(f"round {site.plan.seed}: a writer, driver or fault did not end: {site.log[-3:]}")

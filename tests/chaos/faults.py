"""Faults: each comes some time after a phase began, lasts for a while, and is over before the round is judged."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sparkcrypt.keys.access_decisions import REFUSAL_SECONDS
from tests.chaos.draw import FAULTS, QUIET
from tests.chaos.drivers import Drivers
from tests.chaos.site import Site
from tests.chaos.world import World

_PAUSE_SECONDS = 5.0
_CHUNK = b"\0" * 65536


def available(world: World) -> list[str]:
    """Return the faults that this machine can have."""
    folder = world.folder / "mountable"
    folder.mkdir(exist_ok=True)
    mounted = not subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], check=False, capture_output=True
    ).returncode
    if mounted:
        subprocess.run(["umount", folder], check=True)
    without = set() if mounted else {"state full", "table full", "state read-only"}
    return [fault for fault in FAULTS if fault not in without]


class Fault:
    """The fault of one round.

    Args:
        site: of the round.
    """

    def __init__(self, site: Site) -> None:
        self._site, self._copy = site, site.folder / "copy"
        self._at_once: dict[str, tuple[Callable[[], None], Callable[[], None]]] = {
            "state full": (lambda: self._fill("states"), lambda: self._empty("states")),
            "table full": (lambda: self._fill("tables"), lambda: self._empty("tables")),
            "state read-only": (lambda: self._remount("ro"), lambda: self._remount("rw")),
            "metastore killed": (site.world.kill_metastore, site.world.start_metastore_again),
            "Vault sealed": (site.world.seal, site.world.unseal),
            "key denied": (lambda: site.world.deny(("pii", "fin", "footer")[site.plan.amount % 3]), self._allow),
        }

    def during(self, drivers: Drivers) -> threading.Thread:
        """Return the thread that brings the fault to a phase, and ends it."""
        return threading.Thread(target=self._come, args=(drivers,), daemon=True)

    def between(self) -> None:
        """Do what is done between two phases, while all is quiet."""
        site, name = self._site, self._site.plan.fault
        if name == "state restored" and self._copy.exists():
            shutil.rmtree(site.state)
            self._copy.rename(site.state)
        elif name == "state cut":
            site.note(f"fault: {name}", records=self._cut())
            return
        elif name == "metastore restored":
            site.world.metastore.stop()
            shutil.copytree(site.world.metastore_database, self._copy)
            site.world.start_metastore_again()
        else:
            return
        site.note(f"fault: {name}")

    def at_end(self) -> None:
        """Do what is done once both phases are over."""
        site = self._site
        if site.plan.fault == "metastore restored":
            site.world.metastore.stop()
            shutil.rmtree(site.world.metastore_database)
            self._copy.rename(site.world.metastore_database)
            site.world.start_metastore_again()
            site.note("fault: metastore restored to its copy")

    def _come(self, drivers: Drivers) -> None:
        plan, site = self._site.plan, self._site
        time.sleep(plan.fault_after)
        if plan.fault in self._at_once:
            begin, end = self._at_once[plan.fault]
            site.note(f"fault: {plan.fault}")
            try:
                begin()
                time.sleep(plan.fault_seconds)
            finally:
                end()
            site.note("the fault is over")
        elif plan.fault == "driver paused":
            self._pause(drivers)
        elif plan.fault == "token revoked":
            for worker in drivers.at_work[:1]:
                site.unfit.add(worker.name)
                site.world.revoke(worker)
                site.note("fault: token revoked", driver=worker.name)
        elif plan.fault == "state restored":
            with suppress(shutil.Error, FileNotFoundError):  # as of any copy made while files come and go
                shutil.copytree(site.state, self._copy)

    def _allow(self) -> None:
        """Allow the key again, and wait until no process repeats a refusal."""
        self._site.world.allow()
        time.sleep(REFUSAL_SECONDS)

    def _pause(self, drivers: Drivers) -> None:
        for worker in drivers.at_work[:1]:
            worker.pause()
            self._site.note("fault: driver paused", driver=worker.name)
            time.sleep(_PAUSE_SECONDS)
            worker.wake()

    def _cut(self) -> list[str]:
        """Delete the last records of a log; return their names."""
        logs = sorted((self._site.state / "log").glob("*"), key=lambda log: log.stat().st_mtime)
        records = sorted(logs[-1].iterdir()) if logs else []
        lost = records[-self._site.plan.amount :]
        for record in lost:
            record.unlink()
        return [record.name for record in lost]

    def _fill(self, name: str) -> None:
        with suppress(OSError), (self._site.folder / name / "filler").open("wb", buffering=0) as filler:
            while filler.write(_CHUNK):
                pass

    def _empty(self, name: str) -> None:
        (self._site.folder / name / "filler").unlink(missing_ok=True)

    def _remount(self, mode: str) -> None:
        folder: Path = self._site.folder / "states"
        for _ in range(50):  # read-only only while no file is open for writing
            done = subprocess.run(["mount", "-o", f"remount,{mode}", folder], check=False, capture_output=True)
            if not done.returncode:
                return
            time.sleep(0.02)


def is_quiet(fault: str) -> bool:
    """Tell whether a fault comes between two phases."""
    return fault in QUIET

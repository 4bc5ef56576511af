"""Drivers at work: each takes its orders one after the other, and one that was killed is followed by another."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from functools import cache
from typing import Any

from tests.chaos.decisions import partition_of
from tests.chaos.draw import Order, Plan
from tests.chaos.site import Site
from tests.chaos.workers import Worker, WorkerDiedError, WorkerError

_LOCK_MAY_STAY = ("state full", "state read-only")
SHORT_LOCK_SECONDS, USUAL_LOCK_SECONDS = 3.0, 120.0


class Drivers:
    """Carries out the orders of a phase.

    Args:
        site: of the round.
        orders: for each driver.
    """

    def __init__(self, site: Site, orders: Sequence[Sequence[Order]]) -> None:
        self._site = site
        self.at_work: list[Worker] = []
        self.threads = [
            threading.Thread(target=self._driver, args=(number, own), daemon=True) for number, own in enumerate(orders)
        ]

    def _driver(self, number: int, orders: Sequence[Order]) -> None:
        for order in orders:
            time.sleep(order.after)
            worker = self._site.world.drivers.take()
            self.at_work.append(worker)
            try:
                self._carry_out(worker, order, number)
            except (WorkerDiedError, WorkerError, TimeoutError) as error:
                ending = "killed" if isinstance(error, WorkerDiedError) else f"{type(error).__name__}: {error}"
                self._site.note(order.kind, driver=worker.name, ended=ending)
            finally:
                self.at_work.remove(worker)
                self._site.world.drivers.give_back(worker, fit=worker.name not in self._site.unfit)

    def _carry_out(self, worker: Worker, order: Order, number: int) -> None:
        site = self._site
        hooks: dict[str, Any] = {
            "sleeps": order.sleeps,
            "kill": order.kill_step,
            "after": order.kill_after,
            "seconds_ahead": _ahead(site.plan) if number == 0 else 0.0,
            "lock_seconds": SHORT_LOCK_SECONDS if site.plan.fault == "driver paused" else USUAL_LOCK_SECONDS,
        }
        if order.kill_seconds:
            threading.Timer(order.kill_seconds, _kill_at_work, (worker, self.at_work)).start()
        if order.kind == "resolve":
            self._resolve(worker, hooks)
            return
        arguments = self._arguments(worker, order)
        if arguments is None:
            return
        done = site.command(worker, *arguments, **hooks)
        site.note(order.kind, driver=worker.name, code=done["code"], said=in_short(done))
        if done["code"] and site.plan.fault in _LOCK_MAY_STAY:
            site.unfit.add(worker.name)  # a command that could not release its lock ends its process, as people's do

    def _resolve(self, worker: Worker, hooks: dict[str, Any]) -> None:
        """Decide the first problem that is open, while others write: nobody knows then which rows it kept."""
        site = self._site
        status = site.command(worker, "backfill", "status", "--table", site.table)
        problems = (status["said"] or {}).get("problems", [])
        for problem in problems[:1]:
            partition = partition_of(problem["unit"])
            site.model.question(partition)
            decision = ["--keep", site.plan.keep, "--reason", "chaos"]
            done = site.command(
                worker, "backfill", "resolve", problem["problem"], "--table", site.table, *decision, **hooks
            )
            site.model.question(partition)
            site.note("resolve", driver=worker.name, code=done["code"], said=in_short(done))

    def _arguments(self, worker: Worker, order: Order) -> list[str] | None:
        table = self._site.table
        if order.kind == "expire":
            return ["backfill", "expire", "--table", table, *expire_options()]
        if order.kind.startswith("orphans"):
            more = ["--delete"] if order.kind == "orphans that are deleted" else []
            return ["backfill", "orphans", "--database", self._site.database, "--older-than", "24h", *more]
        if order.kind == "rollback":
            known = self._site.command(worker, "backfill", "list")["said"] or []
            runs = [run["run_id"] for run in known if run["state"] in ("done", "incomplete") and not run["expired"]]
            return ["backfill", "rollback", runs[-1], "--table", table] if runs else None
        options = {"pass with budget": ["--max-bytes", "1B"], "pass that moves old files": ["--move-old"]}
        return ["backfill", "--table", table, "--parallelism", str(order.parallelism), *options.get(order.kind, [])]


@cache
def expire_options() -> tuple[str, ...]:
    """Return the options with which old files expire at once, where a grace is the default."""
    from click.testing import CliRunner

    from sparkcrypt.cli.main import cli

    text = CliRunner().invoke(cli, ["backfill", "expire", "--help"]).output
    return ("--older-than", "0s") if "--older-than" in text else ()


def in_short(done: dict[str, Any]) -> str:
    """Return what a command said, for the log."""
    said = done["said"]
    if isinstance(said, dict) and said.get("kind") == "sparkcrypt backfill":
        named = [f"{unit['unit']}: {unit['message']}" for table in said["tables"] for unit in table["quarantined"]]
        failed = [f"{failure['error']}: {failure['message']}" for failure in said["failed"]]
        return "; ".join([str(said["outcome"]), *named, *failed])[:1500]
    return str(done["raised"] or said or done["err"])[:1500]


def _ahead(plan: Plan) -> float:
    """Return by how much the first driver's clock differs from that of the others."""
    return (3600.0 if plan.amount % 2 else -3600.0) if plan.fault == "clocks apart" else 0.0


def _kill_at_work(worker: Worker, at_work: list[Worker]) -> None:
    if worker in at_work:
        worker.kill()

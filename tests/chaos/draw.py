"""What a seed decides: the kind of table, who does what after how long, and which fault comes."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass, field

KINDS = {"using": 6, "hive": 2, "plain": 2, "external": 2}
"""Tables partitioned by ``p`` of Spark and of Hive, and ones without partitions: managed, and external."""
OF_PARTITION = {
    "insert": 6,
    "overwrite": 3,
    "overwrite dynamic": 4,
    "compact": 3,
    "erase": 3,
    "drop": 2,
    "drop and insert": 2,
    "truncate": 1,
    "killed insert": 1,
    "killed overwrite": 1,
}
OF_PLAIN = {
    "insert": 6,
    "overwrite": 3,
    "compact": 3,
    "erase": 3,
    "truncate": 1,
    "killed insert": 1,
    "killed overwrite": 1,
}
CROSSING = {
    "insert across a swap": 2,
    "overwrite across a swap": 4,
    "compaction across a swap": 2,
    "erasure across a swap": 3,
}
"""Writes that have begun before a pass swaps their unit, and end after it."""
OF_TABLE = {"rename": 2, "add column": 2, "save as table": 1, "retag": 3, "nothing": 2, **CROSSING}
ORDERS = {
    "pass": 8,
    "pass with budget": 3,
    "pass that moves old files": 2,
    "expire": 3,
    "rollback": 2,
    "resolve": 2,
    "orphans": 1,
    "orphans that are deleted": 1,
}
GRACES = {"24h": 3, "1s": 2}
"""How long old files stay in reach."""
FAULTS = {
    "none": 14,
    "driver paused": 3,
    "clocks apart": 2,
    "state full": 2,
    "table full": 2,
    "state read-only": 2,
    "state restored": 3,
    "state cut": 3,
    "metastore killed": 2,
    "metastore restored": 1,
    "Vault sealed": 2,
    "token revoked": 2,
    "key denied": 2,
}
QUIET = ("state restored", "state cut", "metastore restored")
"""Faults that come while nobody writes and no driver runs; more is done after them."""
_LANES, _STEPS = 2, 45


@dataclass(frozen=True, slots=True)
class Write:
    """What a writer does: after how long, for how long, where, and with which part of the rows."""

    kind: str
    partition: int | None
    after: float
    seconds: float
    part: float


@dataclass(frozen=True, slots=True)
class Order:
    """A command for a driver: after how long, slowed down before some steps, and killed at one or after some time."""

    kind: str
    after: float
    parallelism: int = 1
    sleeps: dict[str, float] = field(default_factory=dict)
    kill_step: int = 0
    kill_after: bool = False
    kill_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Phase:
    """What goes on at the same time: lanes of writes, each over partitions of its own, and drivers' orders."""

    lanes: tuple[tuple[Write, ...], ...]
    drivers: tuple[tuple[Order, ...], ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """A round.

    Attributes:
        amount: of records that are cut; chooses between kinds of a fault too.
        reads: a reader reads all the time.
        grace: of the policy, for old files.
        keep: what is tried first where a person must decide a problem.
    """

    seed: int
    kind: str
    partitions: int
    encrypted_first: bool
    fault: str
    fault_after: float
    fault_seconds: float
    amount: int
    phases: tuple[Phase, ...]
    reads: bool
    grace: str
    keep: str


def draw(seed: int, faults: Collection[str] = tuple(FAULTS)) -> Plan:
    """Return the round of a seed.

    Args:
        seed: decides everything.
        faults: those that may come; one that is drawn and may not is none.
    """
    dice = random.Random(seed)
    kind = _one(dice, KINDS)
    partitions = dice.randint(2, 4) if kind in ("using", "hive") else 0
    fault = _one(dice, FAULTS)
    phases = [_phase(dice, partitions, writes=dice.randint(2, 4), orders=2)]
    if fault in QUIET:
        later = _phase(dice, partitions, writes=dice.randint(1, 2), orders=1)
        phases.append(_only_passes(later) if fault == "metastore restored" else later)
    return Plan(
        seed=seed,
        kind=kind,
        partitions=partitions,
        encrypted_first=dice.random() < 0.4,
        fault=fault if fault in faults else "none",
        fault_after=dice.uniform(0.0, 3.0),
        fault_seconds=dice.uniform(0.5, 4.0),
        amount=dice.randint(1, 5),
        phases=tuple(phases),
        reads=dice.random() < 0.75,
        grace=_one(dice, GRACES),
        keep=dice.choice(("new", "old")),
    )


def _phase(dice: random.Random, partitions: int, writes: int, orders: int) -> Phase:
    lanes = []
    for lane in range(_LANES if partitions > 1 else 1):
        own = [partition for partition in range(partitions + 1) if partition % _LANES == lane] if partitions else [None]
        lanes.append(tuple(_write(dice, own, first=lane == 0) for _ in range(writes)))
    drivers = tuple(tuple(_order(dice) for _ in range(orders)) for _ in range(1 if dice.random() < 0.5 else 2))
    return Phase(tuple(lanes), drivers)


def _only_passes(phase: Phase) -> Phase:
    """Return a phase in which nobody writes and nothing is moved or deleted: an older metastore still finds it all."""
    drivers = tuple(tuple(Order("pass", order.after) for order in orders) for orders in phase.drivers)
    return Phase((), drivers)


def _write(dice: random.Random, own: list[int] | list[None], *, first: bool) -> Write:
    partition = dice.choice(own)
    kind = _one(dice, OF_PLAIN if partition is None else OF_PARTITION)
    if first and dice.random() < 0.35:
        kind = _one(dice, OF_TABLE)
    return Write(kind, partition, dice.uniform(0.0, 0.8), dice.choice((0.0, 0.3, 0.8, 1.5, 2.5)), dice.random())


def _order(dice: random.Random) -> Order:
    sleeps = {str(dice.randint(1, _STEPS)): round(dice.uniform(0.2, 1.2), 2) for _ in range(dice.randint(0, 5))}
    killed = dice.choice(("no", "no", "no", "no", "no", "step", "step", "time"))
    return Order(
        kind=_one(dice, ORDERS),
        after=dice.uniform(0.0, 1.5),
        parallelism=dice.choice((1, 1, 1, 2)),
        sleeps=sleeps,
        kill_step=dice.randint(1, _STEPS) if killed == "step" else 0,
        kill_after=dice.random() < 0.5,
        kill_seconds=round(dice.uniform(0.2, 3.0), 2) if killed == "time" else 0.0,
    )


def _one(dice: random.Random, weights: dict[str, int]) -> str:
    return dice.choices(list(weights), list(weights.values()))[0]

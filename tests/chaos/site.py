"""The table of one round: its folders, its policy, its name, which a writer may change, and what happened so far."""

from __future__ import annotations

import itertools
import json
import subprocess
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.draw import Plan
from tests.chaos.model import Model
from tests.chaos.workers import Worker, WorkerDiedError, WorkerError
from tests.chaos.world import POLICY, World

_SIZES = {"state full": ("states", "16m"), "table full": ("tables", "48m"), "state read-only": ("states", "16m")}
_OF_WRITERS = (".spark-staging", ".hive-staging")
_COLUMNS = "id INT, email STRING, note STRING"


@dataclass
class Site:
    """Where a round happens.

    Attributes:
        world: in which.
        plan: of the round.
        begun: kinds of writes on the table as a whole that have begun.
        folder: holds ``states/state``, ``tables/db`` and the policy; each of the first two may be a mount.
    """

    world: World
    plan: Plan
    folder: Path
    model: Model = field(default_factory=Model)
    log: list[dict[str, Any]] = field(default_factory=list)
    crashes: list[str] = field(default_factory=list)
    table: str = ""
    tagged: str = ""
    uses: dict[str, int] = field(default_factory=dict)
    unfit: set[str] = field(default_factory=set)
    begun: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Name the database after the seed and the world's clock, so that a seed can be repeated in one world."""
        self.database = f"r{self.plan.seed}_{time.monotonic_ns() % 1_000_000}"
        self.table, self.policy = f"{self.database}.t", self.folder / "policy.yaml"
        self._ids, self._mutex, self._began = itertools.count(1), threading.Lock(), time.monotonic()
        self._mounted: list[Path] = []

    @property
    def state(self) -> Path:
        """The state directory."""
        return self.folder / "states" / "state"

    def prepare(self) -> None:
        """Make folders, policy, database and table, with some rows, and tag a column."""
        for name in ("states", "tables"):
            (self.folder / name).mkdir(parents=True)
        mounted, size = _SIZES.get(self.plan.fault, ("", ""))
        if mounted:
            self._mount(self.folder / mounted, size)
        (self.folder / "gates").mkdir()
        self.policy.write_text(f"{POLICY}old_files: {{grace: {self.plan.grace}}}\n")
        writer = self.world.writer
        writer.call("configure", policy=str(self.policy))
        self.sql(f"CREATE DATABASE {self.database} LOCATION 'file:{self.folder}/tables/db'")
        self.sql(self._create())
        if self.plan.encrypted_first:
            self.tag("pii")
        for partition in range(self.plan.partitions) if self.plan.partitions else (None,):
            ids = self.new_ids(3)
            writer.call("insert", table=self.table, ids=ids, partition=partition)
            self.model.added(partition, ids, succeeded=True)
        self.tag("fin" if self.plan.encrypted_first else "pii")

    def tag(self, tag: str) -> None:
        """Give the column its tag."""
        self.world.writer.call("tag", table=self.table, tags={"email": [tag]}, policy=str(self.policy))
        self.tagged = tag

    def retag(self, tag: str) -> str | None:
        """Give the column its tag, or return why that failed."""
        try:
            self.tag(tag)
        except (WorkerError, WorkerDiedError, TimeoutError) as error:
            return f"{type(error).__name__}: {str(error)[:600]}"
        return None

    def gate(self) -> Path:
        """Return the path of a gate that is not open."""
        return self.folder / "gates" / str(self.new_ids(1)[0])

    def left_by_writers(self) -> list[Path]:
        """Return the folders of their own that writers have below tables, and that killed ones leave."""
        found = (self.folder / "tables").rglob("*")
        return [path for path in found if path.name == "_temporary" or path.name.startswith(_OF_WRITERS)]

    def sql(self, text: str) -> Any:
        """Run a statement of the writer."""
        return self.world.writer.call("sql", text=text)

    def new_ids(self, count: int) -> list[int]:
        """Return ids that no row has had."""
        with self._mutex:
            return [next(self._ids) for _ in range(count)]

    def note(self, what: str, **more: Any) -> None:
        """Write down what happened, and when."""
        with self._mutex:
            self.uses[what] = self.uses.get(what, 0) + 1
            self.log.append({"at": round(time.monotonic() - self._began, 2), "what": what, **more})

    def command(self, driver: Worker, *arguments: str, **hooks: Any) -> dict[str, Any]:
        """Run a command line in a driver; what it printed as JSON is under ``said``.

        Raises:
            WorkerDiedError: it was killed.
        """
        done: dict[str, Any] = driver.call(
            "command", arguments=[*arguments, "--policy", str(self.policy), "--json"], **hooks
        )
        try:
            done["said"] = json.loads(done["out"])
        except ValueError:
            done["said"] = {}
        if done["raised"]:
            self.crashes.append(f"{arguments[:2]}: {done['raised'][:600]}")
        return done

    def attempt(self, what: str, **arguments: Any) -> str | None:
        """Let the writer do something; return the error with which it failed, None where it succeeded."""
        try:
            self.world.writer.call(what, **arguments)
        except (WorkerError, WorkerDiedError, TimeoutError) as error:
            return f"{type(error).__name__}: {str(error)[:600]}"
        return None

    def describe(self) -> dict[str, Any]:
        """Return the schedule and what became of it."""
        return {"plan": asdict(self.plan), "log": self.log, "crashes": self.crashes}

    def remove(self) -> None:
        """Take the database, the mounts and the folder away."""
        self.attempt("sql", text=f"DROP DATABASE IF EXISTS {self.database} CASCADE")
        for folder in self._mounted:
            subprocess.run(["umount", "-l", str(folder)], check=False, capture_output=True)

    def _mount(self, folder: Path, size: str) -> None:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
        self._mounted.append(folder)

    def _create(self) -> str:
        if self.plan.kind == "using":
            return f"CREATE TABLE {self.table} ({_COLUMNS}, p INT) USING parquet PARTITIONED BY (p)"
        if self.plan.kind == "hive":
            return f"CREATE TABLE {self.table} ({_COLUMNS}) PARTITIONED BY (p INT) STORED AS PARQUET"
        at = f" LOCATION 'file:{self.folder}/tables/outside'" if self.plan.kind == "external" else ""
        return f"CREATE TABLE {self.table} ({_COLUMNS}) USING parquet{at}"

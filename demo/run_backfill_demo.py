"""A column's tag changes while people read and write the table: the history follows, though its driver is killed.

On real services of this machine: a Hive metastore, a cluster of two workers, and Vault.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from run_cluster_demo import properties
from showcase import HERE, ROOT, DemoError, Showcase, console, fresh, say

sys.path.insert(0, str(ROOT))

import hvac

from tests.services import ServiceFailedError, ServiceUnavailableError
from tests.services.cluster import start_cluster
from tests.services.installed import spark_environment
from tests.services.metastore import start_metastore
from tests.services.quick_java import quick_java
from tests.services.vault_server import start_vault

WORK = HERE / "work-backfill"
TABLE = "shop.orders"
KILLS = 3
STEPS = ("staging", "verifying", "swapping")
POLICY = """\
version: 1
key_service: {type: vault, mount_point: transit}
algorithm: AES_GCM_V1
data_key_bits: 256
footer: {key: footer, mode: encrypted}
audit: {key: audit}
untagged: plaintext
run_state: state/
tags:
  contact: {key: contact}
  card:    {key: card}
  billing: {key: billing}
"""


def main() -> int:
    """Start the services, run the demo, stop the services; return the exit code."""
    work = fresh(WORK)
    try:
        with ExitStack() as stack:
            vault = start_vault()
            stack.callback(vault.stop)
            metastore = start_metastore(work)
            stack.callback(metastore.stop)
            credentials = {"VAULT_ADDR": vault.address, "VAULT_TOKEN": vault_token(vault.address, vault.root_token)}
            cluster = start_cluster(work, env=quick_java({**credentials, "PYSPARK_PYTHON": sys.executable}))
            stack.callback(cluster.stop)
            policy = work / "policy.yaml"
            policy.write_text(POLICY)
            defaults = {**metastore.spark_conf(), **properties(cluster.master_url)}
            local = {**defaults, "spark.master": "local[1]"}
            # Two dozen sessions start one after the other.
            environment = {**credentials, **quick_java(spark_environment())}
            main_ = Backfilled(Showcase(work, policy, defaults, environment), stack)
            others = Showcase(fresh(work / "others"), policy, local, environment)
            main_.show(others)
    except (DemoError, ServiceUnavailableError, ServiceFailedError) as error:
        console.print(f"The demo failed: {error}", style="red", markup=False)
        return 1
    return 0


def vault_token(address: str, root_token: str) -> str:
    """Return a token that may use and make keys, and nothing else."""
    client = hvac.Client(url=address, token=root_token)
    rules = """path "transit/*" { capabilities = ["create", "read", "update", "list"] }"""
    client.sys.create_or_update_policy("engineer", rules)
    return str(client.auth.token.create(policies=["engineer"], ttl="1h")["auth"]["client_token"])


class Backfilled:
    """The steps of the demo."""

    def __init__(self, site: Showcase, stack: ExitStack) -> None:
        self._site, self._stack, self._policy = site, stack, str(site.policy)
        self._stop, self._logs = site.work / "stop", site.work
        self._loops: list[subprocess.Popen[bytes]] = []

    def show(self, others: Showcase) -> None:
        """Run every step and print what happens.

        Raises:
            DemoError: a step failed, or did not show what it must.
        """
        started = time.monotonic()
        self._site.prepare()
        others.prepare()
        say("1", "a Hive table of 96,000 orders in 24 partitions, encrypted by tag as it was written")
        for key in ("footer", "audit", "contact", "card", "billing"):
            self._site.cli("keys", "create", key, "--policy", self._policy)
        before = json.loads(self._step("make", self._policy))
        say("2", "its column email gets another tag, while one session reads in a loop and another appends")
        self._site.cli("tags", "set", TABLE, "email", "billing", "--policy", self._policy)
        planned = self._planned()
        console.print(
            f"   drift: {planned['files_left']} files of {planned['files_total']}: {planned['drift']['before']}"
        )
        self._start(others, "read")
        self._start(others, "append")
        say("3", f"spark-submit jobs/backfill.py, whose driver is killed {KILLS} times")
        for number in range(1, KILLS + 1):
            self._killed(number)
        report = self._finished("report", busy=True)
        say("4", "the writer stops; one more pass takes up what it wrote to the last moment, and old files expire")
        time.sleep(1)
        self._stop.touch()
        self._wait()
        self._finished("last-report")
        self._site.run(self._job("expire", "--table", TABLE, "--policy", self._policy, "--older-than", "0s"))
        left = self._planned()
        after = json.loads(self._step("digest", self._policy))
        self._conclude(before, after, left, report, time.monotonic() - started)

    def _conclude(self, before: Any, after: Any, left: dict[str, Any], report: dict[str, Any], seconds: float) -> None:
        looks = json.loads((self._logs / "read.json").read_text())
        written = json.loads((self._logs / "append.json").read_text())
        verified = json.loads(
            self._site.run(
                self._job_of("verify_table.py", "--table", TABLE, "--policy", self._policy, "--manifest", "--json")
            )
        )
        audit = json.loads(self._site.cli("audit", "verify", "--table", TABLE, "--policy", self._policy, "--json"))
        said = {
            "rows as before": after["first"] == before["first"],
            "every appended row is there once": after["late"] == written,
            "drift": left["files_left"],
            "looks of the reader": looks["looks"],
            "looks that were wrong": len(looks["wrong"]),
            "verified, and as the audit's list says": verified["verified"],
            "entries of the audit, all authentic": audit["entries"],
        }
        for name, value in said.items():
            console.print(f"   {name}: {value}")
        good = said["rows as before"] and said["every appended row is there once"] and verified["verified"]
        rewritten = report["totals"]["files_rewritten"]
        if not good or left["files_left"] or looks["wrong"] or not looks["looks"] or not written or not rewritten:
            raise DemoError(f"it did not show what it must: {said}, wrong looks: {looks['wrong'][:3]}")
        console.print(
            f"The demo passed: {len(written)} rows were appended and {looks['looks']} looks were right while "
            f"{rewritten} files were rewritten by {KILLS + 1} drivers; the report to look at "
            f"is {self._site.work / 'report.html'}; all of it took {seconds:.0f} s."
        )

    def _planned(self) -> dict[str, Any]:
        """Return what a dry run says of the table."""
        command = self._job("--table", TABLE, "--policy", self._policy, "--dry-run", "--json")
        done = subprocess.run(
            command, cwd=self._site.work, env=self._site.environment(), capture_output=True, text=True, check=False
        )
        if done.returncode not in (0, 2):
            raise DemoError(f"the dry run ended with {done.returncode}:\n{done.stdout}\n{done.stderr[-3000:]}")
        return dict(json.loads(done.stdout)["tables"][0])

    def _killed(self, number: int) -> None:
        """Start the job, and kill its driver some time after it began to stage, to verify or to swap units."""
        log = self._site.work / f"killed-{number}.log"
        with log.open("w") as stream:
            driver = subprocess.Popen(
                self._job("--table", TABLE, "--policy", self._policy),
                cwd=self._site.work,
                env=self._site.environment(),
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )
            step, delay = STEPS[(number - 1) % len(STEPS)], random.uniform(0.0, 0.2)
            while driver.poll() is None and f": {step}" not in log.read_text():
                time.sleep(0.02)
            if driver.poll() is not None:
                raise DemoError(f"driver {number} ended with {driver.returncode} by itself:\n{log.read_text()[-3000:]}")
            time.sleep(delay)
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
        console.print(f"   driver {number} was killed {delay:.1f} s after it was {step} its first units")

    def _finished(self, name: str, *, busy: bool = False) -> dict[str, Any]:
        """Run the job to its end; return its report, which is kept as JSON and as a page under that name.

        While somebody writes, a unit may be left to the next pass.
        """
        report = self._site.work / f"{name}.json"
        page = self._site.work / f"{name}.html"
        arguments = ["--table", TABLE, "--policy", self._policy, "--report", str(report), "--html", str(page)]
        done = subprocess.run(
            self._job(*arguments), cwd=self._site.work, env=self._site.environment(), capture_output=True, text=True
        )
        if done.returncode not in ((0, 74) if busy else (0,)):
            raise DemoError(f"the job ended with {done.returncode}:\n{done.stdout}\n{done.stderr[-3000:]}")
        made: dict[str, Any] = json.loads(report.read_text())
        totals = made["totals"]
        amount = f"{totals['files_rewritten']} files in {totals['units']} units"
        console.print(f"   {made['outcome']}: {amount}, {made['seconds']:.1f} s; left: {totals['units_left']} units")
        return made

    def _start(self, others: Showcase, step: str) -> None:
        """Start a loop in a process of its own, which ends when the stop file is there."""
        log = self._logs / f"{step}.json"
        with (self._logs / f"{step}.log").open("w") as stream:
            process = subprocess.Popen(
                [sys.executable, str(HERE / "backfill_steps.py"), step, self._policy, str(self._stop), str(log)],
                cwd=others.work,
                env=others.environment(),
                stdout=stream,
                stderr=stream,
            )
        self._stack.callback(_end, process)
        self._loops.append(process)
        while not log.exists():
            if process.poll() is not None:
                raise DemoError(f"{step} ended: {(self._logs / f'{step}.log').read_text()[-2000:]}")
            time.sleep(0.2)

    def _wait(self) -> None:
        for process in self._loops:
            process.wait(120)

    def _step(self, *arguments: str) -> str:
        printed = self._site.run([sys.executable, str(HERE / "backfill_steps.py"), *arguments])
        return printed.strip().splitlines()[-1] if printed.strip() else ""

    def _job(self, *arguments: str) -> list[str]:
        return self._job_of("backfill.py", *arguments)

    def _job_of(self, name: str, *arguments: str) -> list[str]:
        submit = str(Path(sys.executable).parent / "spark-submit")
        return [submit, str(ROOT / "jobs" / name), *arguments]


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
        process.wait()


if __name__ == "__main__":
    sys.exit(main())

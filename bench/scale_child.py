"""One measurement of `bench.scale`, in a separate process, which prints seconds and memory as JSON."""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from sparkcrypt.ledger.state.store import LocalStateStore
from sparkcrypt.ledger.unit import Unit, list_unit
from sparkcrypt.policy.load import policy_from_text
from sparkcrypt.runs.table.cache import FooterCache
from sparkcrypt.runs.table.scan import scan_target
from sparkcrypt.runs.table.unit_survey import survey_unit
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.tables.planning import plan_path

POLICY = """
version: 1
key_service: {type: local, path: keys/}
algorithm: AES_GCM_V1
data_key_bits: 128
footer: {key: footer, mode: encrypted}
untagged: plaintext
run_state: state/
tags: {pii: {key: pii}}
tables: {bench.t: {tags: {c0: [pii]}}}
"""


class Folder:
    """A folder of partitions, as a target of a scan."""

    uuid, format = None, "parquet"

    def __init__(self, root: Path, plan: Any, share: float) -> None:
        """Select this share of the partitions, from the first."""
        found = sorted(root.iterdir(), key=lambda folder: int(folder.name.partition("=")[2]))
        self.plan = plan
        self._units = tuple(
            Unit(folder.name, f"file:{folder}", None, folder.name, {"p": folder.name.partition("=")[2]})
            for folder in found[: max(1, int(len(found) * share))]
        )

    def units(self, where: str | None) -> tuple[Unit, ...]:
        """Return the partitions."""
        return self._units


def main(what: str, root: Path) -> None:
    """Measure one thing and print it."""
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    with tempfile.TemporaryDirectory() as folder:
        policy = policy_from_text(POLICY, where="bench", base=folder)
        fields = [{"name": f"c{n}", "type": "long", "nullable": True, "metadata": {}} for n in range(10)]
        plan = plan_path(json.dumps({"type": "struct", "fields": fields}), policy, table="bench.t")
        measured = {"list": listing, "scan": scanning}[what](spark, policy, plan, root, Path(folder))
    print(json.dumps(measured))
    spark.stop()


def listing(spark: SparkSession, policy: Any, plan: Any, root: Path, folder: Path) -> dict[str, float]:
    """List every partition, and keep nothing."""
    files = HadoopFiles(spark)

    def listed(share: float) -> None:
        for unit in Folder(root / "listed", plan, share).units(None):
            list_unit(files, unit)

    return {**grown(lambda: listed(0.1), lambda: listed(1.0))}


def scanning(spark: SparkSession, policy: Any, plan: Any, root: Path, folder: Path) -> dict[str, float]:
    """Compare every footer with the plan, and keep the results like a run; then repeat it from the cache."""
    kept: list[Any] = []

    def scanned(share: float, cache: FooterCache | None) -> None:
        target = Folder(root / "scanned", plan, share)
        for scanned_unit in scan_target(spark, target, policy.key_service, cache=cache):  # type: ignore[arg-type]
            kept.append(survey_unit(scanned_unit, plan))
        if not all(survey.drift for survey in kept):
            raise SystemExit("nothing drifts, so nothing was compared")

    cache = FooterCache(LocalStateStore(folder / "state"), "bench")
    figures = grown(lambda: scanned(0.1, None), lambda: scanned(1.0, cache))
    began = time.perf_counter()
    scanned(1.0, cache)
    return {"cold": figures["seconds"], "warm": time.perf_counter() - began, "grown": figures["grown"]}


def grown(tenth: Callable[[], None], whole: Callable[[], None]) -> dict[str, float]:
    """Return the seconds of the whole, and the memory in MB that it took beyond a tenth of the work."""
    tenth()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    whole()
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "grown": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024}


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

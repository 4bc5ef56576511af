"""Native encryption of existing ORC files beside Spark, a lookup of one row, and a reader's key service calls."""

from __future__ import annotations

import json
import multiprocessing
import statistics
import sys
from pathlib import Path

import pyarrow  # noqa: F401 - before the clock starts, as the rounds of Spark's in which its JVM warms up do not count

from bench.harness import Cost, Report, forked, in_memory, process, with_target
from sparkcrypt.decide.identity import FileIdentity
from sparkcrypt.files.orders import EncryptionOrder, FileOrder, KeySettings
from sparkcrypt.files.rewrite import rewrite
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.opened import KEY_LOG
from sparkcrypt.policy.load import load_policy

CODECS = ("zlib", "zstd", "snappy")
ROWS, FILES = 4_800_000, 2
ROUNDS, WARM_UP = 5, 2
SPARK_ROUNDS = WARM_UP + ROUNDS
SMALL_FILES = 200
KEYS = {"l0": "pii", "l1": "pii", "d0": "pii", "d1": "pii", "s0": "fin", "s1": "fin"}
"""Column -> its tag, which is also the name of its master key."""
LEAST_RATIO = 10
"""The bar: so many times less time than Spark's read and encrypted write."""
MOST_DECRYPTED = 0.1
"""The bar: the decrypted part of a column if the filter leaves one row group."""
POLICY = """
version: 1
key_service: {{type: local, path: keys}}
data_key_bits: 128
formats: [parquet, orc]
footer: {{key: footer}}
audit: {{key: audit}}
untagged: plaintext
run_state: state
tags: {{pii: {{key: pii}}, fin: {{key: fin}}}}
tables:
  small: {{location: '{small}', tags: {{l0: pii, s0: fin}}}}
"""


def run() -> Report:
    """Measure all contenders on the same files in memory, codec by codec, and count the calls of readers."""
    report = Report("orc", f"encrypt {len(KEYS)} of 11 columns of {ROWS:,} rows, ORC files in memory")
    report.facts = {"warm-up rounds of Spark": WARM_UP, "files": FILES, "small files": SMALL_FILES}
    with in_memory() as folder:
        (folder / "policy.yaml").write_text(POLICY.format(small=(folder / "small").as_uri()))
        service = open_key_service(load_policy(folder / "policy.yaml").key_service)
        for key in ("footer", "audit", *KEYS.values()):
            service.create(key)
        for codec in CODECS:
            _measure(report, folder, codec)
        _add_calls(report, folder)
    return report


def _measure(report: Report, folder: Path, codec: str) -> None:
    table = folder / codec
    _child(folder, "make", codec, str(ROWS), str(FILES))
    files = sorted(table.glob("part-*.orc"))
    megabytes = sum(file.stat().st_size for file in files) / 1e6
    report.facts[codec] = {"megabytes": round(megabytes)}
    alone, together = [], []
    for _ in range(ROUNDS):  # each in a new process, which has opened no key before
        alone.append(with_target(folder, lambda target: forked(lambda: _encrypt(folder, files, target))))
        together.append(with_target(folder, lambda target: forked(lambda: _encrypt_by_two(folder, files, target))))
    rounds = _child(folder, "encrypt", codec)[WARM_UP:]
    spark = [Cost(float(wall), float(cpu), float("nan")) for wall, cpu in rounds]
    for name, costs in (("Spark, two cores", spark), ("ours with its proof, one process", alone)):
        report.add(f"{codec}: {name}", "s", [cost.wall for cost in costs])
        report.add(f"{codec}: {name}, CPU", "s", [cost.cpu for cost in costs])
    report.add(f"{codec}: ours, two processes", "s", [cost.wall for cost in together])
    report.add(f"{codec}: ours, speed of one core", "MB/s", [megabytes / cost.cpu for cost in alone])
    wall, cpu = (statistics.median(figures) for figures in zip(*((c.wall, c.cpu) for c in alone), strict=True))
    report.at_least(f"{codec}: Spark's time by ours", "x", [cost.wall / wall for cost in spark], LEAST_RATIO)
    report.add(f"{codec}: Spark's CPU by ours", "x", [cost.cpu / cpu for cost in spark])
    both = statistics.median(cost.wall for cost in together)
    report.add(f"{codec}: Spark's time by ours of two processes", "x", [cost.wall / both for cost in spark])
    report.add(f"{codec}: our peak memory", "MB", [cost.peak for cost in alone])
    _add_lookups(report, folder, codec, files)


def _add_lookups(report: Report, folder: Path, codec: str, files: list[Path]) -> None:
    """Count the decrypted bytes of a column, in lookups of rows in one natively encrypted file."""

    def look_up(target: Path) -> Cost:
        _encrypt(folder, files[:1], target)
        command = [sys.executable, "-m", "bench.orc_lookup", str(folder), str(files[0]), str(target / files[0].name)]
        cost, printed = process([*command, str(ROUNDS)])
        found = [line.split("|") for line in printed.splitlines()]
        for column in dict.fromkeys(line[0] for line in found):
            shares = [float(line[1]) for line in found if line[0] == column]
            report.at_most(f"{codec}: {column}, decrypted by a lookup", "of all", shares, MOST_DECRYPTED)
        return cost

    with_target(folder, look_up)


def _add_calls(report: Report, folder: Path) -> None:
    """Encrypt many small files in a run, and count each reader JVM's calls of the key service."""
    _child(folder, "make-small", str(SMALL_FILES))
    log, masters = folder / "calls.log", set(KEYS.values())
    calls = []
    for _ in range(ROUNDS):
        log.write_text("")
        _child(folder, "read-small", str(SMALL_FILES), env={KEY_LOG: str(log)})
        asked = [json.loads(line)["key_id"] for line in log.read_text().splitlines()]
        calls.append(sum(key_id in masters for key_id in asked))
    report.at_most(f"{SMALL_FILES} files, {len(masters)} keys: calls of a reader's JVM", "calls", calls, len(masters))


def _encrypt_by_two(folder: Path, files: list[Path], target: Path) -> None:
    """Encrypt like a run on two cores, each file in one of two processes."""
    fork = multiprocessing.get_context("fork")
    workers = [fork.Process(target=_encrypt, args=(folder, files[number::2], target)) for number in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if any(worker.exitcode for worker in workers):
        raise SystemExit("a process failed, so the figure would mean nothing")


def _encrypt(folder: Path, files: list[Path], target: Path) -> None:
    """Encrypt and prove files like a task of a run.

    Raises:
        SystemExit: one of them failed.
    """
    policy = load_policy(folder / "policy.yaml")
    keys = KeySettings(policy.key_service.canonical(), policy.data_key_bits)
    for file in files:
        bound = FileIdentity(None, "", file.name).to_aad_prefix()
        encryption = EncryptionOrder({(name,): key for name, key in KEYS.items()}, bound)
        outcome = rewrite(FileOrder(str(file), str(target / file.name), "encrypt", encryption, format="orc"), keys, {})
        if outcome.error or outcome.refused:
            raise SystemExit(f"{outcome.error or outcome.refused}, so the figure would mean nothing")


def _child(folder: Path, *what: str, env: dict[str, str] | None = None) -> list[list[str]]:
    """Run a step in a Spark process, and return the words of each line of figures that it prints."""
    told = {"PYSPARK_PYTHON": sys.executable, **(env or {})}
    printed = process([sys.executable, "-m", "bench.orc_child", str(folder), *what], env=told)[1]
    return [line.split()[1:] for line in printed.splitlines() if line.startswith("figures ")]

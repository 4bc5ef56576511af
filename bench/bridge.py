"""The time of the helper's first call in a JVM, of later ones, and of a key service."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from bench.harness import Report, process
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.spark.jvm.jar import jar_path

SOURCE = Path(__file__).parent / "java" / "io" / "sparkcrypt" / "BridgeCalls.java"
JVMS = 9
CALLS = 400


def run() -> Report:
    """Start new JVMs, one after another, each with its own helper."""
    import pyspark

    report = Report("bridge", "helper of a JVM, local key service")
    classpath = f"{jar_path()}:{Path(pyspark.__file__).parent}/jars/*"
    with tempfile.TemporaryDirectory() as folder:
        config = KeyServiceConfig.from_dict({"type": "local", "path": f"{folder}/keys"})
        open_key_service(config).create("bench")
        subprocess.run(["javac", "-cp", classpath, "-d", folder, str(SOURCE)], check=True)
        command = ["java", "-cp", f"{folder}:{classpath}", "io.sparkcrypt.BridgeCalls"]
        first, later = [], []
        for _ in range(JVMS):
            _, printed = process([*command, config.canonical(), "bench", str(CALLS)])
            figures = [int(line) / 1000 for line in printed.split()]
            first.append(figures[0])
            later.extend(figures[CALLS // 2 :])  # the JVM has warmed up
    report.at_most("first call", "ms", first, 300)
    report.at_most("later calls", "ms", later, 1)
    return report

"""The commands of the README's tutorial, run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from tests.services.installed import ROOT


def blocks() -> list[tuple[str, str]]:
    """Return the code blocks of the tutorial: language and text."""
    text = (ROOT / "README.md").read_text()
    tutorial = text[text.index("## Tutorial") : text.index("## Where to read on")]
    return re.findall(r"^```(\w+)\n(.*?)^```", tutorial, re.MULTILINE | re.DOTALL)


def run_tutorial(tmp_path: Path, python: Path, environment: dict[str, str]) -> None:
    """Run every command of the tutorial in an empty folder, and see that its table is encrypted.

    Args:
        tmp_path: the folder.
        python: the interpreter of an environment in which sparkcrypt is installed.
        environment: what the commands find, less PATH to that interpreter's programs.
    """
    (tmp_path / "jobs").symlink_to(ROOT / "jobs")
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(
        "spark.master local[2]\nspark.ui.enabled false\nspark.sql.shuffle.partitions 2\n"
        f"spark.sql.warehouse.dir {tmp_path}/warehouse\n"
        f"spark.hadoop.javax.jdo.option.ConnectionURL jdbc:derby:{tmp_path}/metastore;create=true\n"
    )
    path = f"{python.parent}{os.pathsep}{environment['PATH']}"
    environment = {**environment, "PATH": path, "SPARK_CONF_DIR": str(conf)}
    steps = blocks()
    assert [language for language, _ in steps] == ["yaml", "sh", "sh", "sh", "python"]
    for language, text in steps:
        if language == "yaml":
            (tmp_path / "policy.yaml").write_text(text)
            continue
        command = ["bash", "-euo", "pipefail", "-c", text] if language == "sh" else [str(python), "-c", text]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr[-4000:]}"
    files = [file for file in (tmp_path / "warehouse" / "customers").rglob("part-*") if not file.name.endswith(".crc")]
    assert files
    assert not [file for file in files if b"ann@example.org" in file.read_bytes()]

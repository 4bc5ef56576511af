"""The package as users get it: an sdist, a wheel that pip builds from it, installed where nothing else is."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.conftest import require_service
from tests.services.installed import ROOT

SECONDS = 600
UNREACHABLE = re.compile(r"NewConnectionError|ConnectTimeout|ReadTimeout|NameResolutionError|Max retries exceeded")
SDIST = "import sys; from setuptools import build_meta; print(build_meta.build_sdist(sys.argv[1]))"


def clean(environment: dict[str, str]) -> dict[str, str]:
    """Return an environment that leads to no other Spark, Python code or settings of this checkout."""
    ours = ("SPARK_", "PYSPARK_", "PYTHON", "SPARKCRYPT_", "VIRTUAL_ENV", "COVERAGE_", "COV_")
    return {name: value for name, value in environment.items() if not name.startswith(ours)}


def pip(python: Path | str, *arguments: str | Path, environment: dict[str, str]) -> None:
    """Run pip, which must succeed; the test is skipped where the package index cannot be reached."""
    command = [str(python), "-m", "pip", *map(str, arguments)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS, cwd=ROOT.parent
    )
    if done.returncode and UNREACHABLE.search(done.stdout + done.stderr):
        require_service("the package index cannot be reached")
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An sdist of this tree, made in a copy that has no jar, no environment and nothing that was built."""
    copy, target = tmp_path_factory.mktemp("checkout") / "sparkcrypt", tmp_path_factory.mktemp("sdist")
    unwanted = ("_jar", "__pycache__", "*.egg-info", "build", ".*", "tests", "node_modules")
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*unwanted), symlinks=True)
    (copy / "sparkcrypt" / "_jar").mkdir()
    (copy / "sparkcrypt" / "_jar" / "sparkcrypt.jar").write_bytes(b"an old jar")
    done = subprocess.run(
        [sys.executable, "-c", SDIST, str(target)], cwd=copy, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return target / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def wheel(sdist: Path, java: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that pip builds from the sdist, in an environment of pip's own making."""
    folder = tmp_path_factory.mktemp("wheel")
    pip(sys.executable, "wheel", "--no-deps", "-w", folder, sdist, environment=clean(java))
    (built,) = folder.glob("*.whl")
    return built


def test_builds_ask_for_the_spark_that_is_tested() -> None:
    """The versions of pyspark that an isolated build compiles against are those of constraints.txt."""
    asked = re.findall(r'^    "(.+)",$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    pinned = [line.replace('"', "'") for line in (ROOT / "constraints.txt").read_text().splitlines()]
    sparks = [requirement for requirement in asked if requirement.startswith("pyspark")]
    assert len(sparks) == 2
    assert set(sparks) <= set(pinned)


def test_spark_extra_brings_what_spark_asks_for() -> None:
    """The extra ``sql`` of pyspark says which pandas and pyarrow its version takes, so that is what is named."""
    configuration = configparser.ConfigParser()
    configuration.read(ROOT / "setup.cfg")
    assert "pyspark[sql]>=3.5,<5" in configuration["options.extras_require"]["spark"].split()


def test_an_sdist_has_sources_and_no_jar(sdist: Path) -> None:
    """What a wheel is built from is in it; a jar that lay about is not, since it may be older."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"setup.py", "pyproject.toml", "jars/build.py", "sparkcrypt/py.typed", "LICENSE"} <= names
    assert {"jobs/encrypt_table.py", "sparkcrypt/runs/passes/html/templates/backfill.html.j2"} <= names
    assert any(name.endswith("SchemaTagCryptoFactory.java") for name in names)
    assert not [name for name in names if name.endswith(".jar")]


def blocks() -> list[tuple[str, str]]:
    """Return the code blocks of the tutorial, and the Python of the README: language and text."""
    (python,) = re.findall(r"^```python\n.*?^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    tutorial = f"{(ROOT / 'docs' / 'tutorial.md').read_text()}\n{python}"
    return re.findall(r"^```(\w+)\n(.*?)^```", tutorial, re.MULTILINE | re.DOTALL)


def run_tutorial(tmp_path: Path, python: Path, environment: dict[str, str]) -> None:
    """Run every command of the tutorial in an empty folder, and see that its table is encrypted.

    Args:
        tmp_path: the folder.
        python: the interpreter of an environment in which sparkcrypt is installed.
        environment: what the commands find, less PATH to that interpreter's programs.
    """
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
    assert [language for language, _ in steps] == ["sh", "sh", "sh", "sh", "python", "python"]
    for language, text in steps:
        command = ["bash", "-euo", "pipefail", "-c", text] if language == "sh" else [str(python), "-c", text]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr[-4000:]}"
    files = [file for file in (tmp_path / "warehouse" / "customers").rglob("part-*") if not file.name.endswith(".crc")]
    assert files
    assert not [file for file in files if b"ann@example.org" in file.read_bytes()]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_an_installed_wheel_encrypts_a_table(wheel: Path, java: dict[str, str], tmp_path: Path) -> None:
    """A wheel that was built in isolation and installed with ``[spark]`` into a new environment runs the tutorial."""
    names = set(zipfile.ZipFile(wheel).namelist())
    jobs = {f"sparkcrypt/jobs/{job.name}" for job in (ROOT / "jobs").glob("*.py")}
    assert jobs and jobs | {"sparkcrypt/_jar/sparkcrypt.jar"} <= names
    environment = clean(java)
    home = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", home], env=environment, check=True)
    python = home / "bin" / "python"
    # With the versions that all tests run with, so that a release of somebody else's does not decide.
    pip(
        *(python, "install", "-c", ROOT / "constraints.txt", f"sparkcrypt[spark] @ {wheel.as_uri()}"),
        environment=environment,
    )
    listed = subprocess.run([python, "-m", "pip", "list"], env=environment, capture_output=True, text=True, check=True)
    assert "pytest" not in listed.stdout, "the environment is a new one"
    work = tmp_path / "work"
    work.mkdir()
    loopback = {"SPARK_LOCAL_IP": "127.0.0.1", "PATH": environment.get("PATH", os.defpath)}
    run_tutorial(work, python, {**environment, **loopback})
    activated = {**environment, **loopback, "PATH": f"{home / 'bin'}{os.pathsep}{loopback['PATH']}"}
    job = subprocess.run(
        [
            "bash",
            "-c",
            'spark-submit "$(sparkcrypt jobs)/verify_table.py" --table customers --policy policy.yaml --json',
        ],
        cwd=work,
        env={**activated, "SPARK_CONF_DIR": str(work / "conf")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert job.returncode == 0, job.stdout + job.stderr[-2000:]
    assert '"outcome": "verified"' in job.stdout
    answer = subprocess.run(
        ["sparkcrypt", "doctor", "--policy", "policy.yaml"],
        cwd=work,
        env={**activated, "SPARK_CONF_DIR": str(work / "conf")},
        executable=home / "bin" / "sparkcrypt",
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr[-2000:]

"""The jar: the same bytes from the same sources, and in it what the helper needs and nothing of Spark's side."""

from __future__ import annotations

import importlib.util
import shutil
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]


def load_build() -> ModuleType:
    """Load the build script, which lives beside the Java sources, outside every package."""
    spec: Any = importlib.util.spec_from_file_location("build_jar", ROOT / "jars" / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build = load_build()


@pytest.mark.slow
def test_builds_are_byte_reproducible(jar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the sources, of other paths and times, gives the jar's bytes: what is shipped can be checked."""
    unwanted = shutil.ignore_patterns("_jar", "__pycache__")
    for name, folder in (("SOURCES", "extension"), ("PACKAGE", "sparkcrypt")):
        shutil.copytree(getattr(build, name), tmp_path / folder, ignore=unwanted, copy_function=shutil.copyfile)
        monkeypatch.setattr(build, name, tmp_path / folder)
    build.build(build.installed_pyspark(), tmp_path / "sparkcrypt.jar")
    assert jar.read_bytes() == (tmp_path / "sparkcrypt.jar").read_bytes()


def test_jar_holds_both_halves(jar: Path) -> None:
    """Java classes, the starter, and the package with the helper are in it; Spark's side and command line are not."""
    names = zipfile.ZipFile(jar).namelist()
    assert {"__main__.py", "io/sparkcrypt/SchemaTagCryptoFactory.class", "sparkcrypt/bridge/server.py"} <= set(names)
    assert not {name.split("/")[1] for name in names if "/" in name} & {"spark", "cli", "backfill", "airflow", "_jar"}
    assert len(names) == len(set(names))


def test_missing_compiler_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a Java compiler the build says what to install and leaves no jar."""
    with pytest.raises(SystemExit, match="69"):
        build.build(build.installed_pyspark(), tmp_path / "sparkcrypt.jar", javac="no-such-javac")
    assert "JDK 17" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_folder_without_jars_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder that is not a pyspark is named."""
    with pytest.raises(SystemExit, match="69"):
        build.build(tmp_path, tmp_path / "sparkcrypt.jar")
    assert str(tmp_path) in capsys.readouterr().err

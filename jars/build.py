"""Build of sparkcrypt/_jar/sparkcrypt.jar: Java classes compiled against the installed pyspark, and Python modules.

The same sources, compiler and pyspark give the same bytes: entries are sorted and carry one fixed time.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "jars" / "extension"
PACKAGE = ROOT / "sparkcrypt"
TARGET = PACKAGE / "_jar" / "sparkcrypt.jar"
LEFT_OUT = frozenset({"spark", "cli", "runs", "ledger", "airflow", "_jar", "__pycache__"})
FIXED_TIME = (1980, 1, 1, 0, 0, 0)
REGULAR_FILE = 0o100644 << 16
MANIFEST = b"Manifest-Version: 1.0\r\nCreated-By: sparkcrypt\r\n\r\n"
ORC_KEYS = ("META-INF/services/org.apache.orc.impl.KeyProvider$Factory", b"io.sparkcrypt.OrcKeyProviderFactory\n")
MAIN = b"from sparkcrypt.bridge.server import main\n\nmain()\n"


def main() -> None:
    """Build the jar from the command line's arguments; exit with 69 if pyspark or javac is missing."""
    parser = argparse.ArgumentParser(description="Build the sparkcrypt jar.")
    parser.add_argument("--pyspark-home", type=Path, help="folder of pyspark, with jars/ (default: the installed one)")
    parser.add_argument("--javac", default="javac", help="Java compiler, 17 or later")
    parser.add_argument("--output", type=Path, default=TARGET)
    arguments = parser.parse_args()
    build(arguments.pyspark_home or installed_pyspark(), arguments.output, javac=arguments.javac)
    print(f"built {arguments.output}: {arguments.output.stat().st_size:,} bytes", file=sys.stderr)


def build(pyspark_home: Path, target: Path, *, javac: str = "javac") -> None:
    """Compile the classes, pack the jar, and move it to its target atomically.

    Args:
        pyspark_home: a folder that contains ``jars/``.
        target: the jar's path.
        javac: the compiler's name or path.
    """
    compiler = shutil.which(javac)
    if compiler is None:
        _stop(f"there is no {javac}; install a JDK 17 or later (Debian: apt-get install openjdk-17-jdk-headless)")
    if not any((pyspark_home / "jars").glob("spark-sql_*.jar")):
        _stop(f"{pyspark_home} holds no jars/spark-sql_*.jar; give the folder of a pyspark 4.x by --pyspark-home")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        classes, packed = Path(folder, "classes"), Path(folder, "jar")
        compile_java(compiler, pyspark_home / "jars", classes)
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for name, body in sorted(entries(classes)):  # META-INF/ comes first, as jar tools expect
                information = zipfile.ZipInfo(name, FIXED_TIME)
                information.external_attr, information.compress_type = REGULAR_FILE, zipfile.ZIP_DEFLATED
                archive.writestr(information, body)
        packed.replace(target)


def compile_java(compiler: str, jars: Path, classes: Path) -> None:
    """Compile every source for Java 17, with warnings as errors."""
    sources = sorted(str(path) for path in SOURCES.rglob("*.java"))
    warnings = ["-Xlint:all,-classfile,-path,-processing", "-Werror"]
    options = ["--release", "17", "-encoding", "UTF-8", "-proc:none", *warnings]
    command = [compiler, *options, "-cp", f"{jars}/*", "-d", str(classes), *sources]
    finished = subprocess.run(command, check=False)
    if finished.returncode:
        _stop(f"javac ended with {finished.returncode}; what it said is above")


def entries(classes: Path) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each entry: manifest, the helper's main, Java classes, the helper's modules."""
    yield "META-INF/MANIFEST.MF", MANIFEST
    yield "__main__.py", MAIN
    yield ORC_KEYS
    for path in classes.rglob("*.class"):
        yield path.relative_to(classes).as_posix(), path.read_bytes()
    for path in PACKAGE.rglob("*.py"):
        inside = path.relative_to(PACKAGE)
        if not LEFT_OUT.intersection(inside.parts):
            yield f"sparkcrypt/{inside.as_posix()}", path.read_bytes()


def installed_pyspark() -> Path:
    """Return the folder of the pyspark that this interpreter would import, without importing it."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        _stop("pyspark is not installed here; install sparkcrypt[spark], or give its folder by --pyspark-home")
    return Path(found.origin).parent


def _stop(message: str) -> NoReturn:
    print(f"jars/build.py: {message}", file=sys.stderr)
    raise SystemExit(69)


if __name__ == "__main__":
    main()

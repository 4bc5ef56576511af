"""Names of the properties that the jar and the package read, found in their sources."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from sparkcrypt import names

ROOT = Path(__file__).parents[2]
_PROPERTY = re.compile(r"(parquet|orc|sparkcrypt|spark)(\.[A-Za-z0-9_<>-]+)+\.?")
_CONSTANT = re.compile(r"(\w+)\s*=\s*((?:[\w.]+|\"[^\"]*\")(?:\s*\+\s*(?:[\w.]+|\"[^\"]*\"))*)\s*[;,]")
_TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"')


def find_names() -> frozenset[str]:
    """Return every text in the sources that has the form of a property's name; prefixes end with a dot."""
    declared = {str(value) for name, value in vars(names).items() if not name.startswith("__")}
    found = {name for name in {*_find_in_java(), *_find_in_python(), *declared} if _PROPERTY.fullmatch(name)}
    return frozenset(name for name in found if name in declared or not _is_code(name))


def _is_code(name: str) -> bool:
    """Return whether a name is that of a module of the package, or of a class."""
    path = ROOT / name.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").is_file() or name.rpartition(".")[2][:1].isupper()


def _find_in_java() -> Iterator[str]:
    sources = [path.read_text() for path in sorted((ROOT / "jars").rglob("*.java"))]
    constants: dict[str, str] = {}
    for source in sources:
        for constant, value in _CONSTANT.findall(source):
            parts = [part.strip() for part in value.split("+")]
            texts = [part[1:-1] if part.startswith('"') else constants.get(part.rpartition(".")[2]) for part in parts]
            if None not in texts:
                constants[constant] = "".join(map(str, texts))
                yield constants[constant]
        yield from _TEXT.findall(source)
        for constant, text in re.findall(r"\b([A-Z_]*PREFIX|HADOOP)\s*\+\s*\"([^\"]*)\"", source):
            yield constants.get(constant, "") + text


def _find_in_python() -> Iterator[str]:
    for path in sorted((ROOT / "sparkcrypt").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value

"""Measure the size and shape of the code, in figures that a reader feels: ``python tools/measure_house.py [ROOT]``.

Another checkout may be given as ROOT, so that two commits can be compared by one script.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click

PACKAGE = "sparkcrypt"
MOST_PARAMETERS = 6
SMALL_MODULE = 80
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def read_modules(folder: Path) -> dict[Path, ast.Module]:
    """Return the syntax tree of each Python file below a folder."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.py"))}


def count_lines(folder: Path, suffix: str) -> int:
    """Return the number of lines of the files with a suffix below a folder."""
    return sum(path.read_text(encoding="utf-8").count("\n") for path in folder.rglob(f"*{suffix}"))


def count_statements(trees: dict[Path, ast.Module]) -> int:
    """Return the number of statements, docstrings left out, which neither dense lines nor comments change."""
    return sum(isinstance(node, ast.stmt) and not _is_text(node) for tree in trees.values() for node in ast.walk(tree))


def find_long_signatures(trees: dict[Path, ast.Module]) -> Iterator[tuple[Path, str, int]]:
    """Yield each function with more than six parameters, except ``self``: its file, name and number of parameters."""
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                names = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
                number = len([name for name in names if name not in ("self", "cls")])
                if number > MOST_PARAMETERS:
                    yield path, node.name, number


def count_rooms(folder: Path) -> int:
    """Return the number of packages directly in a folder."""
    return len(list(folder.glob("*/__init__.py")))


def count_parameters(trees: dict[Path, ast.Module], name: str) -> int:
    """Return the number of functions that have a parameter of a name: through so many it is handed on."""
    return sum(isinstance(node, ast.arg) and node.arg == name for tree in trees.values() for node in ast.walk(tree))


def find_holders(trees: dict[Path, ast.Module]) -> Iterator[tuple[Path, str]]:
    """Yield the classes with a field or attribute ``spark`` and another ``policy``."""
    for path, tree in trees.items():
        for node in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
            fields = {
                target.lstrip("_")
                for child in ast.walk(node)
                for target in (
                    [child.target.id]
                    if isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name)
                    else [child.attr]
                    if isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Store)
                    else []
                )
            }
            if {"spark", "policy"} <= fields:
                yield path, node.name


def count_importers(root: Path, trees: dict[Path, ast.Module]) -> Counter[str]:
    """Return how many modules of the package import each module of it."""
    names = {".".join(path.relative_to(root).with_suffix("").parts): path for path in trees}
    found = Counter[str]()
    for tree in trees.values():
        imported = set[str]()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                imported |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
        found.update(imported & names.keys())
    return found


def find_thin_modules(root: Path, trees: dict[Path, ast.Module]) -> Iterator[tuple[str, int]]:
    """Yield the modules below 80 lines that one module imports: name and lines."""
    for name, importers in sorted(count_importers(root, trees).items()):
        lines = (root / Path(*name.split("."))).with_suffix(".py").read_text(encoding="utf-8").count("\n")
        if importers == 1 and lines < SMALL_MODULE:
            yield name, lines


def measure(root: Path) -> dict[str, float]:
    """Return the figures of a checkout."""
    package = read_modules(root / PACKAGE)
    tests = read_modules(root / "tests")
    lines = count_lines(root / PACKAGE, ".py")
    top = [node for tree in package.values() for node in tree.body if isinstance(node, _DEFINITIONS)]
    decorators = [
        decorator
        for tree in package.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for decorator in node.decorator_list
    ]
    return {
        "lines of the package": lines,
        "statements of the package": count_statements(package),
        "modules": len([path for path in package if path.name != "__init__.py"]),
        "rooms at the top": count_rooms(root / PACKAGE),
        "rooms of runs": count_rooms(root / PACKAGE / "runs"),
        "definitions per 1,000 lines": round(len(top) / lines * 1000, 1),
        "functions above six parameters": len(list(find_long_signatures(package))),
        "dataclasses": sum("dataclass" in ast.unparse(decorator) for decorator in decorators),
        "functions with a parameter policy": count_parameters(package, "policy"),
        "classes that hold spark and policy": len(list(find_holders(package))),
        "modules below 80 lines with one importer": len(list(find_thin_modules(root, package))),
        "lines of Java": count_lines(root / "jars", ".java"),
        "lines of tests": count_lines(root / "tests", ".py"),
        "statements of tests": count_statements(tests),
    }


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def main(arguments: list[str]) -> None:
    """Print the figures; with ``--list`` also what is to become fewer, by its place."""
    roots = [Path(argument) for argument in arguments if argument != "--list"]
    root = roots[0] if roots else Path(__file__).parents[1]
    for name, figure in measure(root).items():
        click.echo(f"{name:<42} {figure:>9,}")
    if "--list" in arguments:
        package = read_modules(root / PACKAGE)
        for path, function, number in find_long_signatures(package):
            click.echo(f"{path.relative_to(root)}: {function} has {number} parameters")
        for path, holder in find_holders(package):
            click.echo(f"{path.relative_to(root)}: {holder} holds spark and policy")
        for module, lines in find_thin_modules(root, package):
            click.echo(f"{module}: {lines} lines, one importer")


if __name__ == "__main__":
    main(sys.argv[1:])

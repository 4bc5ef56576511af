"""Plans for ORC files: the names of columns there, and which columns are encrypted as a whole.

ORC encrypts a column with all below it, under one key.  It names the element of a list ``_elem``, key and value of a
map ``_key`` and ``_value``; files of old writers of Hive number their columns, which are matched by position.
Source: ORC specification v1, "Column Encryption"; ``OrcUtils.requestedColumnIds`` of Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sparkcrypt.errors import PlanError
from sparkcrypt.plan.build import ColumnPlan, EncryptionPlan
from sparkcrypt.schema import ELEMENT, KEY, VALUE, Node, Path, Schema, join_dotted

_NAMES = {"list": {"_elem": ELEMENT}, "map": {"_key": KEY, "_value": VALUE}}
_NUMBERED = "_col"
KEY_BITS = (128, 256)
"""Lengths of a local key that ORC supports."""


def refuse_orc_plan(plan: EncryptionPlan) -> None:
    """Refuse a plan that is not possible in ORC files.

    Raises:
        PlanError: local keys have a length that ORC lacks, or a map's keys are encrypted otherwise than its values; one
            line for each problem.
    """
    name, problems = plan.table or "these files", []
    if plan.encrypted and plan.data_key_bits not in KEY_BITS:
        problems.append(
            f"{name}: data_key_bits is {plan.data_key_bits}; allowed for ORC: {' and '.join(map(str, KEY_BITS))}"
        )
    keys = {column.leaf.logical: (column.action, column.key and column.key.text) for column in plan.columns}
    maps = {logical for _, chain in plan.schema.walk_leaves() for logical, _, node in chain if node.kind == "map"}
    for place in sorted(maps):
        of_all = {key for path, key in keys.items() if _is_below(path, place)}
        of_keys = {key for path, key in keys.items() if _is_below(path, (*place, KEY))}
        if len(of_all) > 1 and any(action != "plaintext" for action, _ in of_keys):
            problems.append(
                f"{name}: the keys of the map {join_dotted(place)} would be encrypted otherwise than its values; "
                "readers without the key would see null keys, which no map has: give keys and values one tag, by "
                f"tagging {join_dotted(place)} itself"
            )
    if problems:
        raise PlanError("\n".join(problems))


def match_orc_columns(paths: Iterable[Path], plan: EncryptionPlan) -> tuple[dict[Path, ColumnPlan], tuple[Path, ...]]:
    """Return the planned column of each leaf column of an ORC file, and the leaf columns that the table lacks.

    Args:
        paths: the paths of the file's leaf columns, in its order.
        plan: the plan of the file's table.

    Raises:
        PlanError: a column is a struct, list or map in the file or in the table only, or of another kind there.
    """
    by_place = {column.leaf.logical: column for column in plan.columns}
    listed = tuple(paths)
    numbers = _number_columns(listed)
    planned: dict[Path, ColumnPlan] = {}
    unknown: list[Path] = []
    for path in listed:
        top = _find_top(path[0], plan.schema, numbers)
        place = None if top is None else _find_place(path, top)
        if place is None:
            unknown.append(path)
        else:
            planned[path] = by_place[place]
    return planned, tuple(unknown)


def name_orc_columns(schema: Schema) -> dict[Path, Path]:
    """Return each leaf column's name in ORC files that Spark writes: Parquet column path -> ORC's path."""
    names = {kind: {name: spelt for spelt, name in below.items()} for kind, below in _NAMES.items()}
    found = {}
    for leaf, chain in schema.walk_leaves():
        kinds = [None, *(node.kind for _, _, node in chain)]
        found[leaf.parquet] = tuple(
            names.get(kind or "", {}).get(name, name) for kind, name in zip(kinds, leaf.logical, strict=False)
        )
    return found


def cover_columns(paths: Iterable[Path], wanted: Mapping[Path, str]) -> dict[Path, str]:
    """Return the columns to encrypt, each with all below it, and the key of each.

    For each leaf this is the outermost column whose leaves all have the same key, so that lengths of lists and nulls
    above the leaves are hidden too.

    Args:
        paths: the paths of the file's leaf columns.
        wanted: leaf column -> master key, for those to encrypt.
    """
    roots: dict[Path, str] = {}
    waiting: list[tuple[Path, list[Path]]] = [((), list(paths))]
    while waiting:
        above, leaves = waiting.pop()
        groups: dict[Path, list[Path]] = {}
        for leaf in leaves:
            groups.setdefault(leaf[: len(above) + 1], []).append(leaf)
        for root, below in groups.items():
            keys = {wanted.get(leaf) for leaf in below}
            key = keys.pop()
            if keys:
                waiting.append((root, below))
            elif key is not None:
                roots[root] = key
    return roots


def _is_below(path: Path, top: Path) -> bool:
    return path[: len(top)] == top


def _number_columns(paths: Sequence[Path]) -> dict[str, int]:
    """Return the positions of a file's columns if it numbers them; nothing for a file that names them."""
    names = tuple(dict.fromkeys(path[0] for path in paths))
    return {name: place for place, name in enumerate(names)} if all(map(_is_numbered, names)) else {}


def _is_numbered(name: str) -> bool:
    return name.startswith(_NUMBERED)


def _find_top(name: str, schema: Schema, numbers: Mapping[str, int]) -> Node | None:
    if name in numbers:
        return schema.fields[numbers[name]] if numbers[name] < len(schema.fields) else None
    return _find_named(name, schema.fields)


def _find_named(name: str, nodes: Sequence[Node]) -> Node | None:
    """Return the node of a name as Spark resolves it: an exact match, else the only match without regard to case."""
    found = [node for node in nodes if node.name == name] or [
        node for node in nodes if node.name.lower() == name.lower()
    ]
    return found[0] if len(found) == 1 else None


def _find_place(path: Path, top: Node) -> Path | None:
    """Return the logical path of a file's leaf column; None if the table's struct lacks it."""
    node: Node = top
    place: Path = (top.name,)
    for name in path[1:]:
        if node.kind == "leaf" or (node.kind in _NAMES and name not in _NAMES[node.kind]):
            raise _not_as_read(path, node)
        child = _find_named(_NAMES.get(node.kind, {}).get(name, name), node.children)
        if child is None:
            return None
        node, place = child, (*place, child.name)
    if node.kind != "leaf":
        raise _not_as_read(path, node)
    return place


def _not_as_read(path: Path, node: Node) -> PlanError:
    kind = "column without others below it" if node.kind == "leaf" else node.kind
    return PlanError(f"column {join_dotted(path)} is read as a {kind}, and is none in the file")

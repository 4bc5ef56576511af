"""Lookup of the column that a path names, by any of the column's names."""

from __future__ import annotations

from collections.abc import Iterator

from sparkcrypt.schema import Node, Path, Schema

_Chain = tuple[tuple[Path, Path, Node], ...]
_STANDARD = {"list": "list", "map": "key_value"}


class ColumnIndex:
    """An index of every name of every field of a schema.

    In order of precedence: its logical path, its Parquet path, its Parquet path as Spark writes it, and for a list or
    map the group below it, which has no logical path of its own (``people.list`` is ``people``).  Names below a VARIANT
    are the VARIANT's, since values may be in any of its leaves.
    """

    def __init__(self, schema: Schema) -> None:
        chains = [chain for _, chain in schema.walk_leaves()]
        whole = {chain[-1][0]: above for chain in chains for above, _, node in chain if node.kind == "variant"}
        self._exact: dict[Path, Path] = {}
        self._folded: dict[Path, tuple[Path, ...]] = {}
        for names_of in (_logical_names, _parquet_names, _standard_names, _group_names):
            folded: dict[Path, tuple[Path, ...]] = {}
            for chain in chains:
                for name, place in names_of(chain):
                    logical = whole.get(place, place)
                    self._exact.setdefault(name, logical)
                    lower = fold(name)
                    folded[lower] = tuple(dict.fromkeys((*folded.get(lower, ()), logical)))
            self._folded = folded | self._folded

    def find(self, path: Path) -> tuple[Path, ...]:
        """Return the logical paths that a path may mean: one, none, or several that differ from it only by case."""
        exact = self._exact.get(path)
        return (exact,) if exact is not None else tuple(sorted(self._folded.get(fold(path), ())))


def fold(path: Path) -> Path:
    """Return a path in lower case, to compare it without case, as the Hive metastore and Spark do by default."""
    return tuple(name.lower() for name in path)


def _logical_names(chain: _Chain) -> Iterator[tuple[Path, Path]]:
    return ((logical, logical) for logical, _, _ in chain)


def _parquet_names(chain: _Chain) -> Iterator[tuple[Path, Path]]:
    return ((parquet, logical) for logical, parquet, _ in chain)


def _standard_names(chain: _Chain) -> Iterator[tuple[Path, Path]]:
    standard: Path = ()
    above = ""
    for logical, _, node in chain:
        below = (_STANDARD[above], node.name) if above in _STANDARD else (node.name,)
        standard, above = (*standard, *below), node.kind
        yield standard, logical


def _group_names(chain: _Chain) -> Iterator[tuple[Path, Path]]:
    standard = [name for name, _ in _standard_names(chain)]
    for place, (logical, parquet, node) in enumerate(chain[1:], 1):
        if chain[place - 1][2].kind in _STANDARD:
            if len(node.parquet) > 1:
                yield parquet[:-1], logical[:-1]
            yield standard[place][:-1], logical[:-1]

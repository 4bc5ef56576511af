"""Faults that are planted in the package, each of which nights must find: what finds none of them finds nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from sparkcrypt.ledger.new_files import Whereabouts
from sparkcrypt.ledger.state import lock
from sparkcrypt.runs.keys import retire
from sparkcrypt.runs.rewrite import unit_rewriter
from sparkcrypt.runs.rewrite.swap import LocationSwap, Swap
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.tables.catalog import Catalog
from tests.everyday.estate import path_of

_SWAPS = (Swap, LocationSwap)
Patch = Callable[[pytest.MonkeyPatch], None]


def _before_swap(meddle: Callable[[Any, str], None]) -> Patch:
    """Return a patch that does something to the first staged file, and swaps."""

    def patch(patches: pytest.MonkeyPatch) -> None:
        for kind in _SWAPS:
            patches.setattr(kind, "swap_all", _meddled(kind.swap_all, meddle))

    return patch


def _meddled(swap_all: Callable[..., Any], meddle: Callable[[Any, str], None]) -> Callable[..., Any]:
    def swapped(self: Any, several: Any) -> Any:
        for new in several:
            meddle(new.unit, HadoopFiles(self._spark).data_files(new.staged)[0].path)
        return swap_all(self, several)

    return swapped


def _lose(unit: Any, file: str) -> None:
    path_of(file).unlink()


def _double(unit: Any, file: str) -> None:
    path = path_of(file)
    path.with_name(f"again-{path.name}").write_bytes(path.read_bytes())


def _keep_copy(unit: Any, file: str) -> None:
    old = next(path for path in path_of(unit.location).glob("*.parquet"))
    copy = path_of(file).parents[2] / "copies" / old.name
    copy.parent.mkdir(exist_ok=True)
    copy.write_bytes(old.read_bytes())


def _rename_once(patches: pytest.MonkeyPatch) -> None:
    rename = HadoopFiles.rename

    def renamed(self: HadoopFiles, source: str, target: str) -> None:
        if "/old-" in target or "/.sparkcrypt/" not in source:
            rename(self, source, target)

    patches.setattr(HadoopFiles, "rename", renamed)


def _store_no_tags(patches: pytest.MonkeyPatch) -> None:
    for name in ("set_options", "set_schema_metadata"):  # each place has them, and they are united
        _instead(Catalog, name, None)(patches)


def _instead(kind: Any, name: str, value: Any) -> Patch:
    """Return a patch by which something returns a value and does nothing."""
    return lambda patches: patches.setattr(kind, name, lambda *_, **__: value)


_PATCHES: dict[str, Patch] = {
    "none": lambda _: None,
    "a staged file is lost": _before_swap(_lose),
    "a staged file is there twice": _before_swap(_double),
    "a copy of old files stays": _before_swap(_keep_copy),
    "nothing is deleted": _instead(HadoopFiles, "delete_tree", None),
    "nothing is pointed to": _instead(Catalog, "move_partitions", {}),
    "the second rename is left out": _rename_once,
    "half a swap is taken for whole": _instead(unit_rewriter, "prove_in_use", Whereabouts.IN_USE),
    "the dead keep their locks": _instead(lock, "is_dead", False),
    "tags are not stored": _store_no_tags,
    "what is needed is retired": _instead(retire, "find_needs", iter(())),
}


def _planted(patch: Patch) -> Callable[[], AbstractContextManager[None]]:
    @contextmanager
    def plant() -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patches:
            patch(patches)
            yield

    return plant


PLANTS = {name: _planted(patch) for name, patch in _PATCHES.items()}
"""Name -> context within which the fault is there; drivers are forks, and have it too."""

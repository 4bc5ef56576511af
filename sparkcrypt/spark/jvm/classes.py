"""Classes of the JVM by their dotted names, without a search for the packages before them."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any
from weakref import WeakKeyDictionary

_FOUND: MutableMapping[Any, dict[str, Any]] = WeakKeyDictionary()
"""The classes that each view of a JVM was asked for, by their whole names."""


class JavaClasses:
    """A package of the JVM: its attributes are packages, where they begin with a small letter, and else classes.

    py4j asks the JVM about every part of a dotted name, and the JVM looks for a package as for a class, in each of
    Spark's three hundred jars (for the first part: once for each import of the view).  That took a third of what a
    driver computes in runs over small tables.  Here a whole name of a class is asked for at once, and once.
    """

    def __init__(self, view: Any, package: str = "") -> None:
        """Take py4j's view of the JVM, and the package; empty for the root."""
        self._view = view
        self._package = package

    def __getattr__(self, name: str) -> Any:
        """Return a package as a ``JavaClasses``, or a class as py4j has it."""
        if name.startswith("_"):
            raise AttributeError(name)
        whole = f"{self._package}.{name}" if self._package else name
        if name[0].islower():
            return JavaClasses(self._view, whole)
        found = _FOUND.setdefault(self._view, {})
        if whole not in found:
            found[whole] = getattr(self._view, whole)
        return found[whole]

"""Looks classes of the JVM up by their dotted names, without a lookup of each package in the name."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any
from weakref import WeakKeyDictionary

_FOUND: MutableMapping[Any, dict[str, Any]] = WeakKeyDictionary()
"""View of a JVM -> full class name -> class, for each class that was looked up."""


class JavaClasses:
    """A package of the JVM: attributes that begin with a lower-case letter are packages, others are classes.

    py4j asks the JVM about every part of a dotted name, and the JVM searches each of Spark's three hundred jars for a
    class of a package's name (for the first part: once for each import of the view).  That took a third of a driver's
    CPU time in runs over small tables.  Here a class is looked up once, by its full name.
    """

    def __init__(self, view: Any, package: str = "") -> None:
        """Store py4j's view of the JVM and the package's name, which is empty for the root."""
        self._view = view
        self._package = package

    def __getattr__(self, name: str) -> Any:
        """Return a package as a ``JavaClasses``, or a class as py4j's object."""
        if name.startswith("_"):
            raise AttributeError(name)
        whole = f"{self._package}.{name}" if self._package else name
        if name[0].islower():
            return JavaClasses(self._view, whole)
        found = _FOUND.setdefault(self._view, {})
        if whole not in found:
            found[whole] = getattr(self._view, whole)
        return found[whole]

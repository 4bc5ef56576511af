"""Strict parsing of a mapping in a document: every key is read by name, and a key that is not read is a problem.

A dataclass may state by its fields what a mapping holds: under which key each is, and how it is read and written.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, field, fields
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from sparkcrypt.errors import show

T = TypeVar("T")
Name = TypeVar("Name", bound=str)
KeyPath = tuple[str, ...]
REQUIRED: Any = object()
MAX_SECONDS = 36_500 * 86_400
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def is_text(value: object) -> bool:
    """Return whether a value is text that is not blank and that UTF-8 can encode."""
    return isinstance(value, str) and bool(value.strip()) and not re.search("[\ud800-\udfff]", value)


def near_hint(text: str, allowed: Sequence[str]) -> str:
    """Return a question that names the most similar of the allowed texts; empty if none is similar."""
    near = difflib.get_close_matches(text, allowed, n=1)
    return f"did you mean {near[0]!r}? " if near else ""


def seconds_of(value: object, number: str = "[1-9][0-9]{0,10}") -> int | None:
    """Return a duration such as ``400d`` in seconds; None if the value is none, or is longer than a hundred years."""
    match = re.fullmatch(rf"({number})([smhdw])", value, re.ASCII) if isinstance(value, str) else None
    seconds = int(match[1]) * _SECONDS[match[2]] if match else None
    return seconds if seconds is not None and seconds <= MAX_SECONDS else None


class Problems:
    """The problems of a document, each with its place, collected so that all are reported together.

    Args:
        locate: key path -> the text before a message about it.
        resolve: makes a relative path or URI of the document absolute.
    """

    def __init__(self, locate: Callable[[KeyPath], str], resolve: Callable[[str], str] = str) -> None:
        self._locate, self.resolve = locate, resolve
        self.messages: list[str] = []

    def add(self, path: KeyPath, message: str) -> None:
        """Record one problem at a key path."""
        self.messages.append(f"{self._locate(path)}: {'.'.join(path) or 'the document'}: {message}")


class Section:
    """A mapping under strict parsing; ``close`` reports the keys that were not read."""

    def __init__(self, value: object, path: KeyPath, problems: Problems) -> None:
        self._path, self._problems = path, problems
        self._asked: list[str] = []
        self._values: Mapping[str, Any] = {}
        if isinstance(value, Mapping):
            self._values = value
        else:
            problems.add(path, f"is {show(value)}; allowed: a mapping of names to values")

    def resolve(self, path: str) -> str:
        """Return a path or URI of the document as absolute."""
        return self._problems.resolve(path)

    def names(self) -> Sequence[str]:
        """Return the keys of the mapping."""
        return list(self._values)

    def items(self) -> Sequence[tuple[str, Any]]:
        """Return keys and values without counting them as read: ``close`` still reports them."""
        return list(self._values.items())

    def problem(self, name: str, message: str) -> None:
        """Record a problem of one key."""
        self._problems.add((*self._path, name), message)

    def raw(self, name: str, default: Any = REQUIRED) -> Any:
        """Return a value unchecked; a missing one without default is a problem."""
        self._asked.append(name)
        if name in self._values:
            return self._values[name]
        if default is REQUIRED:
            self._problems.add(self._path, f"{name!r} is missing")
            return None
        return default

    def text(self, name: str, default: Any = REQUIRED) -> str:
        """Return a text that is not empty."""
        value = self.raw(name, default)
        if value is default or is_text(value):
            return value  # type: ignore[no-any-return]  # the default is the caller's
        if name in self._values:
            self.problem(name, f"is {show(value)}; allowed: a text that is not empty")
        return ""

    def choice(self, name: str, allowed: Sequence[T], default: Any = REQUIRED) -> T:
        """Return one of the allowed values, of the same type (``true`` is not 1)."""
        value = self.raw(name, default)
        is_allowed = any(value == entry and type(value) is type(entry) for entry in allowed)
        if is_allowed or (value is default and name not in self._values):
            return value  # type: ignore[no-any-return]  # checked against allowed
        if name in self._values:
            self.problem(name, f"is {show(value)}; allowed: {', '.join(map(str, allowed))}")
        return allowed[0]

    def boolean(self, name: str, default: bool = False) -> bool:
        """Return true or false."""
        value = self.raw(name, default)
        if isinstance(value, bool):
            return value
        self.problem(name, f"is {show(value)}; allowed: true, false")
        return default

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of texts, empty when the key is absent."""
        value = self.raw(name, [])
        if isinstance(value, list) and all(is_text(entry) for entry in value):
            return tuple(value)
        self.problem(name, f"is {show(value)}; allowed: a list of names, such as [pii, contact]")
        return ()

    def choices(self, name: str, allowed: Sequence[Name], lack: str = "is not known") -> tuple[Name, ...]:
        """Return those of the allowed texts that a list has, in the order of the allowed ones.

        Args:
            name: the key.
            allowed: the texts that the list may have.
            lack: what is said of another text.
        """
        values = self.texts(name)
        for value in values:
            if value not in allowed:
                self.problem(name, f"{show(value)} {lack}; {near_hint(value, allowed)}allowed: {', '.join(allowed)}")
        return tuple(entry for entry in allowed if entry in values)

    def duration(self, name: str, default: Any = None, *, zero: str | None = None) -> int | None:
        """Return a duration in seconds; None if it is not set, or invalid.

        Args:
            name: the key.
            default: ``REQUIRED`` if it must be set.
            zero: what no time at all means, if that is allowed.
        """
        value = self.raw(name, default)
        seconds = seconds_of(value) if zero is None else seconds_of(value, "0|[1-9][0-9]{0,10}")
        if seconds is None and name in self._values and (value is not None or default is REQUIRED):
            example = "400d, up to 36500d" if zero is None else f"24h, up to 36500d; {zero}"
            self.problem(name, f"is {show(value)}; allowed: a number and one of s, m, h, d, w, such as {example}")
        return seconds

    def optional(self, name: str) -> Section | None:
        """Return a mapping below this one, or None if there is none."""
        if name in self._values:
            return self.section(name)
        self._asked.append(name)
        return None

    def section(self, name: str, default: Any = REQUIRED) -> Section:
        """Return a mapping below this one."""
        value = self.raw(name, default)
        if name not in self._values and default is REQUIRED:
            value = {}
        return Section(value, (*self._path, name), self._problems)

    def close(self) -> None:
        """Report every key that was not read, with the most similar one that was."""
        for name in self._values:
            if name not in self._asked:
                hint = near_hint(str(name), self._asked)
                self.problem(str(name), f"is not a known key; {hint}allowed: {', '.join(sorted(set(self._asked)))}")


Read: TypeAlias = Callable[[Section, str], Any]
_NONE: Mapping[str, Any] = MappingProxyType({})


def setting(
    key: str,
    read: Read | None = None,
    write: Callable[[Any], Any] = lambda value: value,
    known: Mapping[str, Any] = _NONE,
    **default: Any,
) -> Any:
    """Return a field of a dataclass that a document has under a key.

    Args:
        key: the key; ``a.b`` is ``b`` of the mapping ``a``.
        read: reads it from its mapping; None: whoever reads the others gives it.
        write: returns its value as a document has it; tuples become lists.
        known: what the page of fields tells besides: the ``allowed`` values, and which counts where it is ``unset``.
        **default: ``default=`` the value that documents leave out.
    """
    return field(**default, metadata={"key": key, "read": read, "write": write, **known})


def choice_setting(key: str, allowed: Sequence[Any], unset: Any = None, **default: Any) -> Any:
    """Return such a field for one of some values; ``unset`` is what is read where a document has none."""
    known = {"allowed": allowed, "unset": None if unset is REQUIRED else unset}
    return setting(key, lambda section, name: section.choice(name, allowed, unset), known=known, **default)


def duration_setting(key: str) -> Any:
    """Return such a field for a duration in seconds; None if it is not set."""
    return setting(key, Section.duration, lambda seconds: f"{seconds}s", default=None)


def read_settings(kind: type[T], section: Section, **others: Any) -> T:
    """Return a dataclass whose fields were made by `setting`, and close the section.

    Args:
        kind: the dataclass.
        section: has the values; a field with a default may be absent.
        **others: the values of other fields.
    """
    values, parts = dict(others), dict[str, Section | None]()
    for known in fields(kind):  # type: ignore[arg-type]  # a dataclass, as each caller's is
        read = known.metadata.get("read")
        if read is None or known.name in others:
            continue
        above, _, name = known.metadata["key"].rpartition(".")
        if above and above not in parts:
            parts[above] = section.section(above) if known.default is MISSING else section.optional(above)
        part = parts[above] if above else section
        if part is None or (not above and known.default is not MISSING and name not in section.names()):
            section.raw(above or name, None)
        else:
            values[known.name] = read(part, name)
    for part in (*parts.values(), section):
        if part is not None:
            part.close()
    return kind(**values)


def write_settings(value: Any) -> dict[str, Any]:
    """Return the mapping in which a document has a dataclass with such fields, without defaults."""
    document: dict[str, Any] = {}
    for known in fields(value):
        found = getattr(value, known.name)
        if "key" in known.metadata and found != known.default:
            above, _, name = known.metadata["key"].rpartition(".")
            written = known.metadata["write"](found)
            place = document.setdefault(above, {}) if above else document
            place[name] = list(written) if isinstance(written, tuple) else written
    return document

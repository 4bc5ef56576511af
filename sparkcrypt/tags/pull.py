"""Tags of other products as rules of tables: their names become the policy's tags, and their tables Hive's."""

from __future__ import annotations

import fnmatch
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from sparkcrypt.errors import ConfigError, PlanError
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.tags.exports.catalogs import ColumnTag, read_datahub, read_dbt, read_ranger, read_unity
from sparkcrypt.tags.exports.openlineage import read_openlineage
from sparkcrypt.tags.exports.registry import read_confluent

_NAME = re.compile(r"[^\s,;:=]+")
_TABLE = re.compile(r"[^\s.]+\.[^\s.]+")
_READERS: Mapping[str, Callable[[str, str], Iterator[ColumnTag]]] = {
    "datahub": read_datahub,
    "ranger": read_ranger,
    "unity": read_unity,
    "dbt": read_dbt,
    "openlineage": read_openlineage,
}
SOURCES = ("confluent", *_READERS)


@dataclass(frozen=True, slots=True)
class Names:
    """What other products' names mean.

    Attributes:
        tags: their tag -> the policy's tags.
        tables: their table -> Hive's; one ``*`` in both stands for the same text.
        only: patterns of Hive's names; empty: all.
        known: the tags of the policy; None: any name is taken.
    """

    tags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tables: Mapping[str, str] = field(default_factory=dict)
    only: tuple[str, ...] = ()
    known: Collection[str] | None = None

    def __post_init__(self) -> None:
        """Check the names.

        Raises:
            ConfigError: a tag that the policy does not define, or a table that is not named database.table.
        """
        for name in sorted({name for names in self.tags.values() for name in names}):
            if not _NAME.fullmatch(name) or (self.known is not None and name not in self.known):
                allowed = ", ".join(self.known or ()) or "a name without spaces, commas, ';', ':' or '='"
                raise ConfigError(f"--map: {name!r} is no tag of the policy; allowed: {allowed}")
        for theirs, ours in self.tables.items():
            if theirs.count("*") > 1 or ours.count("*") != theirs.count("*") or not _TABLE.fullmatch(ours):
                raise ConfigError(
                    f"--table {theirs}={ours}: allowed: THEIRS=DATABASE.TABLE, with one * on both sides or none"
                )

    def table(self, theirs: str, *, mapped: bool = False) -> str | None:
        """Return the Hive name of a table: its mapping, else the last two of its dotted names; None: it has none.

        Args:
            theirs: the name.
            mapped: whether only the mapping counts.
        """
        ours = self.tables.get(theirs)
        for pattern, target in self.tables.items() if ours is None else ():
            before, star, after = pattern.partition("*")
            fits = theirs.startswith(before) and theirs.endswith(after) and len(theirs) >= len(before + after)
            if star and fits:
                ours = target.replace("*", theirs[len(before) : len(theirs) - len(after)])
                break
        parts = theirs.split(".")
        if ours is None and not mapped and len(parts) > 1 and not set(":/") & set(theirs):
            ours = ".".join(parts[-2:])
        return ours.lower() if ours is not None and _TABLE.fullmatch(ours) else None

    def takes(self, table: str) -> bool:
        """Return whether a Hive table is among those that are asked for."""
        return not self.only or any(fnmatch.fnmatchcase(table, pattern.lower()) for pattern in self.only)

    def tags_of(self, theirs: str) -> tuple[str, ...]:
        """Return the policy's tags of a name; one with a value that is not mapped counts as the name alone."""
        for name in (theirs, theirs.partition("=")[0]):
            if name in self.tags:
                return self.tags[name]
            if name in self.known if self.known is not None else name == theirs and _NAME.fullmatch(name):
                return (name,)
        return ()


@dataclass(frozen=True, slots=True)
class Pulled(JsonObject):
    """What was pulled, and what was not.

    Attributes:
        tables: Hive table -> dotted column -> tags.
        unknown_tags: their tags that mean none of the policy's -> number of columns.
        unknown_tables: their tables that have no Hive name -> number of tags.
    """

    tables: dict[str, dict[str, list[str]]]
    unknown_tags: dict[str, int]
    unknown_tables: dict[str, int]

    def to_yaml(self) -> str:
        """Return the file that `sparkcrypt tags apply` takes, with each name in quotes."""
        lines = []
        for table, columns in sorted(self.tables.items()):
            lines += [f"{_quote(table)}:", "  tags:"]
            lines += [f"    {_quote(name)}: [{', '.join(map(_quote, tags))}]" for name, tags in sorted(columns.items())]
        return "\n".join([*(lines or ["{}"]), ""])


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def read_export(source: str, text: str, where: str, names: Names) -> Iterator[ColumnTag]:
    """Read what a product exported: (table, dotted column, tag) in its own names.

    Args:
        source: one of `SOURCES`.
        text: the export.
        where: its file, for messages.
        names: tells the tables that are asked for; schemas of no such table are not read.

    Raises:
        PlanError: it is not what the product exports.
    """
    try:
        yield from _read(source, text, where, names)
    except (AttributeError, TypeError, KeyError, ValueError) as error:
        raise PlanError(
            f"{where}: is not of the form that {source} documents ({type(error).__name__}: {error})"
        ) from error


def _read(source: str, text: str, where: str, names: Names) -> Iterator[ColumnTag]:
    if source != "confluent":
        yield from _READERS[source](text, where)
        return
    if not names.tables:
        raise ConfigError("--from confluent needs --table: subjects are no tables; such as --table '*-value=lake.*'")

    def is_wanted(subject: str) -> bool:
        table = names.table(subject, mapped=True)
        return table is not None and names.takes(table)

    for subject, column, tag in read_confluent(text, where, is_wanted):
        yield names.table(subject, mapped=True) or subject, column, tag


def pull_tags(found: Iterable[ColumnTag], names: Names) -> Pulled:
    """Unite the tags of exports under the policy's and Hive's names; nothing that was tagged is left out unnamed."""
    tables: dict[str, dict[str, list[str]]] = {}
    unknown_tags, unknown_tables = Counter[str](), Counter[str]()
    for theirs, column, tag in found:
        table = names.table(theirs)
        if table is None:
            unknown_tables[theirs] += 1
            continue
        if not names.takes(table):
            continue
        tags = names.tags_of(tag)
        if not tags:
            unknown_tags[tag] += 1
            continue
        held = tables.setdefault(table, {}).setdefault(column, [])
        held += [name for name in tags if name not in held]
    return Pulled(tables, dict(sorted(unknown_tags.items())), dict(sorted(unknown_tables.items())))

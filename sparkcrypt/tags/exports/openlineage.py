"""Tags of columns in events of OpenLineage, carried along the lineage of columns to those that are made of them.

Source: OpenLineage 2-0-2; ``TagsDatasetFacet``, ``ColumnLineageDatasetFacet``, ``SymlinksDatasetFacet``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from sparkcrypt.errors import PlanError
from sparkcrypt.tags.exports.catalogs import ColumnTag, name_tag, read_json

_Column = tuple[tuple[str, str], str]
"""Namespace and name of a dataset, and a field of it."""


def read_openlineage(text: str, where: str) -> Iterator[ColumnTag]:
    """Read events, as a JSON list or one in each line; a dataset has the name of its symlink to a table, if any.

    A field that is made of others has their tags; conditions, such as filters and join keys, carry none.

    Args:
        text: the events, in any order: a run may be told of before the one that made its input.
        where: their file, for messages.

    Raises:
        PlanError: it has no event.
    """
    tags: dict[_Column, dict[str, None]] = defaultdict(dict)
    made: dict[_Column, set[_Column]] = defaultdict(set)
    names: dict[tuple[str, str], str] = {}
    for event in _read_events(text, where):
        datasets = (*(event.get("inputs") or ()), *(event.get("outputs") or ()), event.get("dataset"))
        for dataset in filter(None, datasets):
            key, facets = (dataset["namespace"], dataset["name"]), dataset.get("facets") or {}
            names[key] = _find_table(facets) or names.get(key, dataset["name"])
            for entry in (facets.get("tags") or {}).get("tags") or ():
                tag = name_tag(entry["key"], entry.get("value"))
                if tag is not None and entry.get("field"):
                    tags[key, entry["field"]][tag] = None
            for field, origins in ((facets.get("columnLineage") or {}).get("fields") or {}).items():
                for origin in origins["inputFields"]:
                    if _carries_values(origin):
                        made[(origin["namespace"], origin["name"]), origin["field"]].add((key, field))
    _carry_tags(tags, made)
    for (key, column), found in tags.items():
        yield from ((names.get(key, key[1]), column, tag) for tag in found)


def _read_events(text: str, where: str) -> list[Mapping[str, Any]]:
    start = text.strip()
    if start.startswith("["):
        events = read_json(start, where)
    else:
        events = [read_json(line, where) for line in start.splitlines() if line.strip()]
    if not events or not all(isinstance(event, Mapping) and "eventTime" in event for event in events):
        raise PlanError(f"{where}: is no list of OpenLineage's events; allowed: a JSON list, or an event in each line")
    return list(events)


def _find_table(facets: Mapping[str, Any]) -> str | None:
    links = (facets.get("symlinks") or {}).get("identifiers") or ()
    return next((str(link["name"]) for link in links if link.get("type") == "TABLE"), None)


def _carries_values(origin: Mapping[str, Any]) -> bool:
    """Return whether a field has values of its origin; an origin without transformations is one."""
    kinds = [entry.get("type") for entry in origin.get("transformations") or ()]
    return not kinds or any(kind != "INDIRECT" for kind in kinds)


def _carry_tags(tags: dict[_Column, dict[str, None]], made: Mapping[_Column, set[_Column]]) -> None:
    """Give each column the tags of all that it is made of, over any number of steps."""
    pending = list(tags)
    while pending:
        column = pending.pop()
        for target in made.get(column, ()):
            before = len(tags[target])
            tags[target] |= tags[column]
            if len(tags[target]) > before:
                pending.append(target)

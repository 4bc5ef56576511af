"""Tags of columns in what catalogs export: DataHub, Apache Ranger, Unity Catalog, and dbt's manifest.

Each reader yields (table, dotted column, tag), in the product's own names.  Sources: DataHub's GraphQL schema and
aspects; ``ServiceTags`` of Ranger's TagREST; Databricks' ``information_schema.column_tags``; dbt's manifest, v4 to v12.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sparkcrypt.errors import PlanError, show
from sparkcrypt.schema import ELEMENT, VALUE, join_dotted

ColumnTag = tuple[str, str, str]
"""Table, dotted column, tag."""

_DATASET = re.compile(r"urn:li:dataset:\(urn:li:dataPlatform:([^,]+),(.+),[^,]+\)")
_HIVE_PLATFORMS = frozenset({"hive", "spark", "glue", "databricks"})
_UNITY = ("catalog_name", "schema_name", "table_name", "column_name", "tag_name", "tag_value")
_DATABASE, _TABLE, _COLUMN = "database", "table", "column"


def read_json(text: str, where: str) -> Any:
    """Return a JSON document.

    Raises:
        PlanError: it is none.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise PlanError(f"{where}: not JSON ({reason}); give what the product exported, unchanged") from error


def name_tag(key: str, value: Any) -> str | None:
    """Return the name of a tag that is a key with a value; None if the value says that it is not there."""
    text = str(value).strip()
    if value is False or text.lower() == "false":
        return None
    return key if value is None or text.lower() in ("", "true") else f"{key}={text}"


def _walk_objects(document: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every object of a JSON document, the outer ones first, but none within another dataset."""
    pending = [document]
    while pending:
        part = pending.pop()
        if isinstance(part, Mapping):
            yield part
        inner = part.values() if isinstance(part, Mapping) else part if isinstance(part, list) else ()
        pending.extend(entry for entry in reversed([*inner]) if _match_dataset(entry) is None)


def _walk_datasets(document: Any) -> Iterator[tuple[Any, re.Match[str]]]:
    """Yield every dataset of a JSON document, also one within another."""
    pending = [document]
    while pending:
        part = pending.pop()
        match = _match_dataset(part)
        if match is not None:
            yield part, match
        inner = part.values() if isinstance(part, Mapping) else part if isinstance(part, list) else ()
        pending.extend(reversed([*inner]))


def _match_dataset(part: Any) -> re.Match[str] | None:
    return _DATASET.fullmatch(str(part.get("urn", part.get("entityUrn", "")))) if isinstance(part, Mapping) else None


def read_datahub(text: str, where: str) -> Iterator[ColumnTag]:
    """Read a GraphQL answer, or entities with their aspects: each object with a dataset's URN and its fields."""
    found = False
    for entity, match in _walk_datasets(read_json(text, where)):
        found = True
        table = match[2] if match[1] in _HIVE_PLATFORMS else f"{match[1]}:{match[2]}"
        for part in _walk_objects(entity):
            if isinstance(part.get("fieldPath"), str):
                column = _column_of_field_path(part["fieldPath"])
                yield from ((table, column, tag) for tag in _tags_of_field(part))
    if not found:
        raise PlanError(f"{where}: names no dataset; export datasets with their URN, schemaMetadata and its edits")


def _tags_of_field(part: Mapping[str, Any]) -> Iterator[str]:
    for member, listed, one in (
        ("globalTags", "tags", "tag"),
        ("tags", "tags", "tag"),
        ("glossaryTerms", "terms", "term"),
    ):
        held = part.get(member)
        for entry in (held.get(listed) or ()) if isinstance(held, Mapping) else ():
            target = entry.get(one, entry.get("urn"))
            urn = target.get("urn") if isinstance(target, Mapping) else target
            if isinstance(urn, str):
                yield urn.split(":", 3)[-1]


def _column_of_field_path(path: str) -> str:
    """Return the dotted column of a field path; one of version 2 has types in brackets before each name."""
    if not path.startswith("[version=2.0]"):
        return path
    names: list[str] = []
    inner: list[str] = []
    for kind, name in re.findall(r"\[([^\]]*)\]|([^.\[\]]+)", path):
        if name:
            names += [name, *inner]
            inner = []
        elif kind in ("type=array", "type=map"):
            inner.append(ELEMENT if kind == "type=array" else VALUE)
    while names and names[-1] in (ELEMENT, VALUE):
        names.pop()
    return join_dotted(names)


def read_ranger(text: str, where: str) -> Iterator[ColumnTag]:
    """Read ``ServiceTags``: resources of a Hive service, each with the tags that it has."""
    document = read_json(text, where)
    if not isinstance(document, Mapping) or "serviceResources" not in document or "resourceToTagIds" not in document:
        raise PlanError(
            f"{where}: has no serviceResources and resourceToTagIds; give the tags of a service (ServiceTags)"
        )
    tags, tags_by_resource = document.get("tags") or {}, document["resourceToTagIds"]
    for resource in document["serviceResources"]:
        elements = resource.get("resourceElements", {})
        listed = [elements.get(kind, {}) for kind in (_DATABASE, _TABLE, _COLUMN)]
        ids = tags_by_resource.get(str(resource.get("id")), ())
        names = [tags[str(number)]["type"] for number in ids if str(number) in tags]
        if not names or resource.get("isEnabled") is False or _COLUMN not in elements:
            continue
        if any(part.get("isExcludes") or any("*" in value for value in part.get("values", ())) for part in listed):
            raise PlanError(
                f"{where}: resource {show(elements)} is a pattern, whose columns only Ranger knows; tag its columns by "
                "name"
            )
        databases, tables, columns = (part.get("values", ()) for part in listed)
        for database, table, column in ((d, t, c) for d in databases for t in tables for c in columns):
            yield from ((f"{database}.{table}", join_dotted([column]), name) for name in names)


def read_unity(text: str, where: str) -> Iterator[ColumnTag]:
    """Read rows of ``information_schema.column_tags`` as CSV with a head, a JSON list, or JSON lines."""
    for row in _rows(text, where):
        values = {str(name).lower(): value for name, value in row.items()}
        lacking = [name for name in _UNITY[:5] if not values.get(name)]
        if lacking:
            raise PlanError(f"{where}: a row has no {lacking[0]}; allowed: rows with {', '.join(_UNITY)}")
        catalog, schema, table, column, key = (str(values[name]) for name in _UNITY[:5])
        tag = name_tag(key, values.get(_UNITY[5]))
        if tag is not None:
            yield f"{catalog}.{schema}.{table}", join_dotted([column]), tag


def _rows(text: str, where: str) -> Iterable[Mapping[str, Any]]:
    start = text.lstrip("\ufeff \r\n\t")
    if start.startswith("["):
        rows = read_json(start, where)
    elif start.startswith("{"):
        rows = [read_json(line, where) for line in start.splitlines() if line.strip()]
    else:
        table = csv.DictReader(io.StringIO(start))
        if not {name.lower() for name in table.fieldnames or ()} >= {*_UNITY}:
            raise PlanError(f"{where}: is neither JSON nor CSV with a head; allowed: rows with {', '.join(_UNITY)}")
        return table
    return [row for row in rows if isinstance(row, Mapping)]


def read_dbt(text: str, where: str) -> Iterator[ColumnTag]:
    """Read ``manifest.json``: tags and meta of the columns of models, seeds, snapshots and sources."""
    document = read_json(text, where)
    if not isinstance(document, Mapping) or not isinstance(document.get("nodes"), Mapping):
        raise PlanError(f"{where}: has no nodes; give dbt's target/manifest.json")
    for node in (*document["nodes"].values(), *document.get("sources", {}).values()):
        if node.get("resource_type") not in ("model", "seed", "snapshot", "source"):
            continue
        if (node.get("config") or {}).get("materialized") == "ephemeral":
            continue
        table = f"{node.get('schema')}.{node.get('identifier') or node.get('alias') or node.get('name')}"
        for name, column in (node.get("columns") or {}).items():
            parts = (column, column.get("config") or {})
            tags = dict.fromkeys(tag for part in parts for tag in _tags_of_dbt(part))
            yield from ((table, str(name), tag) for tag in tags)


def _tags_of_dbt(part: Mapping[str, Any]) -> Iterator[str]:
    listed = part.get("tags") or ()
    yield from [listed] if isinstance(listed, str) else listed
    for key, value in (part.get("meta") or {}).items():
        for one in value if isinstance(value, list) else [value]:
            tag = name_tag(key, one) if one is not None and not isinstance(one, Mapping | list) else None
            if tag is not None:
                yield tag

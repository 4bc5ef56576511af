"""Tagged columns with the source of their tags, and the one place that unites tags, since any source can lose some."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from sparkcrypt.errors import PlanError, show
from sparkcrypt.names import HISTORY_PREFIX, MASKED_TAG, TAGS_PREFIX
from sparkcrypt.schema import Path, Schema, join_dotted, property_name, split_dotted, tags_from_metadata

Source = Literal["schema metadata", "table property", "avro schema", "overlay"]
SOURCES: tuple[Source, ...] = ("schema metadata", "table property", "avro schema", "overlay")


ColumnTags: TypeAlias = Mapping[str, str | Iterable[str]]
"""Tags as users write them: dotted column path -> a tag, several with commas, or several."""


@dataclass(frozen=True, slots=True)
class TaggedColumn:
    """Tags on one field, in the order in which its owner wrote them.

    ``path`` is the logical or the Parquet path of the field, which may be a group; which of the two it is shows when it
    is matched against a schema.
    """

    path: Path
    tags: tuple[str, ...]
    source: Source

    def to_dict(self) -> dict[str, Any]:
        """Return ``{"column", "tags", "source"}``."""
        return {"column": join_dotted(self.path), "tags": list(self.tags), "source": self.source}


def tags_of_schema(schema: Schema, source: Source = "schema metadata") -> tuple[TaggedColumn, ...]:
    """Return the tags of the fields of a schema, groups included, without the tag that marks masked columns."""
    found: dict[Path, TaggedColumn] = {}
    for _, chain in schema.walk_leaves():
        for logical, _, node in chain:
            tags = tuple(tag for tag in node.tags if tag != MASKED_TAG)
            if tags:
                found[logical] = TaggedColumn(logical, tags, source)
    return tuple(found.values())


def masked_of_schema(schema: Schema) -> tuple[str, ...]:
    """Return the fields of a schema, groups included, that contain nulls for denied values: dotted paths."""
    chains = (chain for _, chain in schema.walk_leaves())
    found = (logical for chain in chains for logical, _, node in chain if MASKED_TAG in node.tags)
    return tuple(join_dotted(path) for path in dict.fromkeys(found))


def split_tags(text: str, where: str) -> tuple[str, ...]:
    """Split comma-separated tags.

    Raises:
        PlanError: a name between the commas is empty; the message names ``where``.
    """
    names = tuple(part.strip() for part in text.split(","))
    if not all(names):
        raise PlanError(f"{where}: {show(text)} is not a list of tags; write names with commas, such as 'pii,contact'")
    return names


def tags_of_properties(properties: Mapping[str, str]) -> tuple[TaggedColumn, ...]:
    """Return the tags in a table's properties, ``parquet.sparkcrypt.tags.<column path>`` = ``pii,contact``.

    A blank value is no tag: Spark cannot remove an option of a ``USING parquet`` table, only blank it.
    """
    return tuple(
        TaggedColumn(_path_of(name, TAGS_PREFIX), split_tags(value, f"table property {name}"), "table property")
        for name, value in sorted(properties.items())
        if name.startswith(TAGS_PREFIX) and value.strip()
    )


def _path_of(name: str, prefix: str) -> Path:
    try:
        return split_dotted(name[len(prefix) :])
    except PlanError as error:
        raise PlanError(f"table property {name}: {error}") from error


def tag_property(path: Path) -> str:
    """Return the name of the table property that holds a column's tags."""
    return TAGS_PREFIX + property_name(path)


def history_property(path: Path) -> str:
    """Return the name of the table property that holds what readers still accept for a column."""
    return HISTORY_PREFIX + property_name(path)


def history_of_properties(properties: Mapping[str, str]) -> dict[Path, tuple[str, ...]]:
    """Return what readers still accept per column: percent-encoded key ids, or ``plaintext``."""
    found: dict[Path, tuple[str, ...]] = {}
    for name, value in sorted(properties.items()):
        if name.startswith(HISTORY_PREFIX) and value.strip():
            path = _path_of(name, HISTORY_PREFIX)
            found[path] = tuple(dict.fromkeys((*found.get(path, ()), *split_tags(value, f"table property {name}"))))
    return found


def tags_of_overlay(overlay: Mapping[str, tuple[str, ...]]) -> tuple[TaggedColumn, ...]:
    """Return the tags of a policy's overlay for a table: dotted column path -> tags."""
    return tuple(TaggedColumn(split_dotted(path), tags, "overlay") for path, tags in sorted(overlay.items()))


def tags_of_avro(schema: Schema) -> tuple[TaggedColumn, ...]:
    """Return the tagged columns of a schema that came from Avro."""
    return tags_of_schema(schema, "avro schema")


def given_tags(tags: ColumnTags | None, avro: Schema | None) -> dict[Path, tuple[str, ...]]:
    """Return column path -> tags, of those that a user wrote and of those of an Avro schema.

    Raises:
        PlanError: there is no tag at all, or none for a column, or what is given as tags of a column is none.
    """
    found = {} if avro is None else {column.path: column.tags for column in tags_of_avro(avro)}
    for column, names in (tags or {}).items():
        path, own = split_dotted(column), tags_from_metadata(names if isinstance(names, str) else [*names], column)
        if not own:
            raise PlanError(f"column {column}: no tag is given; leave it out, or give one, such as 'pii'")
        found[path] = tuple(dict.fromkeys((*found.get(path, ()), *own)))
    if not found:
        raise PlanError("no tag is given; allowed: {'email': 'pii'}, or avro=… with a schema that has confluent:tags")
    return found


def unite_tags(
    *,
    schemas: Iterable[Schema] = (),
    properties: Mapping[str, str] | None = None,
    avro: Iterable[Schema | None] = (),
    overlay: Iterable[tuple[str, tuple[str, ...]]] = (),
    known: Iterable[TaggedColumn] = (),
) -> tuple[TaggedColumn, ...]:
    """Return the tags of all sources, each with its own source; a column may have some from several.

    Args:
        schemas: schemas whose fields carry tags.
        properties: properties of a table, or of a writer's or reader's configuration.
        avro: Avro schemas; None is ignored.
        overlay: a policy's overlay for the table: dotted column path, tags.
        known: tags that were united before.

    Raises:
        PlanError: a property is not a list of tags.
    """
    return (
        *(tag for schema in schemas for tag in tags_of_schema(schema)),
        *known,
        *tags_of_properties(properties or {}),
        *(tag for schema in avro if schema is not None for tag in tags_of_avro(schema)),
        *tags_of_overlay(dict(overlay)),
    )

"""The one place where the tags of a column are united, since each source of tags can lose them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sparkcrypt.schema import Schema
from sparkcrypt.tags.avro import tags_of_avro
from sparkcrypt.tags.model import TaggedColumn, tags_of_overlay, tags_of_properties, tags_of_schema


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

"""The one place where the tags of a column are united: each place that may hold them can lose them."""

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
    """Return the tags of all places, each with its own source; a column may have some from several.

    Args:
        schemas: whose fields carry tags.
        properties: of a table, or of a writer's or reader's configuration.
        avro: Avro schemas; None is skipped.
        overlay: what a policy lays over the table: dotted column path, tags.
        known: tags that were united before.

    Raises:
        PlanError: a property is no list of tags.
    """
    return (
        *(tag for schema in schemas for tag in tags_of_schema(schema)),
        *known,
        *tags_of_properties(properties or {}),
        *(tag for schema in avro if schema is not None for tag in tags_of_avro(schema)),
        *tags_of_overlay(dict(overlay)),
    )

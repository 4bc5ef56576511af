"""Where tags come from: schema metadata, table properties, Avro schemas, a policy's overlay."""

from sparkcrypt.tags.model import (
    Source,
    TaggedColumn,
    history_of_properties,
    history_property,
    tag_property,
    tags_of_overlay,
    tags_of_properties,
    tags_of_schema,
)

__all__ = [
    "Source",
    "TaggedColumn",
    "history_of_properties",
    "history_property",
    "tag_property",
    "tags_of_overlay",
    "tags_of_properties",
    "tags_of_schema",
]

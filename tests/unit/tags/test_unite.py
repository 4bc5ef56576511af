"""Tags of all places together: each keeps its source, whichever places there are."""

from __future__ import annotations

import json

from sparkcrypt.schema import schema_from_spark
from sparkcrypt.tags.avro import schema_from_avro
from sparkcrypt.tags.model import TaggedColumn, unite_tags

FIELD = {"name": "email", "type": "string", "nullable": True, "metadata": {"tags": ["pii"]}}
SCHEMA = schema_from_spark(json.dumps({"type": "struct", "fields": [FIELD]}))
AVRO = schema_from_avro(
    json.dumps(
        {"type": "record", "name": "r", "fields": [{"name": "email", "type": "string", "confluent:tags": ["contact"]}]}
    ),
    where="r.avsc",
)


def test_tags_of_every_place_are_united_under_their_own_source() -> None:
    """A column may have tags from several places, and none of them hides another."""
    known = TaggedColumn(("id",), ("key",), "table property")
    found = unite_tags(
        schemas=[SCHEMA],
        properties={"parquet.sparkcrypt.tags.email": "fin", "other": "x"},
        avro=[AVRO, None],
        overlay=(("email", ("secret",)),),
        known=[known],
    )
    assert found == (
        TaggedColumn(("email",), ("pii",), "schema metadata"),
        known,
        TaggedColumn(("email",), ("fin",), "table property"),
        TaggedColumn(("email",), ("contact",), "avro schema"),
        TaggedColumn(("email",), ("secret",), "overlay"),
    )


def test_no_place_is_no_tag() -> None:
    """Places that are not there are passed over."""
    assert unite_tags() == unite_tags(avro=[None]) == ()

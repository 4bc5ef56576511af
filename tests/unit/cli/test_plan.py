from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import run


def field(name: str, *tags: str) -> dict[str, object]:
    """Return a text column of a Spark schema."""
    return {"name": name, "type": "string", "nullable": True, "metadata": {"tags": list(tags)} if tags else {}}


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    """A Spark schema with a tagged column, an untagged one and a partition column."""
    path = tmp_path / "schema.json"
    path.write_text(json.dumps({"type": "struct", "fields": [field("ssn", "pii"), field("email"), field("day")]}))
    return path


@pytest.fixture
def avro(tmp_path: Path) -> Path:
    """An Avro schema that tags ``email``."""
    path = tmp_path / "customer.avsc"
    fields = [{"name": "ssn", "type": "string"}, {"name": "email", "type": "string", "confluent:tags": ["pii"]}]
    path.write_text(json.dumps({"type": "record", "name": "customer", "fields": fields}))
    return path


def keys_of(document: dict[str, Any]) -> dict[str, Any]:
    """Return column -> key id."""
    return {column["column"]: column["key_id"] for column in document["columns"]}


def test_a_spark_schema_is_planned_without_spark(policy: Path, schema: Path) -> None:
    """A schema's own tags decide; nothing else is needed."""
    done = run("plan", "--schema", schema, "--policy", policy, "--json")
    assert done.code == 0
    assert keys_of(done.document) == {"ssn": "pii", "email": None, "day": None}


def test_partition_columns_are_in_no_file(policy: Path, schema: Path) -> None:
    """A partition column is left out of the plan, and may stand in key templates."""
    tagged = schema.parent / "tagged.json"
    tagged.write_text(schema.read_text().replace('"metadata": {}', '"metadata": {"tags": "contact"}', 1))
    done = run("plan", "--schema", tagged, "--policy", policy, "--json", "--partition-column", "day")
    assert keys_of(done.document) == {"ssn": "pii", "email": "contact-{day:%Y-%m}"}
    refused = run("plan", "--schema", tagged, "--policy", policy)
    assert refused.code == 65
    assert "day" in refused.errors


def test_a_named_table_brings_its_overlay(policy: Path, schema: Path) -> None:
    """With --table the tags that the policy lays over that table count."""
    done = run("plan", "--schema", schema, "--table", "sales.customers", "--policy", policy, "--json")
    assert keys_of(done.document)["email"] == "pii"


def test_an_avro_schema_alone_is_a_schema(policy: Path, avro: Path) -> None:
    """An .avsc file gives columns and tags."""
    done = run("plan", "--avro-schema", avro, "--policy", policy, "--json")
    assert keys_of(done.document) == {"ssn": None, "email": "pii"}


def test_both_schemas_tags_are_united(policy: Path, schema: Path, avro: Path) -> None:
    """Tags of the Spark schema and of the Avro schema count together."""
    done = run("plan", "--schema", schema, "--avro-schema", avro, "--policy", policy, "--json")
    assert keys_of(done.document) == {"ssn": "pii", "email": "pii", "day": None}


def test_the_text_is_the_plans_table(policy: Path, schema: Path) -> None:
    """For a person the plan is a table with the reason of each line."""
    lines = run("plan", "--schema", schema, "--policy", policy).output.splitlines()
    assert lines[0].startswith("files: 1 of 3 columns encrypted")
    assert lines[1].split() == ["column", "tags", "from", "key", "why"]


@pytest.mark.parametrize("content", ["", "[]", '{"type": "struct"}', "\xff"])
def test_what_is_no_schema_is_65(policy: Path, tmp_path: Path, content: str) -> None:
    """A file that is no schema makes no plan."""
    path = tmp_path / "schema.json"
    path.write_bytes(content.encode("latin-1"))
    assert run("plan", "--schema", path, "--policy", policy).code == 65


def test_a_schema_file_that_is_not_there_is_65(policy: Path, tmp_path: Path) -> None:
    """Its path is named."""
    done = run("plan", "--schema", tmp_path / "nosuch.json", "--policy", policy)
    assert done.code == 65
    assert "nosuch.json" in done.errors


def test_an_unknown_tag_is_65(policy: Path, schema: Path) -> None:
    """A tag that the policy does not define is refused with the column's name."""
    schema.write_text(schema.read_text().replace("pii", "pi"))
    done = run("plan", "--schema", schema, "--policy", policy)
    assert done.code == 65
    assert "column ssn" in done.errors


def test_tags_of_an_avro_schema_are_shown_without_spark(avro: Path) -> None:
    """`tags show --avro-schema` lists column, tags and source."""
    done = run("tags", "show", "--avro-schema", avro, "--json")
    assert done.document == {
        "table": None,
        "tags": [{"column": "email", "tags": ["pii"], "source": "avro schema"}],
        "warnings": [],
    }
    assert run("tags", "show", "--avro-schema", avro).output.splitlines()[1].split() == [
        "email",
        "pii",
        "avro",
        "schema",
    ]
